"""Error codes and the caret renderer.

In: a problem found anywhere in the compiler, with the source spans it concerns.
Out: one exception, `CompileError`, that renders as

    error[MT0203]: matmul contracts K = 512 with N = 256
      --> linear.mt:2:12
      2 |     return relu(x @ w.mT + b)
        |                 ^^^^^^^^ x is f16[M, K=512], w.mT is f16[N=256, K=512]
      = help: drop the transpose: `x @ w` is f16[M, N]

The first two digits of a code name the stage that finds the problem:

    MT00   text
    MT01   names and calls
    MT02   types and shapes
    MT03   the call of a compiled program
    MT04   limits and targets
    MT05   stages that are read from text

`CODES` has the text of every code.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Self

from minitri.base.spans import Span
from minitri.base.spelling import nearest

CODES: dict[str, str] = {
    "MT0001": "the text is not in the language",
    "MT0002": "a Python construct that the language does not have",
    "MT0003": "the program has nothing to compile",
    "MT0004": "a type annotation that cannot be read",
    "MT0101": "an unknown name",
    "MT0102": "a call with the wrong arguments",
    "MT0103": "an unknown attribute",
    "MT0104": "a name defined twice",
    "MT0105": "functions that call each other in a circle",
    "MT0106": "a value that must be known at compile time",
    "MT0201": "shapes that do not broadcast",
    "MT0202": "an unknown dtype, or one the operation does not take",
    "MT0203": "a matrix product whose shapes do not fit",
    "MT0204": "an axis out of range or given twice",
    "MT0205": "a shape that cannot be made from another",
    "MT0206": "an index that does not fit the array",
    "MT0207": "a value that does not have the declared type",
    "MT0208": "a constant that does not fit its dtype",
    "MT0209": "a reduction over nothing",
    "MT0301": "a call with the wrong number of arrays",
    "MT0302": "an argument of the wrong rank",
    "MT0303": "an argument of the wrong dtype",
    "MT0304": "sizes that contradict each other",
    "MT0305": "arguments on different devices, or of a kind that cannot be read",
    "MT0306": "arrays that numpy itself refuses",
    "MT0401": "a program larger than the limits",
    "MT0402": "a stage or target that is not available",
    "MT0403": "a pass broke an invariant of its IR (a bug in minitri)",
    "MT0404": "an option that cannot be",
    "MT0501": "the text of a stage that cannot be read",
    "MT0502": "the text of a stage that breaks a rule of its IR",
    "MT0503": "a stage, read from a text, that does not run right",
}


class CompileError(Exception):
    """A rejected program or call: `code`, `message`, `span`, `label`, `help`.

    `CompileError("MT0203", …)` makes a `CompileValueError`: the code chooses the subclass, and so which exception
    of Python the error is too (`BUILTIN`).
    """

    def __new__(cls, code: str, *_: object, **__: object) -> Self:
        kind: Any = _KINDS.get(code, cls) if cls is CompileError else cls
        return Exception.__new__(kind)

    def __init__(self, code: str, message: str, span: Span | None = None, *, label: str = "", help: str = "") -> None:
        assert code in CODES, code
        lines = message.split("\n") if code == "MT0403" else [message]  # which shows whole programs of ours
        self.code, self.message, self.span = code, "\n".join(map(printable, lines)), span
        self.label, self.help = printable(label), printable(help)
        super().__init__(self.message)

    def __str__(self) -> str:
        return render(self)

    def at(self, span: Span | None) -> CompileError:
        """The same error, placed at `span` unless it already has a place."""
        if self.span is None:
            self.span = span
        return self


class CompileValueError(CompileError, ValueError):
    """A value or a shape that does not fit; a `ValueError` too."""


class CompileTypeError(CompileError, TypeError):
    """A dtype, or a kind of argument, that does not fit; a `TypeError` too."""


class CompileIndexError(CompileError, IndexError):
    """An index that does not fit; an `IndexError` too."""


class CompileAxisError(CompileValueError, CompileIndexError):
    """An axis that does not fit; a `ValueError` and an `IndexError`, as numpy's `AxisError` is."""


_KINDS: dict[str, type[CompileError]] = {
    **dict.fromkeys(("MT0102", "MT0106", "MT0202", "MT0207", "MT0301", "MT0303", "MT0305"), CompileTypeError),
    **dict.fromkeys(("MT0201", "MT0203", "MT0205", "MT0208", "MT0209"), CompileValueError),
    **dict.fromkeys(("MT0302", "MT0304", "MT0306", "MT0404"), CompileValueError),
    "MT0204": CompileAxisError,
    "MT0206": CompileIndexError,
}
BUILTIN: dict[str, tuple[str, ...]] = {
    code: tuple(e.__name__ for e in (ValueError, TypeError, IndexError) if issubclass(kind, e))
    for code, kind in _KINDS.items()
}
"""The exceptions of Python that an error is too, by its code."""


class ParseError(CompileError, SyntaxError):
    """A text that is not in the language; a `SyntaxError` too, so that tools treat it as one."""

    def __str__(self) -> str:
        return render(self)


class BrokenRule(ValueError):
    """What a verifier found. `spans`: where that which breaks the rule came from."""

    def __init__(self, message: str, spans: Sequence[Span] = ()) -> None:
        super().__init__(message)
        self.spans = tuple(spans)


def render(error: CompileError) -> str:
    """The error as plain text, with the source line and a caret line under the span."""
    out = [f"error[{error.code}]: {error.message}"]
    if error.span is not None:
        out += excerpt(error.span, error.label)
    if error.help:
        out.append(f"  = help: {error.help}")
    return "\n".join(out)


def excerpt(span: Span, label: str = "") -> list[str]:
    """The line that a span starts in, with carets under it."""
    line, column = span.source.line_column(span.start)
    text = span.source.line(line).expandtabs(1)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    text, column = _window(text, column, width)
    gutter = str(line)
    before, under = text[: column - 1], text[column - 1 :][:width] or " "
    return [
        f"  --> {printable(str(span))}",
        f"  {gutter} | {printable(text)}",
        f"  {' ' * len(gutter)} | {' ' * _columns(before)}{'^' * _columns(under)} {label}".rstrip(),
    ]


def _window(text: str, column: int, width: int, limit: int = 100) -> tuple[str, int]:
    """Cuts a very long line to the part around the caret."""
    if len(text) <= limit:
        return text, column
    start = max(0, column - 1 - limit // 3)
    end = start + limit
    left, right = "…" if start else "", "…" if end < len(text) else ""
    return left + text[start:end] + right, column - start + len(left)


def printable(text: str) -> str:
    """Hostile text on one line: no control character, escape or change of direction reaches a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _columns(text: str) -> int:
    """How wide a text is on a terminal: East Asian characters take two columns, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def suggest(name: str, known: Iterable[str]) -> str:
    """A help sentence that names the nearest known names, or ''."""
    near = nearest(name, known)
    return f"did you mean {listed([f'`{n}`' for n in near], 'or')}?" if near else ""


def listed(words: Sequence[str], joiner: str = "and") -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joiner} {words[-1]}"
