"""Makes graph nodes of reductions and scans: sums, extremes, means, variances, argmax, argmin, cumulative sums. The
function `diff` in this file makes differences of neighbouring elements.

    sum(x, axis=1)                 reduce.sum x {axes = [1]}
    mean(x, axis=1)                the sum, divided by the number of elements
    cumulative_sum(x, axis=1)      scan.sum x {axis = 1}

Functions that differ only in their operator, such as sum and prod, share one Python function. The shared function has
the operator as its keyword argument `op`.
"""

import math
from collections.abc import Callable
from functools import partial

from minitri.base.dims import ONE, ZERO, Dim, product
from minitri.base.operators import REDUCTIONS, SCANS, Kind, neutral
from minitri.base.symbolic_minmax import largest
from minitri.base.types import DType, bool_, f32, f64, i32, i64, u64
from minitri.graph.functions.creation_and_dtypes import full
from minitri.graph.functions.join_and_split import concat, slice_axis
from minitri.graph.functions.views import expand_dims, one_axis
from minitri.graph.ir import Shape
from minitri.graph.parameter_binding import as_axes, as_axis, as_bool, as_dtype, as_int, plain, static
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure, insert_axes


def accumulator(dtype: DType) -> DType:
    """Returns the dtype of a sum or product.

    The sum of floats has the dtype of the floats, the sum of unsigned integers is u64, and any other sum is i64.
    """
    return dtype if dtype.is_float else u64 if dtype.kind == "u" else i64


def reduce(t: Typer, op: str, x: Array, axes: tuple[int, ...], keepdims: Value, dtype: DType) -> Array:
    """Applies the reduction `op` to some axes of x. With `keepdims`, the reduced axes are kept as axes of size 1."""
    axes = tuple(sorted(axes))
    out = Array(t.nodes.reduce(op, x.node, axes) if axes else x.node, dtype)
    return insert_axes(t, out, axes) if keepdims else out


def accumulate(t: Typer, x: Value, axis: Value, keepdims: Value, dtype: Value, *, op: str) -> Array:
    """Defines numpy's sum or prod, depending on `op`. If `dtype` is None, the function `accumulator` chooses the dtype
    of the result.
    """
    a = t.strong(x)
    target = as_dtype(dtype, accumulator(a.dtype))
    ensure(target != bool_, "MT0202", f"{op} does not give bool", "use any or all")
    a = Array(t.convert(a, target), target)
    return reduce(t, op, a, as_axes(axis, a.rank), keepdims, target)


def require_accepted(op: str, dtype: DType) -> None:
    """Raises CompileError MT0202 if the reduction `op` does not accept this dtype."""
    ensure(dtype.kind in REDUCTIONS[op].accepts, "MT0202", f"{op} takes integers, not {dtype}")


def require_nonempty(t: Typer, op: str, shape: Shape, axes: tuple[int, ...]) -> None:
    """Raises CompileError MT0209 if a reduced axis has the size 0.

    If the size of a reduced axis is symbolic, each call checks that the size is not 0.
    """
    for k in axes:
        t.require(shape[k], ">=", ONE, "MT0209", f"{op} over an axis of size 0 has no value")


def extreme(t: Typer, x: Value, axis: Value, keepdims: Value, *, op: str) -> Array:
    """Defines numpy's max or min, depending on `op`. For bools, max is the same as `any`, and min as `all`."""
    message, help = f"{op} takes one array and an axis, not two arrays", f"write `{op}imum(x, y)`"
    ensure(not isinstance(axis, Array), "MT0102", message, help)
    a = t.strong(x)
    help = f"for the {op} of two write `{op}imum(x, y)`"
    ensure(a.rank > 0 or axis in (None, ()), "MT0204", f"{op} over an axis of a 0-d array", help)
    axes = as_axes(axis, a.rank)
    require_nonempty(t, op, a.shape, axes)
    return reduce(t, OF_TRUTH[op] if a.dtype == bool_ else op, a, axes, keepdims, a.dtype)


def _logical(t: Typer, x: Value, axis: Value, keepdims: Value, *, op: str) -> Array:
    a = t.cast(x, bool_)
    return reduce(t, op, a, as_axes(axis, a.rank), keepdims, bool_)


def _bits(t: Typer, x: Strong, axis: Value, keepdims: Value, *, op: str) -> Array:
    require_accepted(op, x.dtype)
    return reduce(t, op, x, as_axes(axis, x.rank), keepdims, x.dtype)


OF_TRUTH = {"max": "any", "min": "all"}  # the reductions of bools that equal max and min


# ---- means and variances ------------------------------------------------------------------------


def _average(t: Typer, x: Array, axes: tuple[int, ...], keepdims: Value, correction: Value = 0) -> Array:
    total = accumulate(t, t.strong(x), axes, keepdims, None, op="sum")
    return t.elementwise("divide", [total, _divisor(t, product([x.shape[k] for k in axes]), correction)])


def _divisor(t: Typer, count: Dim, correction: Value) -> Value:
    """Returns the divisor of a mean or variance: the number of elements minus `correction`."""
    # If there are too few elements (count <= correction), the variance must be NaN: as 0 / 0, or through a NaN divisor.
    if correction == 0:
        return plain(count)  # an empty sum is 0, and 0 / 0 is NaN
    if correction == 1:
        return plain(largest(count - 1, 0))  # one element equals its mean, and 0 / 0 is NaN
    if count.constant is not None and isinstance(correction, (int, float)):
        rest = static(lambda: float(count.constant or 0) - correction)
        return rest if rest > 0 else math.nan  # NaN for too few elements
    if isinstance(correction, int):
        correction = static(partial(float, correction))
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
    is_number = isinstance(correction, (int, float, Dim)) and not isinstance(correction, bool)
    fits = is_number or isinstance(correction, Array) and correction.weak  # such as a `float` parameter
    ensure(fits, "MT0102", f"correction must be a number, not {describe(correction)}")
    return _average(t, t.elementwise("square", [centred]), axes, keepdims, correction)


# ---- positions of extremes ----------------------------------------------------------------------


def _position(t: Typer, x: Array, axis: Value, keepdims: Value, *, op: str) -> Array:
    """Defines numpy's argmax or argmin, depending on `op`."""
    a = t.cast(x, i32) if x.dtype == bool_ else x
    # without an axis, the result is an index of the flattened array
    a, axes = (one_axis(t, a, None)[0], (0,)) if axis is None else (a, as_axes(axis, a.rank))
    ensure(len(axes) == 1, "MT0204", f"{op} takes one axis or None")
    require_nonempty(t, op, a.shape, axes)
    out = reduce(t, op, a, axes, axis is not None and keepdims, i64)
    return expand_dims(t, out, tuple(range(x.rank))) if axis is None and keepdims else out


_FORMS: dict[Kind, Callable[..., Array]] = {
    "sum": accumulate, "product": accumulate, "extreme": extreme, "logical": _logical, "bits": _bits,
    "position": _position,
}  # fmt: skip
BY_OPERATOR = {name: partial(_FORMS[row.kind], op=name) for name, row in REDUCTIONS.items()}


# ---- scans -----------------------------------------------------------------------------------


MOST = 1000  # how often `diff` may repeat: each repetition is an operation of the program


def _running_axis(op: str, x: Array, axis: Value) -> int:
    """Returns the axis of a cumulative operation as a number >= 0."""
    is_clear = axis is not None or x.rank == 1
    ensure(is_clear, "MT0204", f"cumulative_{op} of an array of rank {x.rank} needs an axis")
    return as_axis(0 if axis is None else axis, x.rank)  # None is the only axis


def _running_sum(t: Typer, x: Strong, axis: Value, dtype: Value, include_initial: Value, *, op: str) -> Array:
    """Defines cumulative sums or products, depending on `op`."""
    k = _running_axis(op, x, axis)
    target = as_dtype(dtype, accumulator(x.dtype))
    ensure(target != bool_, "MT0202", f"cumulative_{op} does not give bool")
    out = Array(t.nodes.scan(op, t.convert(x, target), k), target)
    if not as_bool(include_initial, "include_initial"):
        return out
    first = full(t, (*x.shape[:k], 1, *x.shape[k + 1 :]), neutral(op, i64), target)  # the neutral element comes first
    return concat(t, (first, out), k)


def _running_kept(t: Typer, x: Strong, axis: Value, *, op: str) -> Array:
    """Defines cumulative maxima, minima and bitwise operations."""
    # the results have the dtype of x
    k, held = _running_axis(op, x, axis), i32 if x.dtype == bool_ else x.dtype
    require_accepted(op, held)
    out = Array(t.nodes.scan(op, t.convert(x, held), k), held)
    return t.cast(out, bool_) if x.dtype == bool_ else out  # a cast would round f16 and bf16


_SCAN_FORMS: dict[Kind, Callable[..., Array]] = {
    "sum": _running_sum, "product": _running_sum, "extreme": _running_kept, "bits": _running_kept,
}  # fmt: skip
BY_OPERATOR |= {f"cumulative_{name}": partial(_SCAN_FORMS[REDUCTIONS[name].kind], op=name) for name in SCANS}


# ---- differences -----------------------------------------------------------------------------


def diff(t: Typer, x: Value, axis: Value, n: Value, prepend: Value, append: Value) -> Array:
    """Defines numpy's diff: computes x[1:] - x[:-1] along an axis, n times.

    For an array of bools, the result of `diff` says whether neighbouring elements differ.
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
    """Extends an array by values at the beginning and at the end of an axis."""
    a, parts = t.strong(x), list[Value]()
    for part in (prepend, x, append):
        if part is not None:
            part = t.array(part)
            single = tuple(ONE if k == axis else e for k, e in enumerate(a.shape))
            # a number becomes one element along the axis
            parts.append(part if part.shape else Array(t.broadcast(part.node, single), part.dtype, part.weak))
    return concat(t, tuple(parts), axis) if len(parts) > 1 else a


def _difference(t: Typer, x: Array, axis: int) -> Array:
    later, earlier = (slice_axis(t, x, axis, start, start + x.shape[axis] - 1) for start in (ONE, ZERO))
    return t.elementwise("not_equal" if x.dtype == bool_ else "subtract", [later, earlier])
