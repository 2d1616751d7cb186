"""Parses the source text of a minitri program, and makes the syntax tree.

The functions `parse_expression`, `parse_module` and `parse_type` take a text. Each function returns a syntax tree
(ast.py) with source spans. For a text with a mistake, the function raises a ParseError. The one idea: one grammar
(grammar.lark) has three start symbols: for an expression, a module and a type. The parser takes one token at a time and
makes a node as soon as it has read the node's tokens. No function of the parser recurses. The steps from a text to
syntax nodes are:

    text  --lark's lexer-->  tokens  --layout-->  words  --lark's LALR tables, Builder-->  nodes

`layout` replaces line ends and indentation by tokens. `layout` removes line ends inside brackets, and replaces any
other line end by the token `_NEWLINE`. A change of indentation becomes `_INDENT` or `_DEDENT`. Thanks to `layout`, the
grammar needs no rules for whitespace. For example, `layout` replaces the end of the line `def f(x):` by the tokens
`_NEWLINE` and `_INDENT`, because the next line is indented.

    def f(x):            def f ( x ) : _NEWLINE _INDENT
        return (x +  →   return ( x + 1 ) _NEWLINE
            1)           _DEDENT $END

`layout` also raises errors for f-strings, byte strings, unmatched brackets, uneven indentation and too long names. The
parser's tables are made on first use, and all threads share the tables. Each call of the parser has its own state, so
several threads can parse at the same time. The parser does not look up names: the graph builder finds what each name
means.
"""

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from string import ascii_letters
from typing import Any, Literal

from minitri.base.resource_limits import check_limit, current
from minitri.base.spans import Source, Span
from minitri.language import syntax_errors as errors
from minitri.language.annotations import Type, read_type
from minitri.language.ast import Expr, Function, Module, Word
from minitri.language.tree_builder import Builder, Callbacks

_PLAIN_STRING = re.compile(r"(?:[^\\]|\\[^xuUN])*", re.DOTALL)
Start = Literal["expression", "type", "module"]


def parse_expression(text: str, name: str = "<expression>") -> Expr:
    """Returns the syntax tree of one expression. For the text `a, b`, the tree is a Tuple."""
    return _parse(whole_text(text, name), "expression")


def parse_type(text: str, name: str = "<type>") -> Type:
    """Returns the type that a text such as `f16[M, K]` or `float` stands for."""
    return read_type(_parse(whole_text(text, name), "type"), _parse_type_expression)


def parse_module(text: str, name: str = "<module>") -> Module:
    """Parses a text that contains functions, and returns the module of these functions."""
    return parse_module_at(whole_text(text, name))


def parse_module_at(place: Span) -> Module:
    """Parses the functions in the source range `place`, and returns a module. The spans of the nodes point into the
    whole source.
    """
    functions: tuple[Function, ...] = _parse(place, "module")
    if not functions:
        raise errors.mistake("no_function", replace(place, end=place.start))
    return Module(place, place.source, functions)


def whole_text(text: str, name: str) -> Span:
    """Returns a source range (span) that covers a whole text, except its byte order mark."""
    return Span(Source(name, text), int(text.startswith("\ufeff")), len(text))


def _parse(place: Span, start: Start) -> Any:
    """Parses the text at `place` with lark's LALR parser, one token after another."""
    from lark.exceptions import UnexpectedToken

    source = place.source
    check_text(source, place.start, place.end)
    parser = _lark().parse_interactive(start=start)
    words = layout(source, _tokens(place), place.start, place.end)
    before = Word(replace(place, end=place.start), "$BEGIN", "")
    result: Any = None
    try:
        for word in words:
            result = parser.feed_token(word)  # type: ignore[arg-type]  # lark needs only `.type`
            before = word
    except UnexpectedToken as error:
        raise errors.bad_word_or_bracket(error.token, before, error.expected, words) from None
    return result


def _tokens(place: Span) -> Iterator[Any]:
    from lark import TextSlice
    from lark.exceptions import UnexpectedCharacters

    try:
        yield from _lark().lex(TextSlice(place.source.text, place.start, place.end))
    except UnexpectedCharacters as error:
        at = error.pos_in_stream
        raise errors.bad_character(Span(place.source, at, at + 1)) from None


def lark_parser(grammar: Path, start: Sequence[str], lexer: str, **callables: Any) -> Any:
    """Returns the LALR parser of a grammar file. The keyword arguments `transformer` and `postlex` are passed to the
    parser library lark.
    """
    from lark import Lark

    return Lark(grammar.read_text(encoding="utf-8"), parser="lalr", lexer=lexer, start=list(start), **callables)


# The module program_forms.py replaces this function by a function that stores the parser's tables on the disk.
make_parser: Callable[..., Any] = lark_parser


_parse_type_expression = partial(_parse, start="type")


@lru_cache(maxsize=1)
def _lark() -> Any:
    grammar, callbacks = Path(__file__).with_name("grammar.lark"), Callbacks(Builder(_parse_type_expression))
    return make_parser(grammar, ("expression", "type", "module"), "basic", transformer=callbacks)


# ---- words and lines ----------------------------------------------------------------------------


def check_text(source: Source, start: int, end: int) -> None:
    """Raises an error for a text that is too long, or that contains a NUL or a surrogate character."""
    message = "the text has {count:,} characters, the limit is {limit:,}"
    check_limit("source", end - start, message, Span(source, start, start + 1))
    if bad := re.compile("[\0\ud800-\udfff]").search(source.text, start, end):
        raise errors.mistake("not_a_character", Span(source, *bad.span()), code=f"{ord(bad.group()):04X}")


def layout(source: Source, tokens: Iterable[Any], start: int, end: int) -> Iterator[Word]:
    """Yields the tokens of `source.text[start:end]` for the parser. The last token is `$END`."""
    brackets: list[Word] = []
    indents: list[str] = []
    begin: int | None = start  # the start of a line whose first word has not been read yet
    line_end = Span(source, start, start)
    for token in tokens:
        word = _word(source, token)
        if word.type == "_NEWLINE":
            if not brackets:
                line_end = line_end if begin is not None else word.span
                begin = word.span.end - len(word.text.lstrip("\r\n"))
            continue
        if begin is not None:
            yield from _begin_line(indents, begin, line_end, word)
        begin = None
        _track(brackets, word)
        yield word
    if brackets:
        raise errors.unclosed(brackets[-1])
    line_end = line_end if begin is not None and indents else Span(source, end, end)
    if indents:
        yield Word(line_end, "_NEWLINE", "")
        yield from (Word(line_end, "_DEDENT", "") for _ in indents[1:])
    yield Word(line_end, "$END", "")


def _word(source: Source, token: Any) -> Word:
    text = str(token)
    word = Word(Span(source, token.start_pos, token.start_pos + len(text)), token.type, text)
    if word.type == "STRING":
        _check_string(word)
    elif word.type == "NAME" and keyword.iskeyword(text):
        return Word(word.span, "KEYWORD", text)
    elif word.type == "NAME":
        check_limit("name", len(text), "a name has {count:,} characters, the limit is {limit:,}", word.span)
    return word


def _check_string(word: Word) -> None:
    rest = word.text.lstrip(ascii_letters)
    prefix = word.text.removesuffix(rest).lower()
    if prefix not in ("", "r", "u"):
        kind = {"f": "f-strings", "b": "byte strings"}.get(prefix.strip("r"), "strings with a prefix")
        raise errors.mistake("string_prefix", word.span, kind=kind)
    if prefix != "r" and not _PLAIN_STRING.fullmatch(rest):
        raise errors.mistake("escapes", word.span)


def _begin_line(indents: list[str], begin: int, line_end: Span, word: Word) -> Iterator[Word]:
    """Yields the newline and indentation tokens before the line whose first token is `word`."""
    blanks = word.span.source.text[begin : word.span.start]
    if "\\" in blanks:
        raise errors.mistake("continued_line", word.span)
    indent = blanks.rpartition("\f")[2]  # as in Python, a form feed character restarts the indentation of its line
    if not indents:  # the first line: a text whose lines are all indented is allowed
        indents.append(indent)
        return
    yield Word(line_end, "_NEWLINE", "")
    if indent != indents[-1] and indent.startswith(indents[-1]):
        indents.append(indent)
        yield Word(word.span, "_INDENT", "")
        return
    while len(indents) > 1 and indents[-1] != indent and indents[-1].startswith(indent):
        indents.pop()
        yield Word(replace(word.span, end=word.span.start), "_DEDENT", "")
    if indent != indents[-1]:
        is_mixed = {"\t", " "} <= {*indent, *indents[-1]}
        raise errors.mistake("mixed_indentation" if is_mixed else "uneven_indentation", word.span)


def _track(brackets: list[Word], word: Word) -> None:
    """Updates the stack of open brackets, or raises ParseError for an unmatched closing bracket."""
    if word.text in errors.CLOSES:
        brackets.append(word)
        check_limit("nesting", len(brackets), "more than {limit:,} brackets are open here", word.span)
    elif word.type in ("RPAR", "RSQB"):
        if not brackets:
            raise errors.mistake("closes_nothing", word.span, bracket=word.text).write(word.span, "")
        opening = brackets.pop()
        if errors.CLOSES[opening.text] != word.text:
            raise errors.unmatched(opening, word)


def is_name(text: str) -> bool:
    """Checks whether a text can be the name of a parameter."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and len(text) <= current().name
