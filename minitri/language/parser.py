"""The text front end: from source text to the syntax tree.

In: an expression, a module of `def`s, or a type, as text. Out: nodes of ast.py that know their spans; or a ParseError.
The one idea: one grammar (grammar.lark) with three start symbols, driven token by token. Nodes are made while parsing,
and nothing recurses:

    text  --lark's lexer-->  tokens  --layout-->  tokens  --lark's LALR tables, Builder-->  nodes

The tables are made or read on first use and shared. A parse keeps its state to itself, so
threads may parse at the same time. Left out: the meaning of names, which the typer finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from minitri.base.diagnostics import ParseError
from minitri.base.spans import Source, Span
from minitri.language import ast
from minitri.language.annotations import Type, read_type
from minitri.language.lexer import Word, check_text, layout
from minitri.language.syntax_errors import bad_character, bad_word_or_bracket
from minitri.language.tree_builder import Builder

Start = Literal["expression", "type", "module"]


def parse_expression(text: str, name: str = "<expression>") -> ast.Expr:
    """The tree of one expression; `a, b` is a Tuple."""
    return _parse(whole_text(text, name), "expression")


def parse_type(text: str, name: str = "<type>") -> Type:
    """The type that `f16[M, K]`, `float`, … mean."""
    return read_type(_parse(whole_text(text, name), "type"), _parse_type_expression)


def parse_module(text: str, name: str = "<module>") -> ast.Module:
    """The functions of a module."""
    return parse_module_at(whole_text(text, name))


def parse_module_at(place: Span) -> ast.Module:
    """The functions in a part of a source; spans point into the whole of it."""
    functions: tuple[ast.Function, ...] = _parse(place, "module")
    if not functions:
        help = "write `def f(x: f32[N]):` and a body that ends in `return`"
        raise ParseError(
            "MT0003", "the module has no function", Span(place.source, place.start, place.start), help=help
        )
    return ast.Module(place, place.source, functions)


def whole_text(text: str, name: str) -> Span:
    """The place of a whole text, without its byte order mark."""
    source = Source(name, text)
    return Span(source, int(text.startswith("\ufeff")), len(text))


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
        raise bad_word_or_bracket(error.token, before, error.expected, words) from None
    return result


def _tokens(place: Span) -> Iterator[Any]:
    from lark import TextSlice
    from lark.exceptions import UnexpectedCharacters

    try:
        yield from _lark().lex(TextSlice(place.source.text, place.start, place.end))
    except UnexpectedCharacters as error:
        at = error.pos_in_stream
        raise bad_character(Span(place.source, at, at + 1)) from None


def lark_parser(grammar: Path, start: Sequence[str], lexer: str, **callables: Any) -> Any:
    """The LALR parser of a grammar file. `callables`: lark's `transformer` and `postlex`."""
    from lark import Lark

    return Lark(grammar.read_text(encoding="utf-8"), parser="lalr", lexer=lexer, start=list(start), **callables)


make_parser: Callable[..., Any] = lark_parser  # language/parser_tables.py has one that keeps tables between processes


@lru_cache(maxsize=1)
def _lark() -> Any:
    grammar = Path(__file__).with_name("grammar.lark")
    return make_parser(grammar, ("expression", "type", "module"), "basic", transformer=Builder(_parse_type_expression))
