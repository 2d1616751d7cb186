"""Turns a gather into a view if the gather's index is a linear expression of the axes ("affine").

    x[arange(N - 2)[:, None] + arange(3)]      x: f32[N]
      becomes
    view x {index = [d0 + d1]}                 without bounds checks, and without a case for negative indices

The function `affine_gather` takes a gather, and returns an equivalent view or a gather with fewer index arrays.
Additions, subtractions and multiplications of positions, such as `arange(N)`, give an index that is an expression of
the axes. The least and the largest value of an index expression show whether the index stays in the array. If an index
could lie outside of the array, the gather stays a gather. Only a gather, not a view, returns the fill value for an
index that is out of range.

An index array that is computed with a quotient, a remainder or a cast stays in the gather.
"""

from collections.abc import Callable, Mapping

from minitri.base import dims, intervals
from minitri.base.dims import Dim, Symbol
from minitri.base.symbolic_minmax import never_negative
from minitri.base.types import i64
from minitri.graph.ir import Apply, Const, Gather, Index, Interner, Node, Shape, View, axis, axis_symbol, pick, ranges
from minitri.graph.scalar_form import element

MAX_DEPTH = 6  # the most nested operators
MAX_TERMS = 8  # the most terms of an operand, because a product of long expressions is very long
# Exact modulo 2**64, so an intermediate sum may wrap around.
RING: Mapping[str, Callable[..., Dim]] = {
    "add": Dim.__add__, "subtract": Dim.__sub__, "multiply": Dim.__mul__, "negative": Dim.__neg__,
}  # fmt: skip


def affine_gather(i: Interner, node: Node) -> Node | None:
    """Replaces a gather by a view if the axes determine every index, and if no index lies outside of the array. If the
    axes determine only some index arrays, the function returns a gather with the other index arrays.
    """
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
    """Returns the symbol for the k-th index array in the index of a gather."""
    return Symbol(f"@{k}", "value")


def _inside(i: Interner, node: Gather, k: int, index: Node) -> Dim | None:
    """Returns an index expression, such as `d0 + d1`, that replaces an index array."""
    used = [e for d, e in zip(node.index, node.x.shape) if _symbol(k) in d.symbols()]
    if any(_symbol(k) in d.symbols() and d != pick(k) for d in node.index):
        return None
    inner, places = element(index, tuple(map(axis, range(index.rank))))
    counted, size = _from_the_end(inner)
    at = position(counted)
    # the selected index depends on anything except the axes
    if at is None:
        return None
    at = at.substitute({axis_symbol(k): d for k, d in enumerate(places)})
    if all(_lies_in(i, at, node.shape, extent) for extent in used):
        return at
    negative = all(extent == size and _lies_in(i, -at - 1, node.shape, extent) for extent in used)
    # None if the selected index could lie outside of the gathered array
    return at + size if negative else None


def _from_the_end(index: Node) -> tuple[Node, Dim]:
    """Matches the index array `where(x < 0, x + size, x)`, and returns x and size."""
    match index:
        # negative indices count from the end
        case Apply(op="where", args=(Apply(op="less", args=(below, zero)), Apply(op="add", args=(x, size)), same)):
            extent = position(size)
            if below is same is x and position(zero) == dims.ZERO and extent is not None:
                return x, extent
    return index, dims.ZERO  # another form


def _lies_in(i: Interner, at: Dim, shape: Shape, extent: Dim) -> bool:
    """Checks whether an index lies inside an axis for all elements of an array."""
    found = intervals.bounds(at, ranges(shape))
    # from 0 to extent - 1
    return found is not None and all(never_negative(d, shape, i.allows) for d in (found[0], extent - 1 - found[1]))


def position(node: Node, depth: int = MAX_DEPTH) -> Dim | None:
    """Returns the value of an i64 node, modulo 2**64, as an expression of the indices along its axes. Returns None if
    the node's value depends on anything but the indices along the node's axes.
    """
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
