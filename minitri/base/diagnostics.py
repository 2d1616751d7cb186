"""Error codes and the caret renderer.

In: a problem found anywhere in the compiler, with the source spans it concerns.
Out: one exception, `CompileError`, that renders as

    error[MT0203]: matmul contracts K = 512 with N = 256
      --> linear.mt:2:12
      2 |     return relu(x @ w.mT + b)
        |                 ^^^^^^^^ x is f16[M, K=512], w.mT is f16[N=256, K=512]
      = help: drop the transpose: `x @ w` is f16[M, N]

error_codes.toml has the text of every code.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from minitri.base.spans import Span
from minitri.base.spelling import nearest

_TABLE = tomllib.loads(Path(__file__).with_name("error_codes.toml").read_text(encoding="utf-8"))
CODES: dict[str, str] = {code: row["text"] for code, row in _TABLE.items()}


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


_PYTHON = {
    "ValueError": CompileValueError, "TypeError": CompileTypeError, "IndexError": CompileIndexError,
    "AxisError": CompileAxisError,
}  # fmt: skip
_KINDS = {code: _PYTHON[row["python"]] for code, row in _TABLE.items() if "python" in row}
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
