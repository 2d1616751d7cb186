"""The meaning of each function of the language, in numpy.

In: values, as the syntax evaluator holds them. Out: values. Elementwise meaning is in the
operator table; everything else is one line or a few in `FUNCTIONS`, most of it numpy's own
function. What is ours and not numpy's is written here once:

    promotion     an integer with a float takes the float's dtype; numbers and dimensions are weak
    f16, bf16     are held as f32 (`DType.compute`) and rounded by `rounded` alone
    sums          of unsigned integers are u64, of other integers and booleans i64
    x[index]      one out of range reads NaN, 0 or False

Left out: good error messages, which the graph builder has already given.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitri.base import numpy_semantics
from minitri.base.diagnostics import CompileError
from minitri.base.numpy_semantics import REDUCTIONS, SCANS, Reduction
from minitri.base.operators import OPERATORS
from minitri.base.types import DType, bool_, f32, f64, i64, promote, u64


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """`data` has the dtype `dtype.compute`. `weak`: takes the dtype of what it meets. `wide`: the same value in f64, if
    it is f32 only because integers met a float number."""

    data: Any
    dtype: DType
    weak: bool = False
    wide: Any = None

    def moved(self, move: Callable[[Any], Any]) -> Array:
        """The array with its data moved, and nothing computed."""
        return Array(move(self.data), self.dtype, self.weak, None if self.wide is None else move(self.wide))


Value = Any  # Array, a Python number (dimensions too), str, None, DType, or a tuple of values


# ---- dtypes ----------------------------------------------------------------------------


def array(value: Value) -> Array:
    match value:
        case Array():
            return value
        case bool():
            return Array(np.asarray(value), bool_)
        case int():
            return Array(np.asarray(value), i64, weak=True)
        case float():
            return Array(np.asarray(value), f64, weak=True)
        case tuple():
            dtype, weak = meet(value)
            return Array(convert(value, dtype), dtype, weak)
    raise CompileError("MT0202", "an array or number is needed here")


def meet(values: Sequence[Value]) -> tuple[DType, bool]:
    """The dtype that values are brought to, and whether all of them were weak."""
    items = [array(v) for v in values]
    dtypes = [a.dtype for a in items if not a.weak]
    weak_float = any(a.weak and a.dtype.is_float for a in items)
    if not dtypes:
        return (f64 if weak_float else i64), True
    dtype = functools.reduce(promote, dtypes)
    if weak_float and not dtype.is_float:
        return f32, False
    return (i64 if dtype == bool_ and len(dtypes) < len(items) else dtype), False


def settled(*values: Value) -> DType:
    """The dtype that values meet in where nothing can stay weak: f32 for floats, i64 for integers."""
    dtype, weak = meet(values)
    return f32 if weak and dtype == f64 else dtype


def convert(value: Value, dtype: DType) -> Any:
    """The data as an operand of arithmetic in `dtype`."""
    if isinstance(value, Array):
        return numpy_semantics.cast(_best(value, dtype), dtype.compute)
    if isinstance(value, tuple):
        return np.stack([convert(v, dtype) for v in value])
    return numpy_semantics.cast(array(value).data, dtype.compute)


def rounded(value: Value, dtype: DType) -> Array:
    """What `astype` gives: f16 and bf16 lose their extra digits here, and only here."""
    exact = isinstance(value, tuple) and not (dtype.is_integer and meet(value)[0].is_float)
    data = convert(value, dtype) if exact else _best(array(value), dtype)
    return Array(numpy_semantics.cast(numpy_semantics.cast(data, dtype), dtype.compute), dtype)


def _best(value: Array, dtype: DType) -> Any:
    """The data to convert to `dtype`: with all digits, if f64 is to hold them."""
    return value.wide if value.wide is not None and dtype == f64 else value.data


def strong(value: Value) -> Array:
    dtype = settled(value)
    return Array(convert(value, dtype), dtype)


def elementwise(name: str, values: Sequence[Value]) -> Array:
    row = OPERATORS[name]
    promoted, weak = meet(values[1:] if row.operands == "where" else values)
    dtype = row.operand_dtype(promoted)
    dtype = f64 if weak and dtype == f32 else dtype
    if len(values) != row.arity or dtype.kind not in row.accepts:
        raise CompileError("MT0202", f"{name} does not take {len(values)} operands of {dtype}")
    choice = row.operands == "where"

    def applied(dtype: DType) -> Any:
        dtypes = (bool_ if choice else dtype, dtype, dtype)
        return np.asarray(row.numpy(*(convert(v, d) for v, d in zip(values, dtypes))))

    if row.result == "bool":
        return Array(applied(dtype), bool_)
    floats = [a for a in map(array, values[choice:]) if a.dtype.is_float and not a.weak]
    default = dtype == f32 and all(a.wide is not None for a in floats)
    return Array(applied(dtype), dtype, weak, applied(f64) if default else None)


# ---- reductions ------------------------------------------------------------------------


def _accumulator(dtype: DType) -> DType:
    return dtype if dtype.is_float else u64 if dtype.kind == "u" else i64


def _accumulate(function: Any, x: Value, dtype: DType | None, **rest: Any) -> Array:
    target = dtype or _accumulator(settled(x))
    return Array(function(convert(x, target), dtype=target.compute.numpy, **rest), target)


def _reduction(row: Reduction) -> Callable[..., Array]:
    """What a row of the table of reductions means."""

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
    """What the scan of a row means."""

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


def _std(x: Value, axis: Value, correction: float, keepdims: bool) -> Array:
    return elementwise("sqrt", [_var(x, axis, correction, keepdims)])


def _matmul(a: Value, b: Value, precision: str) -> Array:
    """In the compute dtype, of operands rounded to the dtype they meet in; numpy's `@` otherwise. All
    precisions are the same here: they say how much of it is computed."""
    dtype = settled(a, b)
    return Array(np.matmul(rounded(a, dtype).data, rounded(b, dtype).data), dtype)


def _einsum(subscripts: str, operands: Value, precision: str) -> Array:
    """Of two operands as for `@`; of more, each product is rounded to the dtype before the next."""
    given = operands if type(operands) is tuple else (operands,)
    dtype = settled(*given)
    return Array(np.asarray(np.einsum(subscripts, *(rounded(x, dtype).data for x in given))), dtype)


# ---- data movement ---------------------------------------------------------------------


def _view(function: Any) -> Callable[..., Array]:
    """numpy's function of the same parameters; a weak value stays weak."""

    def view(x: Value, **rest: Value) -> Array:
        return array(x).moved(lambda data: function(data, **rest))

    return view


def _reshape(x: Any, shape: Value) -> Any:
    """Where numpy cannot tell what -1 is (next to a size of 0), equal sizes of the two shapes cancel."""
    shape = shape if isinstance(shape, tuple) else (shape,)
    if -1 in shape and 0 in shape:
        rest = list(x.shape)
        for extent in shape:
            if extent in rest:
                rest.remove(extent)
        shape = tuple(math.prod(rest) if extent == -1 else extent for extent in shape)
    return np.reshape(x, shape)


def _join(function: Any) -> Callable[..., Array]:
    def join(arrays: tuple[Value, ...], axis: int) -> Array:
        dtype = settled(*arrays)
        return Array(np.asarray(function([convert(a, dtype) for a in arrays], axis=axis)), dtype)

    return join


def _pad(x: Value, pad_width: Value, constant_values: Value) -> Array:
    a = strong(x)
    return Array(np.pad(a.data, pad_width, constant_values=rounded(constant_values, a.dtype).data), a.dtype)


def _near(k: int, rows: int, columns: int) -> int:
    """A diagonal past the corners of a matrix is as good as the one next to the corner."""
    return max(-rows, min(k, columns))


def _triangle(function: Any) -> Callable[..., Array]:
    def triangle(x: Value, k: int) -> Array:
        a = strong(x)
        return Array(function(a.data, _near(k, *a.data.shape[-2:])), a.dtype)

    return triangle


# ---- indexing --------------------------------------------------------------------------


def subscript(x: Array, items: tuple[Any, ...]) -> Array:
    """numpy's indexing; an index array reads past the end of its axis where it is out of range."""
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
    """(index, data) with one more element at the end of the axis, which all bad indices read."""
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


def _full_like(x: Value, fill_value: Value, dtype: DType | None) -> Array:
    return _full(array(x).data.shape, fill_value, dtype or settled(x))


def _arange(start: Value, stop: Value, step: Value, dtype: DType | None) -> Array:
    start, stop = (0, start) if stop is None else (start, stop)
    if not any(isinstance(v, float) for v in (start, stop, step)):
        return rounded(_integer_range(start, stop, step), dtype or i64)
    target = dtype or f32
    steps = np.arange(max(0, math.ceil((stop - start) / step)))
    scaled = elementwise("multiply", [Array(numpy_semantics.cast(steps, target.compute), target), float(step)])
    return rounded(elementwise("add", [scaled, float(start)]), target)


def _integer_range(start: int, stop: int, step: int) -> Array:
    """numpy counts in i64, and wraps; Python's integers do not."""
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


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: _reduction(row) for name, row in REDUCTIONS.items()},
    **{f"cumulative_{name}": _scan(REDUCTIONS[name]) for name in SCANS},
    "mean": _mean, "var": _var, "std": _std,
    "matmul": _matmul, "einsum": _einsum,
    "reshape": _view(_reshape),
    "expand_dims": _view(np.expand_dims), "squeeze": _view(np.squeeze),
    "permute_dims": _view(np.transpose), "matrix_transpose": _view(lambda x: np.swapaxes(x, -1, -2)),
    "broadcast_to": _view(np.broadcast_to), "flip": _view(np.flip), "roll": _view(np.roll),
    "concat": _join(np.concatenate), "stack": _join(np.stack),
    "pad": _pad, "tril": _triangle(np.tril), "triu": _triangle(np.triu),
    "take": _take, "take_along_axis": _take_along_axis,
    "arange": _arange, "one_hot": _one_hot, "eye": _eye,
    "full": _full, "full_like": _full_like,
    "zeros": lambda shape, dtype: _full(shape, 0, dtype or f32),
    "ones": lambda shape, dtype: _full(shape, 1, dtype or f32),
    "zeros_like": lambda x, dtype: _full_like(x, 0, dtype),
    "ones_like": lambda x, dtype: _full_like(x, 1, dtype),
    "asarray": lambda obj, dtype: strong(obj) if dtype is None else rounded(obj, dtype),
    "astype": lambda x, dtype: rounded(x, dtype),
}  # fmt: skip
