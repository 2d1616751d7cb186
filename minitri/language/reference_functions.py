"""Defines, in numpy, the functions of the language that are not elementwise.

Each function takes and returns values of the reference evaluator: arrays, numbers and tuples (reference_arrays.py). The
operator table (operators.toml) defines the elementwise functions. The dictionary `FUNCTIONS` contains all functions
that are not elementwise, such as `sum`. Most functions in `FUNCTIONS` call the corresponding function of numpy. Two
rules of the language differ from the rules of numpy:

Sums of unsigned integers are u64. Sums of signed integers and of booleans are i64. If an index in `x[index]` is out of
range, the result is NaN for floats, 0 for integers, and False for booleans.

The functions have no helpful error messages, because the graph builder has already reported the program's errors.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.diagnostics import ensure
from minitri.base.operators import REDUCTIONS, SCANS, Reduction
from minitri.base.types import KINDS, DType, bool_, f32, f64, finfo, i64, iinfo, items_of, promote, u64
from minitri.language import reference_arrays as lifted
from minitri.language.reference_arrays import Array, Value, array, convert, elementwise, rounded, settled, strong
from minitri.language.signatures import SIGNATURES

# ---- reductions ------------------------------------------------------------------------


def _accumulate(function: Any, x: Value, dtype: DType | None, **rest: Any) -> Array:
    own = settled(x)
    target = dtype or (own if own.is_float else u64 if own.kind == "u" else i64)
    return Array(function(convert(x, target), dtype=target.compute.numpy, **rest), target)


def _reduction(row: Reduction, x: Value, axis: Value, keepdims: bool, dtype: DType | None = None) -> Array:
    """Computes a reduction, such as a sum, with numpy."""
    if row.kind in ("sum", "product"):
        return _accumulate(row.ufunc.reduce, x, dtype, axis=axis, keepdims=bool(keepdims))
    if row.kind == "position":
        (axis,) = items_of(axis)
        return Array(numpy_array_operations.position(row, array(x).data, axis, bool(keepdims)), i64)
    a = Array(array(x).data != 0, bool_) if row.kind == "logical" else strong(x)
    return Array(np.asarray(row.ufunc.reduce(a.data, axis=axis, keepdims=bool(keepdims))), a.dtype)


def _scan(
    row: Reduction, x: Value, axis: int | None, dtype: DType | None = None, include_initial: bool = False
) -> Array:  # fmt: skip
    """Computes a scan, such as a cumulative sum, with numpy."""
    axis = 0 if axis is None else axis
    if row.kind not in ("sum", "product"):
        a = strong(x)
        return Array(row.ufunc.accumulate(a.data, axis), a.dtype)
    out = _accumulate(row.ufunc.accumulate, x, dtype, axis=axis)
    if not include_initial:
        return out
    shape = [1 if k == axis % out.data.ndim else n for k, n in enumerate(out.data.shape)]
    first = np.full_like(out.data, row.neutral, shape=shape)
    return Array(np.concatenate([first, out.data], axis), out.dtype)


def _average(x: Array, axis: Value, keepdims: bool, correction: float = 0) -> Array:
    """Divides the sum of the elements by their number minus `correction`."""
    total = _accumulate(np.add.reduce, x, None, axis=axis, keepdims=bool(keepdims))
    axes = range(x.data.ndim) if axis is None else items_of(axis)
    rest = math.prod(x.data.shape[k] for k in axes) - correction
    return elementwise("divide", [total, rest if rest > 0 else np.nan])  # NaN if the divisor is <= 0


def mean(x: Value, axis: Value, keepdims: bool) -> Array:
    a = strong(x)
    if a.dtype not in (i64, u64):
        return _average(a, axis, keepdims)
    wide = _average(rounded(a, f64), axis, keepdims).data
    return Array(numpy_array_operations.cast(wide, f32), f32, wide=wide)


def var(x: Value, axis: Value, correction: float, keepdims: bool) -> Array:
    a = strong(x)
    a = a if a.dtype.is_float else rounded(a, f32)
    centred = elementwise("subtract", [a, _average(a, axis, True)])
    return _average(elementwise("square", [centred]), axis, keepdims, correction)


# ---- products --------------------------------------------------------------------------


def matmul(a: Value, b: Value, precision: str) -> Array:
    """Evaluates the operator `@` with numpy. The argument `precision` is not used here; it matters only in kernels."""
    return lifted.product(np.matmul, a, b)


def einsum(subscripts: str, operands: Value, precision: str) -> Array:
    """Evaluates `einsum` with numpy. The operands are first rounded to their common dtype, as in `@`.

    With more than two operands, such as a, b and c, the product `a * b` is rounded before it is multiplied by c.
    """
    given = operands if type(operands) is tuple else (operands,)
    dtype = settled(*given)
    return Array(np.asarray(np.einsum(subscripts, *(rounded(x, dtype).data for x in given))), dtype)


def matrix_power(x: Value, n: int) -> Array:
    """Computes the n-th power of a matrix by repeated squaring. Compiled programs multiply in the same order as this
    function, but numpy multiplies in a different order.
    """
    a, out = strong(x), None
    identity = Array(np.broadcast_to(np.eye(a.data.shape[-1], dtype=a.data.dtype), a.data.shape), a.dtype)
    while n:
        if n & 1:
            out = a if out is None else lifted.product(np.matmul, out, a)
        n >>= 1
        a = lifted.product(np.matmul, a, a) if n else a
    return identity if out is None else out


def matrix_norm(x: Value, keepdims: bool, ord: Value) -> Array:
    a = strong(elementwise("abs", [elementwise("multiply", [x, 1.0])]))
    data = np.linalg.norm(a.data, ord=ord, axis=(-2, -1), keepdims=keepdims)
    return Array(np.asarray(data, a.data.dtype), a.dtype)


# ---- indexing --------------------------------------------------------------------------


def subscript(x: Array, items: tuple[Any, ...]) -> Array:
    """Evaluates `x[items]` by numpy's rules.

    Where an index array has an index out of range, the result is NaN for floats, 0 for integers and False for booleans.
    """
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
    """Replaces each index out of range by the index of a nan or 0 that is appended to the data."""
    i = array(index).data
    ensure(i.dtype.kind in "iu", "MT0206", f"an index must be an integer, not {array(index).dtype}")
    extent = data.shape[axis]
    inside = (i >= -extent) & (i < extent)
    widths = [(0, int(k == axis)) for k in range(data.ndim)]
    fill = np.nan if data.dtype.kind == "f" else 0  # the appended element; 0 is False for booleans
    place = np.where(inside, i, 0).astype(np.int64)
    # out of range: the index of the appended element
    place = np.where(inside, np.where(place < 0, place + extent, place), extent)
    return place, np.pad(data, widths, constant_values=fill)


def take(x: Value, indices: Value, axis: int | None) -> Array:
    a = array(x)
    if axis is None:
        a, axis = a.moved(lambda data: data.reshape(-1)), 0
    return subscript(a, (slice(None),) * (axis % a.data.ndim) + (array(indices),))


def take_along_axis(x: Value, indices: Value, axis: int) -> Array:
    a = strong(x)
    index, data = _safe(indices, a.data, axis % a.data.ndim)
    return Array(np.take_along_axis(data, index, axis), a.dtype)


# ---- new arrays ------------------------------------------------------------------------


def full(shape: Value, fill_value: Value, dtype: DType | None) -> Array:
    value = rounded(fill_value, dtype or settled(fill_value))
    return Array(np.broadcast_to(value.data, shape), value.dtype)


def arange(start: Value, stop: Value, step: Value, dtype: DType | None) -> Array:
    start, stop = (0, start) if stop is None else (start, stop)
    if not any(isinstance(v, float) for v in (start, stop, step)):
        return rounded(_integer_range(start, stop, step), dtype or i64)
    target = dtype or f32
    steps = np.arange(max(0, math.ceil((stop - start) / step)))
    scaled = elementwise("multiply", [Array(numpy_array_operations.cast(steps, target.compute), target), float(step)])
    return rounded(elementwise("add", [scaled, float(start)]), target)


def _integer_range(start: int, stop: int, step: int) -> Array:
    """Returns an array of the integers in a range."""
    if max(abs(start), abs(stop), abs(step)) < 2**62:
        return Array(np.arange(start, stop, step, dtype=np.int64), i64)
    numbers = range(start, stop, step)  # numpy would count in i64, which wraps around
    wide = u64 if max(numbers, default=0) > i64.limits[1] else i64
    return Array(np.array([*numbers], wide.numpy), wide)


def one_hot(x: Value, num_classes: int, dtype: DType | None) -> Array:
    return rounded(Array(array(x).data[..., None] == np.arange(num_classes), bool_), dtype or f32)


def eye(n_rows: int, n_cols: int | None, k: int, dtype: DType | None) -> Array:
    k = _near(k, n_rows, n_rows if n_cols is None else n_cols)
    return rounded(Array(np.eye(n_rows, n_cols, k, dtype=bool), bool_), dtype or f32)


def _near(k: int, rows: int, columns: int) -> int:
    """Limits the offset of a diagonal to the size of the matrix."""
    return max(-rows, min(k, columns))  # diagonals at and beyond these offsets are empty


def _triangle(function: Any, x: Value, k: int) -> Array:
    a = strong(x)
    return Array(function(a.data, _near(k, *a.data.shape[-2:])), a.dtype)


# ---- moving data -----------------------------------------------------------------------


@lifted.view
def reshape(x: Any, shape: Value) -> Any:
    """Evaluates `reshape`.

    numpy cannot compute the size for -1 in a shape with a 0, such as `(0, -1, 3)`. For such a shape, this function
    computes the size itself. To reshape from (0, 33) to (0, -1, 3), for example, the function removes the 0 from both
    shapes and divides 33 by 3.
    """
    shape = items_of(shape)
    if -1 in shape and 0 in shape:
        old, new = Counter(x.shape), Counter(extent for extent in shape if extent != -1)
        size = math.prod((old - new).elements()) // math.prod((new - old).elements())
        shape = tuple(size if extent == -1 else extent for extent in shape)
    return np.reshape(x, shape)


def pad(x: Value, pad_width: Value, constant_values: Value) -> Array:
    a = strong(x)
    return Array(np.pad(a.data, pad_width, constant_values=rounded(constant_values, a.dtype).data), a.dtype)


@lifted.view
def flatten(x: Any, start_dim: int, end_dim: int) -> Any:
    x = np.atleast_1d(x)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    joined = int(np.prod(x.shape[first : last + 1], dtype=np.int64))
    return x.reshape(*x.shape[:first], joined, *x.shape[last + 1 :])


def _divided(function: Any, x: Value, **given: Value) -> tuple[Array, ...]:
    """Applies a numpy function that returns several arrays, such as `np.split`."""
    a = array(x)
    return tuple(Array(part, a.dtype, a.weak) for part in function(a.data, **given))


@lifted.view
def diagonal(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    return np.diagonal(x, _near(offset, x.shape[axis1], x.shape[axis2]), axis1, axis2)


def diag(x: Value, k: int) -> Array:
    a = strong(x)
    return Array(np.diag(a.data, k if a.data.ndim == 1 else _near(k, *a.data.shape)), a.dtype)


@lifted.view
def repeat(x: Any, repeats: Value, axis: int | None) -> Any:
    return np.repeat(x, list(repeats) if isinstance(repeats, tuple) else repeats, axis)


def _together(function: Any, arrays: Value, **given: Value) -> tuple[Array, ...]:
    """Applies a numpy function that returns an array for each operand, such as `np.meshgrid`."""
    parts = [array(a) for a in items_of(arrays)]
    return tuple(Array(d, p.dtype, p.weak) for d, p in zip(function(*(p.data for p in parts), **given), parts))


def broadcast_shapes(shapes: Value) -> tuple[int, ...]:
    several = isinstance(shapes, tuple) and any(isinstance(s, tuple) for s in shapes)
    return tuple(np.broadcast_shapes(*(shapes if several else (shapes,))))


def diff(x: Value, axis: int, n: int, prepend: Value, append: Value) -> Array:
    """Computes the differences of neighbouring elements, in the common dtype of the arrays `x`, `prepend` and `append`.

    The arrays are converted to their common dtype first, because numpy's own rules can give another common dtype.
    """
    dtype = settled(*(v for v in (prepend, x, append) if v is not None))
    ends = {k: convert(v, dtype) for k, v in (("prepend", prepend), ("append", append)) if v is not None}
    whole = convert(x, dtype)
    length = whole.shape[axis] + sum(e.shape[axis] if e.ndim else 1 for e in ends.values())
    return Array(np.diff(whole, min(n, length), axis, **ends), dtype)


# ---- searching, and facts about dtypes -------------------------------------------------


def searchsorted(x1: Value, x2: Value, side: str, sorter: Value) -> Array:
    """Searches a sorted array by the same sequence of comparisons as a compiled program.

    For an unsorted array, a binary search has no meaningful result, but evaluator and compiled program still agree.
    """
    a, wanted = convert(x1, settled(x1, x2)), convert(x2, settled(x1, x2))
    a = a if sorter is None else a[array(sorter).data]
    found, is_nan = np.zeros(wanted.shape, np.int64), wanted != wanted
    for bit in reversed(range(len(a).bit_length())):
        place = found + (1 << bit)
        inside = place <= len(a)
        read = a[np.where(inside, place - 1, 0)]
        before = (read <= wanted) | is_nan if side == "right" else (read < wanted) | (is_nan & (read == read))
        found = np.where(inside & before, place, found)
    return Array(found, settled(0))


def result_type(arrays_and_dtypes: Value) -> DType:
    given = items_of(arrays_and_dtypes)
    return settled(*(Array(np.zeros((), v.compute.numpy), v) if isinstance(v, DType) else v for v in given))


def can_cast(from_: Value, to: DType) -> bool:
    return promote(from_.dtype if isinstance(from_, Array) else from_, to) == to


def isdtype(dtype: DType, kind: Value) -> bool:
    return any(dtype == k if isinstance(k, DType) else dtype.kind in KINDS[k] for k in items_of(kind))


# Functions that numpy has by the same name, and with the same parameters.
_VIEWS = ("broadcast_to", "expand_dims", "flip", "moveaxis", "roll", "squeeze", "swapaxes")
_JOINS = ("column_stack", "dstack", "hstack", "stack", "vstack")

# Maps names of the language to functions. A function above with a name of the language is in the map too.
FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: function for name, function in globals().items() if name in SIGNATURES},
    **{name: partial(_reduction, row) for name, row in REDUCTIONS.items()},
    **{f"cumulative_{name}": partial(_scan, REDUCTIONS[name]) for name in SCANS},
    "tensordot": partial(lifted.product, np.tensordot),
    "kron": partial(lifted.product, np.kron, exact=True), "cross": partial(lifted.product, np.cross, exact=True),
    "tril": partial(_triangle, np.tril), "triu": partial(_triangle, np.triu),
    "asarray": lambda obj, dtype: strong(obj) if dtype is None else rounded(obj, dtype),
    "astype": lambda x, dtype: rounded(x, dtype),
    **{name: lifted.view(getattr(np, name)) for name in _VIEWS},
    **{name: partial(lifted.join, getattr(np, name)) for name in _JOINS},
    "permute_dims": lifted.view(np.transpose), "matrix_transpose": lifted.view(lambda x: np.swapaxes(x, -1, -2)),
    "tile": lifted.view(lambda x, repetitions: np.tile(x, repetitions)), "concat": partial(lifted.join, np.concatenate),
    "broadcast_arrays": partial(_together, np.broadcast_arrays), "meshgrid": partial(_together, np.meshgrid),
    "split": partial(_divided, np.split), "unstack": partial(_divided, lambda x, axis: np.moveaxis(x, axis, 0)),
    "finfo": lambda type: finfo(type.dtype if isinstance(type, Array) else type),
    "iinfo": lambda type: iinfo(type.dtype if isinstance(type, Array) else type),
}  # fmt: skip
