"""Two-step reductions: reduces the parts of an axis, then combines the results.

    max x                   max over parts of (max of a part)
    sum exp(x - max x)      sum over parts of (sum of exp(x - own max)) * exp(own max - max)
    argmax x                the part with the largest max, and its argmax

A `Cut` describes a reduction, the axis to split, and the length of a part. The method `Cut.made` makes nodes that
reduce each part, and nodes that combine the results of all parts. The function `contract_in_parts` computes a matrix
product for each part of the summed axis.

A sum can depend on the maximum or the mean of the same elements. The sum over a part of the axis first uses the maximum
or mean of this part only (called *own* in the code). Before the partial sums are combined, each partial sum is
corrected for the maximum or mean of all elements. The correction of a partial sum is called a transport
(minitri/graph/partial_sum_correction.py).

If all elements of a part are -inf, exp(-inf - -inf) would be nan. A part whose maximum is -inf uses 0 as its maximum,
and 1 as its correction factor. If all elements of x are -inf, the sum of exp(x - 0) over each part is 0. If x contains
only -inf, the sums of the parts are multiplied by exp(0 - -inf), and 0 * inf is nan. Without the split, the result is
nan as well if all elements are -inf. If the last part would be shorter than the other parts, the axis is padded. The
operand of an exponential is padded with -inf, so that the exponential is 0. An operand that is not the argument of an
exponential is padded with the neutral element of the reduction.

The modules split_reduction.py, split_kv.py, split_k.py and split_scan.py decide which nodes to split, and into how many
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce

from minitri.base.dims import ZERO, Dim, product
from minitri.base.nodes import Record
from minitri.base.operators import POSITIONS, neutral
from minitri.base.symbolic_minmax import smallest
from minitri.base.types import bool_, i64
from minitri.graph import ir
from minitri.graph.ir import Concat, Contract, Graph, Interner, Node, Reduce, View, axis, axis_symbol
from minitri.graph.partial_sum_correction import Reduced, Rescale, Shift, above
from minitri.graph.rewrite import compute, number, rewritten
from minitri.graph.scalar_form import Axes, Element, GraphTerms, build

WAVES = 8  # the number of programs for each multiprocessor that splitting aims at
LANES = 64  # the fewest neighbouring results that one program computes

Halves = tuple[Node, int, Dim]  # the nodes that replace a node, the number of parts, and the elements of each


def split(graph: Graph, by: Callable[..., Graph], rule: Callable[..., Halves | None], *kinds: type[Node]) -> Graph:
    """Splits some nodes of a graph, such as long reductions, into parts. Returns the new graph. Only nodes of the types
    `kinds` can be split. The field `splits` of the graph lists the split nodes.

    The function `rule` gets three arguments: the interner that makes new nodes, a node of the old graph, and the node's
    copy in the new graph. If `rule` returns None, the node is not split. The argument `by` is the main function of the
    pass that calls `split`. For each split node, reports show the name of this function.
    """
    splits: list[ir.Split] = []
    if not any(isinstance(node, kinds) for node in graph.nodes()):
        return graph

    def recorded(i: Interner, node: Node, made: Node) -> Node | None:
        halves = rule(i, node, made) if isinstance(made, kinds) else None
        splits.extend([ir.Split(made, *halves[1:])] if halves else [])
        return halves and halves[0]

    changed = rewritten(graph, by, recorded)
    return replace(changed, splits=(*graph.splits, *splits)) if splits else graph


class Cut:
    """A reduction that is split into two steps. Axis k of the operand is replaced by two axes: one counts the parts,
    and one counts the elements of a part. The first step reduces the elements of each part, and the second step reduces
    the results of all parts.
    """

    def __init__(self, i: Interner, node: Reduce, k: int, parts: int, length: Dim) -> None:
        self.i, self.node, self.k, self.parts, self.length = i, node, k, parts, length
        self.extent = node.x.shape[k]
        self.missing = parts * length - self.extent
        self.place = k - sum(1 for a in node.axes if a < k)  # the axis of the parts among the axes that are kept
        self.x = self.in_parts(node.x)
        self.first: Node = node  # the results of the parts, once `partial` has built them
        self.found: Rescale[Element] | None = None  # the transport of a sum that follows a maximum

    def made(self, cuts: dict[Node, Cut]) -> Halves:
        """Makes the nodes for both steps of a split reduction. Adds an entry for the split reduction to the dict
        `cuts`.

        A sum can depend on a maximum or mean that is computed in parts. Each part of the sum then uses the maximum or
        mean of the same part. If partial sums cannot be corrected, the sum reads all elements again after the maximum
        or mean of all elements has been computed.
        """
        elements = self.length * product([self.node.x.shape[a] for a in self.node.axes if a != self.k])
        if self.node.op in POSITIONS:
            return self.position(), self.parts, elements
        terms = terms_of(self.node.x, self.node.axes, cuts)
        needs = [y for y in terms.needs() if y.y.node in cuts]
        result = Following(self.i, terms, cuts).made(self, needs) if needs and self.node.op == "sum" else None
        result = result or self.merged(self.partial(self.x))
        if not needs or self.found is not None:
            cuts[result] = self
        return result, self.parts, elements

    def in_parts(self, x: Node) -> View:
        """Pads axis k of `x`, and splits axis k into an axis of parts and an axis of the elements inside a part."""
        return in_parts(self.i, x, self.k, self.parts, self.length, neutral(self.node.op, x.dtype))

    def of_own_part(self, of_parts: Node, whole: bool = True) -> Node:
        """Broadcasts `of_parts`, an array with one value for each part of the split axis, to the shape of the operand.
        If `whole` is False, the result has the shape in which axis k is split into two axes.
        """
        x, part = (self.node.x, axis(self.k) // self.length) if whole else (self.x, axis(self.k))
        kept = [j for j in range(self.node.x.rank) if j not in self.node.axes]
        index = [axis(j if whole or j < self.k else j + 1) for j in kept]
        index.insert(self.place, part)
        return self.i.view(of_parts, x.shape, tuple(index))

    def partial(self, x: Node) -> Node:
        """Returns the result of the reduction for each part. The argument `x` has two axes in place of axis k: the
        parts, and the elements of a part.
        """
        self.first = self._reduced(x, self.node.op)
        return self.first

    def _reduced(self, x: Node, op: str) -> Node:
        inner = tuple(a if a < self.k else a + 1 for a in self.node.axes)
        if self.length == 1:  # the only element of a part needs no axis
            inner = tuple(a for a in self.node.axes if a != self.k)
            index = (ZERO if j == self.k + 1 else axis(j - (j > self.k)) for j in range(x.rank))
            x = self.i.view(x, self.node.x.shape, tuple(index))
        return self.i.reduce(op, x, inner)

    def position(self) -> Node:
        """Returns the result of argmax or argmin. Finds the part with the best value, and then the index of this value
        inside the part.

        If several values are equally good, the result is the index of the first of these values. If there is a nan, the
        result is the index of the first nan.
        """
        i, op, x = self.i, self.node.op, self.x
        part = self.merged(self._reduced(x, op.removeprefix("arg")))
        index = [axis(n) for n in range(part.rank)]
        index.insert(self.place, ir.pick(0))
        place = i.gather(self._reduced(x, op), part.shape, tuple(index), (part,))
        length = i.view(i.const(int(self.length), i64), part.shape, ())
        return compute(i, "add", compute(i, "multiply", part, length), place)

    def merged(self, parts: Node) -> Node:
        """Returns a node that reduces the results of all parts to one result."""
        return self.i.reduce(self.node.op, parts, (self.place,))


Cuts = Mapping[Node, Cut]  # by the result of the reduction


def parts_of(extent: Dim, parts: int, step: int = 1) -> tuple[int, Dim]:
    """Returns how many parts cover an axis, and how long a part is. There are at most `parts` parts. The length of a
    part is a multiple of `step`. The last part of the axis can be shorter than the other parts.
    """
    length = (extent + (parts * step - 1)) // (parts * step) * step
    return parts if extent.constant is None else -(-extent.constant // int(length)), length


def padded(i: Interner, x: Node, k: int, missing: Dim, value: float | bool) -> Node:
    """Returns x with `missing` elements appended along axis k. Each appended element is equal to `value`. If x already
    ends with a padding of the same value, the function makes this padding longer instead of adding a second padding.
    Each padding costs one test for every element that a kernel loads.
    """
    if missing == 0:
        return x
    filling = i.const(value, x.dtype)
    match x:
        case Concat(axis=along, parts=(inner, View(x=end) as padding)) if along == k and end is filling:
            x, missing = inner, missing + padding.shape[k]
    tail = i.view(filling, (*x.shape[:k], missing, *x.shape[k + 1 :]), ())
    return i.concat((*x.shape[:k], x.shape[k] + missing, *x.shape[k + 1 :]), (x, tail), k)


def in_parts(i: Interner, x: Node, k: int, parts: int, length: Dim, fill: float | bool) -> View:
    """Returns x with axis k split into two axes: the first counts the parts, and the second counts the elements of a
    part. Elements past the end of x have the value `fill`.
    """
    x = padded(i, x, k, parts * length - x.shape[k], fill)
    shape = (*x.shape[:k], Dim.of(parts), length, *x.shape[k + 1 :])
    place = axis(k) * length + axis(k + 1)
    return i.view(x, shape, (*map(axis, range(k)), place, *map(axis, range(k + 2, x.rank + 1))))


def contract_in_parts(i: Interner, node: Contract, a: Node, parts: int, length: Dim) -> Node:
    """Splits the summed axis K of the product [*B, M, K] x [*B, K, N] into parts. Returns the product of each part:
    [*B, part, M, length] x [*B, part, length, N]. The factor `a` is already divided into parts.
    """
    return i.contract(a, in_parts(i, node.b, node.rank - 2, parts, length, 0.0), node.precision)


def made_of(root: Node) -> list[Node]:
    """Returns a node and its direct and indirect operands. The operands of products, reductions and scans are not among
    the returned nodes.
    """
    return ir.postorder([root], lambda node: () if isinstance(node, (Contract, Reduce, ir.Scan)) else ir.children(node))


def terms_of(x: Node, axes: tuple[int, ...], cuts: Cuts, permuted: bool = False) -> GraphTerms:
    """Returns the expression `x` that a reduction reduces along `axes`. If `x` uses a split reduction in `cuts`, the
    returned expression contains the original reduction instead.
    """
    return GraphTerms(x, axes, {y: c.node for y, c in cuts.items()}, permuted)


def only_exponentials(terms: GraphTerms, root: Element, y: Reduced[Element]) -> bool:
    """Checks whether only exponentials such as exp(x - max x) vary along the reduced axes in `root`. The result is
    False for w * exp(x - max x), because the array w varies, too. The result is also False for x * exp(x - max x).
    """
    depending = above(terms, root, [y.y])
    inside = ir.postorder([root], lambda e: () if e in depending and terms.look(e)[0] == "exp" else terms.look(e)[1])
    return not any(terms.varies(e) for e in inside if e != y.y and not terms.look(e)[1])


class Following(Record):
    """Splits a sum into the same parts as the reductions inside the sum, such as a maximum.

    The field `terms` is the expression that is summed.
    """

    i: Interner
    terms: GraphTerms
    cuts: Cuts

    def made(self, cut: Cut, needs: list[Reduced[Element]]) -> Node | None:
        """Returns the sum, computed from the sums of the parts that `cut` describes. The argument `needs` lists the
        split reductions that the summed expression uses, such as a maximum. Returns None if the partial sums cannot be
        corrected, or if another reduction in `needs` is split at other indices than the sum.
        """
        found = self.terms.transport(self.terms.root, needs)
        theirs = [self.cuts[y.y.node] for y in needs]
        if found is None or any((c.k, c.length) != (cut.k, cut.length) for c in theirs):
            return None
        if isinstance(found, Shift):
            return self.shifted(cut, found)
        cut.found = found
        partial = cut.partial(self.with_own(self.terms.root, found, cut))
        return self.merged(found, partial, self.cuts[found.y.y.node].first, cut.place)

    # ---- a maximum -------------------------------------------------------------------

    def with_own(self, root: Element, found: Rescale[Element], cut: Cut) -> Node:
        """Returns the expression `root`, such as exp(x - max x), with the maximum of each part in place of the maximum
        of all elements.
        """
        y, maximum = found.y, self.cuts[found.y.y.node]
        if cut.missing != 0 and not only_exponentials(self.terms, root, y):
            own = cut.of_own_part(finite(self.i, maximum.first))
            return cut.in_parts(build(self.i, self.terms, root, cut.node.x.shape, {}, {y.y: own}))
        own = cut.of_own_part(finite(self.i, maximum.first), whole=False)
        at = self._axes_in(cut, self.terms.places(y.y) or ())
        return build(self.i, self.terms, root, cut.x.shape, at, {y.x: maximum.x, y.y: own})

    def _axes_in(self, cut: Cut, places: tuple[Dim, ...]) -> Axes:
        """Maps each axis of the summed expression to an index, such as `64*d1 + d2` for an axis that is split."""
        # `places` are the indices at which the expression reads the maximum's operand. In `cut.x`, one axis is split
        # into two: with parts of 64 elements, the axis d1 becomes d1 and d2, and its index is 64*d1 + d2.
        unit: Axes = {axis_symbol(k): ZERO for k, n in enumerate(self.terms.x.shape) if n == 1}
        return {**unit, **{s: cut.x.index[k] for k, d in enumerate(places) for s in d.symbols() if s.kind == "axis"}}

    def merged(self, found: Rescale[Element], partial: Node, parts: Node, place: int) -> Node:
        """Returns the sum of the partial sums. Each partial sum uses the maximum of its own part. Therefore each
        partial sum is first multiplied by a factor that corrects the sum for the maximum of all parts.

        The arrays `partial` (the sum of each part) and `parts` (the maximum of each part) have the same shape. Axis
        `place` of the arrays `partial` and `parts` has one index for each part.
        """
        i = self.i
        whole = i.reduce("max", parts, (place,))
        all_ = finite(i, whole)
        over = i.view(all_, partial.shape, tuple(axis(n + (n >= place)) for n in range(all_.rank)))
        factor = self._factor(found, finite(i, parts), over, place)
        factor = compute(i, "where", _is_bottom(i, parts), number(i, factor, 1.0), factor)
        total = i.reduce("sum", compute(i, "multiply", partial, factor), (place,))
        return compute(i, "multiply", total, self._factor(found, all_, whole))

    def _factor(self, found: Rescale[Element], old: Node, new: Node, place: int | None = None) -> Node:
        """Returns the factor that corrects a sum when its maximum changes from `old` to `new`."""
        i, at = self.i, self._axes(place)  # `place` is the axis with one index per part, or None

        def factor(h: Element) -> Node:
            # A sum of exp(x - m), where m is the maximum, is multiplied by exp(old - new). If a term is exp(x - h(m))
            # with a function h of the maximum, the factor is exp(h(old) - h(new)).
            before, after = (build(i, self.terms, h, y.shape, at, {found.y.y: y}) for y in (old, new))
            return compute(i, "exp", compute(i, "subtract", before, after))

        # If a term contains several exponentials, their factors are multiplied.
        return reduce(lambda a, b: compute(i, "multiply", a, b), map(factor, found.shifts))

    def _axes(self, place: int | None) -> Axes:
        """Maps each axis of the operand to the corresponding axis of the result. Reduced axes are left out."""
        # If the result has an axis of parts, `place` is the number of this axis.
        kept = enumerate(self.terms.kept)
        return {axis_symbol(k): axis(n + (place is not None and n >= place)) for n, k in kept}

    # ---- means -----------------------------------------------------------------------

    def shifted(self, cut: Cut, found: Shift[Element]) -> Node:
        """Returns a sum in which each term is the product of two deviations from a mean, such as the sum in a variance.
        For each part, a partial sum uses the deviations from the part's own means. Before the sums of the parts are
        added, each sum is corrected for the means of all elements.
        """
        i, counts = self.i, self._counts(cut)
        own = {m: compute(i, "divide", self.cuts[m.y.y.node].first, counts) for m in dict.fromkeys(found.means)}
        x = cut.node.x
        given = {m.mean: cut.of_own_part(mean) for m, mean in own.items()}
        partial = cut.partial(cut.in_parts(build(i, self.terms, self.terms.root, x.shape, {}, given)))
        at = self._axes(cut.place)
        whole = {m: build(i, self.terms, m.mean, partial.shape, at, {}) for m in own}
        first, second = (compute(i, "subtract", own[m], whole[m]) for m in found.means)
        shift = compute(i, "multiply", compute(i, "multiply", first, second), counts)
        return cut.merged(compute(i, "add", partial, shift))

    def _counts(self, cut: Cut) -> Node:
        """Returns the number of elements in each part."""
        shape = (*cut.node.shape[: cut.place], Dim.of(cut.parts), *cut.node.shape[cut.place :])
        rest = self.terms.count // cut.extent
        if cut.missing == 0:
            return self.i.view(self.i.const(int(rest * cut.length), cut.node.dtype), shape, ())
        length = smallest(cut.length, cut.extent - axis(cut.place) * cut.length)
        return self.i.apply("cast", cut.node.dtype, shape, (self.i.index(i64, shape, length * rest),))


def finite(i: Interner, y: Node) -> Node:
    """Returns `y` with 0 in place of -inf. A maximum is -inf if all compared elements are -inf."""
    return compute(i, "where", _is_bottom(i, y), number(i, y, 0.0), y)


def _is_bottom(i: Interner, y: Node) -> Node:
    return i.apply("equal", bool_, y.shape, (y, number(i, y, neutral("max", y.dtype))))
