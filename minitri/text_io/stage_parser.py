"""Parses the text of a compilation stage into syntax nodes.

    %2: f32[M] = exp %1      →      Line(result %2, type f32[M], op exp, operands (%1,))

The function `read` takes the text of a graph, of a plan of kernels, or of tile programs. The function `read` returns a
syntax node for every line and expression of the text. A syntax error in the text becomes a ParseError MT0501. The one
idea: the graph, kernels and tile programs have one grammar (ir.lark), because the lines of all three have the same
syntax. Each syntax node has its range of characters in the text, so that an error (`Mistake`) can point at a wrong
node. From the syntax nodes, graph/text.py makes a graph, kernels/parse.py makes kernels, and tiles/text.py makes tile
programs. The functions of read_expressions.py interpret the names and numbers in nodes.

The size of numbers and the depth of nesting are limited, because the text is not trusted.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.nodes import Record
from minitri.base.resource_limits import check_limit
from minitri.base.spans import Source, Span
from minitri.base.toml_tables import table_beside
from minitri.language import parser_table_cache

MAX_NESTING = 50  # depth of nested brackets, quotients, remainders, minima and maxima
MAX_NUMBER = 2**64


class Text(Record):
    """A piece of the text: the characters from `start` up to `end` (exclusive)."""

    start: int
    end: int


class Node(Text):
    """A syntax node: an expression, or another part of the text, such as a type.

    The `kind` of an expression is number, name, text, list, element, max, min, neg, or an operator: + - * // % < >= ==
    !=. The `parts` of most expressions are operands. For a number, a name or a text, `parts` contains only the value.
    If a node is no expression, its `kind` is the name of its grammar rule, and its `parts` are the names and nodes of
    the rule. If an optional part of the grammar rule is missing in the text, the part is None in `parts`. The field
    `depth` is the depth of nesting: the depth of `(e)` is one more than the depth of `e`.
    """

    kind: str
    parts: tuple[Any, ...]
    depth: int = 0

    @property
    def name(self) -> str:
        return self.parts[0] if self.kind == "name" else ""


Nodes = tuple[Node, ...]
Attributes = Mapping[str, Node]


class Param(Text):
    """A parameter or a buffer in the header of a graph, kernel or tile program, such as `x: f32[M, N]`.

    For a buffer of a kernel, `role` is input, output, temporary or scalar.

    The field `dims` is None for a type without brackets, such as `float`. The node `type` has two parts, the dtype and
    the sizes `dims`.
    """

    name: Node
    type: Node
    strides: Nodes | None = None
    role: str = ""

    @property
    def dims(self) -> Nodes | None:
        return self.type.parts[1]


class Line(Text):
    """The line of one operation, in the form `result: type = op operands {attributes}`.

    A store and a loop have no result and no type.
    """

    result: Node | None
    type: Node | None
    op: Node
    operands: Nodes
    attributes: Attributes


class Mistake(Exception):
    """An error in the text of a stage, with its place in the text. The `code` of the error is MT0501 for a syntax
    error, and MT0502 for most other errors.
    """

    def __init__(self, place: Text, message: str, help: str = "", code: str = "MT0502") -> None:
        super().__init__(message)
        self.place, self.message, self.help, self.code = place, message, help, code


def expect(holds: bool, place: Text, message: str, help: str = "", code: str = "MT0502") -> None:
    """Raises a Mistake with this place, message, help and code unless `holds` is true."""
    if not holds:
        raise Mistake(place, message, help, code)


def read(source: Source, start: str) -> Any:
    """Returns the syntax nodes of a text. The argument `start` is the start symbol of the grammar: "graph", "kernels",
    "tiles" or "sum".

    Raises Mistake with code MT0501 for a syntax error, and CompileError MT0401 for a text that is too long.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    _check_text(source)
    try:
        return _read_part(_lark().parse(source.text, start=start))
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
    message = "the text has {count:,} characters, the limit is {limit:,}"
    check_limit("code", len(source.text), message, Span(source, 0, 1))
    if bad := re.search("[\0\ud800-\udfff]", source.text):
        message = f"the text holds U+{ord(bad[0]):04X}, which is not a character of any program"
        raise Mistake(Text(*bad.span()), message, code="MT0501")


TOKENS = table_beside(__file__, "tokens.toml")


def _misplaced(place: Text, word: str, expected: Iterable[str]) -> Mistake:
    shown = word.strip()[:40]
    message = f"`{shown}` cannot stand here" if shown else f"the {'line' if word else 'text'} ends too early"
    known = [TOKENS[e] for e in sorted(expected) if e in TOKENS]
    help = f"here stands {', '.join(known[:6])}" if 0 < len(known) <= 6 else ""
    return Mistake(place, message, help, "MT0501")


# ---- nodes ---------------------------------------------------------------------------------


def _word(token: Any) -> Node:
    return Node(token.start_pos, token.end_pos, "name", (str(token),))


def _number(token: Any) -> Node:
    whole = token.isdigit()
    if len(token) > 400 or (whole and int(token) >= MAX_NUMBER):
        raise Mistake(_word(token), "this number is too large", code="MT0501")
    return replace(_word(token), kind="number", parts=(int(token) if whole else float(token),))


def _string(token: Any) -> Node:
    try:
        return replace(_word(token), kind="text", parts=(json.loads(token),))
    except ValueError:
        raise Mistake(_word(token), "this text cannot be read", code="MT0501") from None


def _line_of_ledger(token: Any) -> Node:
    return replace(_word(token), kind="text", parts=(token.rstrip(),))


_READERS = {"NUMBER": _number, "STRING": _string, "LINE": _line_of_ledger}


def _read_part(part: Any) -> Any:
    """Converts a token to a syntax node. Syntax nodes are returned unchanged."""
    return _READERS.get(part.type, _word)(part) if hasattr(part, "start_pos") else part


def _around(parts: Iterable[Any]) -> tuple[int, int]:
    """Returns the range of characters from the first node to the last node."""
    placed = [p for p in parts if isinstance(p, Text)]
    return (placed[0].start, placed[-1].end) if placed else (0, 0)


def _node(kind: str, *parts: Any) -> Node:
    """Makes the syntax node for a part of the text that matches a grammar rule."""
    # The node's range of characters includes the brackets, but its parts do not contain the brackets.
    return Node(*_around(parts), kind, tuple(p for p in parts if not (isinstance(p, Node) and p.name in ("[", "]"))))


def _nested(place: tuple[int, int], kind: str, parts: tuple[Any, ...], depth: int) -> Node:
    expect(depth <= MAX_NESTING, Text(*place), f"more than {MAX_NESTING} expressions are nested here", code="MT0401")
    return Node(*place, kind, parts, depth)


class Builder:
    """Makes the syntax nodes of the grammar rules (ir.lark) that need a check or a computation.

    Each method has the name of a grammar rule.
    """

    def binary(self, left: Node, op: Node, right: Node) -> Node:
        pair = op.name in ("//", "%")
        return _nested(_around((left, right)), op.name, (left, right), max(left.depth + pair, right.depth + 1))

    def unary(self, minus: Node, e: Node) -> Node:
        return _nested(_around((minus, e)), "neg", (e,), e.depth + 1)

    def group(self, opening: Node, e: Node, closing: Node) -> Node:
        return _nested(_around((opening, closing)), e.kind, e.parts, e.depth + 1)

    def call(self, function: Node, opening: Node, arguments: Nodes, closing: Node) -> Node:
        place = _around((function, closing))
        if function.name not in ("max", "min") or len(arguments) != 2:
            raise Mistake(Text(*place), "only `max` and `min` of two numbers are functions here")
        return _nested(place, function.name, arguments, max(a.depth for a in arguments) + 1)

    def several(self, *parts: Any) -> tuple[Any, ...]:
        return parts

    attribute = axes = buffers = hint = hints = items = ledger = names = params = places = requires = results = several
    values = several

    def attributes(self, *parts: tuple[Node, Node]) -> Attributes:
        found: dict[str, Node] = {}
        for name, value in parts:
            expect(name.name not in found, name, f"`{name.name[:40]}` stands here twice", code="MT0501")
            found[name.name] = value
        return found

    def bare(self, name: Node) -> Node:
        return _node("type", name, None)

    def param(self, name: Node, type: Node, strides: Nodes | None = None) -> Param:
        return Param(name.start, type.end, name, type, strides)

    def buffer(self, role: Node, param: Param) -> Param:
        return replace(param, role=role.name)

    def op(self, result: Node, type: Node, op: Node, operands: Nodes, attributes: Attributes) -> Line:
        return Line(*_around((result, op, *operands, *attributes.values())), result, type, op, operands, attributes)

    def store(self, element: Node, value: Node, attributes: Attributes) -> Line:
        return self._statement("store", (element, value), attributes)

    def loop(self, axes: Nodes, attributes: Attributes | None, *body: Any) -> Node:
        return _node("loop", self._statement("for", axes, attributes or {}), *body)

    def _statement(self, word: str, operands: Nodes, attributes: Attributes) -> Line:
        op = replace(operands[0], kind="name", parts=(word,))
        return Line(*_around((*operands, *attributes.values())), None, None, op, operands, attributes)


class Callbacks:
    """Adapts `Builder` to the parser library lark. For each grammar rule, lark calls a function with a list of tokens
    and nodes.
    """

    def __getattr__(self, rule: str) -> Callable[[list[Any]], Any]:
        if not rule[0].islower():
            raise AttributeError(rule)  # tokens, and rules that lark adds
        make = getattr(Builder(), rule, None) or partial(_node, rule)
        return lambda parts: make(*map(_read_part, parts))


class Lines:
    """Removes line ends inside ( ) and [ ] from the stream of tokens, so that one line of the grammar can span several
    lines of text.
    """

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
    return parser_table_cache.parser(grammar, starts, "contextual", transformer=Callbacks(), postlex=Lines())
