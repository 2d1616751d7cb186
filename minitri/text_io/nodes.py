"""The syntax nodes of a stage's text: expressions, types, lines, loops and kernels.

    %2: f32[M] = exp %1      →      Line(result %2, type f32[M], op exp, operands (%1,))

reader.py makes these nodes. graph/parse.py, kernels/parse.py and tiles/parse.py turn them into IRs. The one idea: every
node that can be wrong has its range of characters in the text, so that an error (`Mistake`) can point at it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the text: the characters from `start` up to `end` (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Expr(Text):
    """An expression. `kind` is number, name, text, list, element, max, min, neg, or an operator: + - * // % < >= == !=.

    `parts` are its operands, or its value. `depth` counts nested expressions.
    """

    kind: str
    parts: tuple[Any, ...]
    depth: int = 0

    @property
    def name(self) -> str:
        return self.parts[0] if self.kind == "name" else ""


@dataclass(frozen=True, slots=True)
class Type(Text):
    """A type such as `f32[M, N]`. `dims` is None for a name without brackets, such as `float`."""

    name: Expr
    dims: tuple[Expr, ...] | None


@dataclass(frozen=True, slots=True)
class Param(Text):
    """An array in a header, `x: f32[M, N]`. For a buffer of a kernel, `role` is input, output, temporary or scalar."""

    name: Expr
    type: Type
    strides: tuple[Expr, ...] | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Require(Text):
    """A condition on sizes: `require left relation right else code message {attributes}`."""

    left: Expr
    relation: str
    right: Expr
    code: Expr | None
    message: Expr | None
    attributes: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Line(Text):
    """An operation: `result: type = op operands {attributes}`. A store has no result and no type."""

    result: Expr | None
    type: Type | None
    op: Expr
    operands: tuple[Expr, ...]
    attributes: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Next:
    """The line of a loop that sets the value of a carried variable for the next iteration."""

    carry: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Nest:
    """A loop over axes, with its body. `bounds` has the first and last index if the loop does not cover its axis."""

    axes: tuple[Expr, ...]
    body: tuple[Line | Next, ...]
    bounds: dict[str, Expr]


@dataclass(frozen=True, slots=True)
class Place:
    """An axis of a kernel or a tile program.

    `role` is "parallel" or "reduced" in a kernel, and "grid", "whole" or "loop" in a tile program.
    """

    role: str
    name: Expr
    extent: Expr
    block: Expr | None = None
    lanes: Expr | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A graph, a kernel or a tile program. `hints` are pairs of a name and an optional number, after the header."""

    name: Expr
    params: tuple[Param, ...]
    places: tuple[Place, ...]
    hints: tuple[tuple[Expr, Expr | None], ...]
    body: tuple[Line | Nest, ...]
    requires: tuple[Require, ...] = ()
    returns: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a plan: its inputs, outputs, conditions on sizes and temporary arrays."""

    name: Expr
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    requires: tuple[Require, ...]
    temporaries: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """The text of all kernels, or of all tile programs. `ledger` has the fusion decisions."""

    head: Head
    blocks: tuple[Block, ...]
    ledger: tuple[Expr, ...] = ()


class Mistake(Exception):
    """An error in a piece of the text. The code is MT0501 for a syntax error, else MT0502."""

    def __init__(self, place: Text, message: str, help: str = "", code: str = "MT0502") -> None:
        super().__init__(message)
        self.place, self.message, self.help, self.code = place, message, help, code
