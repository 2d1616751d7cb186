"""Reductions and running sums as graph nodes. Means and variances are sums and divisions here."""

from __future__ import annotations

import math
from functools import partial

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.extremes import largest
from minitri.base.numpy_semantics import REDUCTIONS, SCANS, Kind, neutral
from minitri.base.types import DType, bool_, f32, f64, i32, i64, u64
from minitri.graph import ir
from minitri.graph.compile_time import as_axes, as_bool, as_dtype, as_int, plain, static
from minitri.graph.functions.making import concat, full
from minitri.graph.functions.registry import FUNCTIONS, Function, function
from minitri.graph.functions.views import reshape
from minitri.graph.ir import Shape
from minitri.graph.typer import Array, Typer, Value, describe, reduce_type, view


def _accumulator(dtype: DType) -> DType:
    """The dtype of sums and products: floats stay, unsigned integers become u64, others i64."""
    return dtype if dtype.is_float else u64 if dtype.kind == "u" else i64


def _reduce(t: Typer, op: str, x: Array, axes: tuple[int, ...], keepdims: Value, dtype: DType) -> Array:
    axes = tuple(sorted(axes))
    node = x.node
    if axes:
        result, shape = reduce_type(op, x.node, axes)
        node = t.nodes.reduce(op, result, shape, x.node, axes)
    out = Array(node, dtype)
    return _keep(t, out, x.shape, axes) if keepdims else out


def reduced(t: Typer, op: str, x: Array, axes: tuple[int, ...]) -> Array:
    """Without these axes, in the dtype of x."""
    return _reduce(t, op, x, axes, False, x.dtype)


def _keep(t: Typer, out: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    kept = [k for k in range(len(shape)) if k not in axes]
    full = tuple(dims.ONE if k in axes else e for k, e in enumerate(shape))
    return view(t, out, full, [ir.axis(k) for k in kept])


def accumulate(t: Typer, x: Value, axis: Value, keepdims: Value, dtype: Value, *, op: str) -> Array:
    a = t.strong(x)
    target = as_dtype(dtype, _accumulator(a.dtype))
    if target == bool_:
        raise CompileError("MT0202", f"{op} does not give bool", help="use any or all")
    a = Array(t.convert(a, target), target)
    return _reduce(t, op, a, as_axes(axis, len(a.shape)), keepdims, target)


def _average(t: Typer, x: Array, axes: tuple[int, ...], keepdims: Value, correction: Value = 0) -> Array:
    total = accumulate(t, x, axes, keepdims, None, op="sum")
    count = dims.product([x.shape[k] for k in axes])
    return t.elementwise("divide", [total, _divisor(t, count, correction)])


def _divisor(t: Typer, count: Dim, correction: Value) -> Value:
    """count - correction, or NaN where nothing is left of it."""
    if correction == 0:
        return plain(count)  # the sum of nothing is 0, and 0 / 0 is NaN
    if correction == 1:
        return plain(largest(count - 1, 0))  # the distance of one element from its mean is 0
    if count.constant is not None and isinstance(correction, (int, float)):
        rest = static(lambda: float(count.constant or 0) - correction)
        return rest if rest > 0 else math.nan
    if isinstance(correction, int):
        whole = correction
        correction = static(lambda: float(whole))
    rest = t.elementwise("subtract", [count, correction])
    return t.elementwise("where", [t.elementwise("greater", [rest, 0]), rest, math.nan])


@function
def mean(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    a = t.array(x)
    axes = as_axes(axis, len(a.shape))
    if a.weak or a.dtype not in (i64, u64):
        return _average(t, a, axes, keepdims)
    wide = _average(t, t.cast(a, f64), axes, keepdims).node  # a sum of 64-bit integers may wrap
    return Array(t.cast_node(wide, f32), f32, wide=wide)


@function
def var(t: Typer, x: Value, axis: Value, correction: Value, keepdims: Value) -> Array:
    a = t.strong(x)
    a = a if a.dtype.is_float else t.cast(a, f32)
    axes = as_axes(axis, len(a.shape))
    centred = t.elementwise("subtract", [a, _average(t, a, axes, True)])
    return _average(t, t.elementwise("square", [centred]), axes, keepdims, _as_number(correction, "correction"))


def _as_number(value: Value, what: str) -> Value:
    """A number, a dimension or a `float` parameter."""
    if isinstance(value, (int, float, Dim)) and not isinstance(value, bool):
        return value
    if isinstance(value, Array) and value.weak:
        return value
    raise CompileError("MT0102", f"{what} must be a number, not {describe(value)}")


@function
def std(t: Typer, x: Value, axis: Value, correction: Value, keepdims: Value) -> Array:
    return t.elementwise("sqrt", [var(t, x, axis, correction, keepdims)])


def _require_accepted(op: str, dtype: DType) -> None:
    if dtype.kind not in REDUCTIONS[op].accepts:
        raise CompileError("MT0202", f"{op} takes integers, not {dtype}")


def _require_nonempty(t: Typer, op: str, shape: Shape, axes: tuple[int, ...]) -> None:
    for k in axes:
        t.require(shape[k], ">=", dims.ONE, "MT0209", f"{op} over an axis of size 0 has no value")


def extreme(t: Typer, x: Value, axis: Value, keepdims: Value, *, op: str) -> Array:
    if isinstance(axis, Array):
        message, help = f"{op} takes one array and an axis, not two arrays", f"write `{op}imum(x, y)`"
        raise CompileError("MT0102", message, help=help)
    a = t.strong(x)
    if not a.shape and axis not in (None, ()):
        help = f"for the {op} of two write `{op}imum(x, y)`"
        raise CompileError("MT0204", f"{op} over an axis of a 0-d array", help=help)
    axes = as_axes(axis, len(a.shape))
    _require_nonempty(t, op, a.shape, axes)
    return _reduce(t, OF_TRUTH[op] if a.dtype == bool_ else op, a, axes, keepdims, a.dtype)


def _logical(t: Typer, x: Value, axis: Value, keepdims: Value, *, op: str) -> Array:
    a = t.cast(x, bool_)
    return _reduce(t, op, a, as_axes(axis, len(a.shape)), keepdims, bool_)


def _bits(t: Typer, x: Value, axis: Value, keepdims: Value, *, op: str) -> Array:
    a = t.strong(x)
    _require_accepted(op, a.dtype)
    return _reduce(t, op, a, as_axes(axis, len(a.shape)), keepdims, a.dtype)


def _position(t: Typer, x: Value, axis: Value, keepdims: Value, *, op: str) -> Array:
    a = t.array(x)
    a = t.cast(a, i32) if a.dtype == bool_ else a
    shape = a.shape
    if axis is None:
        a, axes = reshape(t, a, (dims.product(shape),)), (0,)
    else:
        axes = as_axes(axis, len(shape))
    if len(axes) != 1:
        raise CompileError("MT0204", f"{op} takes one axis or None")
    _require_nonempty(t, op, a.shape, axes)
    out = _reduce(t, op, a, axes, axis is not None and keepdims, i64)
    return _keep(t, out, shape, tuple(range(len(shape)))) if axis is None and keepdims else out


def _running_axis(op: str, x: Array, axis: Value) -> int:
    if axis is None and len(x.shape) != 1:
        raise CompileError("MT0204", f"cumulative_{op} of an array of rank {len(x.shape)} needs an axis")
    (k,) = as_axes(0 if axis is None else as_int(axis, "axis"), len(x.shape))
    return k


def _running_sum(t: Typer, x: Value, axis: Value, dtype: Value, include_initial: Value, *, op: str) -> Array:
    a = t.strong(x)
    k = _running_axis(op, a, axis)
    target = as_dtype(dtype, _accumulator(a.dtype))
    if target == bool_:
        raise CompileError("MT0202", f"cumulative_{op} does not give bool")
    out = Array(t.nodes.scan(op, t.convert(a, target), k), target)
    if not as_bool(include_initial, "include_initial"):
        return out
    first = full(t, (*a.shape[:k], 1, *a.shape[k + 1 :]), neutral(op, i64), target)
    return concat(t, (first, out), k)


def _running_kept(t: Typer, x: Value, axis: Value, *, op: str) -> Array:
    a = t.strong(x)
    k, held = _running_axis(op, a, axis), i32 if a.dtype == bool_ else a.dtype
    _require_accepted(op, held)
    out = Array(t.nodes.scan(op, t.convert(a, held), k), held)
    return t.cast(out, bool_) if a.dtype == bool_ else out  # a cast would round f16 and bf16


OF_TRUTH = {"max": "any", "min": "all"}  # what extremes of truth values are
FORMS: dict[Kind, Function] = {
    "sum": accumulate, "product": accumulate, "extreme": extreme, "logical": _logical, "bits": _bits,
    "position": _position,
}  # fmt: skip
RUNNING: dict[Kind, Function] = {
    "sum": _running_sum, "product": _running_sum, "extreme": _running_kept, "bits": _running_kept,
}  # fmt: skip

for _name, _row in REDUCTIONS.items():
    FUNCTIONS[_name] = partial(FORMS[_row.kind], op=_name)
for _name in SCANS:
    FUNCTIONS[f"cumulative_{_name}"] = partial(RUNNING[REDUCTIONS[_name].kind], op=_name)
