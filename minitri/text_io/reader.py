"""Parses the text of a stage into syntax nodes.

In: the text of a graph, a plan of kernels or tile programs. Out: a `Text` node for every line and expression, or a
ParseError MT0501. The one idea: one grammar (ir.lark) for all three, because their lines have the same syntax.
graph/parse.py, kernels/parse.py and tiles/parse.py interpret the lines. name_resolution.py has the functions that all three
use.

Numbers and nesting are limited, because the text may come from anyone.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.resource_limits import current, exceeded
from minitri.base.spans import Source, Span
from minitri.language import parser_tables
from minitri.text_io.nodes import Block, Expr, Head, Line, Mistake, Nest, Next, Param, Place, Require, Text, Type, Whole

MAX_NESTING = 50  # depth of nested brackets, quotients, remainders, minima and maxima
MAX_NUMBER = 2**64

Attributes = dict[str, Expr]
Exprs = tuple[Expr, ...]
Params = tuple[Param, ...]


def read(source: Source, start: str) -> Any:
    """The syntax nodes of a text. `start` is the start symbol: "graph", "kernels", "tiles" or "sum".

    Raises Mistake with code MT0501 for a syntax error, and CompileError MT0401 for a text that is too long.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    _check_text(source)
    try:
        return _lark().parse(source.text, start=start)
    except UnexpectedToken as error:
        at = len(source.text.rstrip()) if error.token.type == "$END" else error.token.start_pos
        raise _misplaced(Text(at, at + len(error.token)), str(error.token), error.expected) from None
    except UnexpectedCharacters as error:
        at = error.pos_in_stream
        raise _misplaced(Text(at, at + 1), source.text[at], set(error.allowed or ())) from None


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Turns a `Mistake` inside the `with` block into a CompileError that points into the source."""
    try:
        yield
    except Mistake as error:
        kind = ParseError if error.code == "MT0501" else CompileError
        span = Span(source, error.place.start, error.place.end)
        raise kind(error.code, error.message, span, help=error.help) from None


def _check_text(source: Source) -> None:
    if len(source.text) > (limit := current().code):
        message = f"the text has {len(source.text):,} characters, the limit is {limit:,}"
        raise exceeded("code", message, Span(source, 0, 1))
    if bad := re.search("[\0\ud800-\udfff]", source.text):
        message = f"the text holds U+{ord(bad[0]):04X}, which is not a character of any program"
        raise Mistake(Text(*bad.span()), message, code="MT0501")


TOKENS = tomllib.loads(Path(__file__).with_name("tokens.toml").read_text(encoding="utf-8"))


def _misplaced(place: Text, word: str, expected: Iterable[str]) -> Mistake:
    shown = word.strip()[:40]
    message = f"`{shown}` cannot stand here" if shown else f"the {'line' if word else 'text'} ends too early"
    known = [TOKENS[e] for e in sorted(expected) if e in TOKENS]
    help = f"here stands {', '.join(known[:6])}" if 0 < len(known) <= 6 else ""
    return Mistake(place, message, help, "MT0501")


# ---- nodes ---------------------------------------------------------------------------------


def _around(first: Text, last: Text) -> tuple[int, int]:
    """The range of characters from one part to another."""
    return first.start, last.end


def _word(token: Any) -> Expr:
    return Expr(token.start_pos, token.end_pos, "name", (str(token),))


def _number(token: Any) -> Expr:
    whole = token.isdigit()
    if len(token) > 400 or (whole and int(token) >= MAX_NUMBER):
        raise Mistake(_word(token), "this number is too large", code="MT0501")
    return replace(_word(token), kind="number", parts=(int(token) if whole else float(token),))


def _string(token: Any) -> Expr:
    try:
        return replace(_word(token), kind="text", parts=(json.loads(token),))
    except ValueError:
        raise Mistake(_word(token), "this text cannot be read", code="MT0501") from None


def _line_of_ledger(token: Any) -> Expr:
    return replace(_word(token), kind="text", parts=(token.rstrip(),))


_READERS = {"NUMBER": _number, "STRING": _string, "LINE": _line_of_ledger}


def _read_part(part: Any) -> Any:
    """The expression for a token. A node is returned unchanged."""
    return _READERS.get(part.type, _word)(part) if hasattr(part, "start_pos") else part


def _nested(place: tuple[int, int], kind: str, parts: tuple[Any, ...], depth: int) -> Expr:
    if depth > MAX_NESTING:
        raise Mistake(Text(*place), f"more than {MAX_NESTING} expressions are nested here", code="MT0401")
    return Expr(*place, kind, parts, depth)


class Builder:
    """Makes syntax nodes. Each rule (or alias) of ir.lark has a method of its name, which takes the rule's parts.

    An optional part that is missing is None.
    """

    # Expressions

    def same(self, e: Expr) -> Expr:
        return e

    number = name = string = temporary = same

    def binary(self, left: Expr, op: Expr, right: Expr) -> Expr:
        pair = op.name in ("//", "%")
        return _nested(_around(left, right), op.name, (left, right), max(left.depth + pair, right.depth + 1))

    def unary(self, minus: Expr, e: Expr) -> Expr:
        return _nested(_around(minus, e), "neg", (e,), e.depth + 1)

    def group(self, opening: Expr, e: Expr, closing: Expr) -> Expr:
        return _nested(_around(opening, closing), e.kind, e.parts, e.depth + 1)

    def call(self, function: Expr, opening: Expr, arguments: Exprs, closing: Expr) -> Expr:
        place = _around(function, closing)
        if function.name not in ("max", "min") or len(arguments) != 2:
            raise Mistake(Text(*place), "only `max` and `min` of two numbers are functions here")
        return _nested(place, function.name, arguments, max(a.depth for a in arguments) + 1)

    def list(self, opening: Expr, values: Exprs | None, closing: Expr) -> Expr:
        return Expr(*_around(opening, closing), "list", values or ())

    def element(self, name: Expr, index: Exprs | None, closing: Expr) -> Expr:
        return Expr(*_around(name, closing), "element", (name, *(index or ())))

    def parts(self, *parts: Any) -> tuple[Any, ...]:
        return parts

    values = params = axes = hints = buffers = results = attribute = hint = ledger = parts

    # Lines

    def op(self, result: Expr, type: Type, op: Expr, operands: Exprs | None, attributes: Attributes | None) -> Line:
        return _line(result, type, op, operands or (), attributes or {})

    def store(self, element: Expr, value: Expr, attributes: Attributes | None) -> Line:
        op = Expr(element.start, element.end, "name", ("store",))
        return _line(None, None, op, (element, value), attributes or {})

    def attributes(self, *parts: tuple[Expr, Expr]) -> Attributes:
        found: Attributes = {}
        for name, value in parts:
            if name.name in found:
                raise Mistake(name, f"`{name.name[:40]}` stands here twice", code="MT0501")
            found[name.name] = value
        return found

    def type(self, name: Expr, dims: Exprs | None) -> Type:
        return Type(name.start, name.end, name, dims or ())

    def bare(self, name: Expr) -> Type:
        return Type(name.start, name.end, name, None)

    def strides(self, values: Exprs | None) -> Exprs:
        return values or ()

    def param(self, name: Expr, type: Type, strides: Exprs | None = None) -> Param:
        return Param(name.start, type.end, name, type, strides)

    def buffer(self, role: Expr, param: Param) -> Param:
        return replace(param, role=role.name)

    next = Next

    def loop(self, axes: Exprs, bounds: Attributes | None, *body: Any) -> Nest:
        return Nest(axes, body, bounds or {})

    def axis(self, reduce: Expr | None, name: Expr, extent: Expr) -> Place:
        return Place("reduced" if reduce else "parallel", name, extent)

    def place(self, role: Expr, name: Expr, extent: Expr, block: Expr, lanes: Expr | None) -> Place:
        return Place(role.name, name, extent, block, lanes)

    def require(self, left: Expr, relation: Expr, right: Expr, *more: Any) -> Require:
        code, message, attributes = more
        return Require(left.start, right.end, left, relation.name, right, code, message, attributes or {})

    # The whole

    def graph(self, name: Expr, params: Params | None, *lines: Any) -> Block:
        return Block(name, params or (), (), (), _of(Line, lines), _of(Require, lines), lines[-1])

    def head(self, name: Expr, inputs: Params | None, outputs: Params, *lines: Require | Param) -> Head:
        return Head(name, inputs or (), outputs, _of(Require, lines), _of(Param, lines))

    def kernel(self, name: Expr, params: Params | None, axes: Any, hints: Any, *body: Line) -> Block:
        return Block(name, params or (), _of(Place, axes), hints, body)

    def program(self, name: Expr, params: Params | None, hints: Any, *lines: Any) -> Block:
        return Block(name, params or (), _of(Place, lines), hints, _of((Line, Nest), lines))

    def kernels(self, head: Head, *rest: Any) -> Whole:
        return Whole(head, _of(Block, rest), rest[-1] or ())

    def tiles(self, head: Head, *blocks: Block) -> Whole:
        return Whole(head, blocks)


def _line(result: Expr | None, type: Type | None, op: Expr, operands: Exprs, attributes: Attributes) -> Line:
    last = [op, *operands, *attributes.values()][-1]
    return Line((result or op).start, last.end, result, type, op, operands, attributes)


def _of(kind: Any, parts: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(p for p in parts if isinstance(p, kind))


class Callbacks:
    """Adapts `Builder` to lark, which calls a function for each rule with a list of tokens and nodes."""

    def __getattr__(self, rule: str) -> Callable[[list[Any]], Any]:
        make = getattr(Builder(), rule)
        return lambda parts: make(*map(_read_part, parts))


class Lines:
    """Removes line ends inside ( ) and [ ] from the stream of tokens."""

    always_accept = ("_NL",)

    def process(self, stream: Iterable[Any]) -> Iterator[Any]:
        depth = 0
        for token in stream:
            depth += (token in ("(", "[")) - (token in (")", "]"))
            if token.type != "_NL" or depth <= 0:
                yield token


@lru_cache(maxsize=1)
def _lark() -> Any:
    grammar, starts = Path(__file__).with_name("ir.lark"), ("graph", "kernels", "tiles", "sum")
    return parser_tables.parser(grammar, starts, "contextual", transformer=Callbacks(), postlex=Lines())
