"""searchsorted: the places of numbers in a sorted array.

A binary search, unrolled. It keeps the number of elements that are known to come before the number. Then it asks
whether 512 more do, then 256, 128, …: one gather and one comparison for each bit of the length.
"""

from __future__ import annotations

from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.types import i64
from minitri.graph import ir
from minitri.graph.compile_time import plain
from minitri.graph.functions.registry import FUNCTIONS, function
from minitri.graph.typer import Array, Typer, Value

MOST_BITS = 40  # of the length of an array whose size is not known: memory ends before


@function
def searchsorted(t: Typer, x1: Value, x2: Value, side: Value, sorter: Value) -> Array:
    """How many elements of x1, which is sorted, are less than each of x2; "right": less or equal. NaN comes last."""
    if side not in ("left", "right"):
        raise CompileError("MT0102", 'the side of searchsorted is "left" or "right"')
    a = t.array(x1)
    if len(a.shape) != 1:
        raise CompileError("MT0201", f"searchsorted looks into an array of one axis, not {a}")
    if sorter is not None:
        order = t.array(sorter)
        if len(order.shape) != 1:
            raise CompileError("MT0201", f"the sorter of searchsorted is an array of one axis, not {order}")
        a = t.array(FUNCTIONS["take"](t, a, order, 0))
    a, wanted = t.strong(a), t.array(x2)
    size = a.shape[0]
    bits = MOST_BITS if size.constant is None else int(size).bit_length()
    found = Array(t.broadcast(t.constant(0, i64), wanted.shape), i64)
    for bit in reversed(range(bits)):
        found = _step(t, a, wanted, found, 1 << bit, size, side == "right")
    return found


def _step(t: Typer, x: Array, wanted: Array, found: Array, more: int, size: Dim, equal: bool) -> Array:
    """`found`, or `more` elements further if those come before what is wanted too."""
    place = t.elementwise("add", [found, more])
    inside = t.elementwise("less_equal", [place, plain(size)])
    last = t.elementwise("where", [inside, t.elementwise("subtract", [place, 1]), 0])
    read = Array(t.nodes.gather(x.node, last.shape, (ir.pick(0),), (last.node,)), x.dtype)
    before = _before(t, read, wanted, equal)
    return t.elementwise("where", [t.elementwise("logical_and", [inside, before]), place, found])


def _before(t: Typer, x: Array, y: Array, equal: bool) -> Array:
    """x < y, or with `equal` x <= y, where NaN is the largest."""
    less = t.elementwise("less_equal" if equal else "less", [x, y])
    if not (x.dtype.is_float or y.dtype.is_float):
        return less
    last = t.elementwise("isnan", [y])
    if not equal:
        last = t.elementwise("logical_and", [last, t.elementwise("logical_not", [t.elementwise("isnan", [x])])])
    return t.elementwise("logical_or", [less, last])
