"""The table of names of other libraries, and the translation of each.

`average` of numpy is `mean` here, `abs` is the same, and `unique` is not here for a reason. names.csv
has a row for each of them, reasons.csv the sentences that rows share. The columns of names.csv:

    name        `average`; `.real` is an attribute, `*` any other name of the library
    arguments   those that the row is for: `x, axis`, `x, *, alpha`, `x: 1` (rank 1), `*rest` (any others)
    libraries   keys of `LIBRARIES`
    instead     what to write, an expression of the arguments; the name itself if it is here
    reason      for a name that is not here: a key of reasons.csv
    note        where `instead` differs, or what it takes for granted

A name may have several rows, in the order in which they are tried.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

LIBRARIES = {
    "np": "numpy", "jnp": "jax.numpy", "api": "the array API", "py": "Python", "torch": "torch",
    "F": "torch.nn.functional", "array": "numpy arrays", "tensor": "torch tensors", "nn": "jax.nn",
    "linalg": "numpy.linalg and torch.linalg", "special": "torch.special", "math": "math",
    "random": "random", "fft": "fft", "modules": "torch.nn",
}  # fmt: skip
"""What the libraries are called; a name without a prefix is looked for in this order."""
METHODS = ("array", "tensor")


@dataclass(frozen=True, slots=True)
class Foreign:
    """One row of the table; `reason` is the sentence."""

    name: str
    arguments: str
    libraries: tuple[str, ...]
    instead: str
    reason: str
    note: str

    @property
    def here(self) -> bool:
        """Whether the language has it under the same name."""
        return self.instead == self.name.lstrip(".") and not self.arguments

    @property
    def spelling(self) -> str:
        """`average(x, axis)`, `.real`, `newaxis`"""
        return f"{self.name}({self.arguments})" if self.arguments else self.name

    def takes(self, count: int, keywords: Sequence[str]) -> bool:
        """Whether the row is for a call with `count` positional arguments and these keywords."""
        if not self.arguments:
            return True
        positional, _, named = self.arguments.partition("*, ")
        parameters = [p for p in re.split(r", ", positional.rstrip(", ")) if p]
        if any(p.startswith("*") for p in parameters):
            return True
        names = [re.split("[:=]", p)[0] for p in (*parameters, *named.split(", ")) if p]
        given = {*names[: min(count, len(parameters))], *keywords}
        required = {re.split("[:=]", p)[0] for p in (*parameters, *named.split(", ")) if p and "=" not in p}
        return count <= len(parameters) and given <= set(names) and required <= given


@cache
def table() -> tuple[Foreign, ...]:
    """Every row, in order of their names."""
    reasons = {row["reason"]: row["text"] for row in _rows("reasons.csv")}
    return tuple(_foreign(reasons, **row) for row in _rows("names.csv"))


def _foreign(reasons: dict[str, str], *, libraries: str, reason: str, **row: str) -> Foreign:
    return Foreign(**row, libraries=tuple(libraries.split()), reason=reasons[reason] if reason else "")


def _rows(file: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@cache
def _by_name() -> dict[str, list[Foreign]]:
    name = attrgetter("name")
    return {n: list(rows) for n, rows in groupby(sorted(table(), key=name), name)}


def rows(name: str, library: str) -> list[Foreign]:
    """The rows of a name of a library, those for certain arguments first. torch's `exp_` and `exp_copy` are `exp`."""
    for spelling in (name, name.removesuffix("_"), name.removesuffix("_copy"), "*"):
        if found := [row for row in _by_name().get(spelling, ()) if library in row.libraries]:
            return sorted(found, key=lambda row: not row.arguments)
    return []
