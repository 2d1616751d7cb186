"""The table of names of other libraries, and what to say for each: `np.average(x)`, `x.median()`, `float32`.

`average` of numpy is `mean` here, `abs` is the same, and `unique` is not here for a reason. names.csv
has a row for each of them, reasons.csv the sentences that rows share. The columns of names.csv:

    name        `average`; `.real` is an attribute, `*` any other name of the library
    arguments   those that the row is for: `x, axis`, `x, *, alpha`, `x: 1` (rank 1), `*rest` (any others)
    libraries   keys of `LIBRARIES`
    instead     what to write, an expression of the arguments; the name itself if it is here
    reason      for a name that is not here: a key of reasons.csv
    note        where `instead` differs, or what it takes for granted

A name may have several rows, in the order in which they are tried.

The functions at the end take a name, the library (if the program names one) and how the name is used. They give a
sentence with what to write instead or why there is nothing, or "" for a name that no library has.
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

from minitri.base.types import DTYPES

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


# ---- answers ---------------------------------------------------------------------------------------

_ROOTS = {
    "np": "np", "numpy": "np", "cp": "np", "cupy": "np", "jnp": "jnp", "jax": "jnp", "torch": "torch", "F": "F",
    "nn": "modules", "math": "math", "mt": "np", "minitri": "np", "scipy": "special", "xp": "api", "random": "random",
    "special": "special", "linalg": "linalg", "lax": "jnp",
}  # fmt: skip
_PARTS = {"linalg": "linalg", "special": "special", "random": "random", "fft": "fft", "functional": "F", "numpy": "jnp"}
PREFIXES = frozenset(_ROOTS)
"""Names by which programs call libraries."""
_Found = tuple[str, Foreign]  # the library, and its row


def library(path: Sequence[str]) -> str:
    """The library that `torch.nn.functional` or `np` names. The path begins with one of `PREFIXES`."""
    if len(path) > 1 and path[-1] in _PARTS:
        return _PARTS[path[-1]]
    if path[-1] == "nn" and len(path) > 1:
        return "nn" if path[0] == "jax" else "modules"
    return _ROOTS[path[0]]


def prefixed(path: Sequence[str], name: str, count: int | None = None, keywords: Sequence[str] = ()) -> str:
    """The answer to `np.name`; `count` positional arguments if it is called, None if it is not."""
    of = library(path)
    return _answer(name, [(of, row) for row in rows(name, of)], count, keywords)


def called(name: str, count: int, keywords: Sequence[str] = (), *, method: bool = False) -> str:
    """The answer to `name(x, …)`, or to `x.name(…)`, where x is counted."""
    functions = [k for k in LIBRARIES if k not in METHODS]
    order = [*METHODS, *functions] if method else [*functions, *METHODS]
    return _answer(name, _any(name, order), count, keywords)


def value(name: str) -> str:
    """The answer to a name that is not called."""
    found = _any(name, list(LIBRARIES))
    return _answer(name, [pair for pair in found if not pair[1].arguments] or found, None, ())


def attribute(name: str) -> str:
    """The answer to `x.name`."""
    return _answer(name, _any(f".{name}", METHODS), None, ())


def _any(name: str, libraries: Sequence[str]) -> list[_Found]:
    """What these libraries have under a name, the first library first. The rows of `*` answer prefixes only."""
    found = [(of, row) for of in libraries for row in rows(name, of) if row.name != "*"]
    return [(of, row) for of, row in found if not (row.here and row.name == name)]


def _answer(name: str, found: Sequence[_Found], count: int | None, keywords: Sequence[str]) -> str:
    """The sentence for the first row that the call fits, else for the first."""
    if not found:
        return ""
    fitting = [pair for pair in found if count is None or pair[1].takes(count, keywords)]
    return _sentence(name, *(fitting or found)[0], called=count is not None)


def _sentence(name: str, of: str, row: Foreign, called: bool) -> str:
    note = f" ({row.note})" if row.note else ""
    if row.reason:
        return f"`{name if row.name == '*' else row.name}` of {LIBRARIES[of]} is not here: {row.reason}"
    if row.here and row.name == name:
        return f"`{row.instead}` is there without a prefix{note}"
    instead = f"astype(x, {row.instead})" if called and row.instead in DTYPES else row.instead
    return f"write `{instead}` for `{name if row.here else row.spelling}` of {LIBRARIES[of]}{note}"
