"""Products of matrices as graph nodes: `@` and einsum.

A Contract multiplies [*B, M, K] by [*B, K, N], which is what tensor cores do. The one idea: give every
axis of the two arrays its part in that. An axis of both that the result keeps is a batch, one that
it does not keep is summed over (K), the others are rows of the one (M) or columns of the other (N).
What no tensor core serves (integers, a side of 1) is a multiplication and a sum.

Left out: the order of several products. einsum goes from left to right.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from minitri.base import dims
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim
from minitri.base.types import DType, bool_, f32
from minitri.graph import ir
from minitri.graph.functions.reductions import reduced
from minitri.graph.functions.registry import function, view
from minitri.graph.functions.subscripts import Label, read_subscripts
from minitri.graph.functions.views import expand_dims, permute_dims, reshape, squeeze
from minitri.graph.ir import PRECISIONS, Shape
from minitri.graph.typer import Array, Typer, Value, contract_type


@function
def matmul(t: Typer, a: Value, b: Value, precision: Value) -> Array:
    """numpy's rules: 1-D operands are a row and a column whose axis is dropped again."""
    x, y = t.array(a), t.array(b)
    if not x.shape or not y.shape:
        raise CompileError("MT0203", f"@ takes arrays of rank 1 or more, not {x} and {y}", help="use * for scalars")
    dtype = t.settled([x, y])
    row, column = len(x.shape) == 1, len(y.shape) == 1
    _require_contraction(t, x, y)
    x, y = _factor(t, x, dtype), _factor(t, y, dtype)
    x = expand_dims(t, x, 0) if row else x
    y = expand_dims(t, y, 1) if column else y
    out = _product(t, x, y, _precision(precision))
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


def _precision(value: Value) -> str:
    if isinstance(value, str) and value in PRECISIONS:
        return value
    choices = f"the precision of a product of f32 is {', '.join(map(repr, PRECISIONS))}"
    raise CompileError(
        "MT0102", f"there is no precision {str(value)[:20]!r}", help=suggest(str(value), PRECISIONS) or choices
    )


def _factor(t: Typer, x: Array, dtype: DType) -> Array:
    return Array(t.convert(t.cast(x, dtype), dtype), dtype)


# ---- one product -----------------------------------------------------------------------


def _product(t: Typer, x: Array, y: Array, precision: str) -> Array:
    """[*B, M, K] x [*B, K, N] of one dtype; batches broadcast."""
    if _is_batch_of_rows(x.shape, y.shape):  # they are the rows of one product
        return _swapped(t, _product(t, _swapped(t, x), y, precision))
    batch = t.broadcast_shapes([x.shape[:-2], y.shape[:-2]], "batches of @")
    xn = Array(t.broadcast(x.node, (*batch, *x.shape[-2:])), x.dtype)
    yn = Array(t.broadcast(y.node, (*batch, x.shape[-1], y.shape[-1])), y.dtype)
    if x.dtype.is_float and x.shape[-2] != 1 and y.shape[-1] != 1:
        return _contract(t, xn, yn, precision)
    return _multiply_and_sum(t, xn, yn)


def _is_batch_of_rows(x: Shape, y: Shape) -> bool:
    """Whether single rows are all multiplied by one matrix."""
    return len(x) > 2 and x[-2] == 1 and x[-3] != 1 and (len(y) < 3 or y[-3] == 1)


def _swapped(t: Typer, x: Array) -> Array:
    rank = len(x.shape)
    return permute_dims(t, x, (*range(rank - 3), rank - 2, rank - 3, rank - 1))


def _contract(t: Typer, x: Array, y: Array, precision: str) -> Array:
    a, b = t.rounded(x), t.rounded(y)
    b = a if b is a else b
    result, shape = contract_type(a, t.broadcast(b, (*b.shape[:-2], a.shape[-1], b.shape[-1])))
    precision = precision if a.dtype == f32 else "ieee"  # 16 bits fit a tensor core as they are
    if precision == "tf32":  # a tensor core drops the bits that it has no place for: twice the error of rounding
        a, b = (t.nodes.apply("round_to_tf32", f32, n.shape, (n,)) for n in (a, b))
    return Array(t.nodes.contract(result, shape, a, b, precision), x.dtype)


def _multiply_and_sum(t: Typer, x: Array, y: Array) -> Array:
    rank = len(x.shape)
    batch = [ir.axis(k) for k in range(rank - 2)]
    m, n, k = ir.axis(rank - 2), ir.axis(rank - 1), ir.axis(rank)
    shape = (*x.shape[:-1], y.shape[-1], x.shape[-1])
    left = view(t, x, shape, [*batch, m if x.shape[-2] != 1 else dims.ZERO, k])
    right = view(t, y, shape, [*batch, k, n if y.shape[-1] != 1 else dims.ZERO])
    return _total(t, _multiplied(t, left, right), (rank,))


def _multiplied(t: Typer, x: Array, y: Array) -> Array:
    return t.elementwise("logical_and" if x.dtype == bool_ else "multiply", [x, y])


def _total(t: Typer, x: Array, axes: tuple[int, ...]) -> Array:
    """The sum in the dtype of x, as of a product: an integer wraps around. Of bools: any."""
    return reduced(t, "any" if x.dtype == bool_ else "sum", x, axes)


# ---- einsum ----------------------------------------------------------------------------


NONE = ""  # the name of an axis that an array does not have


@dataclass(frozen=True)
class _Term:
    """An array whose axes have names."""

    array: Array
    labels: tuple[Label, ...]

    def aligned(self, t: Typer, labels: Sequence[Label]) -> Array:
        """With these axes, in this order; size 1 where it has none."""
        shape = [self.array.shape[self.labels.index(x)] if x in self.labels else dims.ONE for x in labels]
        return view(t, self.array, shape, [ir.axis(list(labels).index(x)) for x in self.labels])


@function
def einsum(t: Typer, subscripts: Value, operands: Value, precision: Value) -> Array:
    """numpy's einsum: products from left to right; an axis that nothing else has is summed before them."""
    arrays = [t.array(x) for x in (operands if type(operands) is tuple else (operands,))]
    names = read_subscripts(subscripts, [len(a.shape) for a in arrays])
    dtype, mode = t.settled(arrays), _precision(precision)
    sizes = _sizes(t, names.arrays, arrays)
    terms = [_diagonal(t, _factor(t, a, dtype), labels, sizes) for a, labels in zip(arrays, names.arrays)]
    so_far = terms[0]
    for k, term in enumerate(terms[1:], 1):
        later = {*names.result, *(x for other in terms[k + 1 :] for x in other.labels)}
        so_far = _joined(
            t, _summed(t, so_far, {*later, *term.labels}), _summed(t, term, {*later, *so_far.labels}), later, mode
        )
    so_far = _summed(t, so_far, set(names.result))
    return so_far.aligned(t, names.result)


def _sizes(t: Typer, names: Iterable[tuple[Label, ...]], arrays: Iterable[Array]) -> dict[Label, Dim]:
    """The size of each name. Sizes of 1 broadcast, as numpy's do."""
    sizes: dict[Label, Dim] = {}
    for labels, array in zip(names, arrays):
        for label, extent in zip(labels, array.shape):
            known = sizes.get(label, dims.ONE)
            if known != 1 and extent != 1:
                name = label if isinstance(label, str) else "..."
                message = f"`{name}` is {known} and {extent} in the subscripts of einsum"
                t.require(known, "==", extent, "MT0203", message, help="an axis has one size under one name")
            sizes[label] = extent if known == 1 else known
    return sizes


def _diagonal(t: Typer, x: Array, labels: tuple[Label, ...], sizes: Mapping[Label, Dim]) -> _Term:
    """One axis for each name. One of size 1 that is longer elsewhere is dropped: it is the same all along that."""
    own = [n for n, e in zip(labels, x.shape) if e != 1 or sizes[n] == 1]
    kept = list(dict.fromkeys(own))
    index = [ir.axis(kept.index(n)) if e != 1 or sizes[n] == 1 else dims.ZERO for n, e in zip(labels, x.shape)]
    return _Term(view(t, x, [sizes[n] for n in kept], index), tuple(kept))


def _summed(t: Typer, x: _Term, kept: Container[Label]) -> _Term:
    """Without the axes that nothing else has."""
    gone = tuple(k for k, label in enumerate(x.labels) if label not in kept)
    return _Term(_total(t, x.array, gone), tuple(label for label in x.labels if label in kept))


def _joined(t: Typer, x: _Term, y: _Term, later: Container[Label], precision: str) -> _Term:
    """The product of two, summed over what both have and nothing later does."""
    over = [n for n in x.labels if n in y.labels and n not in later]
    batch = [n for n in x.labels if n in y.labels and n in later]
    rows, columns = [n for n in x.labels if n not in y.labels], [n for n in y.labels if n not in x.labels]
    if not over:
        labels = (*batch, *rows, *columns)
        return _Term(_multiplied(t, x.aligned(t, labels), y.aligned(t, labels)), labels)
    wide = [*batch, *rows[:-1], *columns[:-1]]  # the last ones are the matrix; flatten finds more of its rows
    row, column = rows[-1:] or [NONE], columns[-1:] or [NONE]
    depth = dims.product([x.array.shape[x.labels.index(n)] for n in over])
    left, right = x.aligned(t, [*wide, *row, *over]), y.aligned(t, [*wide, *over, *column])
    if len(over) > 1:
        left = reshape(t, left, (*left.shape[: len(wide) + 1], depth))
        right = reshape(t, right, (*right.shape[: len(wide)], depth, right.shape[-1]))
    out = _product(t, left, right, precision)
    missing = tuple(k for k, side in ((-2, rows), (-1, columns)) if not side)
    return _Term(squeeze(t, out, missing) if missing else out, (*wide, *rows[-1:], *columns[-1:]))
