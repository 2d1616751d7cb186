"""Defines einsum: products of arrays whose axes have names, such as "bik,bkj->bij".

In: the subscripts and the arrays. Out: an Array. The one idea: every product of two arrays is a batched matrix product.
An axis that both arrays have is a batch axis if the result has this axis too. An axis of both arrays that the result
does not have is summed (K). An axis that only the left array has is a row axis (M). An axis that only the right array
has is a column axis (N). The axes of `...` have negative numbers as names, and the last axis of `...` has the name -1.
Since -1 is the last axis in every array, the axes of `...` align from the right, as in broadcasting.

Left out: the choice of a good order for several products. Several products are computed from left to right.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from minitri.base import dims
from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.graph import ir
from minitri.graph.functions.matmul import factor, multiplied, precision_of, product, total
from minitri.graph.functions.views import reshape, squeeze
from minitri.graph.typing_rules import Array, Typer, Value, ensure, view

Label = str | int  # a letter; or an axis of "...": -1 is the last one
Labels = tuple[Label, ...]


def _read_subscripts(text: object, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Reads subscripts in numpy's notation. Returns the names of the axes of each array, and of the result.

    `ranks` has the number of axes of each array.

    Without `->`, the result has the axes of `...`, and then the names that occur once, in alphabetical order. Raises
    CompileError MT0102 for a syntax error. Raises MT0204 if the subscripts do not fit the ranks.
    """
    ensure(isinstance(text, str), "MT0102", "the first argument of einsum is a text", HELP)
    left, arrow, right = "".join(str(text).split()).partition("->")
    terms = left.split(",")
    names = f"einsum names {len(terms)} array{'s' * (len(terms) != 1)}"
    ensure(len(terms) == len(ranks), "MT0102", f"{names} and gets {len(ranks)}", HELP)
    arrays = [_axes(term, rank) for term, rank in zip(terms, ranks)]
    return arrays, _result(right, arrays) if arrow else _implied(arrays)


HELP = 'write one letter for each axis: `einsum("ik,kj->ij", a, b)`'


def _letters(term: str) -> tuple[str, str, str]:
    """Splits one array's subscripts into the letters before `...`, the dots, and the letters after the dots."""
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
    """Returns the axes of the result if the subscripts have no `->`."""
    times = Counter(label for labels in arrays for label in labels)
    return (*_unnamed(arrays), *sorted(x for x in times if isinstance(x, str) and times[x] == 1))


def _unnamed(arrays: Sequence[Labels]) -> tuple[int, ...]:
    """Returns the axes for which `...` stands in the result.

    In each array, `...` can stand for another number of axes. In the result, `...` stands for the largest number of
    axes for which `...` stands in any array.
    """
    most = max((sum(isinstance(x, int) for x in labels) for labels in arrays), default=0)
    return tuple(range(-most, 0))


# ---- products ----------------------------------------------------------------------------


NONE = ""  # the name of an axis that an array does not have


class _Term(Record):
    """An array whose axes have names."""

    array: Array
    labels: Labels

    def aligned(self, t: Typer, labels: Sequence[Label]) -> Array:
        """Returns the array with the axes `labels`, in this order.

        An axis that the array does not have gets the size 1.
        """
        shape = [self.array.shape[self.labels.index(x)] if x in self.labels else dims.ONE for x in labels]
        return view(t, self.array, shape, [ir.axis(list(labels).index(x)) for x in self.labels])


def einsum(t: Typer, subscripts: Value, operands: Value, precision: Value) -> Array:
    """Defines numpy's einsum.

    If only one array has an axis, and the result does not have this axis, the axis is summed before the array is
    multiplied.
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
    """Returns the size of the axis for each name. A size of 1 broadcasts, as in numpy."""
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


def _diagonal(t: Typer, x: Array, labels: Labels, sizes: Mapping[Label, Dim]) -> _Term:
    """Returns the array with one axis for each name: with the subscripts "ii", the diagonal of the array.

    An axis of size 1 is dropped if another axis with the same name has another size.
    """
    kept = list(dict.fromkeys(n for n, e in zip(labels, x.shape) if e != 1 or sizes[n] == 1))
    index = [ir.axis(kept.index(n)) if e != 1 or sizes[n] == 1 else dims.ZERO for n, e in zip(labels, x.shape)]
    return _Term(view(t, x, [sizes[n] for n in kept], index), tuple(kept))


def _summed(t: Typer, x: _Term, kept: Container[Label]) -> _Term:
    """Returns the sum of an array over all axes that are not in `kept`."""
    gone = tuple(k for k, label in enumerate(x.labels) if label not in kept)
    return _Term(total(t, x.array, gone), tuple(label for label in x.labels if label in kept))


def _joined(t: Typer, x: _Term, y: _Term, later: Container[Label], precision: str) -> _Term:
    """Returns the product of two arrays, summed over the common axes that are not in `later`.

    `later` has the names of the axes of the result, and of the arrays that have not been multiplied yet.
    """
    over = [n for n in x.labels if n in y.labels and n not in later]
    batch = [n for n in x.labels if n in y.labels and n in later]
    rows, columns = [n for n in x.labels if n not in y.labels], [n for n in y.labels if n not in x.labels]
    if not over:
        labels = (*batch, *rows, *columns)
        return _Term(multiplied(t, x.aligned(t, labels), y.aligned(t, labels)), labels)
    wide = [*batch, *rows[:-1], *columns[:-1]]  # the last row and column axis form the matrix, all others batch axes
    row, column = rows[-1:] or [NONE], columns[-1:] or [NONE]
    depth = dims.product([x.array.shape[x.labels.index(n)] for n in over])
    left, right = x.aligned(t, [*wide, *row, *over]), y.aligned(t, [*wide, *over, *column])
    if len(over) > 1:
        left = reshape(t, left, (*left.shape[: len(wide) + 1], depth))
        right = reshape(t, right, (*right.shape[: len(wide)], depth, right.shape[-1]))
    out = product(t, left, right, precision)
    missing = tuple(k for k, side in ((-2, rows), (-1, columns)) if not side)
    return _Term(squeeze(t, out, missing) if missing else out, (*wide, *rows[-1:], *columns[-1:]))
