"""Reads the texts of stages: from text to nodes that know their place.

In: the text of a graph, a plan of kernels or tile programs. Out: `Text` nodes for every line and expression of it, or a
ParseError MT0501. The one idea: one grammar (ir.lark) for all of them, because they differ in meaning and not in form.
graph/parse.py, kernels/parse.py and tiles/parse.py know what the lines mean. vocabulary.py has what all three share.

Numbers and nesting are limited: anyone may have written the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.limits import current, exceeded
from minitri.base.spans import Source, Span
from minitri.language import parser_tables
from minitri.text_io.nodes import Block, Expr, Head, Line, Mistake, Nest, Next, Param, Place, Require, Text, Type, Whole

MAX_NESTING = 50  # brackets, quotients, remainders, minima and maxima within each other
MAX_NUMBER = 2**64


def read(source: Source, start: str) -> Any:
    """The nodes of a text whose start symbol is "graph", "kernels", "tiles" or "sum"."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    _check_text(source)
    try:
        return _lark().parse(source.text, start=start)
    except UnexpectedToken as error:
        at = error.token.start_pos if error.token.type != "$END" else len(source.text.rstrip())
        end = at + len(str(error.token)) if error.token.type != "$END" else at
        raise _misplaced(Text(at, end), str(error.token), error.expected) from None
    except UnexpectedCharacters as error:
        at = error.pos_in_stream
        raise _misplaced(Text(at, at + 1), source.text[at], set(error.allowed or ())) from None


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Mistakes become CompileErrors that point into the source."""
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


_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "VALUE": "a value such as `%0`", "_NL": "the end of the line",
    "STRING": "a text in double quotes", "KIND": "`input`, `output`, `temporary`, `scalar`", "_OVER": "`over`",
    "ROLE": "`grid`, `whole`, `loop`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`", "RBRACE": "`}`", "LPAR": "`(`",
    "RPAR": "`)`", "COLON": "`:`", "EQUAL": "`=`", "COMMA": "`,`", "_BY": "`by`", "$END": "the end", "_PLAN": "`plan`",
    "_GRAPH": "`graph`", "_KERNEL": "`kernel`", "_PROGRAM": "`program`", "_RETURN": "`return`", "_STORE": "`store`",
    "RELATION": "a comparison", "_FOR": "`for`", "_NEXT": "`next`", "_ELSE": "`else`", "_LANES": "`lanes`",
}  # fmt: skip


def _misplaced(place: Text, word: str, expected: Iterable[str]) -> Mistake:
    shown = word.strip()[:40]
    message = f"`{shown}` cannot stand here" if shown else f"the {'line' if word else 'text'} ends too early"
    known = [_WORDS[e] for e in sorted(expected) if e in _WORDS]
    help = f"here stands {', '.join(known[:6])}" if 0 < len(known) <= 6 else ""
    return Mistake(place, message, help, "MT0501")


# ---- nodes ---------------------------------------------------------------------------------


def _around(parts: Sequence[Any]) -> tuple[int, int]:
    """The range from the first to the last part that is there."""
    there = [p for p in parts if p is not None and not isinstance(p, (tuple, dict))]
    return (_start(there[0]), _end(there[-1])) if there else (0, 0)


def _start(part: Any) -> int:
    return part.start if isinstance(part, Text) else part.start_pos


def _end(part: Any) -> int:
    return part.end if isinstance(part, Text) else part.end_pos


def _name(token: Any) -> Expr:
    return Expr(token.start_pos, token.end_pos, "name", (str(token),))


def _optional(token: Any, make: Callable[[Any], Expr]) -> Expr | None:
    return None if token is None else make(token)


def _nested(place: tuple[int, int], kind: str, parts: tuple[Any, ...], depth: int) -> Expr:
    if depth > MAX_NESTING:
        raise Mistake(Text(*place), f"more than {MAX_NESTING} expressions are nested here", code="MT0401")
    return Expr(*place, kind, parts, depth)


class Builder:
    """The parser's callbacks, one for each rule (or alias) of ir.lark. Absent parts are None."""

    # Expressions

    def number(self, parts: list[Any]) -> Expr:
        (token,) = parts
        whole = token.isdigit()
        if len(token) > 400 or (whole and int(token) >= MAX_NUMBER):
            raise Mistake(Text(token.start_pos, token.end_pos), "this number is too large", code="MT0501")
        return Expr(token.start_pos, token.end_pos, "number", (int(token) if whole else float(token),))

    def name(self, parts: list[Any]) -> Expr:
        return _name(parts[0])

    def string(self, parts: list[Any]) -> Expr:
        (token,) = parts
        try:
            return Expr(token.start_pos, token.end_pos, "text", (json.loads(token),))
        except ValueError:
            raise Mistake(Text(token.start_pos, token.end_pos), "this text cannot be read", code="MT0501") from None

    def binary(self, parts: list[Any]) -> Expr:
        left, op, right = parts
        pair = op in ("//", "%")
        return _nested(_around(parts), str(op), (left, right), max(left.depth + pair, right.depth + 1))

    def unary(self, parts: list[Any]) -> Expr:
        return _nested(_around(parts), "neg", (parts[1],), parts[1].depth + 1)

    def group(self, parts: list[Any]) -> Expr:
        inner = parts[1]
        return _nested(_around(parts), inner.kind, inner.parts, inner.depth + 1)

    def call(self, parts: list[Any]) -> Expr:
        name, _, arguments, _ = parts
        if name not in ("max", "min") or len(arguments) != 2:
            raise Mistake(Text(*_around(parts)), "only `max` and `min` of two numbers are functions here")
        return _nested(_around(parts), str(name), arguments, max(a.depth for a in arguments) + 1)

    def list(self, parts: list[Any]) -> Expr:
        return Expr(*_around(parts), "list", parts[1] or ())

    def element(self, parts: list[Any]) -> Expr:
        name, index, _ = parts
        return Expr(*_around(parts), "element", (_name(name), *(index or ())))

    def values(self, parts: list[Any]) -> tuple[Expr, ...]:
        return tuple(parts)

    # Lines

    def op(self, parts: list[Any]) -> Line:
        result, type, op, operands, attributes = parts
        end = attributes["}"].end if attributes else operands[-1].end if operands else op.end_pos
        return Line(result.start_pos, end, _name(result), type, _name(op), operands or (), _without_end(attributes))

    def store(self, parts: list[Any]) -> Line:
        element, value, attributes = parts
        end = attributes["}"].end if attributes else value.end_pos
        op = Expr(element.start, element.end, "name", ("store",))
        return Line(element.start, end, None, None, op, (element, _name(value)), _without_end(attributes))

    def attributes(self, parts: list[Any]) -> dict[str, Expr]:
        found: dict[str, Expr] = {}
        for name, value in parts:
            if name.name in found:
                raise Mistake(name, f"`{name.name[:40]}` stands here twice", code="MT0501")
            found[name.name] = value
        return {**found, "}": parts[-1][1]}

    def attribute(self, parts: list[Any]) -> tuple[Expr, Expr]:
        return _name(parts[0]), parts[1]

    def type(self, parts: list[Any]) -> Type:
        return Type(*_around(parts[:1]), _name(parts[0]), parts[1] or ())

    def bare(self, parts: list[Any]) -> Type:
        return Type(*_around(parts), _name(parts[0]), None)

    def strides(self, parts: list[Any]) -> tuple[Expr, ...]:
        return parts[0] or ()

    def param(self, parts: list[Any]) -> Param:
        name, type, *strides = parts
        return Param(*_around([name, type]), _name(name), type, strides[0] if strides else None)

    def buffer(self, parts: list[Any]) -> Param:
        kind, p = parts
        return Param(p.start, p.end, p.name, p.type, p.strides, str(kind))

    def next(self, parts: list[Any]) -> Next:
        return Next(*_around(parts), _name(parts[0]), _name(parts[1]))

    def loop(self, parts: list[Any]) -> Nest:
        axes, bounds, *body = parts
        return Nest(axes[0].start, axes[-1].end, axes, tuple(body), _without_end(bounds))

    def axis(self, parts: list[Any]) -> Place:
        reduce, name, extent = parts
        return Place(*_around(parts), "reduced" if reduce else "parallel", _name(name), extent)

    def place(self, parts: list[Any]) -> Place:
        role, name, extent, block, lanes = parts
        numbers = self.number([block]), _optional(lanes, lambda t: self.number([t]))
        return Place(*_around(parts), str(role), _name(name), extent, *numbers)

    def require(self, parts: list[Any]) -> Require:
        left, relation, right, code, message, attributes = parts
        text = _optional(message, lambda t: self.string([t]))
        more = _without_end(attributes)
        return Require(left.start, right.end, left, str(relation), right, _optional(code, _name), text, more)

    def hint(self, parts: list[Any]) -> tuple[Expr, Expr | None]:
        return _name(parts[0]), _optional(parts[1], lambda t: self.number([t]))

    def temporary(self, parts: list[Any]) -> Param:
        return parts[0]

    def params(self, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    axes = hints = buffers = results = params

    # The whole

    def graph(self, parts: list[Any]) -> Block:
        name, params, *lines, returns = parts
        requires = tuple(x for x in lines if isinstance(x, Require))
        body = tuple(x for x in lines if isinstance(x, Line))
        return Block(*_around([name]), _name(name), params or (), (), (), body, requires, returns)

    def head(self, parts: list[Any]) -> Head:
        name, inputs, outputs, *lines = parts
        requires = tuple(x for x in lines if isinstance(x, Require))
        temporaries = tuple(x for x in lines if isinstance(x, Param))
        return Head(*_around([name]), _name(name), inputs or (), outputs, requires, temporaries)

    def kernel(self, parts: list[Any]) -> Block:
        name, params, axes, hints, *body = parts
        places = tuple(a for a in axes if isinstance(a, Place))
        return Block(*_around([name]), _name(name), params or (), places, hints, tuple(body))

    def program(self, parts: list[Any]) -> Block:
        name, params, hints, *lines = parts
        places = tuple(x for x in lines if isinstance(x, Place))
        return Block(*_around([name]), _name(name), params or (), places, hints, tuple(lines[len(places) :]))

    def ledger(self, parts: list[Any]) -> tuple[Expr, ...]:
        return tuple(Expr(t.start_pos, t.end_pos, "text", (str(t).rstrip(),)) for t in parts)

    def kernels(self, parts: list[Any]) -> Whole:
        head, *rest = parts
        blocks = tuple(b for b in rest if isinstance(b, Block))
        return Whole(head.start, head.end, head, blocks, rest[-1] or ())

    def tiles(self, parts: list[Any]) -> Whole:
        head, *blocks = parts
        return Whole(head.start, head.end, head, tuple(blocks))


def _without_end(attributes: dict[str, Expr] | None) -> dict[str, Expr]:
    return {n: e for n, e in (attributes or {}).items() if n != "}"}


class Lines:
    """Drops the line ends inside ( ) and [ ]."""

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
    return parser_tables.parser(grammar, starts, "contextual", transformer=Builder(), postlex=Lines())
