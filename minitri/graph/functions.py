"""The functions of the language that are not elementwise, as graph nodes.

In: a Typer and the bound arguments of a call (minitri/signatures.py has the signatures).
Out: an Array. One Python function a language function, found by name in `FUNCTIONS`.
Data movement becomes a View whose index map says which element each result element is.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Sequence, TypeVar

from minitri import dims
from minitri.diagnostics import CompileError
from minitri.dims import Dim
from minitri.graph import ir
from minitri.graph.ir import Shape
from minitri.graph.typing import concat_shape, contract_type, reduce_type
from minitri.graph.values import Array, Typer, Value, as_axes, as_dim, as_int, as_shape, describe
from minitri.types import DType, bool_, f32, i32, i64, u64

Function = Callable[..., Value]
F = TypeVar("F", bound=Function)
FUNCTIONS: dict[str, Function] = {}


def function(implementation: F) -> F:
    FUNCTIONS[implementation.__name__.rstrip("_")] = implementation
    return implementation


def view(t: Typer, x: Array, shape: Sequence[Dim], index: Sequence[Dim]) -> Array:
    return Array(t.nodes.view(x.node, tuple(shape), tuple(index)), x.dtype, x.weak)


def as_dtype(value: Value, default: DType) -> DType:
    if value is None:
        return default
    if isinstance(value, DType):
        return value
    raise CompileError("MT0202", f"a dtype is needed here, not {describe(value)}", help="write f32, i64, bool, …")


# ---- reductions ------------------------------------------------------------------------


def _accumulator(dtype: DType) -> DType:
    """Sums and products of integers and booleans are i64 (u64 stays, it would not fit)."""
    return dtype if dtype.is_float or dtype == u64 else i64


def _reduce(t: Typer, op: str, x: Array, axes: tuple[int, ...], keepdims: Value, dtype: DType) -> Array:
    axes = tuple(sorted(axes))
    node = x.node
    if axes:
        result, shape = reduce_type(op, x.node, axes)
        node = t.nodes.reduce(op, result, shape, x.node, axes)
    out = Array(node, dtype)
    return _keep(t, out, x.shape, axes) if keepdims else out


def _keep(t: Typer, out: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    kept = [k for k in range(len(shape)) if k not in axes]
    full = tuple(dims.ONE if k in axes else e for k, e in enumerate(shape))
    return view(t, out, full, [ir.axis(k) for k in kept])


def _sum_like(t: Typer, op: str, x: Value, axis: Value, keepdims: Value, dtype: Value) -> Array:
    a = t.strong(x)
    target = as_dtype(dtype, _accumulator(a.dtype))
    if target == bool_:
        raise CompileError("MT0202", f"{op} does not give bool", help="use any or all")
    a = Array(t.convert(a, target), target)
    return _reduce(t, op, a, as_axes(axis, len(a.shape)), keepdims, target)


@function
def sum_(t: Typer, x: Value, axis: Value, keepdims: Value, dtype: Value) -> Array:
    return _sum_like(t, "sum", x, axis, keepdims, dtype)


@function
def prod(t: Typer, x: Value, axis: Value, keepdims: Value, dtype: Value) -> Array:
    return _sum_like(t, "prod", x, axis, keepdims, dtype)


def _count(t: Typer, shape: Shape, axes: tuple[int, ...], less: int = 0) -> Dim:
    count = dims.product([shape[k] for k in axes]) - less
    return dims.largest(count, 0) if less else count


def _average(t: Typer, x: Array, axes: tuple[int, ...], keepdims: Value, correction: int = 0) -> Array:
    total = _sum_like(t, "sum", x, axes, keepdims, None)
    size = _count(t, x.shape, axes, correction)
    return t.elementwise("divide", [total, size if size.constant is None else int(size)])


@function
def mean(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    a = t.array(x)
    return _average(t, a, as_axes(axis, len(a.shape)), keepdims)


@function
def var(t: Typer, x: Value, axis: Value, correction: Value, keepdims: Value) -> Array:
    a = t.strong(x)
    a = a if a.dtype.is_float else t.cast(a, f32)
    axes = as_axes(axis, len(a.shape))
    centred = t.elementwise("subtract", [a, _average(t, a, axes, True)])
    return _average(t, t.elementwise("square", [centred]), axes, keepdims, as_int(correction, "correction"))


@function
def std(t: Typer, x: Value, axis: Value, correction: Value, keepdims: Value) -> Array:
    return t.elementwise("sqrt", [var(t, x, axis, correction, keepdims)])


def _require_nonempty(t: Typer, op: str, shape: Shape, axes: tuple[int, ...]) -> None:
    for k in axes:
        t.require(shape[k], ">=", dims.ONE, "MT0209", f"{op} over an axis of size 0 has no value")


def _extreme(t: Typer, op: str, x: Value, axis: Value, keepdims: Value) -> Array:
    a = t.strong(x)
    axes = as_axes(axis, len(a.shape))
    _require_nonempty(t, op, a.shape, axes)
    if a.dtype == bool_:
        op = "any" if op == "max" else "all"
    return _reduce(t, op, a, axes, keepdims, a.dtype)


@function
def max_(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    return _extreme(t, "max", x, axis, keepdims)


@function
def min_(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    return _extreme(t, "min", x, axis, keepdims)


@function
def any_(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    a = t.cast(x, bool_)
    return _reduce(t, "any", a, as_axes(axis, len(a.shape)), keepdims, bool_)


@function
def all_(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    a = t.cast(x, bool_)
    return _reduce(t, "all", a, as_axes(axis, len(a.shape)), keepdims, bool_)


def _arg(t: Typer, op: str, x: Value, axis: Value, keepdims: Value) -> Array:
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


@function
def argmax(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    return _arg(t, "argmax", x, axis, keepdims)


@function
def argmin(t: Typer, x: Value, axis: Value, keepdims: Value) -> Array:
    return _arg(t, "argmin", x, axis, keepdims)


def _cumulative(t: Typer, op: str, x: Value, axis: Value, dtype: Value) -> Array:
    a = t.strong(x)
    if axis is None and len(a.shape) != 1:
        raise CompileError("MT0204", f"cumulative_{op} of an array of rank {len(a.shape)} needs an axis")
    (k,) = as_axes(0 if axis is None else as_int(axis, "axis"), len(a.shape))
    target = as_dtype(dtype, _accumulator(a.dtype))
    if target == bool_:
        raise CompileError("MT0202", f"cumulative_{op} does not give bool")
    return Array(t.nodes.scan(op, t.convert(a, target), k), target)


@function
def cumulative_sum(t: Typer, x: Value, axis: Value, dtype: Value) -> Array:
    return _cumulative(t, "sum", x, axis, dtype)


@function
def cumulative_prod(t: Typer, x: Value, axis: Value, dtype: Value) -> Array:
    return _cumulative(t, "prod", x, axis, dtype)


# ---- contraction -----------------------------------------------------------------------


@function
def matmul(t: Typer, a: Value, b: Value) -> Array:
    """numpy's rules: 1-D operands are a row and a column whose axis is dropped again."""
    x, y = t.array(a), t.array(b)
    if not x.shape or not y.shape:
        raise CompileError("MT0203", f"@ takes arrays of rank 1 or more, not {x} and {y}", help="use * for scalars")
    dtype = t.settled([x, y])
    row, column = len(x.shape) == 1, len(y.shape) == 1
    _require_contraction(t, x, y)
    x = Array(t.convert(t.cast(x, dtype), dtype), dtype)
    y = Array(t.convert(t.cast(y, dtype), dtype), dtype)
    x = expand_dims(t, x, 0) if row else x
    y = expand_dims(t, y, 1) if column else y
    batch = t.broadcast_shapes([x.shape[:-2], y.shape[:-2]], "batches of @")
    xn = t.broadcast(x.node, (*batch, *x.shape[-2:]))
    yn = t.broadcast(y.node, (*batch, x.shape[-1], y.shape[-1]))
    out = _contract(t, Array(xn, dtype), Array(yn, dtype), dtype)
    dropped = ([-2] if row else []) + ([-1] if column else [])
    return squeeze(t, out, tuple(dropped)) if dropped else out


def _require_contraction(t: Typer, x: Array, y: Array) -> None:
    k, other = x.shape[-1], y.shape[-1 if len(y.shape) == 1 else -2]
    left, right = t.operands or ("the left", "the right")
    help = "the last axis of the left must equal the last but one of the right"
    if len(y.shape) >= 2 and y.shape[-1] == k:
        plain = right.removesuffix(".mT").removesuffix(".T")
        help = f"drop the transpose: `{left} @ {plain}`" if plain != right else f"transpose: `{left} @ {right}.mT`"
    label = f"{left} is {x}, {right} is {y}"
    t.require(k, "==", other, "MT0203", f"matmul contracts {k} with {other}", label=label, help=help)


def _contract(t: Typer, x: Array, y: Array, dtype: DType) -> Array:
    """A Contract where tensor cores serve (floats, both sides wider than 1), else multiply and sum."""
    if dtype.is_float and x.shape[-2] != 1 and y.shape[-1] != 1:
        a, b = t.rounded(x), t.rounded(y)
        b = a if b is a else b
        result, shape = contract_type(a, t.broadcast(b, (*b.shape[:-2], a.shape[-1], b.shape[-1])))
        return Array(t.nodes.contract(result, shape, a, b, "ieee"), dtype)
    rank = len(x.shape)
    batch = [ir.axis(k) for k in range(rank - 2)]
    m, n, k = ir.axis(rank - 2), ir.axis(rank - 1), ir.axis(rank)
    shape = (*x.shape[:-1], y.shape[-1], x.shape[-1])
    left = view(t, x, shape, [*batch, m if x.shape[-2] != 1 else dims.ZERO, k])
    right = view(t, y, shape, [*batch, k, n if y.shape[-1] != 1 else dims.ZERO])
    if dtype == bool_:
        return _reduce(t, "any", t.elementwise("logical_and", [left, right]), (rank,), False, bool_)
    return _reduce(t, "sum", t.elementwise("multiply", [left, right]), (rank,), False, dtype)


# ---- views -----------------------------------------------------------------------------


@function
def reshape(t: Typer, x: Value, shape: Value) -> Array:
    a = t.array(x)
    target = _resolve_minus_one(t, a.shape, as_shape(shape))
    index: list[Dim] = []
    first = 0
    for old, new in _groups(a.shape, target):
        index += _regroup(old, new, first)
        first += len(new)
    old_size, new_size = dims.product(a.shape), dims.product(target)
    message = f"cannot reshape {a} to [{', '.join(map(str, target))}]: {old_size} elements are not {new_size}"
    t.require(old_size, "==", new_size, "MT0205", message)
    ranges = ir.ranges(target)
    return view(t, a, target, [dims.simplify(i, ranges) for i in index])


def _resolve_minus_one(t: Typer, old: Shape, shape: Shape) -> Shape:
    holes = [k for k, e in enumerate(shape) if e == -1]
    if any(e.constant is not None and e.constant < -1 for e in shape) or len(holes) > 1:
        raise CompileError("MT0205", "a shape has at most one -1 and no other negative sizes")
    if not holes:
        return shape
    rest, known = _cancelled(old, [e for e in shape if e != -1])
    message = "cannot tell what -1 stands for next to a size of 0"
    t.require(known, ">=", dims.ONE, "MT0205", message)
    return tuple(rest // known if e == -1 else e for e in shape)


def _cancelled(old: Shape, new: Sequence[Dim]) -> tuple[Dim, Dim]:
    """The sizes of two shapes without the extents that stand in both, which may be 0."""
    left, right = list(old), []
    for e in new:
        if e in left:
            left.remove(e)
        else:
            right.append(e)
    return dims.product(left), dims.product(right)


def _groups(old: Shape, new: Shape) -> list[tuple[Shape, Shape]]:
    """Splits both shapes into the shortest runs of equal size: [A, B, C] to [A*B, C] is (A B | A*B), (C | C)."""
    out: list[tuple[Shape, Shape]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        run = _next_run(old[i:], new[j:])
        out.append((old[i : i + run[0]], new[j : j + run[1]]))
        i, j = i + run[0], j + run[1]
    return out


def _next_run(old: Shape, new: Shape) -> tuple[int, int]:
    products = {dims.product(new[:q]): q for q in range(len(new), 0, -1)}
    for p in range(1, len(old) + 1):
        q = products.get(dims.product(old[:p]))
        if q is not None and (p < len(old)) == (q < len(new)):
            return p, q
        if q is not None and dims.product(old[p:]) == dims.product(new[q:]):
            return p, q
    return len(old), len(new)


def _regroup(old: Shape, new: Shape, first: int) -> list[Dim]:
    """Indices into `old` from axes d_first … of `new`, both row-major."""
    if len(old) == len(new) == 1:
        return [ir.axis(first)]
    flat = dims.ZERO
    for k, extent in enumerate(new):
        flat = flat * extent + (ir.axis(first + k) if extent != 1 else 0)
    out: list[Dim] = []
    for k, extent in enumerate(old):
        place = flat // dims.product(old[k + 1 :])
        out.append(dims.ZERO if extent == 1 else place if k == 0 else place % extent)
    return out


@function
def expand_dims(t: Typer, x: Value, axis: Value) -> Array:
    a = t.array(x)
    count = len(axis) if isinstance(axis, tuple) else 1
    new = as_axes(axis if axis is not None else (), len(a.shape) + count) if count else ()
    rank = len(a.shape) + len(new)
    kept = [k for k in range(rank) if k not in new]
    shape = [dims.ONE] * rank
    for k, e in zip(kept, a.shape):
        shape[k] = e
    return view(t, a, shape, [ir.axis(k) for k in kept])


@function
def squeeze(t: Typer, x: Value, axis: Value) -> Array:
    a = t.array(x)
    if axis is None:
        gone = tuple(k for k, e in enumerate(a.shape) if e == 1)
        for e in (e for e in a.shape if e.constant is None):
            message = f"squeeze of {a} without an axis would drop {e} too"
            t.require(e, "!=", dims.ONE, "MT0205", message, help="name the axis: squeeze(x, axis=0)")
    else:
        gone = as_axes(axis, len(a.shape))
    for k in gone:
        message = f"cannot squeeze axis {k} of {a}: its size {a.shape[k]} is not 1"
        t.require(a.shape[k], "==", dims.ONE, "MT0205", message)
    kept = [k for k in range(len(a.shape)) if k not in gone]
    index = [dims.ZERO if k in gone else ir.axis(kept.index(k)) for k in range(len(a.shape))]
    return view(t, a, [a.shape[k] for k in kept], index)


@function
def permute_dims(t: Typer, x: Value, axes: Value) -> Array:
    a = t.array(x)
    rank = len(a.shape)
    order = tuple(reversed(range(rank))) if axes is None else as_axes(axes, rank, "axes")
    if len(order) != rank:
        raise CompileError("MT0204", f"permute_dims of rank {rank} needs {rank} axes, not {len(order)}")
    return view(t, a, [a.shape[k] for k in order], [ir.axis(order.index(k)) for k in range(rank)])


@function
def matrix_transpose(t: Typer, x: Value) -> Array:
    rank = len(t.array(x).shape)
    if rank < 2:
        raise CompileError("MT0204", f"a matrix transpose needs rank 2 or more, not {rank}")
    return permute_dims(t, x, (*range(rank - 2), rank - 1, rank - 2))


@function
def broadcast_to(t: Typer, x: Value, shape: Value) -> Array:
    a, target = t.array(x), as_shape(shape)
    for have, want in zip(reversed(a.shape), reversed(target)):
        message = f"cannot broadcast {a} to [{', '.join(map(str, target))}]: {have} is not {want}"
        if have != 1:
            t.require(have, "==", want, "MT0205", message)
    if len(a.shape) > len(target):
        raise CompileError("MT0205", f"cannot broadcast {a} to fewer axes")
    return Array(t.broadcast(a.node, target), a.dtype, a.weak)


@function
def flip(t: Typer, x: Value, axis: Value) -> Array:
    a = t.array(x)
    axes = as_axes(axis, len(a.shape))
    index = [e - 1 - ir.axis(k) if k in axes else ir.axis(k) for k, e in enumerate(a.shape)]
    return view(t, a, a.shape, index)


@function
def roll(t: Typer, x: Value, shift: Value, axis: Value) -> Array:
    a = t.array(x)
    if axis is None:
        flat = reshape(t, a, (dims.product(a.shape),))
        return reshape(t, roll(t, flat, shift, 0), a.shape)
    axes = as_axes(axis, len(a.shape))
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise CompileError("MT0102", f"roll has {len(shifts)} shifts for {len(axes)} axes")
    by = dict(zip(axes, (as_int(s, "shift") for s in shifts)))
    index = [(ir.axis(k) - by[k]) % dims.largest(e, 1) if k in by else ir.axis(k) for k, e in enumerate(a.shape)]
    return view(t, a, a.shape, index)


# ---- joining and making ----------------------------------------------------------------


@function
def concat(t: Typer, arrays: Value, axis: Value) -> Array:
    parts = _arrays(t, arrays, "concat")
    dtype = t.settled(parts)
    parts = [Array(t.convert(p, dtype), dtype) for p in parts]
    ranks = {len(p.shape) for p in parts}
    if len(ranks) != 1 or ranks == {0}:
        raise CompileError("MT0201", f"concat needs arrays of one rank, 1 or more, not {_listed(parts)}")
    (k,) = as_axes(as_int(axis, "axis"), len(parts[0].shape))
    nodes = [parts[0].node]
    for p in parts[1:]:
        for j, (e, first) in enumerate(zip(p.shape, parts[0].shape)):
            message = f"concat along axis {k} of {_listed(parts)}: sizes {first} and {e} of axis {j} differ"
            if j != k:
                t.require(e, "==", first, "MT0201", message)
        shape = tuple(e if j == k else f for j, (e, f) in enumerate(zip(p.shape, parts[0].shape)))
        same = p.node if shape == p.shape else view(t, p, shape, [ir.axis(j) for j in range(len(shape))]).node
        nodes.append(same)
    return Array(t.nodes.concat(concat_shape(nodes, k), tuple(nodes), k), dtype)


def _arrays(t: Typer, arrays: Value, what: str) -> list[Array]:
    if not isinstance(arrays, tuple) or not arrays:
        raise CompileError("MT0102", f"{what} takes a tuple or list of arrays, not {describe(arrays)}")
    return [t.array(a) for a in arrays]


def _listed(parts: Sequence[Array]) -> str:
    return ", ".join(map(str, parts))


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
    for k, (before, after) in enumerate(_pad_widths(pad_width, len(a.shape))):
        pieces: list[Value] = []
        for width in (before, None, after):
            if width is None:
                pieces.append(a)
            elif width:
                shape = (*a.shape[:k], dims.Dim.of(width), *a.shape[k + 1 :])
                pieces.append(full(t, shape, constant_values, a.dtype))
        a = concat(t, tuple(pieces), k) if len(pieces) > 1 else a
    return a


def _pad_widths(value: Value, rank: int) -> list[tuple[int, int]]:
    """numpy's forms: n, (before, after), ((before, after), …) for each axis."""
    if not isinstance(value, tuple):
        value = (value, value)
    rows: list[Any] = list(value) if value and isinstance(value[0], tuple) else [value] * rank
    if len(rows) == 1:
        rows = rows * rank
    out = [tuple(as_int(w, "a pad width") for w in (row if isinstance(row, tuple) else (row, row))) for row in rows]
    if len(out) != rank or any(len(row) != 2 or min(row) < 0 for row in out):
        raise CompileError("MT0205", f"pad_width of an array of rank {rank} is n, (before, after) or one pair an axis")
    return [(row[0], row[1]) for row in out]


@function
def full(t: Typer, shape: Value, fill_value: Value, dtype: Value) -> Array:
    value = t.array(fill_value)
    target = as_dtype(dtype, t.settled([fill_value]))
    extents = as_shape(shape)
    if any(e.constant is not None and e.constant < 0 for e in extents):
        raise CompileError("MT0205", "a size cannot be negative")
    if value.shape != ():
        raise CompileError("MT0201", f"full takes a scalar, not {value}")
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


@function
def arange(t: Typer, start: Value, stop: Value, step: Value, dtype: Value) -> Array:
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, float) for v in (start, stop, step)):
        return _float_arange(t, start, stop, step, as_dtype(dtype, f32))
    first, last, by = as_dim(start, "start"), as_dim(stop, "stop"), as_int(step, "step")
    if by == 0:
        raise CompileError("MT0205", "the step of arange must not be 0")
    count = dims.largest(-((first - last) // by), 0)
    node = t.nodes.index(i64, (count,), first + by * ir.axis(0) if count != 1 else first)
    return t.cast(Array(node, i64), as_dtype(dtype, i64))


def _float_arange(t: Typer, start: Value, stop: Value, step: Value, dtype: DType) -> Array:
    if not all(isinstance(v, (int, float)) for v in (start, stop, step)) or not step:
        raise CompileError("MT0106", "arange takes numbers known at compile time, and a step that is not 0")
    span: float = (stop - start) / step  # type: ignore[operator]
    if not math.isfinite(span):
        raise CompileError("MT0205", "arange needs finite numbers")
    count = max(0, math.ceil(span))
    steps = Array(t.nodes.index(i64, (Dim.of(count),), ir.axis(0) if count != 1 else dims.ZERO), i64)
    scaled = t.elementwise("multiply", [Array(t.convert(steps, dtype), dtype), float(step)])  # type: ignore[arg-type]
    return t.cast(t.elementwise("add", [scaled, float(start)]), dtype)  # type: ignore[arg-type]


def _diagonal(t: Typer, shape: Shape, k: Value) -> Array:
    """row - column + k, over the last two axes."""
    rank = len(shape)
    if rank < 2:
        raise CompileError("MT0204", f"a triangle needs rank 2 or more, not {rank}")
    row = ir.axis(rank - 2) if shape[-2] != 1 else dims.ZERO
    column = ir.axis(rank - 1) if shape[-1] != 1 else dims.ZERO
    return Array(t.nodes.index(i64, shape, row - column + as_dim(k, "k")), i64)


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
    shape = as_shape((n_rows, n_rows if n_cols is None else n_cols))
    on = t.elementwise("equal", [_diagonal(t, shape, k), 0])
    return t.cast(on, as_dtype(dtype, f32))


@function
def one_hot(t: Typer, x: Value, num_classes: Value, dtype: Value) -> Array:
    a = t.array(x)
    if not a.dtype.is_integer:
        raise CompileError("MT0202", f"one_hot takes integers, not {a.dtype}")
    classes = arange(t, num_classes, None, 1, None)
    on = t.elementwise("equal", [expand_dims(t, t.cast(a, i64), -1), classes])
    return t.cast(on, as_dtype(dtype, f32))


@function
def astype(t: Typer, x: Value, dtype: Value) -> Array:
    if not isinstance(dtype, DType):
        raise CompileError("MT0202", f"astype takes a dtype, not {describe(dtype)}", help="astype(x, f16)")
    return t.cast(x, dtype)
