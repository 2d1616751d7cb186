"""graph → graph: a long reduction with few results becomes two, so that it fills the GPU.

    %1: f32[] = reduce.sum x {axes = [0]}          x: f32[1048576]
becomes
    %0: f32[1024, 1024] = view x {index = [1024*d0 + d1]}
    %1: f32[1024] = reduce.sum %0 {axes = [1]}     one program a part
    %2: f32[] = reduce.sum %1 {axes = [0]}

A reduction that depends on another one of the same elements follows it (minitri/transport.py): a part
is reduced with the part's own maximum or mean, so that both read it once, and what comes out is
transported to that of all parts when they are put together:

    softmax     sum over parts of sum(exp(x - own max)) * exp(own max - max)
    variance    sum over parts of sum((x - own mean)**2) + count * (own mean - mean)**2

While a part has nothing but -inf its maximum is taken for 0 (-inf - -inf is nan) and its factor for 1;
one more factor leads from there to the true maximum in the end.

The order of additions is fixed by the sizes alone, so results are the same from run to run
(no atomics). Where the parts do not come out even the axis is padded with the reduction's
neutral element. Left out: argmax (it would need pairs), and sizes that are not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minitri import arrays, dims
from minitri.dims import Dim
from minitri.firing import fired
from minitri.graph.elements import Axes, Element, GraphTerms, build
from minitri.graph.ir import Apply, Contract, Graph, Input, Interner, Node, Reduce, Shape, View, axis, axis_symbol
from minitri.graph.rewrite import copy, rebuild
from minitri.graph.split_product import split_product
from minitri.transport import Mean, Refused, Rescale, Shift, transport
from minitri.types import bool_, i64

PROGRAMS = 1024  # about eight for each multiprocessor of a large GPU
LANES = 64  # results that one program makes side by side, at least
MOST_LOOKED_AT = 64  # nodes, to find what is reduced
SHORTEST = 4096  # reducing fewer elements is not worth a second kernel


def split(graph: Graph) -> Graph:
    cuts: dict[Node, _Cut] = {}  # reductions in two, by their result

    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = copy(interner, node, args)
        if isinstance(made, Contract):
            halves = split_product(interner, made)
        else:
            halves = _split(interner, made, cuts) if isinstance(made, Reduce) else made
        if halves is not made:
            fired(split, made, halves)
        return halves

    return rebuild(graph, make)


def _split(i: Interner, node: Reduce, cuts: dict[Node, _Cut]) -> Node:
    extents = [node.x.shape[k].constant for k in node.axes]
    results = dims.product(list(node.shape)).constant
    if node.op in ("argmax", "argmin") or results is None or any(e is None for e in extents):
        return node
    count = math.prod(e for e in extents if e is not None)
    parts = _parts(count, results, _is_strided(node))
    place = max(range(len(extents)), key=lambda k: (extents[k] or 0, -k))
    long = extents[place] or 0
    parts = _even(long, min(parts, long))
    if parts < 2:
        return node
    cut = _Cut(i, node, node.axes[place], long, parts)
    terms = GraphTerms(node, {y: c.node for y, c in cuts.items()})
    needs = [y for y in terms.needs() if y.y.node in cuts]
    if needs and node.op == "sum":
        try:
            found = transport(terms, terms.root, needs)
            return _Following(i, terms, cut, cuts).sum(found)
        except Refused:  # a second pass, with what the first one came to
            return cut.merged(cut.partial(node.x))
    result = cut.merged(cut.partial(node.x))
    if not needs:
        cuts[result] = cut
    return result


def _parts(count: int, results: int, strided: bool) -> int:
    """How many parts each result is made of."""
    programs = -(-results // LANES) if strided else results
    if count < SHORTEST or programs * 4 > PROGRAMS or programs == 0:
        return 1
    wanted = min(PROGRAMS // programs, count // 1024)
    return 1 << max(0, wanted.bit_length() - 1)


def _is_strided(node: Reduce) -> bool:
    """Whether the largest array or product that is reduced lies in memory along an axis that is kept."""
    largest, kept = -1, False
    stack: list[tuple[Node, tuple[Dim, ...]]] = [(node.x, tuple(map(axis, range(node.x.rank))))]
    for _ in range(MOST_LOOKED_AT):
        if not stack:
            break
        x, index = stack.pop()
        if isinstance(x, Apply):
            stack += [(a, index) for a in x.args]
        elif isinstance(x, View):
            here = {axis_symbol(k): d for k, d in enumerate(index)}
            stack.append((x.x, tuple(d.substitute(here) for d in x.index)))
        elif (
            isinstance(x, (Input, Contract))
            and x.rank
            and (size := dims.product(list(x.shape)).constant or 0) > largest
        ):
            along = {k for k in range(node.x.rank) if axis_symbol(k) in index[-1].symbols()}
            largest, kept = size, bool(along) and not along & set(node.axes)
    return kept if largest >= 0 else node.axes[-1] != node.x.rank - 1


def _even(extent: int, parts: int) -> int:
    """As many parts as come out even, if that is not less than half: nothing is padded then."""
    return next((n for n in range(parts, parts // 2, -1) if extent % n == 0), parts)


class _Cut:
    """A reduction whose axis k, of `extent` elements, becomes (part, place in it): the places are
    reduced first, the parts after."""

    def __init__(self, i: Interner, node: Reduce, k: int, extent: int, parts: int) -> None:
        self.i, self.node, self.k, self.extent = i, node, k, extent
        self.length = -(-extent // parts)
        self.parts = -(-extent // self.length)
        self.place = k - sum(1 for a in node.axes if a < k)  # of the parts among what is left
        self.first: Node = node  # the parts, once they are made

    @property
    def shape(self) -> Shape:
        """Of the parts."""
        return (*self.node.shape[: self.place], Dim.of(self.parts), *self.node.shape[self.place :])

    def partial(self, x: Node) -> Node:
        """Each part of x reduced by itself."""
        k = self.k
        x = self._padded(x)
        shape = (*x.shape[:k], Dim.of(self.parts), Dim.of(self.length), *x.shape[k + 1 :])
        index = tuple(
            axis(j) if j < k else axis(k) * self.length + axis(k + 1) if j == k else axis(j + 1) for j in range(x.rank)
        )
        inner = tuple(a if a < k else a + 1 for a in self.node.axes)
        shape_left = tuple(e for j, e in enumerate(shape) if j not in inner)
        self.first = self.i.reduce(self.node.op, self.node.dtype, shape_left, self.i.view(x, shape, index), inner)
        return self.first

    def merged(self, parts: Node) -> Node:
        return self.i.reduce(self.node.op, self.node.dtype, self.node.shape, parts, (self.place,))

    def _padded(self, x: Node) -> Node:
        k, node, missing = self.k, self.node, self.parts * self.length - self.extent
        if not missing:
            return x
        neutral = self.i.const(arrays.neutral(node.op, node.dtype), node.dtype)
        tail = self.i.view(neutral, (*x.shape[:k], Dim.of(missing), *x.shape[k + 1 :]), ())
        shape = (*x.shape[:k], x.shape[k] + missing, *x.shape[k + 1 :])
        return self.i.concat(shape, (x, tail), k)


@dataclass(frozen=True)
class _Following:
    """A sum whose parts follow the parts of other reductions that are cut in the same way."""

    i: Interner
    terms: GraphTerms
    cut: _Cut
    cuts: dict[Node, _Cut]

    def sum(self, found: Rescale[Element] | Shift[Element]) -> Node:
        return self._rescaled(found) if isinstance(found, Rescale) else self._shifted(found)

    # ---- a maximum -------------------------------------------------------------------

    def _rescaled(self, found: Rescale[Element]) -> Node:
        whole, parts = found.y.y.node, self.cuts[found.y.y.node].first
        own, all_ = self._finite(parts), self._finite(whole)
        partial = self.cut.partial(self._with({found.y.y: own}))
        factor = self._factor(found, own, self._over_parts(all_), self.cut.shape, self._of_part())
        one = self._constant(partial, 1.0)
        factor = self._compute("where", self._is_bottom(parts), one, factor)
        total = self.cut.merged(self._compute("multiply", partial, factor))
        left = {axis_symbol(k): axis(n) for n, k in enumerate(self._kept())}
        return self._compute("multiply", total, self._factor(found, all_, whole, whole.shape, left))

    def _factor(self, found: Rescale[Element], old: Node, new: Node, shape: Shape, axes: Axes) -> Node:
        """The product of exp(h(old) - h(new))."""
        product: Node | None = None
        for h in found.shifts:
            before, after = (build(self.i, self.terms, h, shape, axes, {found.y.y: y}) for y in (old, new))
            factor = self._compute("exp", self._compute("subtract", before, after))
            product = self._compute("multiply", product, factor) if product else factor
        assert product is not None
        return product

    def _is_bottom(self, y: Node) -> Node:
        return self.i.apply("equal", bool_, y.shape, (y, self._constant(y, arrays.neutral("max", y.dtype))))

    def _finite(self, y: Node) -> Node:
        """0 where a maximum has seen nothing but -inf."""
        return self._compute("where", self._is_bottom(y), self._constant(y, 0.0), y)

    # ---- means -----------------------------------------------------------------------

    def _shifted(self, found: Shift[Element]) -> Node:
        counts = self._counts()
        own = {m: self._compute("divide", self.cuts[m.y.y.node].first, counts) for m in dict.fromkeys(found.means)}
        partial = self.cut.partial(self._with({m.mean: mean for m, mean in own.items()}))
        first, second = (self._compute("subtract", own[m], self._whole(m)) for m in found.means)
        shift = self._compute("multiply", self._compute("multiply", first, second), counts)
        return self.cut.merged(self._compute("add", partial, shift))

    def _whole(self, m: Mean[Element]) -> Node:
        """The mean of all parts, for each part."""
        return build(self.i, self.terms, m.mean, self.cut.shape, self._of_part(), {})

    def _counts(self) -> Node:
        """How many elements each part has."""
        cut, dtype = self.cut, self.cut.node.dtype
        rest = self.terms.count // cut.extent
        if cut.parts * cut.length == cut.extent:
            return self._constant(cut.node, int(rest) * cut.length, cut.shape)
        length = dims.smallest(Dim.of(cut.length), cut.extent - axis(cut.place) * cut.length)
        return self.i.apply("cast", dtype, cut.shape, (self.i.index(i64, cut.shape, length * rest),))

    # ---- nodes -----------------------------------------------------------------------

    def _with(self, of_parts: dict[Element, Node]) -> Node:
        """What is summed, with values of the part that an element lies in."""
        x, k = self.cut.node.x, self.cut.k
        index = [axis(j) for j in self._kept()]
        index.insert(self.cut.place, axis(k) // self.cut.length)
        given = {e: self.i.view(node, x.shape, tuple(index)) for e, node in of_parts.items()}
        return build(self.i, self.terms, self.terms.root, x.shape, {}, given)

    def _kept(self) -> list[int]:
        return [k for k in range(self.cut.node.x.rank) if k not in self.cut.node.axes]

    def _of_part(self) -> Axes:
        """Where the axes of the operand are among those of the parts."""
        return {axis_symbol(k): axis(n + (n >= self.cut.place)) for n, k in enumerate(self._kept())}

    def _over_parts(self, y: Node) -> Node:
        """A value of all parts, for each part."""
        index = tuple(axis(n + (n >= self.cut.place)) for n in range(y.rank))
        return self.i.view(y, self.cut.shape, index)

    def _constant(self, like: Node, value: float, shape: Shape | None = None) -> Node:
        return self.i.view(self.i.const(value, like.dtype), like.shape if shape is None else shape, ())

    def _compute(self, name: str, *args: Node) -> Node:
        return self.i.apply(name, args[-1].dtype, args[-1].shape, args)
