"""What reductions, products, subscripts and new arrays mean, in numpy.

In: values of the reference evaluator. Out: values. The operator table defines elementwise functions. `FUNCTIONS`, here
and in reference_views.py, defines all others in a few lines each, mostly by numpy's own function. Two rules differ
from numpy's:

    sums          of unsigned integers are u64, of other integers and booleans i64
    x[index]      one out of range reads NaN, 0 or False

Left out: good error messages. The graph builder gives them first.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minitri.base import numpy_semantics
from minitri.base.diagnostics import CompileError
from minitri.base.operators import REDUCTIONS, SCANS, Reduction
from minitri.base.types import DType, bool_, f32, f64, i64, u64
from minitri.language import reference_arrays as lifted
from minitri.language.reference_arrays import Array, Value, array, convert, elementwise, rounded, settled, strong

# ---- reductions ------------------------------------------------------------------------


def _accumulator(dtype: DType) -> DType:
    return dtype if dtype.is_float else u64 if dtype.kind == "u" else i64


def _accumulate(function: Any, x: Value, dtype: DType | None, **rest: Any) -> Array:
    target = dtype or _accumulator(settled(x))
    return Array(function(convert(x, target), dtype=target.compute.numpy, **rest), target)


def _reduction(row: Reduction) -> Callable[..., Array]:
    """The meaning of a reduction, from its row of the table."""

    def accumulated(x: Value, axis: Value, keepdims: bool, dtype: DType | None) -> Array:
        return _accumulate(row.ufunc.reduce, x, dtype, axis=axis, keepdims=bool(keepdims))

    def position(x: Value, axis: Value, keepdims: bool) -> Array:
        (axis,) = axis if isinstance(axis, tuple) else (axis,)
        return Array(numpy_semantics.position(row, array(x).data, axis, bool(keepdims)), i64)

    def kept(x: Value, axis: Value, keepdims: bool) -> Array:
        a = Array(array(x).data != 0, bool_) if row.kind == "logical" else strong(x)
        return Array(np.asarray(row.ufunc.reduce(a.data, axis=axis, keepdims=bool(keepdims))), a.dtype)

    match row.kind:
        case "sum" | "product":
            return accumulated
        case "position":
            return position
        case "extreme" | "logical" | "bits":
            return kept


def _scan(row: Reduction) -> Callable[..., Array]:
    """The meaning of a scan, from its row of the table of reductions."""

    def accumulated(x: Value, axis: int | None, dtype: DType | None, include_initial: bool) -> Array:
        axis = 0 if axis is None else axis
        out = _accumulate(row.ufunc.accumulate, x, dtype, axis=axis)
        if not include_initial:
            return out
        shape = [1 if k == axis % out.data.ndim else n for k, n in enumerate(out.data.shape)]
        first = np.full_like(out.data, row.neutral, shape=shape)
        return Array(np.concatenate([first, out.data], axis), out.dtype)

    def kept(x: Value, axis: int | None) -> Array:
        a = strong(x)
        return Array(row.ufunc.accumulate(a.data, 0 if axis is None else axis), a.dtype)

    return accumulated if row.kind in ("sum", "product") else kept


def _average(x: Array, axis: Value, keepdims: bool, correction: float = 0) -> Array:
    """The sum divided by `count - correction`, or NaN where that is 0 or less."""
    total = _accumulate(np.add.reduce, x, None, axis=axis, keepdims=bool(keepdims))
    axes = range(x.data.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    count = math.prod(x.data.shape[k] for k in axes)
    rest = count - correction
    return elementwise("divide", [total, rest if rest > 0 else np.nan])


def _mean(x: Value, axis: Value, keepdims: bool) -> Array:
    a = strong(x)
    if a.dtype not in (i64, u64):
        return _average(a, axis, keepdims)
    wide = _average(rounded(a, f64), axis, keepdims).data
    return Array(numpy_semantics.cast(wide, f32), f32, wide=wide)


def _var(x: Value, axis: Value, correction: float, keepdims: bool) -> Array:
    a = strong(x)
    a = a if a.dtype.is_float else rounded(a, f32)
    centred = elementwise("subtract", [a, _average(a, axis, True)])
    return _average(elementwise("square", [centred]), axis, keepdims, correction)


# ---- products --------------------------------------------------------------------------


def _matmul(a: Value, b: Value, precision: str) -> Array:
    """numpy's `@`. `precision` matters only to kernels."""
    return lifted.product(np.matmul)(a, b)


def _einsum(subscripts: str, operands: Value, precision: str) -> Array:
    """Two operands are multiplied as by `@`. With more, each product is rounded to the dtype before the next."""
    given = operands if type(operands) is tuple else (operands,)
    dtype = settled(*given)
    return Array(np.asarray(np.einsum(subscripts, *(rounded(x, dtype).data for x in given))), dtype)


def _matrix_power(x: Value, n: int) -> Array:
    """By repeated squaring. numpy multiplies in another order for n = 3."""
    a = strong(x)
    out = Array(np.broadcast_to(np.eye(a.data.shape[-1], dtype=a.data.dtype), a.data.shape), a.dtype)
    first = True
    while n:
        if n & 1:
            out = a if first else lifted.product(np.matmul)(out, a)
            first = False
        n >>= 1
        a = lifted.product(np.matmul)(a, a) if n else a
    return out


def _matrix_norm(x: Value, keepdims: bool, ord: Value) -> Array:
    a = strong(elementwise("abs", [elementwise("multiply", [x, 1.0])]))
    data = np.linalg.norm(a.data, ord=ord, axis=(-2, -1), keepdims=keepdims)
    return Array(np.asarray(data, a.data.dtype), a.dtype)


# ---- indexing --------------------------------------------------------------------------


def subscript(x: Array, items: tuple[Any, ...]) -> Array:
    """numpy's indexing. An index array that is out of range reads NaN, 0 or False."""
    if not any(isinstance(i, Array) for i in items):
        return x.moved(lambda data: data[items])
    data, axis, found = strong(x).data, 0, list[Any]()
    for item in items:
        if item is Ellipsis:
            axis += data.ndim - sum(i is not None and i is not Ellipsis for i in items)
        elif isinstance(item, Array):
            item, data = _safe(item, data, axis)
        found.append(item)
        axis += item is not None and item is not Ellipsis
    return Array(data[tuple(found)], settled(x))


def _safe(index: Value, data: Any, axis: int) -> tuple[Any, Any]:
    """Index and data, with one more element at the end of the axis. All bad indices read it."""
    i = array(index).data
    if i.dtype.kind not in "iu":
        raise CompileError("MT0206", f"an index must be an integer, not {array(index).dtype}")
    extent = data.shape[axis]
    inside = (i >= -extent) & (i < extent)
    widths = [(0, int(k == axis)) for k in range(data.ndim)]
    fill = np.nan if data.dtype.kind == "f" else 0
    place = np.where(inside, i, 0).astype(np.int64)
    place = np.where(inside, np.where(place < 0, place + extent, place), extent)
    return place, np.pad(data, widths, constant_values=fill)


def _take(x: Value, indices: Value, axis: int | None) -> Array:
    a = array(x)
    if axis is None:
        a, axis = a.moved(lambda data: data.reshape(-1)), 0
    return subscript(a, (slice(None),) * (axis % a.data.ndim) + (array(indices),))


def _take_along_axis(x: Value, indices: Value, axis: int) -> Array:
    a = strong(x)
    index, data = _safe(indices, a.data, axis % a.data.ndim)
    return Array(np.take_along_axis(data, index, axis), a.dtype)


# ---- making ----------------------------------------------------------------------------


def _full(shape: Value, fill_value: Value, dtype: DType | None) -> Array:
    value = rounded(fill_value, dtype or settled(fill_value))
    return Array(np.broadcast_to(value.data, shape), value.dtype)


def _arange(start: Value, stop: Value, step: Value, dtype: DType | None) -> Array:
    start, stop = (0, start) if stop is None else (start, stop)
    if not any(isinstance(v, float) for v in (start, stop, step)):
        return rounded(_integer_range(start, stop, step), dtype or i64)
    target = dtype or f32
    steps = np.arange(max(0, math.ceil((stop - start) / step)))
    scaled = elementwise("multiply", [Array(numpy_semantics.cast(steps, target.compute), target), float(step)])
    return rounded(elementwise("add", [scaled, float(start)]), target)


def _integer_range(start: int, stop: int, step: int) -> Array:
    """numpy counts in i64 and wraps around. Python's integers do not."""
    if max(abs(start), abs(stop), abs(step)) < 2**62:
        return Array(np.arange(start, stop, step, dtype=np.int64), i64)
    numbers = range(start, stop, step)
    wide = u64 if max(numbers, default=0) > i64.limits[1] else i64
    return Array(np.array([*numbers], wide.numpy), wide)


def _one_hot(x: Value, num_classes: int, dtype: DType | None) -> Array:
    return rounded(Array(array(x).data[..., None] == np.arange(num_classes), bool_), dtype or f32)


def _eye(n_rows: int, n_cols: int | None, k: int, dtype: DType | None) -> Array:
    k = _near(k, n_rows, n_rows if n_cols is None else n_cols)
    return rounded(Array(np.eye(n_rows, n_cols, k, dtype=bool), bool_), dtype or f32)


def _near(k: int, rows: int, columns: int) -> int:
    """Limits a diagonal's number to just past the corners. Every diagonal farther out is empty too."""
    return max(-rows, min(k, columns))


def _triangle(function: Any) -> Callable[..., Array]:
    def triangle(x: Value, k: int) -> Array:
        a = strong(x)
        return Array(function(a.data, _near(k, *a.data.shape[-2:])), a.dtype)

    return triangle


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: _reduction(row) for name, row in REDUCTIONS.items()},
    **{f"cumulative_{name}": _scan(REDUCTIONS[name]) for name in SCANS},
    "mean": _mean, "var": _var,
    "matmul": _matmul, "einsum": _einsum,
    "tensordot": lifted.product(lambda x1, x2, axes: np.tensordot(x1, x2, axes)),
    "kron": lifted.product(np.kron, exact=True), "cross": lifted.product(np.cross, exact=True),
    "matrix_power": _matrix_power, "matrix_norm": _matrix_norm,
    "tril": _triangle(np.tril), "triu": _triangle(np.triu),
    "take": _take, "take_along_axis": _take_along_axis,
    "arange": _arange, "one_hot": _one_hot, "eye": _eye,
    "full": _full,
    "asarray": lambda obj, dtype: strong(obj) if dtype is None else rounded(obj, dtype),
    "astype": lambda x, dtype: rounded(x, dtype),
}  # fmt: skip
