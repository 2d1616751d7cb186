"""The subscripts of einsum: "bik,bkj->bij", one name for each axis.

In: the text and the rank of each array. Out: names of the axes of each array and of the result. The
one idea: `...` stands for axes that have no name; they get numbers, counted from the last one, so
that those of all arrays meet as in broadcasting.

Left out: sizes (minitri/graph/functions/contractions.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from minitri.base.diagnostics import CompileError

Label = str | int  # a letter; or an axis of "...": -1 is the last one


@dataclass(frozen=True)
class Subscripts:
    arrays: tuple[tuple[Label, ...], ...]
    result: tuple[Label, ...]


def read_subscripts(text: object, ranks: Sequence[int]) -> Subscripts:
    """numpy's notation. Without `->` the result has the axes of `...`, then what is named once, by the alphabet.

    CompileError MT0102 if it is not well formed, MT0204 if it does not fit the ranks.
    """
    if not isinstance(text, str):
        raise CompileError("MT0102", "the first argument of einsum is a text", help=HELP)
    left, arrow, right = "".join(text.split()).partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise CompileError("MT0102", f"einsum names {_count(len(terms))} and gets {len(ranks)}", help=HELP)
    arrays = tuple(_axes(term, rank) for term, rank in zip(terms, ranks))
    return Subscripts(arrays, _result(right, arrays) if arrow else _implied(arrays))


HELP = 'write one letter for each axis: `einsum("ik,kj->ij", a, b)`'


def _count(n: int) -> str:
    return f"{n} array{'s' * (n != 1)}"


def _letters(term: str) -> tuple[str, str, str]:
    """The letters before `...`, the dots, the letters after them."""
    before, dots, after = term.partition("...")
    for letter in before + after:
        if not (letter.isascii() and letter.isalpha()):
            raise CompileError("MT0102", f"einsum takes letters for axes, not `{letter}`", help=HELP)
    return before, dots, after


def _axes(term: str, rank: int) -> tuple[Label, ...]:
    before, dots, after = _letters(term)
    more = rank - len(before) - len(after)
    if more < 0 or (more and not dots):
        named = len(before) + len(after)
        message = f"`{term[:40]}` names {named} ax{'es' if named != 1 else 'is'} of an array of rank {rank}"
        raise CompileError("MT0204", message, help="`...` stands for axes without a name" if more > 0 else HELP)
    return (*before, *range(-more, 0), *after)


def _result(term: str, arrays: Sequence[tuple[Label, ...]]) -> tuple[Label, ...]:
    before, dots, after = _letters(term)
    unnamed = _unnamed(arrays)
    if unnamed and not dots:
        raise CompileError("MT0102", "the result of einsum lacks the axes of `...`", help="write `...` after `->` too")
    result = (*before, *unnamed, *after)
    known = {label for labels in arrays for label in labels}
    for label, times in Counter(result).items():
        if times > 1 or label not in known:
            why = "twice in the result" if times > 1 else "of the result in no array"
            raise CompileError("MT0102", f"einsum has `{label}` {why}", help=HELP)
    return result


def _implied(arrays: Sequence[tuple[Label, ...]]) -> tuple[Label, ...]:
    times = Counter(label for labels in arrays for label in labels)
    return (*_unnamed(arrays), *sorted(x for x in times if isinstance(x, str) and times[x] == 1))


def _unnamed(arrays: Sequence[tuple[Label, ...]]) -> tuple[int, ...]:
    most = max((sum(isinstance(x, int) for x in labels) for labels in arrays), default=0)
    return tuple(range(-most, 0))
