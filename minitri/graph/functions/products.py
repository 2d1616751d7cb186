"""Products made of `@` and elementwise products: dot, inner, tensordot, kron, cross, matrix_power.

`tensordot` brings the axes that are summed over to the end of one array and to the front of the other, makes one axis
of them, and multiplies two matrices.
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.extremes import largest
from minitri.graph import ir
from minitri.graph.functions.axes import element, moveaxis
from minitri.graph.functions.joining import stack
from minitri.graph.functions.making import eye
from minitri.graph.functions.reductions import accumulate, extreme, matmul
from minitri.graph.functions.registry import function
from minitri.graph.functions.views import permute_dims, reshape
from minitri.graph.parameters import as_axes, as_bool, as_int, items_of
from minitri.graph.typer import Array, Typer, Value, describe, view


@function
def tensordot(t: Typer, x1: Value, x2: Value, axes: Value) -> Array:
    """`axes` says how many of the last axes of x1 meet the first of x2, or is a pair: axes of x1, axes of x2."""
    a, b = t.array(x1), t.array(x2)
    left, right = _met(axes, len(a.shape), len(b.shape))
    for j, k in zip(left, right):
        message = f"tensordot of {a} and {b} contracts {a.shape[j]} with {b.shape[k]}"
        t.require(a.shape[j], "==", b.shape[k], "MT0203", message)
    rows = [k for k in range(len(a.shape)) if k not in left]
    columns = [k for k in range(len(b.shape)) if k not in right]
    depth = dims.product([a.shape[k] for k in left])
    shape = (*(a.shape[k] for k in rows), *(b.shape[k] for k in columns))
    a = reshape(t, permute_dims(t, a, (*rows, *left)), (_size(a, rows), depth))
    b = reshape(t, permute_dims(t, b, (*right, *columns)), (depth, _size(b, columns)))
    return reshape(t, matmul(t, a, b, "ieee"), shape)


def _size(x: Array, axes: Sequence[int]) -> Dim:
    return dims.product([x.shape[k] for k in axes])


def _met(axes: Value, rank: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of both arrays that are summed over, in pairs."""
    if not isinstance(axes, tuple):
        count = as_int(axes, "axes")
        if not 0 <= count <= min(rank, other):
            raise CompileError("MT0204", f"tensordot over {count} axes of arrays of rank {rank} and {other}")
        return tuple(range(rank - count, rank)), tuple(range(count))
    if len(axes) != 2:
        raise CompileError("MT0102", "the axes of tensordot are a number or a pair", help="as in axes=((1,), (0,))")
    left, right = as_axes(items_of(axes[0]), rank, "axis"), as_axes(items_of(axes[1]), other, "axis")
    if len(left) != len(right):
        raise CompileError("MT0204", f"tensordot pairs {len(left)} axes with {len(right)}")
    return left, right


@function
def dot(t: Typer, x1: Value, x2: Value) -> Array:
    """As numpy: the last axis of x1 meets the last but one of x2, without broadcasting. Scalars are multiplied."""
    return _scaled_or_summed(t, x1, x2, -2)


@function
def inner(t: Typer, x1: Value, x2: Value) -> Array:
    """As numpy: the last axes meet. Scalars are multiplied."""
    return _scaled_or_summed(t, x1, x2, -1)


def _scaled_or_summed(t: Typer, x1: Value, x2: Value, axis: int) -> Array:
    a, b = t.array(x1), t.array(x2)
    if not a.shape or not b.shape:
        return t.elementwise("multiply", [x1, x2])
    return tensordot(t, a, b, ((-1,), (axis if len(b.shape) > 1 else -1,)))


@function
def kron(t: Typer, x1: Value, x2: Value) -> Array:
    """Kronecker product: element d is x1[d // n] * x2[d % n], n the size of x2 along that axis."""
    a, b = t.array(x1), t.array(x2)
    rank = max(len(a.shape), len(b.shape))
    left, right = ((*[dims.ONE] * (rank - len(x.shape)), *x.shape) for x in (a, b))
    shape = [m * n for m, n in zip(left, right)]
    outer = [dims.ZERO if m == 1 else ir.axis(k) // largest(n, 1) for k, (m, n) in enumerate(zip(left, right))]
    inside = [dims.ZERO if n == 1 else ir.axis(k) % largest(n, 1) for k, n in enumerate(right)]
    parts = [view(t, x, shape, index[rank - len(x.shape) :]) for x, index in ((a, outer), (b, inside))]
    return t.elementwise("multiply", parts)


@function
def cross(t: Typer, x1: Value, x2: Value, axis: Value) -> Array:
    a, b = t.array(x1), t.array(x2)
    u, v = (_components(t, x, axis) for x in (a, b))
    pairs = [(1, 2), (2, 0), (0, 1)]
    parts: list[Value] = []
    for j, k in pairs:
        terms = [t.elementwise("multiply", factors) for factors in ([u[j], v[k]], [u[k], v[j]])]
        parts.append(t.elementwise("subtract", terms))
    return moveaxis(t, stack(t, tuple(parts), -1), -1, axis)


def _components(t: Typer, x: Array, axis: Value) -> list[Array]:
    (k,) = as_axes(as_int(axis, "axis"), len(x.shape))
    message = f"cross takes vectors of 3 elements, and axis {k} of {x} has {x.shape[k]}"
    t.require(x.shape[k], "==", Dim.of(3), "MT0203", message)
    return [element(t, x, k, Dim.of(j)) for j in range(3)]


# ---- matrices -------------------------------------------------------------------------------


@function
def matrix_power(t: Typer, x: Value, n: Value) -> Array:
    """x @ x @ …, n times, by squares."""
    a, power = _square(t, x, "matrix_power"), as_int(n, "n")
    if not 0 <= power < 2**63:
        help = "a negative power needs an inverse, which the language does not have" if power < 0 else ""
        raise CompileError("MT0205", f"matrix_power takes a power from 0 to 2**63 - 1, not {power}", help=help)
    if power == 0:
        ones = eye(t, a.shape[-1], None, 0, a.dtype)
        return Array(t.broadcast(ones.node, a.shape), ones.dtype)
    out = None
    while True:
        if power & 1:
            out = a if out is None else matmul(t, out, a, "ieee")
        power >>= 1
        if not power:
            assert out is not None
            return out
        a = matmul(t, a, a, "ieee")


def _square(t: Typer, x: Value, name: str) -> Array:
    a = t.strong(x)
    if len(a.shape) < 2:
        raise CompileError("MT0204", f"{name} needs rank 2 or more, not {len(a.shape)}")
    t.require(a.shape[-1], "==", a.shape[-2], "MT0203", f"{name} takes square matrices, not {a}")
    return a


@function
def matrix_norm(t: Typer, x: Value, keepdims: Value, ord: Value) -> Array:
    """Of the last two axes: "fro", 1 and inf, and -1 and -inf for the least instead of the largest sum."""
    a = t.elementwise("abs", [t.elementwise("multiply", [x, 1.0])])
    if len(a.shape) < 2:
        raise CompileError("MT0204", f"matrix_norm needs rank 2 or more, not {len(a.shape)}")
    keep = as_bool(keepdims, "keepdims")
    if ord == "fro":
        return t.elementwise("sqrt", [accumulate(t, t.elementwise("square", [a]), (-2, -1), keep, None, op="sum")])
    if isinstance(ord, (int, float)) and abs(ord) in (1, float("inf")):
        sums = accumulate(t, a, -2 if abs(ord) == 1 else -1, True, None, op="sum")
        return extreme(t, sums, (-2, -1), keep, op="max" if ord > 0 else "min")
    help = '"fro", 1, -1, inf or -inf; others need singular values, which the language does not have'
    shown = repr(ord)[:20] if isinstance(ord, (str, int, float)) else describe(ord)
    raise CompileError("MT0102", f"matrix_norm has no order {shown}", help=help)
