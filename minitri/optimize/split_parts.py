"""Two-step reductions: computes the parts of an axis, then puts them together.

    max x                   max over parts of (max of a part)
    sum exp(x - max x)      sum over parts of (sum of exp(x - own max)) * exp(own max - max)
    argmax x                the part with the largest max, and its argmax

In: a reduction, or a product, which is one, and how long a part is. Out: nodes for the parts, and for
what they come to together. A reduction that follows another one of the same elements follows the part's
own maximum or mean, and is transported (minitri/optimize/online_reductions/transport.py) to that of all parts.

While a part has nothing but -inf its maximum is taken for 0 (-inf - -inf is nan) and its factor for 1;
one more factor leads from there to the true maximum in the end. Where the parts do not come out even the
axis is padded: with -inf what an exponential is of, which is 0 then, else with the neutral element what
is reduced.

Left out: which reductions are worth it, and how many parts (split_reduction.py, split_kv.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from minitri.base import dims
from minitri.base.dims import Dim
from minitri.base.extremes import smallest
from minitri.base.operators import neutral
from minitri.base.types import DType, bool_, i64
from minitri.graph.ir import Contract, Interner, Node, Reduce, Scan, Shape, View, axis, axis_symbol, operands, pick
from minitri.graph.scalar_form import Axes, Element, GraphTerms, build
from minitri.optimize.online_reductions.transport import Reduced, Refused, Rescale, Shift, transport

WAVES = 8  # programs for each multiprocessor that parts are made for
LANES = 64  # results that one program makes side by side, at least


class Cut:
    """A reduction whose axis k becomes (part, place in it): the places are reduced first, the parts after.
    `looped`: it shares its loop with a product."""

    def __init__(self, i: Interner, node: Reduce, k: int, parts: int, length: Dim, looped: bool = False) -> None:
        self.i, self.node, self.k, self.parts, self.length, self.looped = i, node, k, parts, length, looped
        self.extent = node.x.shape[k]
        self.missing = parts * length - self.extent
        self.place = k - sum(1 for a in node.axes if a < k)  # of the parts among what is left
        self.x = self.in_parts(node.x)  # what is reduced
        self.first: Node = node  # the parts, once they are made
        self.found: Rescale[Element] | None = None  # how a sum follows a maximum

    def made(self) -> Node:
        """The whole reduction, of parts that follow nothing."""
        return self.merged(self.partial(self.x))

    def in_parts(self, x: Node) -> View:
        """An array like what is reduced, with its padding and with two axes for axis k."""
        x = padded(self.i, x, self.k, self.missing, neutral(self.node.op, x.dtype))
        return in_parts(self.i, x, self.k, self.parts, self.length)

    @property
    def own(self) -> tuple[Dim, ...]:
        """Where the result of the part that an element lies in is among the parts."""
        index = [axis(j + (j > self.k)) for j in range(self.node.x.rank) if j not in self.node.axes]
        return (*index[: self.place], axis(self.k), *index[self.place :])

    def partial(self, x: Node) -> Node:
        """Each part reduced by itself, of what is in parts."""
        self.first = self._reduced(x, self.node.op, self.node.dtype)
        return self.first

    def _reduced(self, x: Node, op: str, dtype: DType) -> Node:
        inner = tuple(a if a < self.k else a + 1 for a in self.node.axes)
        left = tuple(e for j, e in enumerate(self.x.shape) if j not in inner)
        return self.i.reduce(op, dtype, left, x, inner)

    def position(self) -> Node:
        """argmax or argmin: the part that has the best value, and its place in that. Both times the first of equal
        ones is taken, and the first nan before any number."""
        i, op, x = self.i, self.node.op, self.x
        part = self.merged(self._reduced(x, op.removeprefix("arg"), x.dtype))
        index = [axis(n) for n in range(part.rank)]
        index.insert(self.place, pick(0))
        place = i.gather(self._reduced(x, op, i64), part.shape, tuple(index), (part,))
        length = i.view(i.const(int(self.length), i64), part.shape, ())
        return compute(i, "add", compute(i, "multiply", part, length), place)

    def merged(self, parts: Node) -> Node:
        return self.i.reduce(self.node.op, self.node.dtype, self.node.shape, parts, (self.place,))


Cuts = Mapping[Node, Cut]  # by what a reduction comes to


def padded(i: Interner, x: Node, k: int, missing: Dim, value: float | bool) -> Node:
    """x with `missing` more elements of this value along axis k."""
    if missing == 0:
        return x
    tail = i.view(i.const(value, x.dtype), (*x.shape[:k], missing, *x.shape[k + 1 :]), ())
    return i.concat((*x.shape[:k], x.shape[k] + missing, *x.shape[k + 1 :]), (x, tail), k)


def in_parts(i: Interner, x: Node, k: int, parts: int, length: Dim) -> View:
    """x with two axes for axis k: the part, and the place in it."""
    shape = (*x.shape[:k], Dim.of(parts), length, *x.shape[k + 1 :])
    place = axis(k) * length + axis(k + 1)
    return i.view(x, shape, (*map(axis, range(k)), place, *map(axis, range(k + 2, x.rank + 1))))


def contract_in_parts(i: Interner, node: Contract, a: Node, b: Node, parts: int, length: Dim) -> Node:
    """[*B, M, K] x [*B, K, N] as [*B, part, M, length] x [*B, part, length, N]; `a` is in parts already."""
    shape = (*node.shape[:-2], Dim.of(parts), *node.shape[-2:])
    return i.contract(node.dtype, shape, a, in_parts(i, b, node.rank - 2, parts, length), node.precision)


def made_of(root: Node) -> Iterator[Node]:
    """What a node is made of by elements, up to products, reductions and scans."""
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        yield node
        fresh = [o for o in operands(node) if o not in seen and not isinstance(node, (Contract, Reduce, Scan))]
        seen |= {*fresh}
        stack += fresh


def transported(
    terms: GraphTerms, root: Element, needs: Sequence[Reduced[Element]]
) -> Rescale[Element] | Shift[Element] | None:
    """How a sum follows the reductions that it needs, if it can."""
    try:
        return transport(terms, root, needs)
    except Refused:
        return None


def terms_of(x: Node, axes: tuple[int, ...], cuts: Cuts, permuted: bool = False) -> GraphTerms:
    """What is reduced, with the reductions that are cut known for what they are."""
    return GraphTerms(x, axes, {y: c.node for y, c in cuts.items()}, permuted)


def only_exponentials(terms: GraphTerms, root: Element, y: Reduced[Element]) -> bool:
    """Whether what changes along the reduced axes is what the maximum is of, and nothing else."""
    stack, seen = [root], {root, y.x, y.y}
    while stack:
        e = stack.pop()
        operands = terms.look(e)[1]
        if not operands and e not in (y.x, y.y) and terms.varies(e):
            return False
        stack += [o for o in operands if o not in seen]
        seen |= {*operands}
    return True


@dataclass(frozen=True)
class Following:
    """Sums that follow a reduction that is cut, in the same parts: their expression."""

    i: Interner
    terms: GraphTerms
    cuts: Cuts

    # ---- a maximum -------------------------------------------------------------------

    def rescaled(self, cut: Cut, found: Rescale[Element]) -> Node:
        """A sum that follows a maximum."""
        cut.found = found
        partial = cut.partial(self.with_own(self.terms.root, found, cut))
        return self.merged(found, partial, self._maximum(found).first, cut.place)

    def _maximum(self, found: Rescale[Element]) -> Cut:
        return self.cuts[found.y.y.node]

    def with_own(self, root: Element, found: Rescale[Element], cut: Cut) -> Node:
        """An expression of the maximum of the part that an element lies in, in parts."""
        y, maximum = found.y, self._maximum(found)
        if cut.missing != 0 and not only_exponentials(self.terms, root, y):
            own = self._of_own_part(finite(self.i, maximum.first), cut)
            return cut.in_parts(build(self.i, self.terms, root, cut.node.x.shape, {}, {y.y: own}))
        own = self.i.view(finite(self.i, maximum.first), cut.x.shape, cut.own)
        at = self._axes_in(cut, self.terms.places(y.y) or ())
        return build(self.i, self.terms, root, cut.x.shape, at, {y.x: maximum.x, y.y: own})

    def _axes_in(self, cut: Cut, places: tuple[Dim, ...]) -> Axes:
        """Where the axes of the operand are in what `cut` has in parts, which has them at these places."""
        unit: Axes = {axis_symbol(k): dims.ZERO for k, n in enumerate(self.terms.x.shape) if n == 1}
        return {**unit, **{s: cut.x.index[k] for k, d in enumerate(places) for s in d.symbols() if s.kind == "axis"}}

    def _of_own_part(self, of_parts: Node, cut: Cut) -> Node:
        """A value of the part that an element of the whole lies in."""
        index = [axis(j) for j in self.terms.kept]
        index.insert(cut.place, axis(cut.k) // cut.length)
        return self.i.view(of_parts, cut.node.x.shape, tuple(index))

    def merged(self, found: Rescale[Element], partial: Node, parts: Node, place: int) -> Node:
        """The sum of partial sums, each with the maximum of its own part (`parts`, of the same shape), whose axis
        `place` are the parts."""
        i, shape = self.i, partial.shape
        whole = i.reduce("max", parts.dtype, (*shape[:place], *shape[place + 1 :]), parts, (place,))
        all_ = finite(i, whole)
        over = i.view(all_, shape, tuple(axis(n + (n >= place)) for n in range(all_.rank)))
        factor = self._factor(found, finite(i, parts), over, place)
        factor = compute(i, "where", _is_bottom(i, parts), constant(i, factor, 1.0), factor)
        total = i.reduce("sum", partial.dtype, whole.shape, compute(i, "multiply", partial, factor), (place,))
        return compute(i, "multiply", total, self._factor(found, all_, whole))

    def _factor(self, found: Rescale[Element], old: Node, new: Node, place: int | None = None) -> Node:
        """The product of exp(h(old) - h(new)); `place`: of the parts among the axes, if they are there."""
        i, at = self.i, self._axes(place)

        def factor(h: Element) -> Node:
            before, after = (build(i, self.terms, h, y.shape, at, {found.y.y: y}) for y in (old, new))
            return compute(i, "exp", compute(i, "subtract", before, after))

        return reduce(lambda a, b: compute(i, "multiply", a, b), map(factor, found.shifts))

    def _axes(self, place: int | None) -> Axes:
        """Where the axes of the operand that are kept are, with the parts among them."""
        kept = enumerate(self.terms.kept)
        return {axis_symbol(k): axis(n + (place is not None and n >= place)) for n, k in kept}

    # ---- means -----------------------------------------------------------------------

    def shifted(self, cut: Cut, found: Shift[Element]) -> Node:
        """A sum of products of deviations from means."""
        i, counts = self.i, self._counts(cut)
        own = {m: compute(i, "divide", self.cuts[m.y.y.node].first, counts) for m in dict.fromkeys(found.means)}
        x = cut.node.x
        given = {m.mean: self._of_own_part(mean, cut) for m, mean in own.items()}
        partial = cut.partial(cut.in_parts(build(i, self.terms, self.terms.root, x.shape, {}, given)))
        at = self._axes(cut.place)
        whole = {m: build(i, self.terms, m.mean, partial.shape, at, {}) for m in own}
        first, second = (compute(i, "subtract", own[m], whole[m]) for m in found.means)
        shift = compute(i, "multiply", compute(i, "multiply", first, second), counts)
        return cut.merged(compute(i, "add", partial, shift))

    def _counts(self, cut: Cut) -> Node:
        """How many elements each part has."""
        left = cut.node.shape
        shape = (*left[: cut.place], Dim.of(cut.parts), *left[cut.place :])
        rest = self.terms.count // cut.extent
        if cut.missing == 0:
            return self.i.view(self.i.const(int(rest * cut.length), cut.node.dtype), shape, ())
        length = smallest(cut.length, cut.extent - axis(cut.place) * cut.length)
        return self.i.apply("cast", cut.node.dtype, shape, (self.i.index(i64, shape, length * rest),))


class FollowingProduct(Following):
    """A product whose first factor follows a maximum along the axis that is summed."""

    def product(
        self, node: Contract, found: Rescale[Element], numerator: Element, divisor: Element | None, over: Element
    ) -> Node:
        """`node` by parts. Its first factor, `over` its conversions, is `numerator / divisor`."""
        cut, lead = self._maximum(found), node.rank - 2
        a = self.with_own(numerator, found, cut)
        a = build(self.i, self.terms, self.terms.root, a.shape, {}, {over: a})
        places = self.terms.places(found.y.y) or ()
        partial = self._partial(node, a, padded(self.i, node.b, lead, cut.missing, 0.0), cut, places)
        maxima = self._wide(cut, cut.first, partial.shape, places)
        result = self.merged(found, partial, maxima, lead)
        if divisor is None:
            return result
        sums = self.cuts[divisor.node]
        assert sums.found is not None
        total = self.merged(sums.found, self._wide(cut, sums.first, partial.shape, places), maxima, lead)
        return compute(self.i, "divide", result, total)

    def _partial(self, node: Contract, a: Node, b: Node, cut: Cut, places: tuple[Dim, ...]) -> Node:
        """The products of the parts; `a` is in parts as `cut` is."""
        *batch, m, _ = node.shape
        lead = len(batch)
        index = self._behind_parts(places, lead)
        index[cut.k : cut.k + 1] = [axis(lead), axis(lead + 2)]
        rows = self.i.view(a, (*batch, Dim.of(cut.parts), m, cut.length), tuple(index))
        return contract_in_parts(self.i, node, rows, b, cut.parts, cut.length)

    def _wide(self, cut: Cut, of_parts: Node, shape: Shape, places: tuple[Dim, ...]) -> Node:
        """What each part came to, for each column of [*B, part, M, N]: so that one kernel merges both."""
        lead = len(shape) - 3
        index = [d for k, d in enumerate(self._behind_parts(places, lead)) if k not in cut.node.axes]
        return self.i.view(of_parts, shape, (*index[: cut.place], axis(lead), *index[cut.place :]))

    def _behind_parts(self, places: tuple[Dim, ...], lead: int) -> list[Dim]:
        """The places, with the parts before the rows."""
        return [d.substitute({axis_symbol(lead): axis(lead + 1)}) for d in places]


def finite(i: Interner, y: Node) -> Node:
    """0 where a maximum has seen nothing but -inf."""
    return compute(i, "where", _is_bottom(i, y), constant(i, y, 0.0), y)


def _is_bottom(i: Interner, y: Node) -> Node:
    return i.apply("equal", bool_, y.shape, (y, constant(i, y, neutral("max", y.dtype))))


def constant(i: Interner, like: Node, value: float) -> Node:
    return i.view(i.const(value, like.dtype), like.shape, ())


def compute(i: Interner, name: str, *args: Node) -> Node:
    return i.apply(name, args[-1].dtype, args[-1].shape, args)
