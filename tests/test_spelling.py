"""Misspelt names: for a name with one typing error, the message suggests the intended name.

pytest tests/test_spelling.py -s                         prints the share for every kind of name and error
pytest tests/test_spelling.py -s -m slow                 tries every letter at every position
"""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Iterator

import pytest

import minitri as mt
from minitri.base.diagnostics import CODES, suggest
from minitri.base.spelling import _PLACES, distance
from minitri.base.types import DTYPES
from minitri.graph.unknown_names import function_names
from minitri.language.signatures import KEYWORD_ALIASES, SIGNATURES, library_function, library_spans
from minitri.optimize.pass_table import OPTIONAL
from minitri.pipeline import OUR_STAGES

LETTERS = string.ascii_lowercase + string.digits + "_"
WANTED = 0.90


def beside(letter: str) -> list[str]:
    """The neighbours of a key on the keyboard."""
    row, column = _PLACES.get(letter, (9, 9))
    return [
        k
        for k, (r, c) in _PLACES.items()
        if k != letter and k in LETTERS and abs(r - row) <= 1 and abs(c - column) <= 1
    ]


def slips(name: str, few: random.Random | None) -> Iterator[tuple[str, str]]:
    """(kind, misspelt name) for each error of one letter. With `few`, two letters for each position instead of all."""
    for k in range(len(name) + 1):
        letters = LETTERS if few is None else few.sample(LETTERS, 2)
        for letter in letters:
            yield "insert", name[:k] + letter + name[k:]
        if k == len(name):
            continue
        yield "delete", name[:k] + name[k + 1 :]
        for letter in letters:
            yield "replace", name[:k] + letter + name[k + 1 :]
        for letter in beside(name[k]) if few is None else beside(name[k])[:2]:
            yield "neighbouring key", name[:k] + letter + name[k + 1 :]
        yield "swap", name[:k] + name[k + 1 : k + 2] + name[k] + name[k + 2 :]


def parameters() -> set[str]:
    plain = {p.lstrip("*") for signature in SIGNATURES.values() for p in signature}
    return plain | {p.name for f in map(library_function, library_spans()) for p in f.params} | set(KEYWORD_ALIASES)


KINDS: dict[str, list[str]] = {
    "functions": sorted(set(function_names())),
    "dtypes": list(DTYPES),
    "parameters": sorted(p for p in parameters() if len(p) > 1),
    "stages": list(OUR_STAGES),
    "passes": list(OPTIONAL),
}


def measured(few: bool) -> Counter[tuple[str, str, bool]]:
    """How often the suggestion has the intended name, by kind of name and kind of error. With `few`, of every sixth name."""
    draw = random.Random(0) if few else None
    counts: Counter[tuple[str, str, bool]] = Counter()
    for kind, names in KINDS.items():
        for name in names[:: 6 if few else 1]:
            for slip, typo in dict.fromkeys(slips(name, draw)):
                if typo not in names and typo:  # another valid name is no mistake
                    counts[kind, slip, f"`{name}`" in suggest(typo, names)] += 1
    return counts


def share(counts: Counter[tuple[str, str, bool]], kind: str, slip: str = "") -> float:
    hits = [(n, hit) for (k, s, hit), n in counts.items() if k == kind and slip in ("", s)]
    return sum(n for n, hit in hits if hit) / sum(n for n, _ in hits)


def report(counts: Counter[tuple[str, str, bool]]) -> None:
    every = sorted({slip for _, slip, _ in counts})
    for kind in KINDS:
        parts = ", ".join(f"{slip} {share(counts, kind, slip):.1%}" for slip in every)
        print(
            f"\n{kind}: {share(counts, kind):.1%} of {sum(n for (k, _, _), n in counts.items() if k == kind):,} ({parts})",
            end="",
        )
    hits = sum(n for (_, _, hit), n in counts.items() if hit)
    print(f"\nin all: {hits / counts.total():.2%} of {counts.total():,} slips")


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_one_typing_error_is_understood(few: bool) -> None:
    counts = measured(few)
    report(counts)
    for kind in KINDS:
        assert share(counts, kind) >= WANTED, kind
    assert sum(n for (_, _, hit), n in counts.items() if hit) >= WANTED * counts.total()


def message(text: str, **types: str) -> str:
    with pytest.raises(mt.CompileError) as caught:
        mt.compile(text, **types)
    return str(caught.value)


@pytest.mark.parametrize(
    "text, meant",
    [
        ("sofmtax(x)", "softmax"),
        ("sum(x, axsi=0)", "axis"),
        ("sum(x, kepdim=True)", "keepdim"),
        ("astype(x, f23)", "f32"),
        ("rleu(x)", "relu"),
        ("layernorm(x)", "layer_norm"),
        ("softm(x)", "softmax"),
        ("x + softm", "softmax"),
        ("softmax(x, axos=0)", "axis"),
        ("x.Sum()", "sum"),
        ("x + y_axiss", ""),
    ],
)
def test_messages_suggest(text: str, meant: str) -> None:
    help = message(text, x="f32[M, N]").partition("help: ")[2]
    assert re.search(rf"\b{meant}\b", help) or not meant


def test_a_dtype_in_a_type() -> None:
    assert "did you mean `f32`" in message("x", x="f23[N]")


def test_distance_is_symmetric_and_ranks_slips_first() -> None:
    assert distance("sim", "sum", 2) == distance("sum", "sim", 2)
    assert distance("abc", "abc", 1) == 0
    assert distance("sun", "sum", 2) < distance("sur", "sum", 2)  # on the keyboard, n is next to m
    assert suggest("MT023", CODES).startswith("did you mean `MT02")


def test_a_very_long_name_is_quick() -> None:
    assert suggest("x" * 200, function_names()) == ""
