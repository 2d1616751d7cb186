"""Functions that read elements at indices from an array: take, take_along_axis and searchsorted.

searchsorted is an unrolled binary search. The search counts the elements that come before the searched number. The
first step tests, for example, whether 512 elements come before the searched number. The next steps test 256 more
elements, 128 more, and so on. Each step is one gather and one comparison.
"""

from minitri.base.dims import Dim
from minitri.base.types import i64
from minitri.graph import ir
from minitri.graph.argument_binding import as_axis, plain
from minitri.graph.functions.views import one_axis
from minitri.graph.indexing import subscript, wrapped
from minitri.graph.typing_rules import Array, Strong, Typer, Value, ensure

MOST_BITS = 40  # steps for an array of unknown size: no memory holds more than 2**40 elements


def take(t: Typer, x: Array, indices: Array, axis: Value) -> Array:
    a, k = one_axis(t, x, axis)
    ensure(indices.dtype.is_integer, "MT0206", f"take needs integer indices, not {indices.dtype}")
    return subscript(t, a, [slice(None)] * k + [indices])


def take_along_axis(t: Typer, x: Strong, indices: Array, axis: Value) -> Array:
    k = as_axis(axis, x.rank)
    ensure(indices.dtype.is_integer, "MT0206", f"take_along_axis needs integer indices, not {indices.dtype}")
    message = f"take_along_axis needs an array and indices of one rank, not {x} and {indices}"
    ensure(indices.rank == x.rank, "MT0206", message)
    others = [tuple(e for j, e in enumerate(s) if j != k) for s in (x.shape, indices.shape)]
    common = t.broadcast_shapes(others, "array and indices of take_along_axis")
    shape = (*common[:k], indices.shape[k], *common[k:])
    where = [ir.pick(0) if j == k else ir.along(j, e) for j, e in enumerate(x.shape)]
    picks = (t.broadcast(wrapped(t, indices, x.shape[k]).node, shape),)
    return Array(t.nodes.gather(x.node, shape, tuple(where), picks), x.dtype)


def searchsorted(t: Typer, x1: Array, x2: Array, side: Value, sorter: Value) -> Array:
    """Returns, for each element of x2, how many elements of the sorted array x1 are less than it (side "left").

    With side "right", returns how many elements of x1 are less than or equal to the element of x2. NaN is larger than
    every number.
    """
    ensure(side in ("left", "right"), "MT0102", 'the side of searchsorted is "left" or "right"')
    ensure(x1.rank == 1, "MT0201", f"searchsorted looks into an array of one axis, not {x1}")
    if sorter is not None:
        order = t.array(sorter)
        ensure(order.rank == 1, "MT0201", f"the sorter of searchsorted is an array of one axis, not {order}")
        x1 = take(t, x1, order, 0)
    a, size = t.strong(x1), x1.shape[0]
    bits = MOST_BITS if size.constant is None else int(size).bit_length()
    found = Array(t.broadcast(t.constant(0, i64), x2.shape), i64)
    for bit in reversed(range(bits)):
        found = _step(t, a, x2, found, 1 << bit, size, side == "right")
    return found


def _step(t: Typer, x: Array, wanted: Array, found: Array, more: int, size: Dim, equal: bool) -> Array:
    """Makes one step of the binary search.

    Returns `found + more` if x[found + more - 1] comes before the wanted number, and `found` otherwise.
    """
    place = t.elementwise("add", [found, more])
    inside = t.elementwise("less_equal", [place, plain(size)])
    last = t.elementwise("where", [inside, t.elementwise("subtract", [place, 1]), 0])
    read = Array(t.nodes.gather(x.node, last.shape, (ir.pick(0),), (last.node,)), x.dtype)
    before = _before(t, read, wanted, equal)
    return t.elementwise("where", [t.elementwise("logical_and", [inside, before]), place, found])


def _before(t: Typer, x: Array, y: Array, equal: bool) -> Array:
    """Returns x < y, or x <= y with `equal`. NaN is larger than every number."""
    less = t.elementwise("less_equal" if equal else "less", [x, y])
    if not (x.dtype.is_float or y.dtype.is_float):
        return less
    last = t.elementwise("isnan", [y])
    if not equal:
        last = t.elementwise("logical_and", [last, t.elementwise("logical_not", [t.elementwise("isnan", [x])])])
    return t.elementwise("logical_or", [less, last])
