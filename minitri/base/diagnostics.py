"""Defines error codes, and formats error messages that point at the source with carets.

If the compiler finds a mistake in a program, it raises a `CompileError`. A `CompileError` has the range of the source
text (span) with the mistake. For example, the text `str(error)` shows the line with the mistake and proposes a
correction:

    error[MT0203]: matmul contracts K = 512 with N = 256
      --> linear.mt:2:12
      2 |     return relu(x @ w.mT + b)
        |                 ^^^^^^^^ x is f16[M, K=512], w.mT is f16[N=256, K=512]
      = help: drop the transpose: `x @ w` is f16[M, N]
      = more: minitri explain MT0203

The file error_codes.toml has a short description of every error code. The attribute `edits` of a `CompileError` holds
the correction of the mistake as data, so that an editor can apply the correction. The function `edited` applies
corrections (edits) to a program text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Self

from minitri.base.nodes import Record
from minitri.base.spans import Span
from minitri.base.spelling import nearest
from minitri.base.toml_tables import table_beside

_TABLE = table_beside(__file__, "error_codes.toml")
CODES: dict[str, str] = {code: row["text"] for code, row in _TABLE.items()}


MOST_LINES = 7  # the most lines that `str(error)` has


class Edit(Record):
    """A correction of a minitri program: the text at `span` is replaced by `text`."""

    span: Span
    text: str


class CompileError(Exception):
    """The error for a rejected program or call, with the fields `code`, `message`, `span`, `label` and `help`.

    `edits`: the replacements in the source text that correct the mistake.
    `notes`: further facts, such as the call that led to the error. Each note is one line of the error message.
    `others`: the other errors of the program, in the order of their positions. An error that follows from another error
        is not in `others`.

    The error code chooses the subclass, so that `CompileError("MT0203", …)` makes a `CompileValueError`, which is also
    a Python `ValueError`. The column `python` of error_codes.toml names the subclass of CompileError for each error
    code.
    """

    def __new__(cls, code: str, *_: object, **__: object) -> Self:
        kind: Any = _KINDS.get(code, cls) if cls is CompileError else cls
        return Exception.__new__(kind)

    def __init__(self, code: str, message: str, span: Span | None = None, *, label: str = "", help: str = "") -> None:
        assert code in CODES, code
        lines = message.split("\n") if code == "MT0403" else [message]  # MT0403 quotes IR text of several lines
        self.code, self.message, self.span = code, "\n".join(map(printable, lines)), span
        self.label, self.help = printable(label), printable(help)
        self.edits: tuple[Edit, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.others: tuple[CompileError, ...] = ()
        super().__init__(self.message)

    def __reduce__(self) -> tuple[Any, ...]:  # so that pickle can make the error again
        return type(self), (self.code, self.message), self.__dict__

    def __str__(self) -> str:
        """Returns the text of the error, cut to at most `MOST_LINES` lines (see `summary`)."""
        return summary(self)

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython shows instead of a traceback."""
        return str(self).split("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def as_dict(self) -> dict[str, Any]:
        """Returns the error as data, ready for JSON. The `start` and `end` of an edit are positions in the source,
        counted in characters.
        """
        line, column = self.span.line_column if self.span else (None, None)
        return {
            "code": self.code, "message": self.message, "line": line, "column": column,
            "label": self.label, "help": self.help, "notes": list(self.notes),
            "edits": [{"start": e.span.start, "end": e.span.end, "text": e.text} for e in self.edits],
            "others": [other.as_dict() for other in self.others],
        }  # fmt: skip

    def at(self, span: Span | None) -> CompileError:
        """Sets the span of this error if no span is set yet. Returns this error."""
        if self.span is None:
            self.span = span
        return self

    def write(self, span: Span, text: str, help: str = "") -> Self:
        """Gives this error a correction that replaces the source text at `span` by `text`, and returns this error.

        An error that has no other help gets the help "write `text`".
        """
        return self.correct(Edit(span, text), help=help or self.help)

    def correct(self, *edits: Edit | None, help: str = "") -> Self:
        """Gives this error the corrections `edits`, and returns this error. An edit that is None is ignored.

        `help` is the line of the error message that says what to write. If `help` is "" and there is only one
        correction, the help line shows the text of the correction.
        """
        self.edits = tuple(edit for edit in edits if edit is not None)
        if not help and len(self.edits) == 1:
            lines = [f"`{line.strip()}`" for line in self.edits[0].text.split("\n")]
            help = "remove it" if lines == ["``"] else f"write {', then '.join(lines)}"
        self.help = printable(help) or self.help
        return self

    def guess(self, span: Span, question: str) -> Self:
        """Adds a question, such as "did you mean `f`?", to the error as its help text. Also adds a correction that
        replaces the text at `span` by the first name in the question.

        If `question` is "", the function does not change the error.
        """
        return self.correct(Edit(span, question.split("`")[1]) if question else None, help=question)


class CompileValueError(CompileError, ValueError):
    """The error for an invalid value or shape. A CompileValueError is also a `ValueError`."""


class CompileTypeError(CompileError, TypeError):
    """The error for an invalid dtype or kind of argument. A CompileTypeError is also a `TypeError`."""


class CompileIndexError(CompileError, IndexError):
    """The error for an invalid index. A CompileIndexError is also an `IndexError`."""


class CompileAxisError(CompileValueError, CompileIndexError):
    """The error for an invalid axis number.

    Like numpy's `AxisError`, this error is also a `ValueError` and an `IndexError`.
    """


_KINDS = {code: globals()[f"Compile{row['python']}"] for code, row in _TABLE.items() if "python" in row}
# For each error code, the names of Python's built-in exceptions that the error is also an instance of.
BUILTIN: dict[str, tuple[str, ...]] = {
    code: tuple(e.__name__ for e in (ValueError, TypeError, IndexError) if issubclass(kind, e))
    for code, kind in _KINDS.items()
}


class ParseError(CompileError, SyntaxError):
    """The error for a syntax error in a program.

    A ParseError is also a `SyntaxError`, because Python tools know how to show a `SyntaxError`.
    """

    msg = property(CompileError.__str__)  # what tools show of a SyntaxError  # type: ignore[assignment]


class ShapeWarning(UserWarning):
    """The warning for a minitri program that is correct only for some sizes of its arrays. For example, the sum `x + b`
    of an array f32[M, N] and an array f32[K] is right only if K == N.
    """


class BrokenRule(ValueError):
    """The error that a verifier raises when an intermediate representation (IR) breaks a rule.

    `spans`: the ranges of the source text from which the compiler made the faulty operation.
    """

    def __init__(self, message: str, spans: Sequence[Span] = ()) -> None:
        super().__init__(message)
        self.spans = tuple(spans)


# ---- text ----------------------------------------------------------------------------------------


def render(error: CompileError, width: int = 100) -> str:
    """Returns one error as plain text, with the source line and a caret line under the span.

    `width`: how many columns of the source line are shown. If a source line has more than `width` columns, only the
        part around the caret is shown.
    """
    out = [f"error[{error.code}]: {error.message}"]
    if error.span is not None:
        out += excerpt(error.span, error.label, width)
    if error.help:
        out.append(f"  = help: {error.help}")
    return "\n".join([*out, *(f"  = note: {note}" for note in error.notes)])


def report(error: CompileError, width: int = 100) -> str:
    """Returns the full texts of the error and of the errors in `error.others`.

    The last lines of the report name the commands that explain the error codes, such as `minitri explain MT0203`.
    """
    errors = (error, *error.others)
    codes = dict.fromkeys(e.code for e in errors)
    return "\n".join([*(render(e, width) for e in errors), *(f"  = more: minitri explain {code}" for code in codes)])


def summary(error: CompileError) -> str:
    """Returns the text of an error, and then one line for each error in `error.others`.

    The returned text has at most `MOST_LINES` lines. If the text has no room for all errors, its last line says how
    many errors are left out.
    """
    lines = render(error).split("\n")[: MOST_LINES - 1]
    also = [f"  = also: {_place(other)}{other.message}" for other in error.others]
    room = MOST_LINES - 1 - len(lines)
    left = max(len(also) - room, 0)
    more = f"{left} more error{'s' * (left > 1)}; " if left else ""
    return "\n".join([*lines, *also[:room], f"  = more: {more}minitri explain {error.code}"])


def _place(error: CompileError) -> str:
    return "{}:{}: ".format(*error.span.line_column) if error.span else ""


def together(errors: Iterable[CompileError]) -> CompileError:
    """Returns the error that comes first in the program text, and stores all other errors in its attribute `others`."""
    first, *others = sorted(errors, key=lambda error: error.span.start if error.span else 0)
    first.others = tuple(others)
    return first


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Applies corrections to a program text, and returns the corrected text. The corrections must not overlap."""
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def excerpt(span: Span, label: str = "", columns: int = 100) -> list[str]:
    """Returns three lines of text: the position of a span, the span's first source line, and carets (`^`) under the
    span.

    The source line is cut to `columns` characters.
    """
    from rich.cells import cell_len  # East Asian characters take two columns, combining characters none

    line, column = span.line_column
    text = span.first_line.expandtabs(1)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    text, column = _window(text, column, columns)
    gutter = str(line)
    before, under = text[: column - 1], text[column - 1 :][:width] or " "
    return [
        f"  --> {printable(str(span))}",
        f"  {gutter} | {printable(text)}",
        f"  {' ' * len(gutter)} | {' ' * cell_len(before)}{'^' * cell_len(under)} {label}".rstrip(),
    ]


def _window(text: str, column: int, limit: int) -> tuple[str, int]:
    """Returns at most `limit` characters of a line, around a column, and the position of this column in the returned
    text.
    """
    if len(text) <= limit:
        return text, column
    start = max(0, column - 1 - limit // 3)
    end = start + limit
    left, right = "…" if start else "", "…" if end < len(text) else ""
    return left + text[start:end] + right, column - start + len(left)


def printable(text: str) -> str:
    """Replaces each unprintable character by `?`, so that the text cannot send escape codes to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def suggest(name: str, known: Iterable[str]) -> str:
    """Returns the question "did you mean …" with the known names that are spelt most like `name`.

    Returns "" if no known name is similar to `name`.
    """
    near = nearest(name, known)
    return f"did you mean {listed([f'`{n}`' for n in near], 'or')}?" if near else ""


def ensure(holds: bool, code: str, message: str, help: str = "", span: Span | None = None) -> None:
    """Raises a CompileError with this code, message, help and span unless `holds` is true."""
    if not holds:
        raise CompileError(code, message, span, help=help)


def misspelt(code: str, message: str, name: object, known: Iterable[str], otherwise: str) -> CompileError:
    """Returns the error for an unknown name, such as "there is no dtype `f33`" with the help "did you mean `f32`?".

    `message` is the error message without the unknown name. The argument `otherwise` is the help text for the case that
    no known name is similar to the unknown name.
    """
    name = str(name)
    return CompileError(code, f"{message} `{name[:40]}`", help=suggest(name, known) or otherwise)


def listed(words: Sequence[str], joiner: str = "and") -> str:
    """Returns several names as an English list, such as `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joiner} {words[-1]}"
