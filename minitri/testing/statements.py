"""The statements that random programs are made of, and how often each kind is tried.

    elementwise.py   functions, operators, comparisons, conversions; other functions of one value, from a table
    reductions.py    reductions, scans, choices by position and reductions of them; matrix products, layers, attention
    views.py         movements of data, gathers, arrays from nothing

A kind that stands twice in `KINDS` is tried twice as often; one that does not apply to what there
is gives way to the next.
"""

from __future__ import annotations

from collections.abc import Callable

from minitri.testing.elementwise import Elementwise, Functions
from minitri.testing.reductions import Products, Reductions
from minitri.testing.values import Value
from minitri.testing.views import Views
from minitri.testing.writer import FLOATS, INTEGERS, DoesNotApply, RandomProgram


class Statements(Elementwise, Reductions, Products, Views, Functions):
    """A program, statement by statement."""

    def program(self, ops: int) -> RandomProgram:
        for _ in range(self.choose((1, 2))):
            self.array(self.choose((*FLOATS, "f32", "f32", "i32", "bool", *INTEGERS)), self.axes())
        kinds = self.kinds()
        for _ in range(ops):
            start = self.choose(range(len(kinds)))
            any(map(self.tries, kinds[start:] + kinds[:start]))  # up to the first that applies
        self.end()
        return self.finished()

    def tries(self, kind: Callable[[], Value]) -> bool:
        """Adds a statement of a kind, if it applies."""
        try:
            return bool(kind())
        except DoesNotApply:
            return False

    def kinds(self) -> list[Callable[[], Value]]:
        """Methods that add a statement, or raise DoesNotApply."""
        return [getattr(self, f"_{name}") for name in KINDS]

    def end(self) -> None:
        """A third of the programs end with a reduction of a choice by position."""
        if self.chance(3):
            self.tries(self._masked_reduction)


KINDS = (
    "unary", "binary", "number", "reduce", "matmul", "slice", "transpose", "binary", "normalise", "cast", "where", "compare",
    "reshape", "move", "broadcast", "pad", "concat", "gather", "along", "scan", "jump", "integer", "one_hot", "make",
    "unary", "reduce", "call", "attention", "unary", "predicate", "logical", "like", "unary", "loss",
    "masked", "masked_reduction", "masked_reduction", "masked", "layer", "heads",
    "function", "function", "function",
)  # fmt: skip
