"""The text front end: from source text to the syntax tree.

In: an expression, a module of `def`s, or a type, as text. Out: nodes of ast.py that know their spans; or a ParseError.
The one idea: one grammar (grammar.lark) with three start symbols, driven token by token. Nodes are made while parsing,
and nothing recurses:

    text  --lark's lexer-->  tokens  --layout-->  tokens  --lark's LALR tables, Builder-->  nodes

The tables are made or read on first use (language/parser_tables.py) and shared. A parse keeps its state to itself, so
threads may parse at the same time. Left out: the meaning of names, which the typer finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from minitri.base.diagnostics import ParseError, Source, Span
from minitri.language import ast, parser_tables
from minitri.language.annotations import Type, read_type
from minitri.language.lexer import UnclosedBracket, Word, check_text, is_name, layout
from minitri.language.syntax_errors import bad_character, bad_word
from minitri.language.tree_builder import Builder

Start = Literal["expression", "type", "module"]


def parse_expression(text: str, name: str = "<expression>") -> ast.Expr:
    """The tree of one expression; `a, b` is a Tuple."""
    return _parse(_whole(text, name), "expression")


def parse_type(text: str, name: str = "<type>") -> Type:
    """The type that `f16[M, K]`, `float`, … mean."""
    return read_type(_parse(_whole(text, name), "type"), _parse_type_expression)


def parse_module(text: str, name: str = "<module>") -> ast.Module:
    """The functions of a module."""
    return parse_module_at(_whole(text, name))


def parse_module_at(place: Span) -> ast.Module:
    """The functions in a part of a source; spans point into the whole of it."""
    functions: tuple[ast.Function, ...] = _parse(place, "module")
    if not functions:
        help = "write `def f(x: f32[N]):` and a body that ends in `return`"
        raise ParseError(
            "MT0003", "the module has no function", Span(place.source, place.start, place.start), help=help
        )
    return ast.Module(place, place.source, functions)


def parse_program(text: str, name: str, params: Mapping[str, str | None]) -> ast.Module:
    """A module as it is, or an expression over `params` (name → type text) as a function `main`."""
    if is_module(text):
        if params:
            help = "write them in the `def`: `def f(x: f32[N]):`"
            raise ParseError("MT0102", "a module says the types of its parameters itself", help=help)
        return parse_module(text, name)
    place = _whole(text, name)
    value: ast.Expr = _parse(place, "expression")
    declared = tuple(_param(place, param, kind) for param, kind in params.items())
    body = (ast.Return(value.span, value),)
    return ast.Module(place, place.source, (ast.Function(value.span, "main", declared, None, body),))


def is_module(text: str) -> bool:
    """Whether a text is a module rather than an expression: some line begins with `def`."""
    return re.search(r"^[ \t\f]*def\b", text, re.MULTILINE) is not None


def _param(place: Span, name: str, kind: str | None) -> ast.Param:
    if not is_name(name):
        message = f"`{name[:40]}` cannot name a parameter"
        raise ParseError("MT0001", message, help="names are made of ASCII letters, digits and `_`")
    if kind is None:
        used = re.compile(rf"\b{name}\b").search(place.source.text)
        return ast.Param(Span(place.source, *used.span()) if used else place, name, None, None)
    annotation = parse_type(kind, f"<type of {name}>")
    return ast.Param(annotation.span, name, annotation, None)


def _whole(text: str, name: str) -> Span:
    source = Source(name, text)
    return Span(source, int(text.startswith("\ufeff")), len(text))  # without a byte order mark


def _parse_type_expression(place: Span) -> ast.Expr:
    return _parse(place, "type")


def _parse(place: Span, start: Start) -> Any:
    """Drives lark's LALR parser over the tokens of a place."""
    from lark.exceptions import UnexpectedToken

    source = place.source
    check_text(source, place.start, place.end)
    parser = _lark().parse_interactive(start=start)
    words = layout(source, _tokens(place), place.start, place.end)
    before: Word | None = None
    result: Any = None
    try:
        for word in words:
            result = parser.feed_token(word)  # type: ignore[arg-type]  # it needs only `.type`
            before = word
    except UnexpectedToken as error:
        raise _explained(error.token, before, error.expected, words) from None
    return result


def _explained(word: Any, before: Word | None, expected: set[str], rest: Iterator[Word]) -> ParseError:
    """The mistake at a word; unless a bracket is open that never closes, which then is the cause."""
    error = bad_word(word, before, expected)
    if error.code == "MT0001" or word.type in ("DEF", "RETURN"):
        try:
            for _ in rest:
                pass
        except UnclosedBracket as later:
            if later.span is not None and later.span.start < word.span.start:
                return later
        except ParseError:
            pass  # one mistake at a time
    return error


def _tokens(place: Span) -> Iterator[Any]:
    from lark import TextSlice
    from lark.exceptions import UnexpectedCharacters

    try:
        yield from _lark().lex(TextSlice(place.source.text, place.start, place.end))
    except UnexpectedCharacters as error:
        at = error.pos_in_stream
        raise bad_character(Span(place.source, at, at + 1)) from None


@lru_cache(maxsize=1)
def _lark() -> Any:
    grammar = Path(__file__).with_name("grammar.lark")
    return parser_tables.parser(
        grammar, ("expression", "type", "module"), "basic", transformer=Builder(_parse_type_expression)
    )
