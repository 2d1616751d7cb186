"""Names of numpy, torch and jax, and what to write for them: `np.average(x)`, `x.median()`, `float32`.

Three examples: numpy's `average` is called `mean` here, `abs` has the same name, and `unique` is missing for a reason.
names.csv has a row for each name. reasons.csv has the reasons that rows share, and
libraries.toml the names of libraries. The columns of names.csv:

    name        `average`; `.real` is an attribute, `*` any other name of the library
    arguments   the calls that the row is for: `x, axis`, `x, *, alpha`, `x: 1` (rank 1), `*rest` (any others)
    libraries   keys of `LIBRARIES` (libraries.toml)
    instead     what to write: an expression of the arguments, or the name itself if the language has it
    reason      for a name that the language does not have: a key of reasons.csv
    note        how `instead` differs, or what it assumes

A name may have several rows. The first row that fits the call counts.

The functions at the end take a name, its library (if the program names one) and its use. They return an `Answer`: the
row with what to write instead, or why the language has nothing like it. They return None for a name that no library has.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from minitri.base.toml_tables import table_beside
from minitri.base.types import DTYPES

_TABLES = table_beside(__file__, "libraries.toml")
LIBRARIES: dict[str, str] = _TABLES["libraries"]
PREFIXES: dict[str, str] = _TABLES["prefixes"]
METHODS = ("array", "tensor")
_PARAMETER = re.compile(r"(\*?\w+)(?::[^=]*)?(?:=(.*))?")
LONGEST = 120  # characters of a rewritten call that a sentence shows


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

    @property
    def parameters(self) -> list[tuple[str, str | None, bool]]:
        """The parameters of `arguments`: the name, the default, and whether it may be given by position."""
        positional, _, named = self.arguments.partition("*, ")
        texts = [(text, True) for text in positional.rstrip(", ").split(", ")]
        texts += [(text, False) for text in named.split(", ")]
        found = ((_PARAMETER.fullmatch(text), by_position) for text, by_position in texts if text)
        return [(match[1], match[2], by_position) for match, by_position in found if match]

    def takes(self, args: Sequence[str], keywords: Iterable[str]) -> bool:
        """Whether the row is for a call with these arguments."""
        names, given = [name for name, _, _ in self.parameters], dict.fromkeys(keywords, "")
        if any(name.startswith("*") for name in names):
            return all(by_position or name in given for name, _, by_position in self.parameters)
        return not names or (self.bound(args, given) is not None and given.keys() <= {*names})

    def bound(self, args: Sequence[str], keywords: Mapping[str, str]) -> dict[str, str] | None:
        """The text of each parameter; None if one has neither an argument nor a default."""
        values: dict[str, str] = {}
        rest = list(args)
        named = [name for name, _, by_position in self.parameters if not by_position]
        for name, default, by_position in self.parameters:
            if name.startswith("*"):
                others = [f"{k}={v}" for k, v in keywords.items() if k not in values and k not in named]
                text = ", ".join([*rest, *others])
                if name not in self.instead:  # the template has them as one value
                    if others or not rest:
                        return None
                    text = f"({text})" if len(rest) > 1 else text
                values[name[1:]] = text
                rest = []
            elif rest and by_position:
                values[name] = rest.pop(0)
            elif (text := keywords.get(name, default)) is not None:
                values[name] = text
            else:
                return None
        return None if rest else values


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
    """The rows of a library's name. Rows for certain arguments come first. torch's `exp_` and `exp_copy` count as `exp`."""
    for spelling in (name, name.removesuffix("_"), name.removesuffix("_copy"), "*"):
        if found := [row for row in _by_name().get(spelling, ()) if library in row.libraries]:
            return sorted(found, key=lambda row: not row.arguments)
    return []


# ---- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The row for a name, and the library that it was found in."""

    name: str
    library: str
    row: Foreign

    def sentence(self, called: bool, written: str = "") -> str:
        """What to write instead, or why there is nothing. `written` is the program's own call, rewritten."""
        row, of = self.row, LIBRARIES[self.library]
        written = " ".join(written.split()) if len(written) < LONGEST else ""
        note = f" ({row.note})" if row.note else ""
        if row.reason:
            return f"`{self.name if row.name == '*' else row.name}` of {of} is not here: {row.reason}"
        if row.here and row.name == self.name:
            there = f"write `{written}`: " if written else ""
            return f"{there}`{row.instead}` is there without a prefix{note}"
        template = f"astype(x, {row.instead})" if called and row.instead in DTYPES else row.instead
        return f"write `{written or template}` for `{self.name if row.here else row.spelling}` of {of}{note}"


def library(path: Sequence[str]) -> str:
    """The library of a path such as `torch.nn.functional` or `np`. The path begins with one of `PREFIXES`."""
    *above, last = path
    if above and last in _TABLES["parts"]:
        return _TABLES["parts"][last]
    if above and last == "nn":
        return "nn" if path[0] == "jax" else "modules"
    return PREFIXES[path[0]]


def prefixed(
    path: Sequence[str], name: str, args: Sequence[str] | None = None, keywords: Sequence[str] = ()
) -> Answer | None:
    """The answer to `np.name`. `args` are the texts of positional arguments, or None if it is not called."""
    of = library(path)
    return _first([Answer(name, of, row) for row in rows(name, of)], args, keywords)


def called(name: str, args: Sequence[str], keywords: Sequence[str] = (), *, method: bool = False) -> Answer | None:
    """The answer to `name(x, …)`, or to `x.name(…)`. `args` include x."""
    functions = [k for k in LIBRARIES if k not in METHODS]
    order = [*METHODS, *functions] if method else [*functions, *METHODS]
    return _first(_any(name, name, order), args, keywords)


def value(name: str) -> Answer | None:
    """The answer to a name that is not called."""
    found = _any(name, name, list(LIBRARIES))
    return _first([a for a in found if not a.row.arguments] or found, None, ())


def attribute(name: str) -> Answer | None:
    """The answer to `x.name`."""
    return _first(_any(name, f".{name}", METHODS), None, ())


def _any(name: str, spelling: str, libraries: Sequence[str]) -> list[Answer]:
    """The rows of a name in these libraries, in their order. Rows of `*` only answer prefixes, as in `torch.fft.…`."""
    found = [Answer(name, of, row) for of in libraries for row in rows(spelling, of) if row.name != "*"]
    return [a for a in found if not (a.row.here and a.row.name == spelling)]


def _first(found: Sequence[Answer], args: Sequence[str] | None, keywords: Sequence[str]) -> Answer | None:
    """The first answer that fits the call, or the first one if none fits. A dim is written as a number."""

    def fits(answer: Answer) -> bool:
        places = answer.row.arguments.split(", ")
        dims = [text for place, text in zip(places, args or ()) if place == "dim"]
        return answer.row.takes(args or (), keywords) and all(re.search(r"\d", text) for text in dims)

    fitting = [a for a in found if args is None or fits(a)]
    return next(iter(fitting or found), None)
