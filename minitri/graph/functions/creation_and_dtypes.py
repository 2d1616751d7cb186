"""Defines functions that make arrays from sizes and numbers. Also defines functions about dtypes, such as conversions.

    arange(2, N, 3)      index {expr = 2 + 3*d0}

The function `arange` takes numbers and sizes, such as 2 and N, but no arrays. For integers, `arange` makes two nodes:
an `Index` node that computes in i64, and a conversion to the dtype of the result. If the integers are too large for an
`Index` node, `arange` multiplies the positions 0, 1, 2, … by the step, and adds the start. The multiplication and the
addition use i64 or u64, where an overflow wraps around. The functions result_type, can_cast, isdtype, finfo and iinfo
are computed at compile time.
"""

import math
from functools import partial

from minitri.base import types
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dims import Dim
from minitri.base.symbolic_minmax import largest
from minitri.base.types import KINDS, DType, Info, f32, i64, items_of, promote, u64
from minitri.graph.functions.views import expand_dims
from minitri.graph.ir import Shape, along
from minitri.graph.parameter_binding import FAR, as_dim, as_dtype, as_int, as_offset, as_shape
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure


def full(t: Typer, shape: Value, fill_value: Value, dtype: Value) -> Array:
    target = as_dtype(dtype, t.settled([fill_value]))
    extents = t.require_sizes(as_shape(shape))
    is_scalar = not isinstance(fill_value, tuple) and getattr(fill_value, "shape", ()) == ()
    ensure(is_scalar, "MT0201", f"full takes a scalar, not {describe(fill_value)}")
    return Array(t.broadcast(t.cast(fill_value, target).node, extents), target)


def _diagonal(t: Typer, shape: Shape, k: Value) -> Array:
    """Returns an array with row number minus column number plus `k` in each element."""
    rank = len(shape)
    ensure(rank >= 2, "MT0204", f"a triangle needs rank 2 or more, not {rank}")
    row, column = (along(k, shape[k]) for k in (rank - 2, rank - 1))
    return Array(t.nodes.index(i64, shape, row - column + as_offset(k, "k")), i64)


def _triangle(t: Typer, x: Strong, k: Value, *, relation: str) -> Array:
    kept = t.elementwise(relation, [_diagonal(t, x.shape, k), 0])
    return t.elementwise("where", [kept, x, t.cast(0, x.dtype)])


tril = partial(_triangle, relation="greater_equal")
triu = partial(_triangle, relation="less_equal")


def eye(t: Typer, n_rows: Value, n_cols: Value, k: Value, dtype: Value) -> Array:
    shape = t.require_sizes(as_shape((n_rows, n_rows if n_cols is None else n_cols)))
    return t.cast(t.elementwise("equal", [_diagonal(t, shape, k), 0]), as_dtype(dtype, f32))


def one_hot(t: Typer, x: Array, num_classes: Value, dtype: Value) -> Array:
    ensure(x.dtype.is_integer, "MT0202", f"one_hot takes integers, not {x.dtype}")
    (count,) = t.require_sizes((as_dim(num_classes, "num_classes"),))
    classes = arange(t, count, None, 1, None)
    on = t.elementwise("equal", [expand_dims(t, t.cast(x, i64), -1), classes])
    return t.cast(on, as_dtype(dtype, f32))


def asarray(t: Typer, obj: Value, dtype: Value) -> Array:
    return t.strong(obj) if dtype is None else t.cast(obj, as_dtype(dtype))


def astype(t: Typer, x: Value, dtype: Value) -> Array:
    return t.cast(x, as_dtype(dtype))


# ---- numbers with equal steps -------------------------------------------------------------------


def arange(t: Typer, start: Value, stop: Value, step: Value, dtype: Value) -> Array:
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, float) for v in (start, stop, step)):
        return _float_arange(t, start, stop, step, as_dtype(dtype, f32))
    first, last, by = as_dim(start, "start"), as_dim(stop, "stop"), as_int(step, "step")
    ensure(by != 0, "MT0205", "the step of arange must not be 0")
    count = largest(-((first - last) // by), 0)
    target = as_dtype(dtype, i64)
    if first.constant is not None and count.constant is not None:
        if max(abs(first.constant), abs(by) * count.constant) >= FAR:
            return t.cast(_far_range(t, first.constant, by, count.constant), target)
    stride = as_offset(by, "step") * along(0, count)
    return t.cast(Array(t.nodes.index(i64, (count,), first + stride), i64), target)


def _far_range(t: Typer, first: int, by: int, count: int) -> Array:
    """Computes `arange` for integers that can need all 64 bits of i64 or u64."""
    ends = (first, first + by * (count - 1)) if count else (0,)
    for wide in (i64, u64):
        low, high = wide.limits
        if low <= min(ends) and max(ends) <= high:
            steps = t.cast(positions(t, Dim.of(count)), wide)
            # the multiplication and the addition of i64 or u64 wrap around
            wrapped = (by - low) % 2**64 + low
            return t.elementwise("add", [t.elementwise("multiply", [steps, wrapped]), first if count else 0])
    raise CompileError("MT0208", f"arange from {first} to {ends[-1]} fits neither i64 nor u64")


def positions(t: Typer, count: Dim) -> Array:
    """Returns the array of the i64 numbers 0, 1, 2, … with `count` elements."""
    return Array(t.nodes.index(i64, (count,), along(0, count)), i64)


def _float_arange(t: Typer, start: Value, stop: Value, step: Value, dtype: DType) -> Array:
    are_known = all(isinstance(v, (int, float)) for v in (start, stop, step))
    ensure(are_known and step != 0, "MT0106", "arange takes numbers known at compile time, and a step that is not 0")
    try:
        count = math.ceil((stop - start) / step)  # type: ignore[operator]
    except (OverflowError, ValueError):
        raise CompileError("MT0205", "arange needs finite numbers, and not more steps than there are floats") from None
    steps = positions(t, Dim.of(max(0, count)))
    scaled = t.elementwise("multiply", [Array(t.convert(steps, dtype), dtype), float(step)])  # type: ignore[arg-type]
    return t.cast(t.elementwise("add", [scaled, float(start)]), dtype)  # type: ignore[arg-type]


# ---- questions about dtypes, answered at compile time --------------------------------------------


def result_type(t: Typer, arrays_and_dtypes: Value) -> DType:
    """Returns the promoted dtype of several arrays, dtypes and numbers."""
    given = items_of(arrays_and_dtypes)
    return t.settled([Array(t.constant(0, v), v) if isinstance(v, DType) else v for v in given])


def can_cast(t: Typer, from_: Value, to: Value) -> bool:
    """Checks whether the promoted dtype of `from_` and `to` is `to`. For example, i8 can be cast to i16, because i8 and
    i16 promote to i16.
    """
    return promote(_dtype_of(from_), as_dtype(to)) == to


def _dtype_of(value: Value) -> DType:
    """Returns the dtype of an array, or the argument itself if the argument is a dtype."""
    return value.dtype if isinstance(value, Array) else as_dtype(value)


def isdtype(t: Typer, dtype: Value, kind: Value) -> bool:
    """Checks whether `dtype` is the dtype `kind`, or belongs to a group of dtypes such as "integral".

    If `kind` is a tuple, checks whether `dtype` fits at least one item of the tuple.
    """
    own = as_dtype(dtype)
    return any(_is(own, k) for k in items_of(kind))


def _is(dtype: DType, kind: Value) -> bool:
    if isinstance(kind, DType):
        return dtype == kind
    if not isinstance(kind, str) or kind not in KINDS:
        shown = f"the kind {kind!r}"[:40] if isinstance(kind, str) else describe(kind)
        help = (isinstance(kind, str) and suggest(kind, KINDS)) or f"kinds are {listed([repr(k) for k in KINDS])}"
        raise CompileError("MT0202", f"isdtype does not know {shown}", help=help)
    return dtype.kind in KINDS[kind]


def finfo(t: Typer, type: Value) -> Info:
    return types.finfo(_dtype_of(type))


def iinfo(t: Typer, type: Value) -> Info:
    return types.iinfo(_dtype_of(type))
