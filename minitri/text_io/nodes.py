"""The parts of a stage's text: expressions, types, lines, loops, kernels, each with its place.

    %2: f32[M] = exp %1      →      Line(result %2, type f32[M], op exp, operands (%1,))

In: the parser's callbacks in reader.py make these nodes. Out: graph/parse.py, kernels/parse.py and
tiles/parse.py take them apart. The one idea: every node keeps the range of characters that it came from, so
that a `Mistake` can point at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the text: characters start … end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Expr(Text):
    """`kind`: number name text list element max min neg, or an operator + - * // % < >= == !=."""

    kind: str
    parts: tuple[Any, ...]
    depth: int = 0

    @property
    def name(self) -> str:
        return self.parts[0] if self.kind == "name" else ""


@dataclass(frozen=True, slots=True)
class Type(Text):
    name: Expr
    dims: tuple[Expr, ...] | None  # None: no brackets


@dataclass(frozen=True, slots=True)
class Param(Text):
    name: Expr
    type: Type
    strides: tuple[Expr, ...] | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Require(Text):
    left: Expr
    relation: str
    right: Expr
    code: Expr | None
    message: Expr | None
    attributes: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Line(Text):
    """`result: type = op operands {attributes}`; a store has no result."""

    result: Expr | None
    type: Type | None
    op: Expr
    operands: tuple[Expr, ...]
    attributes: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Next(Text):
    carry: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Nest(Text):
    axes: tuple[Expr, ...]
    body: tuple[Line | Next, ...]
    bounds: dict[str, Expr]


@dataclass(frozen=True, slots=True)
class Place(Text):
    """An axis of a kernel (role: "parallel", "reduced") or of a tile program."""

    role: str
    name: Expr
    extent: Expr
    block: Expr | None = None
    lanes: Expr | None = None


@dataclass(frozen=True, slots=True)
class Block(Text):
    """A graph, a kernel or a program."""

    name: Expr
    params: tuple[Param, ...]
    places: tuple[Place, ...]
    hints: tuple[tuple[Expr, Expr | None], ...]
    body: tuple[Line | Nest, ...]
    requires: tuple[Require, ...] = ()
    returns: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Head(Text):
    name: Expr
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    requires: tuple[Require, ...]
    temporaries: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Whole(Text):
    head: Head
    blocks: tuple[Block, ...]
    ledger: tuple[Expr, ...] = ()


class Mistake(Exception):
    """Something wrong with a piece of the text. MT0501: how it is written, MT0502: what it means."""

    def __init__(self, place: Text, message: str, help: str = "", code: str = "MT0502") -> None:
        super().__init__(message)
        self.place, self.message, self.help, self.code = place, message, help, code
