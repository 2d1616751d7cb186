"""The kinds of statements in random programs, and how often the writer tries each kind.

    elementwise.py   operators, comparisons, conversions, functions of numbers
    functions.py     library functions of one value
    reductions.py    reductions, scans, masks by position; matrix products, layers, attention
    views.py         movements of data, gathers, new arrays such as `arange`

A kind that is listed twice in `KINDS` is tried twice as often. If no value fits a kind, the writer tries
the next kind.
"""

from collections.abc import Callable
from contextlib import suppress

from minitri.testing.elementwise import Elementwise
from minitri.testing.functions import Functions
from minitri.testing.generator import FLOATS, INTEGERS, DoesNotApply, RandomProgram
from minitri.testing.reductions import Products, Reductions
from minitri.testing.values import Value
from minitri.testing.views import Views


class Statements(Elementwise, Reductions, Products, Views, Functions):
    """Writes a random program, statement by statement."""

    def program(self, ops: int) -> RandomProgram:
        for _ in range(self.choose((1, 2))):
            self.array(self.choose((*FLOATS, "f32", "f32", "i32", "bool", *INTEGERS)), self.axes())
        kinds = self.kinds()
        for _ in range(ops):
            start = self.choose(range(len(kinds)))
            any(map(self.adds, kinds[start:] + kinds[:start]))  # up to the first that applies
        self.end()
        return self.finished()

    def adds(self, kind: Callable[[], Value]) -> bool:
        """Adds a statement of this kind, if one fits. Whether it has added one."""
        with suppress(DoesNotApply):
            return bool(kind())
        return False

    def kinds(self) -> list[Callable[[], Value]]:
        """The methods that add a statement or raise DoesNotApply, in the order of `KINDS`."""
        return [getattr(self, f"_{name}") for name in KINDS]

    def end(self) -> None:
        """Ends a third of the programs with a reduction of a masked value."""
        if self.chance(3):
            self.adds(self._masked_reduction)


KINDS = (
    "unary", "binary", "number", "reduce", "matmul", "slice", "transpose", "binary", "normalise", "cast", "where", "compare",
    "reshape", "move", "broadcast", "pad", "concat", "gather", "along", "scan", "jump", "integer", "one_hot", "make",
    "unary", "reduce", "call", "attention", "unary", "predicate", "logical", "like", "unary", "loss",
    "masked", "masked_reduction", "masked_reduction", "masked", "layer", "heads",
    "function", "function", "function",
)  # fmt: skip
