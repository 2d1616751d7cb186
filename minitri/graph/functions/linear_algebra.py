"""Products of arrays that use `@` or elementwise products: dot, inner, tensordot, kron, cross, matrix_power.

`tensordot` moves the summed axes to the end of the first array and to the front of the second array. Next, `tensordot`
joins the summed axes of each array into one axis, and its other axes into another axis. Then `tensordot` multiplies the
two matrices, and reshapes the product to the shape of the result.
"""

import functools

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.symbolic_minmax import largest
from minitri.graph import ir
from minitri.graph.functions.creation import eye
from minitri.graph.functions.join_and_split import moveaxis, stack
from minitri.graph.functions.matmul import matmul
from minitri.graph.functions.reductions import accumulate, extreme
from minitri.graph.functions.views import permute_dims, reshape
from minitri.graph.parameter_binding import as_axes, as_axis, as_bool, as_int, items_of
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure, read_at, view


def tensordot(t: Typer, x1: Array, x2: Array, axes: Value) -> Array:
    """Defines numpy's tensordot: multiplies x1 and x2 and sums over pairs of axes.

    If `axes` is a number n, the pairs are the last n axes of x1 and the first n axes of x2. If `axes` is not a number,
    it is a tuple of two items: the summed axes of x1, and the summed axes of x2.
    """
    left, right = _summed_axes(axes, x1.rank, x2.rank)
    for j, k in zip(left, right):
        message = f"tensordot of {x1} and {x2} contracts {x1.shape[j]} with {x2.shape[k]}"
        t.require(x1.shape[j], "==", x2.shape[k], "MT0203", message)
    rows = [k for k in range(x1.rank) if k not in left]
    columns = [k for k in range(x2.rank) if k not in right]
    m, n = [x1.shape[k] for k in rows], [x2.shape[k] for k in columns]
    depth = dims.product([x1.shape[k] for k in left])
    a = reshape(t, permute_dims(t, x1, (*rows, *left)), (dims.product(m), depth))
    b = reshape(t, permute_dims(t, x2, (*right, *columns)), (depth, dims.product(n)))
    return reshape(t, matmul(t, a, b, "f32"), (*m, *n))


def _summed_axes(axes: Value, rank: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the axes of the first array and of the second array over which tensordot sums.

    The k-th axis of the first array and the k-th axis of the second array are a pair.
    """
    if not isinstance(axes, tuple):
        count = as_int(axes, "axes")
        fits = 0 <= count <= min(rank, other)
        ensure(fits, "MT0204", f"tensordot over {count} axes of arrays of rank {rank} and {other}")
        return tuple(range(rank - count, rank)), tuple(range(count))
    ensure(len(axes) == 2, "MT0102", "the axes of tensordot are a number or a pair", "as in axes=((1,), (0,))")
    left, right = as_axes(items_of(axes[0]), rank, "axis"), as_axes(items_of(axes[1]), other, "axis")
    ensure(len(left) == len(right), "MT0204", f"tensordot pairs {len(left)} axes with {len(right)}")
    return left, right


def kron(t: Typer, x1: Array, x2: Array) -> Array:
    """Computes the Kronecker product.

    Along each axis, element d is x1[d // n] * x2[d % n], where n is the size of x2 along this axis.
    """
    rank = max(x1.rank, x2.rank)
    left, right = ((*[dims.ONE] * (rank - x.rank), *x.shape) for x in (x1, x2))
    outer = [ir.along(k, m) // largest(n, 1) for k, (m, n) in enumerate(zip(left, right))]
    inside = [ir.along(k, n) % largest(n, 1) for k, n in enumerate(right)]
    shape = [m * n for m, n in zip(left, right)]
    return t.elementwise("multiply", [view(t, x, shape, i[rank - x.rank :]) for x, i in ((x1, outer), (x2, inside))])


def cross(t: Typer, x1: Array, x2: Array, axis: Value) -> Array:
    u, v = (_components(t, x, axis) for x in (x1, x2))
    parts: list[Value] = []
    for j, k in ((1, 2), (2, 0), (0, 1)):
        terms = [t.elementwise("multiply", factors) for factors in ([u[j], v[k]], [u[k], v[j]])]
        parts.append(t.elementwise("subtract", terms))
    return moveaxis(t, stack(t, tuple(parts), -1), -1, axis)


def _components(t: Typer, x: Array, axis: Value) -> list[Array]:
    """Returns the three components of the vectors along an axis."""
    k = as_axis(axis, x.rank)
    message = f"cross takes vectors of 3 elements, and axis {k} of {x} has {x.shape[k]}"
    t.require(x.shape[k], "==", Dim.of(3), "MT0203", message)
    return [read_at(t, x, {k: Dim.of(j)}) for j in range(3)]


# ---- matrices -------------------------------------------------------------------------------


def matrix_power(t: Typer, x: Strong, n: Value) -> Array:
    """Returns the matrix product of n factors x, for example x @ x if n is 2.

    Repeated squaring needs only about log2(n) products.
    """
    power = as_int(n, "n")
    ensure(x.rank >= 2, "MT0204", f"matrix_power needs rank 2 or more, not {x.rank}")
    t.require(x.shape[-1], "==", x.shape[-2], "MT0203", f"matrix_power takes square matrices, not {x}")
    help = "a negative power needs an inverse, which the language does not have" if power < 0 else ""
    ensure(0 <= power < 2**63, "MT0205", f"matrix_power takes a power from 0 to 2**63 - 1, not {power}", help)
    if power == 0:
        ones = eye(t, x.shape[-1], None, 0, x.dtype)
        return Array(t.broadcast(ones.node, x.shape), ones.dtype)
    squares = [x]
    while len(squares) < power.bit_length():
        squares.append(matmul(t, squares[-1], squares[-1], "f32"))
    factors = [square for k, square in enumerate(squares) if power >> k & 1]
    return functools.reduce(lambda a, b: matmul(t, a, b, "f32"), factors)


def matrix_norm(t: Typer, x: Value, keepdims: Value, ord: Value) -> Array:
    """Computes the norm of each matrix in the last two axes.

    `ord` is "fro" for the Frobenius norm, or 1, inf, -1 or -inf.

    The norm 1 is the largest sum of absolute values in a column, and the norm inf is the largest in a row. The norm -1
    is the smallest sum of absolute values in a column, and the norm -inf is the smallest in a row.
    """
    a = t.elementwise("abs", [t.elementwise("multiply", [x, 1.0])])
    ensure(a.rank >= 2, "MT0204", f"matrix_norm needs rank 2 or more, not {a.rank}")
    keep = as_bool(keepdims, "keepdims")
    if ord == "fro":
        return t.elementwise("sqrt", [accumulate(t, t.elementwise("square", [a]), (-2, -1), keep, None, op="sum")])
    if isinstance(ord, (int, float)) and abs(ord) in (1, float("inf")):
        sums = accumulate(t, a, -2 if abs(ord) == 1 else -1, True, None, op="sum")
        return extreme(t, sums, (-2, -1), keep, op="max" if ord > 0 else "min")
    help = '"fro", 1, -1, inf or -inf; others need singular values, which the language does not have'
    shown = repr(ord)[:20] if isinstance(ord, (str, int, float)) else describe(ord)
    raise CompileError("MT0102", f"matrix_norm has no order {shown}", help=help)
