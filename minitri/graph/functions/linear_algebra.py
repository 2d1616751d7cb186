"""Defines einsum, tensordot, kron, cross, matrix_power and matrix_norm.

    einsum("bik,kj->bij", a, b)         a and b, with their axes in the order of a batched matrix product

`einsum` multiplies arrays whose axes have names. The one idea: every product of two arrays is a batched matrix product.
An axis that both factors of a product have is a batch axis if the result has this axis too. If both factors have an
axis and the result lacks the axis, the product sums over this axis (K). An axis that only the left factor has is a row
axis (M). An axis that only the right factor has is a column axis (N). The axes that `...` stands for have no letters,
so their names are negative numbers. In every array, the last axis of `...` has the name -1, and the axis before it has
the name -2. The negative names align the axes of `...` from the right, as in broadcasting.

`tensordot` moves the summed axes to the end of the first array and to the front of the second array. Next, `tensordot`
makes a matrix of each array: it joins the summed axes into one axis, and all remaining axes into a second axis. At the
end, `tensordot` multiplies the matrices of the two arrays, and reshapes the product to the shape of the result.

If `einsum` has more than two arrays, it multiplies them from left to right. `einsum` does not search for a faster order
of the products.
"""

import functools
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.base.symbolic_minmax import largest
from minitri.base.types import items_of
from minitri.graph import ir
from minitri.graph.functions.creation_and_dtypes import eye
from minitri.graph.functions.join_and_split import moveaxis, stack
from minitri.graph.functions.matmul import factor, matmul, multiplied, precision_of, product, total
from minitri.graph.functions.reductions import accumulate, extreme
from minitri.graph.functions.views import permute_dims, reshape, squeeze
from minitri.graph.parameter_binding import as_axes, as_axis, as_bool, as_int
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure, read_at, view


def tensordot(t: Typer, x1: Array, x2: Array, axes: Value) -> Array:
    """Defines numpy's tensordot: multiplies x1 and x2 and sums over pairs of axes.

    If `axes` is a number n, the last n axes of x1 are paired with the first n axes of x2. If `axes` is no number,
    `axes` is a tuple of two items: the summed axes of x1, and the summed axes of x2.
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
    """Returns the axes of two arrays over which `tensordot` sums, in pairs."""
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

    For vectors, element d of the Kronecker product is x1[d // n] * x2[d % n], where n is the size of x2. For arrays
    with more axes, the same rule applies to the index d and the size n of each axis.
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
    """Returns the matrix power of x: the product of n matrices x, such as x @ x for n = 2.

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
    """Computes matrix norms over the last two axes.

    The argument `ord` is "fro" for the Frobenius norm, or 1, inf, -1 or -inf.

    The norm 1 is the largest sum of absolute values in a column, and the norm inf is the largest sum in a row. The norm
    -1 is the smallest sum of absolute values in a column, and the norm -inf is the smallest sum in a row.
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


# ---- einsum: subscripts --------------------------------------------------------------------

Label = str | int  # a letter; or an axis of "...": -1 is the last one
Labels = tuple[Label, ...]


def _read_subscripts(text: object, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Reads einsum subscripts, and returns the axis names of each array and of the result."""
    ensure(isinstance(text, str), "MT0102", "the first argument of einsum is a text", HELP)
    left, arrow, right = "".join(str(text).split()).partition("->")
    terms = left.split(",")
    names = f"einsum names {len(terms)} array{'s' * (len(terms) != 1)}"
    ensure(len(terms) == len(ranks), "MT0102", f"{names} and gets {len(ranks)}", HELP)
    arrays = [_axes(term, rank) for term, rank in zip(terms, ranks)]
    return arrays, _result(right, arrays) if arrow else _implied(arrays)


HELP = 'write one letter for each axis: `einsum("ik,kj->ij", a, b)`'


def _letters(term: str) -> tuple[str, str, str]:
    """Splits einsum subscripts at `...`: "i...j" becomes ("i", "...", "j")."""
    before, dots, after = term.partition("...")
    for letter in before + after:
        fits = letter.isascii() and letter.isalpha()
        ensure(fits, "MT0102", f"einsum takes letters for axes, not `{letter}`", HELP)
    return before, dots, after


def _axes(term: str, rank: int) -> Labels:
    before, dots, after = _letters(term)
    named = len(before) + len(after)
    more = rank - named
    message = f"`{term[:40]}` names {named} ax{'es' if named != 1 else 'is'} of an array of rank {rank}"
    help = "`...` stands for axes without a name" if more > 0 else HELP
    ensure(more == 0 or (more > 0 and dots != ""), "MT0204", message, help)
    return (*before, *range(-more, 0), *after)


def _result(term: str, arrays: Sequence[Labels]) -> Labels:
    before, dots, after = _letters(term)
    unnamed = _unnamed(arrays)
    lacking = unnamed and not dots
    ensure(not lacking, "MT0102", "the result of einsum lacks the axes of `...`", "write `...` after `->` too")
    result = (*before, *unnamed, *after)
    known = {label for labels in arrays for label in labels}
    for label, times in Counter(result).items():
        why = "twice in the result" if times > 1 else "of the result in no array"
        ensure(times == 1 and label in known, "MT0102", f"einsum has `{label}` {why}", HELP)
    return result


def _implied(arrays: Sequence[Labels]) -> Labels:
    """Returns the axes of the result if einsum subscripts have no `->`."""
    times = Counter(label for labels in arrays for label in labels)
    # the axes of `...`, and then the names that occur once, in alphabetical order
    return (*_unnamed(arrays), *sorted(x for x in times if isinstance(x, str) and times[x] == 1))


def _unnamed(arrays: Sequence[Labels]) -> tuple[int, ...]:
    """Returns the names of the axes that `...` stands for in the result, such as (-2, -1)."""
    # `...` stands for fewer axes in some arrays
    most = max((sum(isinstance(x, int) for x in labels) for labels in arrays), default=0)
    return tuple(range(-most, 0))


# ---- einsum: products ----------------------------------------------------------------------


NONE = ""  # the name of an axis that an array does not have


class _Term(Record):
    """An array whose axes have names."""

    array: Array
    labels: Labels

    def aligned(self, t: Typer, labels: Sequence[Label]) -> Array:
        """Returns the array with the axes `labels`, in this order.

        For each label in `labels` that the array lacks, the result has an axis of size 1.
        """
        shape = [self.array.shape[self.labels.index(x)] if x in self.labels else dims.ONE for x in labels]
        return view(t, self.array, shape, [ir.axis(list(labels).index(x)) for x in self.labels])


def einsum(t: Typer, subscripts: Value, operands: Value, precision: Value) -> Array:
    """Defines numpy's einsum.

    Example: for "ijk,jl->il", the first array is summed over k before the multiplication, because neither the second
    array nor the result has the axis k.
    """
    arrays = [t.array(x) for x in (operands if type(operands) is tuple else (operands,))]  # a list is one operand
    names, result = _read_subscripts(subscripts, [a.rank for a in arrays])
    dtype, mode = t.settled(arrays), precision_of(precision)
    sizes = _sizes(t, names, arrays)
    so_far, *rest = (_diagonal(t, factor(t, a, dtype), labels, sizes) for a, labels in zip(arrays, names))
    for k, term in enumerate(rest):
        later = {*result, *(x for other in rest[k + 1 :] for x in other.labels)}
        left, right = _summed(t, so_far, {*later, *term.labels}), _summed(t, term, {*later, *so_far.labels})
        so_far = _joined(t, left, right, later, mode)
    return _summed(t, so_far, result).aligned(t, result)


def _sizes(t: Typer, names: Iterable[Labels], arrays: Iterable[Array]) -> dict[Label, Dim]:
    """Returns the size of the axis for each name in einsum subscripts."""
    sizes: dict[Label, Dim] = {}
    for labels, array in zip(names, arrays):
        for label, extent in zip(labels, array.shape):
            known = sizes.get(label, dims.ONE)
            if known != 1 and extent != 1:  # a size of 1 broadcasts
                name = label if isinstance(label, str) else "..."
                message = f"`{name}` is {known} and {extent} in the subscripts of einsum"
                t.require(known, "==", extent, "MT0203", message, help="an axis has one size under one name")
            sizes[label] = extent if known == 1 else known
    return sizes


def _diagonal(t: Typer, x: Array, labels: Labels, sizes: Mapping[Label, Dim]) -> _Term:
    """Returns x with one axis for each distinct label: for the labels "ii", the result is the diagonal of x."""
    # drops an axis of size 1 if an axis with the same name, in this or another array, has another size
    kept = list(dict.fromkeys(n for n, e in zip(labels, x.shape) if e != 1 or sizes[n] == 1))
    index = [ir.axis(kept.index(n)) if e != 1 or sizes[n] == 1 else dims.ZERO for n, e in zip(labels, x.shape)]
    return _Term(view(t, x, [sizes[n] for n in kept], index), tuple(kept))


def _summed(t: Typer, x: _Term, kept: Container[Label]) -> _Term:
    """Returns the sum of an array over all axes that are not in `kept`."""
    gone = tuple(k for k, label in enumerate(x.labels) if label not in kept)
    return _Term(total(t, x.array, gone), tuple(label for label in x.labels if label in kept))


def _joined(t: Typer, x: _Term, y: _Term, later: Container[Label], precision: str) -> _Term:
    """Multiplies two einsum operands, and sums over each axis that both operands have and no later step needs."""
    # `later`: the names of axes of the result, and of arrays that are multiplied later
    over = [n for n in x.labels if n in y.labels and n not in later]
    batch = [n for n in x.labels if n in y.labels and n in later]
    rows, columns = [n for n in x.labels if n not in y.labels], [n for n in y.labels if n not in x.labels]
    if not over:
        labels = (*batch, *rows, *columns)
        return _Term(multiplied(t, x.aligned(t, labels), y.aligned(t, labels)), labels)
    wide = [*batch, *rows[:-1], *columns[:-1]]  # the last row and column axis form the matrix; others are batches
    row, column = rows[-1:] or [NONE], columns[-1:] or [NONE]
    depth = dims.product([x.array.shape[x.labels.index(n)] for n in over])
    left, right = x.aligned(t, [*wide, *row, *over]), y.aligned(t, [*wide, *over, *column])
    if len(over) > 1:
        left = reshape(t, left, (*left.shape[: len(wide) + 1], depth))
        right = reshape(t, right, (*right.shape[: len(wide)], depth, right.shape[-1]))
    out = product(t, left, right, precision)
    missing = tuple(k for k, side in ((-2, rows), (-1, columns)) if not side)
    return _Term(squeeze(t, out, missing) if missing else out, (*wide, *rows[-1:], *columns[-1:]))
