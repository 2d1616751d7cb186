"""Repairs texts that do not parse. Small edits are tried one after another, until the parser accepts the edited text.

    let y = x              y = x
    x > 0 ? x : 0          where(x > 0, x, 0)
    def f(lambda):         def f(lambda_):

The function `repaired` takes a ParseError, the source range (span) of the whole text, and the parser. The function adds
a correction to the ParseError, or returns another error that describes the mistake better than the ParseError does.
Rows of syntax_repairs.toml define errors that describe a common mistake more exactly than the parser's error. The one
idea: the parser itself decides whether an edit is a correction, so the edits to try can be mere guesses. The function
`repaired` first tries the corrections of syntax_repairs.toml, at the line of the error. Next, `repaired` tries the
correction in the given ParseError. Last, `repaired` tries the edits of the function `_general`. This module does not
repair mistakes that extend over several lines, nor texts of more than `LONGEST` characters.
"""

import keyword
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from string import ascii_letters
from typing import Any

from minitri.base.diagnostics import CompileError, Edit, ParseError, edited, printable
from minitri.base.spans import Source, Span
from minitri.base.spelling import nearest
from minitri.base.toml_tables import table_beside
from minitri.base.types import DTYPES
from minitri.language import ast
from minitri.language.python_corrections import lines_of_statement
from minitri.language.signatures import function_names
from minitri.language.syntax_errors import CLOSES, tables

LONGEST = 20_000
LONGEST_LINE = 400
MOST_ERRORS = 6  # the most errors of other lines for one text
_PUNCTUATION = re.compile(r"[^\w\s()\[\]{}\"']+")
_ASSIGNED = re.compile(r"^(?:(?:[^=()\n]*[^=()<>!\n]=+)+|[ \t]*(?:def\s+)?\w+)", re.MULTILINE)


def parsed(parse: Callable[[Span], Any], place: Span, known: Container[str] = ()) -> Any:
    """Returns the result of `parse` for the range `place` of the source text.

    If `parse` raises a ParseError, this error is raised with a correction. The field `others` of the error contains the
    errors on other lines of the text. The argument `known` contains the names that the text may use without defining
    them.
    """
    try:
        return parse(place)
    except ParseError as error:
        if error.span is None or place.end - place.start > LONGEST:
            raise
        found, others = repaired(error, place, parse), _on_other_lines(error, place, parse, MOST_ERRORS)
        mended = {at for edit in found.edits for at in range(edit.span.start, edit.span.end)}
        others = [e for e in others if e.span and e.span.text not in known and e.span.start not in mended]
        found.others = tuple(sorted(others, key=lambda e: e.span.start if e.span else 0))
        raise found from None


def repaired(error: ParseError, place: Span, parse: Callable[[Span], Any]) -> ParseError:
    """Looks for a correction of the mistake. If a correction is found, the returned error contains it. The argument
    `error` is the error that `parse(place)` raised.
    """
    span = error.span or place
    for candidate in chain(_by_table(error, span, place), [error], _general(error, span, place)):
        text = edited(place.source.text, candidate.edits)
        if candidate.edits and _is_accepted(text, candidate.edits, place, parse):
            start = place.source.line_column(candidate.edits[0].span.start)[0] - 1
            lines = text.split("\n")[start : start + 1 + candidate.edits[0].text.count("\n")]
            written = "`, then `".join(filter(None, map(str.strip, lines)))
            candidate.help = candidate.help or printable(f"write `{written}`")
            return candidate
    return error


def _is_accepted(text: str, edits: Sequence[Edit], place: Span, parse: Callable[[Span], Any]) -> bool:
    """Checks whether the parser accepts the edited lines. Errors on later lines do not matter."""
    grown = len(text) - len(place.source.text)
    line_end = text.find("\n", max(edit.span.end for edit in edits) + grown)
    try:
        parse(Span(Source(place.source.name, text), place.start, place.end + grown))
    except CompileError as later:
        return later.span is not None and 0 <= line_end < later.span.start
    return True


# ---- the table -----------------------------------------------------------------------------------


@cache
def _rows() -> list[tuple[re.Pattern[str], dict[str, str]]]:
    function, dtype = f"(?P<function>{'|'.join(function_names())})", f"(?P<dtype>{'|'.join(DTYPES)})"
    table = table_beside(__file__, "syntax_repairs.toml")["repair"]
    patterns = (row["pattern"].replace("{function}", function).replace("{dtype}", dtype) for row in table)
    absent = dict.fromkeys(("only", "message", "help", "code"), "")
    return [(re.compile(p), absent | row) for p, row in zip(patterns, table)]


def _by_table(error: ParseError, span: Span, place: Span) -> Iterator[ParseError]:
    source, start = place.source, max(place.source.text.rfind("\n", 0, span.start) + 1, place.start)
    line = source.text[start : place.end].partition("\n")[0].rstrip("\r")
    is_module = re.search(r"^[ \t]*def\b", source.text, re.MULTILINE) is not None
    for pattern, row in _rows() if len(line) <= LONGEST_LINE else ():
        edits, texts = [], {}
        for match in () if is_module and row["only"] else pattern.finditer(line):
            texts = {name: "0" if text is None else text for name, text in match.groupdict().items()}
            texts |= {f"{name}_lower": text.lower() for name, text in texts.items()}
            at = Span(source, start + match.start("at"), start + match.end("at"))
            edits.append(Edit(at, row["write"].format(**texts)))
        if edits:
            message = row["message"].format(**texts)
            at = edits[0].span if message else span
            yield _made(error, edits, message, at, help=row["help"].format(**texts), code=row["code"])


def _made(
    error: ParseError, edits: Iterable[Edit], message: str = "", at: Span | None = None, help: str = "", code: str = ""
) -> ParseError:
    made = ParseError(code or error.code, message or error.message, at or error.span, help=help)
    made.edits = tuple(edits)
    return made


# ---- general repairs -----------------------------------------------------------------------------


def _general(error: ParseError, span: Span, place: Span) -> Iterator[ParseError]:
    source, word = span.source, span.text
    before = source.text[: span.start]
    if keyword.iskeyword(word):
        renamed = (Edit(at, f"{word}_") for at in _all(rf"\b{word}\b", place))
        yield _made(error, renamed, f"`{word}` is a keyword of Python, not a name", code="MT0001")
    if not word.isascii():
        yield _made(error, (Edit(at, _ascii(at)) for at in _all(r"[^\x00-\x7f]", place)))
    if "indent" in error.message and not before.rpartition("\n")[2].strip():
        for edits in _indented(span, place):
            yield _made(error, edits, help=error.help or "line it up with its block")
    if "only functions stand" in error.message:
        yield from _inlined(error, span, place)
    names = re.findall(r"(?:^[ \t]*|def \w+\(\s*)(\w+)(?=\s*[=:,)])", before, re.MULTILINE)
    if word in ("return", "pass") and names:
        yield _made(error, [Edit(span, f"return {names[-1]}")])
    if _PUNCTUATION.fullmatch(word):
        yield _made(error, [Edit(span, "")], help="remove it, or write what is missing")


def _inlined(error: ParseError, span: Span, place: Span) -> Iterator[ParseError]:
    """Yields the error for an assignment such as `EPS = 1e-5` outside of functions."""
    match = re.compile(r"(\w+)[ \t]*=[ \t]*(-?[\d.e]+)[ \t]*(#.*)?\n").match(place.source.text, span.start)
    if match is not None:
        number = f"({match[2]})" if match[2].startswith("-") else match[2]
        used = [Edit(at, number) for at in _all(rf"\b{match[1]}\b", place) if at.start >= match.end()]
        # delete the assignment, and write its number in each place that uses the name
        edits = Edit(Span(place.source, match.start(), match.end()), ""), *used
        yield _made(error, edits, "a module holds `def`s only", help=f"write `{number}` where it is used")


def _all(pattern: str, place: Span) -> Iterator[Span]:
    """Yields the places in the source text that match a pattern, except in comments."""
    for match in re.compile(rf"#[^\n]*|({pattern})").finditer(place.source.text, place.start, place.end):
        if match[1]:
            yield Span(place.source, match.start(), match.end())


def _indented(span: Span, place: Span) -> Iterator[list[Edit]]:
    """Yields corrections of a wrong line's indentation, each as a list of edits."""
    text = place.source.text
    start = text.rfind("\n", 0, span.start) + 1
    above = [line for line in text[:start].split("\n") if line.strip()]
    usual = re.sub(r"\S.*", "", above[-1]) if above else ""
    # later lines that are indented like the wrong line move with it
    like_it = re.compile(rf"^{text[start : span.start]}(?=\S)(?!def\b)", re.MULTILINE)
    lines = [Span(place.source, m.start(), m.end()) for m in like_it.finditer(text, start, place.end)]
    for indent in (usual, usual + "    "):  # as far as the line above, or four blanks further
        yield [Edit(line, indent) for line in lines]


def _ascii(at: Span) -> str:
    """Returns ASCII text for a character outside ASCII, such as `**2` for `²`."""
    character = at.text
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    kind, name = unicodedata.decomposition(character), unicodedata.name(character, "").split()
    if character in (lookalikes := tables()["lookalikes"]):
        text = lookalikes[character]
    elif kind.startswith("<super>"):
        text = f"**{plain}"
    elif kind.startswith("<fraction>"):
        text = str(unicodedata.numeric(character))  # ½ becomes 0.5
    elif unicodedata.category(character) in ("Pd", "Zs"):
        text = "-" if unicodedata.category(character) == "Pd" else " "
    else:
        # α becomes alpha
        text = name[3].lower() if name[:1] == ["GREEK"] and len(name) == 4 else plain
    is_product = text[:1].isalnum() and at.source.text[at.start - 1 : at.start].isdigit()
    return f" * {text}" if is_product else text


# ---- the errors of other lines -------------------------------------------------------------------


def errors_in(module: ast.Module) -> Sequence[CompileError]:
    """Returns the errors in the names, types and shapes of a module.

    When graph/lower_ast.py is imported, it replaces `errors_in` by a function that calls the graph builder. `errors_in`
    returns no errors until graph/lower_ast.py is imported.
    """
    return ()


def _on_other_lines(error: ParseError, place: Span, parse: Callable[[Span], Any], most: int) -> list[CompileError]:
    """Returns the errors outside the lines of the syntax error `error`. At most `most` of the returned errors are
    syntax errors.
    """
    source, text, span = place.source, place.source.text, error.span or place
    unknown = next((name for name in ascii_letters if not re.search(rf"\b{name}\b", text)), "_")
    # `y = x +* 2` becomes `y=a`, where `a` has no value, so no error follows from the wrong line
    start, indent, lines = lines_of_statement(span)
    end, instead = start + len(lines), _stand_in(lines, indent, unknown)
    around = text[place.start : start], text[end : place.end]
    # the wrong line is only a part of a longer statement
    is_part = any(part.count(a) != part.count(b) for part in around for a, b in CLOSES.items())
    if not indent or is_part or len(instead) > len(lines) or most == 0:
        return []
    rest = replace(place, source=Source(source.name, text[:start] + instead.ljust(len(lines)) + text[end:]))
    try:
        module = parse(rest)
        found = [*errors_in(module)] if isinstance(module, ast.Module) else []
    except ParseError as later:
        if later.span is None or later.span.start < end:
            return []
        found = [repaired(later, rest, parse), *_on_other_lines(later, rest, parse, most - 1)]
    found = [e for e in found if e.span and e.span.text != unknown]  # not about the stand-in
    for other in found:
        other.span = other.span and replace(other.span, source=source)
        other.edits = tuple(Edit(replace(e.span, source=source), e.text) for e in other.edits)
    return found


def _stand_in(lines: str, indent: str, unknown: str) -> str:
    """Returns a valid line that replaces a wrong statement, such as `y=a` instead of `y += 1`."""
    first = "".join(lines.split()[:1])
    if "return" in (first, *nearest(first, ["return"])):
        return f"{indent}return {unknown}"
    words = re.findall(r"[A-Za-z_]\w*", " ".join(match[0] for match in _ASSIGNED.finditer(lines)))
    names = [word for word in dict.fromkeys(words) if not keyword.iskeyword(word)]
    return f"{indent}{','.join(names)}={unknown}" if names else ""
