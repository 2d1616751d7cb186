"""The lexer: from lark's tokens to the tokens of the parser, with line structure made visible.

In: a source and lark's tokens of it. Out: `Word`s, each with its span. Line ends inside brackets vanish; the others
become `_NEWLINE`. A change of indentation becomes `_INDENT` or `_DEDENT`, so the grammar knows nothing of whitespace:

    def f(x):            def f ( x ) : _NEWLINE _INDENT
        return (x +  →   return ( x + 1 ) _NEWLINE
            1)           _DEDENT $END

The one idea: whatever can be judged without the grammar is judged here. Unmatched brackets, uneven indentation,
over-long names and unknown kinds of strings never reach the parser. Left out: what tokens mean together.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minitri.base.diagnostics import ParseError
from minitri.base.limits import current, exceeded
from minitri.base.spans import Source, Span

_CLOSES = {"(": ")", "[": "]"}
_STRING = re.compile(r"([A-Za-z]*)(.*)", re.DOTALL)
_PLAIN_STRING = re.compile(r"(?:[^\\]|\\[^xuUN])*", re.DOTALL)


class UnclosedBracket(ParseError):
    """Found at the end of the text, so a mistake before it may be its consequence."""


@dataclass(frozen=True, slots=True)
class Word:
    """A token: `type` is a terminal of the grammar, `KEYWORD` or `$END`."""

    type: str
    text: str
    span: Span


def check_text(source: Source, start: int, end: int) -> None:
    """Refuses a text that is too long, or that no Python file could hold."""
    if end - start > (limit := current().source):
        message = f"the text has {end - start:,} characters, the limit is {limit:,}"
        raise too_much("source", message, Span(source, start, start + 1))
    if bad := re.compile("[\0\ud800-\udfff]").search(source.text, start, end):
        message = f"the text holds U+{ord(bad.group()):04X}, which is not a character of any program"
        raise ParseError("MT0001", message, Span(source, bad.start(), bad.end()))


def layout(source: Source, tokens: Iterable[Any], start: int, end: int) -> Iterator[Word]:
    """The parser's tokens of `source.text[start:end]`, ending in `$END`."""
    brackets: list[Word] = []
    indents: list[str] = []
    begin: int | None = start  # where the line of the next word begins, if the word begins one
    line_end = Span(source, start, start)
    for token in tokens:
        word = _word(source, token)
        if word.type == "_NEWLINE":
            if not brackets:
                line_end = line_end if begin is not None else word.span
                begin = word.span.end - len(word.text.lstrip("\r\n"))
            continue
        if begin is not None:
            yield from _begin_line(indents, _indentation(begin, word), line_end, word)
        begin = None
        _track(brackets, word)
        yield word
    if brackets:
        raise _unclosed(brackets[-1])
    yield from _finish(source, indents, line_end if begin is not None else Span(source, end, end), end)


def _word(source: Source, token: Any) -> Word:
    text = str(token)
    word = Word(token.type, text, Span(source, token.start_pos, token.start_pos + len(text)))
    if word.type == "STRING":
        _check_string(word)
    elif word.type == "NAME" and keyword.iskeyword(text):
        return Word("KEYWORD", text, word.span)
    elif word.type == "NAME" and len(text) > (limit := current().name):
        message = f"a name has {len(text):,} characters, the limit is {limit:,}"
        raise too_much("name", message, word.span)
    return word


def _check_string(word: Word) -> None:
    match = _STRING.fullmatch(word.text)
    assert match is not None
    prefix, rest = match[1].lower(), match[2]
    if prefix not in ("", "r", "u"):
        kind = {"f": "f-strings", "b": "byte strings"}.get(prefix.strip("r"), "strings with a prefix")
        raise ParseError("MT0002", f"the language has no {kind}", word.span, help="write a plain string")
    if prefix != "r" and not _PLAIN_STRING.fullmatch(rest):
        message = "the escapes \\x, \\u, \\U and \\N are not supported in a string"
        raise ParseError("MT0002", message, word.span, help='write r"..." to keep backslashes as they are')


def _indentation(begin: int, word: Word) -> str:
    """The blanks before the first token of a line; as in Python, a form feed restarts them."""
    blanks = word.span.source.text[begin : word.span.start]
    if "\\" in blanks:
        raise ParseError("MT0001", "a line cannot begin with `\\`", word.span, help="remove the empty line")
    return blanks.rpartition("\f")[2]


def _begin_line(indents: list[str], indent: str, line_end: Span, word: Word) -> Iterator[Word]:
    """The end of the last line, and what the new line's indentation means."""
    if not indents:  # the first line: a text that is indented as a whole is welcome
        indents.append(indent)
        return
    yield Word("_NEWLINE", "", line_end)
    here = Span(word.span.source, word.span.start, word.span.start)
    if indent != indents[-1] and indent.startswith(indents[-1]):
        indents.append(indent)
        yield Word("_INDENT", "", word.span)
        return
    while len(indents) > 1 and indents[-1] != indent and indents[-1].startswith(indent):
        indents.pop()
        yield Word("_DEDENT", "", here)
    if indent != indents[-1]:
        raise _uneven(indents, indent, word)


def _uneven(indents: list[str], indent: str, word: Word) -> ParseError:
    if "\t" in indent + indents[-1] and " " in indent + indents[-1]:
        message, help = "tabs and spaces are mixed in the indentation", "indent with four spaces"
    else:
        message = "this line is indented less than its block, but matches no line above"
        help = "line it up with the block it belongs to"
    return ParseError("MT0001", message, word.span, help=help)


def _track(brackets: list[Word], word: Word) -> None:
    """Keeps the stack of open brackets."""
    if word.text in _CLOSES:
        brackets.append(word)
        if len(brackets) > (limit := current().nesting):
            raise too_much("nesting", f"more than {limit:,} brackets are open here", word.span)
    elif word.type in ("RPAR", "RSQB"):
        if not brackets:
            raise ParseError("MT0001", f"this `{word.text}` closes nothing", word.span)
        opening = brackets.pop()
        if _CLOSES[opening.text] != word.text:
            message = f"`{word.text}` cannot close the `{opening.text}` of line {_line(opening)}"
            help = f"write `{_CLOSES[opening.text]}`, or remove one of the two"
            raise ParseError("MT0001", message, word.span, help=help)


def _unclosed(opening: Word) -> UnclosedBracket:
    help = f"add the missing `{_CLOSES[opening.text]}`"
    return UnclosedBracket("MT0001", f"this `{opening.text}` is never closed", opening.span, help=help)


def _line(word: Word) -> int:
    return word.span.source.line_column(word.span.start)[0]


def _finish(source: Source, indents: list[str], line_end: Span, end: int) -> Iterator[Word]:
    """The last line's end, the blocks still open, and the end itself."""
    if indents:
        yield Word("_NEWLINE", "", line_end)
        yield from (Word("_DEDENT", "", line_end) for _ in indents[1:])
    yield Word("$END", "", line_end if indents else Span(source, end, end))


def too_much(limit: str, message: str, span: Span) -> ParseError:
    """The error of a limit, for a text that does not get as far as a tree."""
    error = exceeded(limit, message)
    return ParseError(error.code, message, span, help=error.help)


def is_name(text: str) -> bool:
    """Whether a text could name a parameter."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is not None and len(text) <= current().name
    return plain and not keyword.iskeyword(text)
