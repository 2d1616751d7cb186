"""Translates names of numpy, torch and jax, such as `np.average(x)`, `x.median()` or `float32`, into the language.

For example, numpy's `average` is called `mean` in the language. The name `abs` is the same in numpy and in the
language. For numpy's `unique`, the language has no counterpart, and reasons.csv says why. The file names.csv has a row
for each name of another library. The file libraries.toml has the names of libraries. The columns of names.csv:

`name`: a name such as `average`. A name with a dot, such as `.real`, is an attribute. `*` stands for every name of the
    library that has no row of its own.
`arguments`: the arguments of the calls that the row translates, such as `x, axis`, `x, *, alpha`, `x: 1` (x has rank 1)
    or `*rest` (any further arguments). For some parameters, such as `M` (a size), the table `looks` in libraries.toml
    has a regular expression that the argument must match.
`libraries`: the libraries that have the name, as keys of `LIBRARIES` (libraries.toml).
`instead`: what the user writes instead, as an expression of the arguments. If the name means the same in the language,
    `instead` is this name without a leading dot.
`reason`: a key of reasons.csv, for a name that the language does not have.
`note`: how the result of `instead` differs from the library's result, or what `instead` assumes.

If a name has several rows in names.csv, the first row that fits the call is used.

Four functions look up a name by its use: `prefixed` for `np.name`, `called` for a call, `value` for a plain name, and
`attribute` for `x.name`. A lookup returns an `Answer`, which contains a row of names.csv. A lookup of an unknown name
returns None. An `Answer` says what to write instead of the name, or why the language has no counterpart.

The function `rewritten_call` translates a call of another library into the language, and keeps the user's arguments.
The column `instead` of names.csv is a template, in which the arguments replace the names of the parameters. If a
parameter in a template is next to an operator, an argument such as `x + 1` is written in parentheses.

    np.average(x + 1, axis=0)      row: average(x, axis) → mean(x, axis=axis)      mean(x + 1, axis=0)
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from minitri.base.nodes import Record, grouped
from minitri.base.toml_tables import table_beside
from minitri.base.types import BY_NUMPY_NAME, DTYPES

_TABLES = table_beside(__file__, "libraries.toml")
LIBRARIES: dict[str, str] = _TABLES["libraries"]
PREFIXES: dict[str, str] = _TABLES["prefixes"]
METHODS = ("array", "tensor")
_PARAMETER = re.compile(r"(\*?\w+)(?::[^=,]*)?(?:=(.*?))?(?:, |$)")
_LOOKS: dict[str, str] = _TABLES["looks"]
LONGEST = 120  # characters of a rewritten call that a sentence shows
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\s*(?:=(?!=)|\())")
_IN_BRACKETS = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")
_OPERAND = re.compile(r"[\w.]*|\"[^\"]*\"|'[^']*'")


class Foreign(Record):
    """One row of names.csv. The field `reason` has the sentence from reasons.csv, whereas names.csv has only the key of
    the sentence.
    """

    name: str
    arguments: str
    libraries: tuple[str, ...]
    instead: str
    reason: str
    note: str

    @property
    def here(self) -> bool:
        """Checks whether the name, such as `abs`, is the same in minitri's language."""
        return self.instead == self.name.lstrip(".") and not self.arguments

    @property
    def spelling(self) -> str:
        """Returns the name as a program writes it, such as `average(x, axis)`, `.real` or `newaxis`."""
        return f"{self.name}({self.arguments})" if self.arguments else self.name

    @property
    def parameters(self) -> list[tuple[str, str | None, bool]]:
        """Returns the parameters in the column `arguments` of names.csv, such as `x` and `axis`.

        Each parameter is a tuple: its name, its default, and whether a call can pass it by position.
        """
        positional, _, named = self.arguments.partition("*, ")
        texts = ((positional, True), (named, False))
        return [(m[1], m[2], by_position) for text, by_position in texts for m in _PARAMETER.finditer(text)]

    def takes(self, args: Sequence[str], keywords: Iterable[str]) -> bool:
        """Checks whether this row of names.csv translates a call with the arguments `args` and `keywords`.

        The table `looks` of libraries.toml has regular expressions for some parameters. An argument must match the
        expression of its parameter. For example, the argument for the parameter `dim` must contain a digit. The call
        `max(x, y)` does not match the row `max(x, dim)`, because `y` contains no digit.
        """
        names, given = [name for name, _, _ in self.parameters], dict.fromkeys(keywords, "")
        if not all(re.match(_LOOKS.get(name, ""), text) for name, text in zip(names, args)):
            return False
        if any(name.startswith("*") for name in names):
            return all(by_position or name in given for name, _, by_position in self.parameters)
        return not names or (self.bound(args, given) is not None and given.keys() <= {*names})

    def bound(self, args: Sequence[str], keywords: Mapping[str, str]) -> dict[str, str] | None:
        """Binds the arguments of a call to the parameters in this row of names.csv. Returns a dictionary from
        parameters to arguments.

        Returns None if a parameter has neither an argument nor a default, or if the call has too many arguments.
        """
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
    """Returns all rows of names.csv, sorted by name."""
    reasons = {"": ""} | {row["reason"]: row["text"] for row in _rows("reasons.csv")}
    split = ({**row, "libraries": tuple(row["libraries"].split())} for row in _rows("names.csv"))
    return tuple(Foreign(**{**row, "reason": reasons[row["reason"]]}) for row in split)


def _rows(file: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@cache
def _by_name() -> dict[str, list[Foreign]]:
    return grouped((row.name, row) for row in table())


def rows(name: str, library: str) -> list[Foreign]:
    """Returns the rows of names.csv for a function name such as `exp_` of a library such as torch.

    Rows with an empty column `arguments` fit any call, and come last. If names.csv has no row for a name with the
    suffix `_` or `_copy`, the function returns the rows for the name without the suffix. Example: for torch's `exp_`
    and `exp_copy`, the function returns the rows of names.csv for `exp`.
    """
    for spelling in (name, name.removesuffix("_"), name.removesuffix("_copy"), "*"):
        if found := [row for row in _by_name().get(spelling, ()) if library in row.libraries]:
            return sorted(found, key=lambda row: not row.arguments)
    return []


# ---- answers ---------------------------------------------------------------------------------------


class Answer(Record):
    """What a row of names.csv says about a name of the library `library`."""

    name: str
    library: str
    row: Foreign

    def sentence(self, called: bool, written: str = "") -> str:
        """Returns a sentence that says what to write instead of the name, or why the language has no counterpart.

        The argument `written` is the user's text after its translation, such as `mean(y, axis=0)`, or "" if no
        translated text exists.
        """
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
    """Returns the library that a path such as `torch.nn.functional` or `np` names.

    The path must begin with one of `PREFIXES`. The result is a key of `LIBRARIES`.
    """
    *above, last = path
    if above and last in _TABLES["parts"]:
        return _TABLES["parts"][last]
    if above and last == "nn":
        return "nn" if path[0] == "jax" else "modules"
    return PREFIXES[path[0]]


def prefixed(
    path: Sequence[str], name: str, args: Sequence[str] | None = None, keywords: Sequence[str] = ()
) -> Answer | None:
    """Returns the translation of a name with a prefix, such as `np.average`.

    The argument `path` is the name of the library, such as `np`. The argument `args` is a list of the texts of the
    positional arguments. If the name is used without a call, `args` is None.
    """
    of = library(path)
    places = ("F", "nn", of) if of == "modules" else (of,)  # `nn.relu` is a function, not a layer
    wrong = [a for a in _any(name, name, ["other"]) if args and a.row.arguments and a.row.takes(args, keywords)]
    own = [Answer(name, place, row) for place in places for row in rows(name, place)]
    return _first(sorted([*own, *wrong], key=lambda a: not a.row.arguments), args, keywords)


def called(name: str, args: Sequence[str], keywords: Sequence[str] = (), *, method: bool = False) -> Answer | None:
    """Returns the translation of a call `name(x, …)` or `x.name(…)`.

    The argument `args` holds the texts of the positional arguments. In the method call `x.name(…)`, `x` counts as the
    first argument.
    """
    functions = [k for k in LIBRARIES if k not in METHODS]
    order = ["other", *METHODS, *functions] if method else [*functions, *METHODS]
    return _first(_any(name, name, order), args, keywords)


def value(name: str) -> Answer | None:
    """Returns the translation of a name that the program uses without calling it, such as `newaxis`."""
    found = _any(name, name, list(LIBRARIES))
    return _first([a for a in found if not a.row.arguments] or found, None, ())


def attribute(name: str) -> Answer | None:
    """Returns the translation of an attribute `x.name`."""
    return _first(_any(name, f".{name}", METHODS), None, ())


def _any(name: str, spelling: str, libraries: Sequence[str]) -> list[Answer]:
    """Returns an `Answer` for each row of names.csv that matches a name, in the order of `libraries`."""
    # `*` stands for any name with a prefix, as in `torch.fft.…`
    found = [Answer(name, of, row) for of in libraries for row in rows(spelling, of) if row.name != "*"]
    return [a for a in found if not (a.row.here and a.row.name == spelling)]


def _first(found: Sequence[Answer], args: Sequence[str] | None, keywords: Sequence[str]) -> Answer | None:
    """Returns the first answer that fits the arguments of a call. If no answer fits, returns the first answer."""
    fitting = [a for a in found if args is None or a.row.takes(args, keywords)]
    return next(iter(fitting or found), None)


# ---- rewritten calls -------------------------------------------------------------------------------


def rewritten_call(row: Foreign, args: Sequence[str], keywords: Mapping[str, str]) -> str:
    """Translates a call of another library's function into a call of the language. Returns "" if the call cannot be
    translated.
    """
    given = ", ".join([*args, *(f"{name}={text}" for name, text in keywords.items())])
    if row.instead in DTYPES:
        return f"astype({given}, {row.instead})" if given else ""
    if not row.arguments:
        return f"{row.instead}({given})" if row.instead.isidentifier() else ""
    values = row.bound(args, keywords)
    if values is None:
        return ""
    text = values.get("dtype", "")
    name = text.strip("\"'").rpartition(".")[2]
    if dtype := DTYPES.get(name) or BY_NUMPY_NAME.get(name):
        values["dtype"] = str(dtype)
    elif text[:1] in ("'", '"'):
        return values["x"] if row.name == "to" else ""  # torch's `x.to("cuda")`
    return _plain(substituted(row.instead, values))


def _plain(text: str) -> str:
    """Simplifies a text: `1 if False else f(x)`, for example, becomes `f(x)`."""
    choice = r"(\w+(?:\(.*\))?) if (True|False) else (\w+(?:\(.*\))?)"
    return re.sub(choice, lambda m: m[1] if m[2] == "True" else m[3], text).replace(".shape.shape[0]", ".ndim")


def substituted(template: str, values: Mapping[str, str]) -> str:
    """Replaces the names in a template by the texts in the dictionary `values`.

    In a template, `*rest` stands for any number of arguments.
    """
    for name in re.findall(r"\*(\w+)", template):
        if name in values:
            written = values[name]
            template = re.sub(rf", \*{name}\b", f", {written}" if written else "", template)

    def argument(match: re.Match[str]) -> str:
        text = values.get(match[0])
        if text is None:
            return match[0]
        before, after = template[: match.start()].rstrip()[-1:], template[match.end() :].lstrip()[:1]
        alone = before in ("", "(", "[", ",", "=") and after in ("", ")", "]", ",")
        return text if alone or is_operand(text) else f"({text})"

    return _NAME.sub(argument, template)


def is_operand(text: str) -> bool:
    """Checks whether the text of an expression can stand beside any operator without parentheses.

    Names, numbers, calls, subscripts, and anything that is already in brackets need no parentheses.
    """
    plain, before = text, ""
    while plain != before:
        plain, before = _IN_BRACKETS.sub("", plain), plain
    return bool(text) and _OPERAND.fullmatch(plain) is not None
