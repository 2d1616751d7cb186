"""Scans along an axis, such as cumulative sums, and differences of neighbouring elements."""

from collections.abc import Callable
from functools import partial

from minitri.base import dims
from minitri.base.operators import REDUCTIONS, SCANS, Kind, neutral
from minitri.base.types import bool_, i32, i64
from minitri.graph.functions.creation import full
from minitri.graph.functions.join_and_split import concat, slice_axis
from minitri.graph.functions.reductions import accumulator, require_accepted
from minitri.graph.parameter_binding import as_axis, as_bool, as_dtype, as_int
from minitri.graph.typing_rules import Array, Strong, Typer, Value, ensure

MOST = 1000  # how often `diff` may repeat: each repetition is an operation of the program


def _running_axis(op: str, x: Array, axis: Value) -> int:
    """Returns the axis of a scan as a number >= 0. None stands for the axis of an array that has only one axis."""
    is_clear = axis is not None or x.rank == 1
    ensure(is_clear, "MT0204", f"cumulative_{op} of an array of rank {x.rank} needs an axis")
    return as_axis(0 if axis is None else axis, x.rank)


def _running_sum(t: Typer, x: Strong, axis: Value, dtype: Value, include_initial: Value, *, op: str) -> Array:
    """Defines cumulative sums or products, depending on `op`.

    With `include_initial`, the result begins with the neutral element of `op`, and so has one more element along the
    axis.
    """
    k = _running_axis(op, x, axis)
    target = as_dtype(dtype, accumulator(x.dtype))
    ensure(target != bool_, "MT0202", f"cumulative_{op} does not give bool")
    out = Array(t.nodes.scan(op, t.convert(x, target), k), target)
    if not as_bool(include_initial, "include_initial"):
        return out
    first = full(t, (*x.shape[:k], 1, *x.shape[k + 1 :]), neutral(op, i64), target)
    return concat(t, (first, out), k)


def _running_kept(t: Typer, x: Strong, axis: Value, *, op: str) -> Array:
    """Defines cumulative maxima, minima and bitwise operations. The results have the dtype of x."""
    k, held = _running_axis(op, x, axis), i32 if x.dtype == bool_ else x.dtype
    require_accepted(op, held)
    out = Array(t.nodes.scan(op, t.convert(x, held), k), held)
    return t.cast(out, bool_) if x.dtype == bool_ else out  # a cast would round f16 and bf16


_FORMS: dict[Kind, Callable[..., Array]] = {
    "sum": _running_sum, "product": _running_sum, "extreme": _running_kept, "bits": _running_kept,
}  # fmt: skip
BY_OPERATOR = {f"cumulative_{name}": partial(_FORMS[REDUCTIONS[name].kind], op=name) for name in SCANS}


# ---- differences -----------------------------------------------------------------------------


def diff(t: Typer, x: Value, axis: Value, n: Value, prepend: Value, append: Value) -> Array:
    """Defines numpy's diff: computes x[1:] - x[:-1] along an axis, n times.

    For bools, the result says whether neighbours differ.
    """
    k = as_axis(axis, t.array(x).rank)
    a, times = _extended(t, x, k, prepend, append), as_int(n, "n")
    ensure(times >= 0, "MT0205", f"diff is taken 0 times or more, not {times}")
    if a.shape[k].constant is not None:
        times = min(times, int(a.shape[k]))  # the result is empty after as many steps as there are elements
    ensure(times <= MOST, "MT0401", f"diff is taken {MOST:,} times at most, not {times}")
    for _ in range(times):
        a = _difference(t, a, k)
    return a


def _extended(t: Typer, x: Value, axis: int, prepend: Value, append: Value) -> Array:
    """Returns x, extended by `prepend` at the beginning of an axis and by `append` at its end.

    If `prepend` or `append` is a number, x is extended by one element along the axis.
    """
    a, parts = t.strong(x), list[Value]()
    for part in (prepend, x, append):
        if part is not None:
            part = t.array(part)
            single = tuple(dims.ONE if k == axis else e for k, e in enumerate(a.shape))
            parts.append(part if part.shape else Array(t.broadcast(part.node, single), part.dtype, part.weak))
    return concat(t, tuple(parts), axis) if len(parts) > 1 else a


def _difference(t: Typer, x: Array, axis: int) -> Array:
    later, earlier = (slice_axis(t, x, axis, start, start + x.shape[axis] - 1) for start in (dims.ONE, dims.ZERO))
    return t.elementwise("not_equal" if x.dtype == bool_ else "subtract", [later, earlier])
