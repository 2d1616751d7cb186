"""Makes the graph nodes of matrix products such as `x @ w`. Functions such as einsum call the function `product` of
this file.

    x @ w               contract x, w

A Contract node multiplies [*B, M, K] by [*B, K, N]. GPUs have tensor cores for matrix products. Products of integers,
and products with one row or one column, become an elementwise multiplication and a sum.
"""

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.types import DType, bool_, f32
from minitri.graph.functions.join_and_split import swapaxes
from minitri.graph.functions.reductions import reduce
from minitri.graph.functions.views import squeeze
from minitri.graph.ir import PRECISIONS, Shape, along, axis
from minitri.graph.typing_rules import Array, Typer, Value, ensure, insert_axes, view


def matmul(t: Typer, a: Array, b: Array, precision: Value) -> Array:
    """Defines numpy's matmul. A 1-D left operand is one row, and a 1-D right operand is one column.

    If the left operand is 1-D, the result has no row axis. If the right operand is 1-D, the result has no column axis.
    """
    ensure(a.rank > 0 < b.rank, "MT0203", f"@ takes arrays of rank 1 or more, not {a} and {b}", "use * for scalars")
    dtype = t.settled([a, b])
    row, column = a.rank == 1, b.rank == 1
    _require_contraction(t, a, b)
    x, y = factor(t, a, dtype), factor(t, b, dtype)
    x = insert_axes(t, x, (0,)) if row else x
    y = insert_axes(t, y, (1,)) if column else y
    out = product(t, x, y, precision_of(precision))
    dropped = (-2,) * row + (-1,) * column
    return squeeze(t, out, dropped) if dropped else out


def _require_contraction(t: Typer, x: Array, y: Array) -> None:
    """Checks that the summed axes of `x @ y` can have the same size."""
    k, other = x.shape[-1], y.shape[-min(2, y.rank)]
    left, right = t.operands or ("the left", "the right")
    help = "the last axis of the left must equal the last but one of the right"
    if y.rank >= 2 and y.shape[-1] == k:
        plain = right.removesuffix(".mT").removesuffix(".T")
        help = f"drop the transpose: `{left} @ {plain}`" if plain != right else f"transpose: `{left} @ {right}.mT`"
    label = f"{left} is {x}, {right} is {y}"
    # each call checks symbolic sizes
    t.require(k, "==", other, "MT0203", f"matmul contracts {k} with {other}", label=label, help=help)


def precision_of(value: Value) -> str:
    """Returns the argument `precision`, which must be one of `PRECISIONS`.

    Raises CompileError MT0102 for an argument that is not one of `PRECISIONS`.
    """
    if isinstance(value, str) and value in PRECISIONS:
        return value
    choices = f"the precision of a product of f32 is {', '.join(map(repr, PRECISIONS))}"
    help = suggest(str(value), PRECISIONS) or choices
    raise CompileError("MT0102", f"there is no precision {str(value)[:20]!r}", help=help)


def factor(t: Typer, x: Array, dtype: DType) -> Array:
    """Returns an operand of a product, rounded to the given dtype."""
    return Array(t.convert(t.cast(x, dtype), dtype), dtype)


# ---- one product -----------------------------------------------------------------------


def product(t: Typer, x: Array, y: Array, precision: str) -> Array:
    """Returns the matrix product of two arrays of the same dtype: x of shape [*B, M, K], and y of shape [*B, K, N]. The
    batch axes `*B` of the two factors broadcast.
    """
    if _is_batch_of_rows(x.shape, y.shape):  # one matrix product computes all rows
        return swapaxes(t, product(t, swapaxes(t, x, -3, -2), y, precision), -3, -2)
    batch = t.broadcast_shapes([x.shape[:-2], y.shape[:-2]], "batches of @")
    xn = Array(t.broadcast(x.node, (*batch, *x.shape[-2:])), x.dtype)
    yn = Array(t.broadcast(y.node, (*batch, x.shape[-1], y.shape[-1])), y.dtype)
    if x.dtype.is_float and x.shape[-2] != 1 and y.shape[-1] != 1:
        return _contract(t, xn, yn, precision)
    return _multiply_and_sum(t, xn, yn)


def _is_batch_of_rows(x: Shape, y: Shape) -> bool:
    """Checks whether a product multiplies a batch of single rows by one matrix."""
    return len(x) > 2 and x[-2] == 1 and x[-3] != 1 and (len(y) < 3 or y[-3] == 1)


def _contract(t: Typer, x: Array, y: Array, precision: str) -> Array:
    a, b = t.rounded(x), t.rounded(y)
    precision = precision if a.dtype == f32 else "ieee"  # 16 bits fit a tensor core as they are
    if precision == "tf32":  # a tensor core truncates to TF32, which has twice the error of rounding
        a, b = (t.nodes.apply("round_to_tf32", f32, n.shape, (n,)) for n in (a, b))
    return Array(t.nodes.contract(a, b, precision), x.dtype)


def _multiply_and_sum(t: Typer, x: Array, y: Array) -> Array:
    rank = x.rank
    batch = [axis(k) for k in range(rank - 2)]
    shape = (*x.shape[:-1], y.shape[-1], x.shape[-1])
    left = view(t, x, shape, [*batch, along(rank - 2, x.shape[-2]), axis(rank)])
    right = view(t, y, shape, [*batch, axis(rank), along(rank - 1, y.shape[-1])])
    return total(t, multiplied(t, left, right), (rank,))


def multiplied(t: Typer, x: Array, y: Array) -> Array:
    """Returns the elementwise product of two arrays. The product of two bools is their logical and."""
    return t.elementwise("logical_and" if x.dtype == bool_ else "multiply", [x, y])


def total(t: Typer, x: Array, axes: tuple[int, ...]) -> Array:
    """Adds up the elements of x along some axes. The sum has the dtype of x, so integers wrap around.

    For an array of bools, the result says whether any element is True, as the function `any` does.
    """
    return reduce(t, "any" if x.dtype == bool_ else "sum", x, axes, False, x.dtype)
