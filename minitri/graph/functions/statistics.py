"""Means and variances as sums and divisions. Also argmax and argmin."""

import math
from functools import partial

from minitri.base import dims
from minitri.base.dims import Dim
from minitri.base.operators import POSITIONS
from minitri.base.symbolic_minmax import largest
from minitri.base.types import bool_, f32, f64, i32, i64, u64
from minitri.graph.argument_binding import as_axes, plain, static
from minitri.graph.functions.reductions import accumulate, reduce, require_nonempty
from minitri.graph.functions.views import expand_dims, one_axis
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure


def _average(t: Typer, x: Array, axes: tuple[int, ...], keepdims: Value, correction: Value = 0) -> Array:
    total = accumulate(t, t.strong(x), axes, keepdims, None, op="sum")
    count = dims.product([x.shape[k] for k in axes])
    return t.elementwise("divide", [total, _divisor(t, count, correction)])


def _divisor(t: Typer, count: Dim, correction: Value) -> Value:
    """The divisor of a variance, count - correction. If it is not positive, it is 0 or NaN, so the variance is NaN."""
    if correction == 0:
        return plain(count)  # an empty sum is 0, and 0 / 0 is NaN
    if correction == 1:
        return plain(largest(count - 1, 0))  # one element equals its mean, and 0 / 0 is NaN
    if count.constant is not None and isinstance(correction, (int, float)):
        rest = static(lambda: float(count.constant or 0) - correction)
        return rest if rest > 0 else math.nan
    if isinstance(correction, int):
        whole = correction
        correction = static(lambda: float(whole))
    rest = t.elementwise("subtract", [count, correction])
    return t.elementwise("where", [t.elementwise("greater", [rest, 0]), rest, math.nan])


def mean(t: Typer, x: Array, axis: Value, keepdims: Value) -> Array:
    axes = as_axes(axis, x.rank)
    if x.weak or x.dtype not in (i64, u64):
        return _average(t, x, axes, keepdims)
    wide = _average(t, t.cast(x, f64), axes, keepdims).node  # a sum of 64-bit integers may wrap
    return Array(t.nodes.cast(wide, f32), f32, wide=wide)


def var(t: Typer, x: Strong, axis: Value, correction: Value, keepdims: Value) -> Array:
    a = x if x.dtype.is_float else t.cast(x, f32)
    axes = as_axes(axis, a.rank)
    centred = t.elementwise("subtract", [a, _average(t, a, axes, True)])
    return _average(t, t.elementwise("square", [centred]), axes, keepdims, _as_number(correction, "correction"))


def _as_number(value: Value, what: str) -> Value:
    """The value, which must be a number, a dimension or a `float` parameter. Raises CompileError MT0102 otherwise."""
    is_number = isinstance(value, (int, float, Dim)) and not isinstance(value, bool)
    fits = is_number or isinstance(value, Array) and value.weak
    ensure(fits, "MT0102", f"{what} must be a number, not {describe(value)}")
    return value


# ---- positions of extremes ----------------------------------------------------------------------


def _position(t: Typer, x: Array, axis: Value, keepdims: Value, *, op: str) -> Array:
    """numpy's argmax or argmin, by `op`. With axis None it is an index of the flattened array."""
    a = t.cast(x, i32) if x.dtype == bool_ else x
    a, axes = (one_axis(t, a, None)[0], (0,)) if axis is None else (a, as_axes(axis, a.rank))
    ensure(len(axes) == 1, "MT0204", f"{op} takes one axis or None")
    require_nonempty(t, op, a.shape, axes)
    out = reduce(t, op, a, axes, axis is not None and keepdims, i64)
    return expand_dims(t, out, tuple(range(x.rank))) if axis is None and keepdims else out


BY_OPERATOR = {name: partial(_position, op=name) for name in POSITIONS}
