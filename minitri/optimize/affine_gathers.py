"""Gathers whose index is affine in the axes become views.

    x[arange(N - 2)[:, None] + arange(3)]      x: f32[N]
becomes
    view x {index = [d0 + d1]}                 nothing is tested or counted from the end when it runs

In: a gather. Out: the view that it is, or a gather with fewer index arrays. The one idea: sums, differences and products
of known positions are expressions of axes, whose least and largest values tell whether they stay in the array. An
index that may leave it stays as it is, since an element out of range is the fill.

Left out: quotients, remainders and conversions of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minitri.base import dims, intervals
from minitri.base.dims import Dim, Symbol
from minitri.base.piecewise import never_negative
from minitri.base.types import i64
from minitri.graph.ir import Apply, Const, Gather, Index, Interner, Node, Shape, View, axis_symbol, pick, ranges

MAX_DEPTH = 6  # operators that are looked through
MAX_TERMS = 8  # of an operand: a product of longer ones is no simple position
# Exact modulo 2**64, so a sum that wraps on the way does no harm.
RING: Mapping[str, Callable[..., Dim]] = {
    "add": Dim.__add__, "subtract": Dim.__sub__, "multiply": Dim.__mul__, "negative": Dim.__neg__,
}  # fmt: skip


def affine_gather(i: Interner, node: Node) -> Node | None:
    """A gather at known positions that lie in the array is a view."""
    if not isinstance(node, Gather):
        return None
    known = {_symbol(k): at for k, p in enumerate(node.picks) if (at := _inside(i, node, k, p)) is not None}
    if not known:
        return None
    left = [k for k in range(len(node.picks)) if _symbol(k) not in known]
    env = {**known, **{_symbol(k): pick(place) for place, k in enumerate(left)}}
    index = tuple(d.substitute(env) for d in node.index)
    if not left:
        return i.view(node.x, node.shape, index)
    return i.gather(node.x, node.shape, index, tuple(node.picks[k] for k in left))


def _symbol(k: int) -> Symbol:
    """The symbol of the k-th index array in the index of a gather."""
    symbol = pick(k).atom
    assert isinstance(symbol, Symbol)
    return symbol


def _inside(i: Interner, node: Gather, k: int, index: Node) -> Dim | None:
    """The position that an index array gives, if that is known and lies in every axis that it is used for."""
    used = [e for d, e in zip(node.index, node.x.shape) if _symbol(k) in d.symbols()]
    if any(_symbol(k) in d.symbols() and d != pick(k) for d in node.index):
        return None
    inner, env = index, {}
    if isinstance(index, View):  # a view of a view has become one before
        inner, env = index.x, {axis_symbol(k): d for k, d in enumerate(index.index)}
    counted = _from_the_end(inner)
    at = position(inner if counted is None else counted[0])
    if at is None:
        return None
    at = at.substitute(env)
    if all(_lies_in(i, at, node.shape, extent) for extent in used):
        return at
    if counted is None or not all(e == counted[1] and _lies_in(i, -at - 1, node.shape, e) for e in used):
        return None
    return at + counted[1]


def _from_the_end(index: Node) -> tuple[Node, Dim] | None:
    """(x, size) of an index array `where(x < 0, x + size, x)`, whose negative entries count from the end."""
    match index:
        case Apply(op="where", args=(Apply(op="less", args=(below, zero)), Apply(op="add", args=(x, size)), same)):
            extent = position(size)
            if below is same is x and position(zero) == dims.ZERO and extent is not None:
                return x, extent
    return None


def _lies_in(i: Interner, at: Dim, shape: Shape, extent: Dim) -> bool:
    """Whether 0 <= at < extent for all elements of this shape."""
    found = intervals.bounds(at, ranges(shape))
    if found is None:
        return False
    low, high = found
    return never_negative(low, shape, i.allows) and never_negative(extent - 1 - high, shape, i.allows)


def position(node: Node, depth: int = MAX_DEPTH) -> Dim | None:
    """The value of an i64 node as an expression of its axes, modulo 2**64; None if it has other parts."""
    if node.dtype != i64 or not depth:
        return None
    match node:
        case Index():
            return node.expr
        case Const():
            return Dim.of(int(node.value))
        case View():
            inner = position(node.x, depth)
            return None if inner is None else inner.substitute({axis_symbol(k): d for k, d in enumerate(node.index)})
        case Apply() if node.op in RING:
            found = [position(a, depth - 1) for a in node.args]
            known = [d for d in found if d is not None and len(d.terms) <= MAX_TERMS]
            return RING[node.op](*known) if len(known) == len(found) else None
    return None
