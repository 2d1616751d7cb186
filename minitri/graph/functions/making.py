"""Arrays joined from others, made from sizes and numbers, or converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.types import f32, i64
from minitri.graph import ir
from minitri.graph.compile_time import as_axes, as_dim, as_dtype, as_int, as_offset, as_shape
from minitri.graph.functions.ranges import arange
from minitri.graph.functions.registry import function
from minitri.graph.functions.views import expand_dims, reshape
from minitri.graph.ir import Shape
from minitri.graph.numbers_that_fit import names_in
from minitri.graph.typer import Array, Typer, Value, concat_shape, describe, view


@function
def concat(t: Typer, arrays: Value, axis: Value) -> Array:
    parts = _arrays(t, arrays, "concat")
    dtype = t.settled(parts)
    parts = [Array(t.convert(p, dtype), dtype) for p in parts]
    if axis is None:
        parts, axis = [reshape(t, p, (dims.product(p.shape),)) for p in parts], 0
    ranks = {len(p.shape) for p in parts}
    if len(ranks) != 1 or ranks == {0}:
        raise CompileError("MT0201", f"concat needs arrays of one rank, 1 or more, not {_listed(parts)}")
    (k,) = as_axes(as_int(axis, "axis"), len(parts[0].shape))
    nodes, listed = [parts[0].node], _listed(parts)
    for p in parts[1:]:
        for j, (e, first) in enumerate(zip(p.shape, parts[0].shape)):
            if j != k:
                message = f"concat along axis {k} of {listed}: sizes {first} and {e} of axis {j} differ"
                t.require(e, "==", first, "MT0201", message)
        shape = tuple(e if j == k else f for j, (e, f) in enumerate(zip(p.shape, parts[0].shape)))
        same = p.node if shape == p.shape else view(t, p, shape, [ir.axis(j) for j in range(len(shape))]).node
        nodes.append(same)
    return Array(t.nodes.concat(concat_shape(nodes, k), tuple(nodes), k), dtype)


def _arrays(t: Typer, arrays: Value, what: str) -> list[Array]:
    if not isinstance(arrays, tuple):
        help = f"write `{what}((x, y), axis=0)`"
        raise CompileError("MT0102", f"{what} takes a tuple or list of arrays, not {describe(arrays)}", help=help)
    if not arrays:
        raise CompileError("MT0102", f"{what} takes one array or more, and there is none")
    return [t.array(a) for a in arrays]


def _listed(parts: Sequence[Array]) -> str:
    """The types of the first few."""
    return ", ".join([*map(str, parts[:8]), *["…"] * (len(parts) > 8)])


@function
def stack(t: Typer, arrays: Value, axis: Value) -> Array:
    parts = _arrays(t, arrays, "stack")
    shape = t.broadcast_shapes([p.shape for p in parts], "parts of stack")
    if any(len(p.shape) != len(shape) for p in parts):
        raise CompileError("MT0201", f"stack needs arrays of one shape, not {_listed(parts)}")
    return concat(t, tuple(expand_dims(t, p, axis) for p in parts), axis)


@function
def pad(t: Typer, x: Value, pad_width: Value, constant_values: Value) -> Array:
    a = t.strong(x)
    for k, (before, after) in enumerate(_pad_widths(t, pad_width, len(a.shape))):
        pieces: list[Value] = []
        for width in (before, None, after):
            if width is None:
                pieces.append(a)
            elif width != 0:
                pieces.append(full(t, (*a.shape[:k], width, *a.shape[k + 1 :]), constant_values, a.dtype))
        a = concat(t, tuple(pieces), k) if len(pieces) > 1 else a
    return a


def _pad_widths(t: Typer, value: Value, rank: int) -> list[tuple[Dim, Dim]]:
    """numpy's forms: n, (before, after), ((before, after), …) for each axis. Widths are numbers or dimensions."""
    if not isinstance(value, tuple):
        value = (value, value)
    rows: list[Any] = list(value) if value and isinstance(value[0], tuple) else [value] * rank
    if len(rows) == 1:
        rows = rows * rank
    pairs = [row if isinstance(row, tuple) else (row, row) for row in rows]
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise CompileError("MT0205", f"pad_width of an array of rank {rank} is n, (before, after) or one pair an axis")
    return [(_pad_width(t, before), _pad_width(t, after)) for before, after in pairs]


def _pad_width(t: Typer, value: Value) -> Dim:
    width = as_dim(value, "a pad width")
    message = f"a pad width cannot be negative, and {width} is"
    t.require(width, ">=", dims.ZERO, "MT0205", message, label=names_in(width))
    return width


@function
def full(t: Typer, shape: Value, fill_value: Value, dtype: Value) -> Array:
    target = as_dtype(dtype, t.settled([fill_value]))
    extents = t.require_sizes(as_shape(shape))
    if isinstance(fill_value, tuple) or isinstance(fill_value, Array) and fill_value.shape != ():
        raise CompileError("MT0201", f"full takes a scalar, not {describe(fill_value)}")
    return Array(t.broadcast(t.cast(fill_value, target).node, extents), target)


@function
def zeros(t: Typer, shape: Value, dtype: Value) -> Array:
    return full(t, shape, 0, as_dtype(dtype, f32))


@function
def ones(t: Typer, shape: Value, dtype: Value) -> Array:
    return full(t, shape, 1, as_dtype(dtype, f32))


@function
def full_like(t: Typer, x: Value, fill_value: Value, dtype: Value) -> Array:
    a = t.array(x)
    return full(t, a.shape, fill_value, as_dtype(dtype, t.settled([a])))


@function
def zeros_like(t: Typer, x: Value, dtype: Value) -> Array:
    return full_like(t, x, 0, dtype)


@function
def ones_like(t: Typer, x: Value, dtype: Value) -> Array:
    return full_like(t, x, 1, dtype)


def _diagonal(t: Typer, shape: Shape, k: Value) -> Array:
    """row - column + k, over the last two axes."""
    rank = len(shape)
    if rank < 2:
        raise CompileError("MT0204", f"a triangle needs rank 2 or more, not {rank}")
    row = ir.axis(rank - 2) if shape[-2] != 1 else dims.ZERO
    column = ir.axis(rank - 1) if shape[-1] != 1 else dims.ZERO
    return Array(t.nodes.index(i64, shape, row - column + as_offset(k, "k")), i64)


@function
def tril(t: Typer, x: Value, k: Value) -> Array:
    a = t.strong(x)
    kept = t.elementwise("greater_equal", [_diagonal(t, a.shape, k), 0])
    return t.elementwise("where", [kept, a, t.cast(0, a.dtype)])


@function
def triu(t: Typer, x: Value, k: Value) -> Array:
    a = t.strong(x)
    kept = t.elementwise("less_equal", [_diagonal(t, a.shape, k), 0])
    return t.elementwise("where", [kept, a, t.cast(0, a.dtype)])


@function
def eye(t: Typer, n_rows: Value, n_cols: Value, k: Value, dtype: Value) -> Array:
    shape = t.require_sizes(as_shape((n_rows, n_rows if n_cols is None else n_cols)))
    on = t.elementwise("equal", [_diagonal(t, shape, k), 0])
    return t.cast(on, as_dtype(dtype, f32))


@function
def one_hot(t: Typer, x: Value, num_classes: Value, dtype: Value) -> Array:
    a = t.array(x)
    if not a.dtype.is_integer:
        raise CompileError("MT0202", f"one_hot takes integers, not {a.dtype}")
    (count,) = t.require_sizes((as_dim(num_classes, "num_classes"),))
    classes = arange(t, count, None, 1, None)
    on = t.elementwise("equal", [expand_dims(t, t.cast(a, i64), -1), classes])
    return t.cast(on, as_dtype(dtype, f32))


@function
def asarray(t: Typer, obj: Value, dtype: Value) -> Array:
    return t.strong(obj) if dtype is None else t.cast(obj, as_dtype(dtype, f32))


@function
def astype(t: Typer, x: Value, dtype: Value) -> Array:
    if dtype is None:
        raise CompileError("MT0202", "astype needs a dtype, not None", help="write f32, i64, bool, …")
    return t.cast(x, as_dtype(dtype, f32))
