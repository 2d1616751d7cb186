"""Makes the parameters of a small program under construction, and finds the values that a statement may read.

In: a function that makes random choices. Out: parameters with their axes, and sample arrays for them.

    x: f16[N, 2 * N]     →     Value(a numpy array of the shape (3, 6), f16, exact)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minitri.base.types import DTYPES, DType
from minitri.testing.random_arrays import elements
from minitri.testing.statement_writer import StatementWriter, words

SIZES = (3, 1, 2, 7, 0, 17, 33, 130)
DTYPE_CHOICES = ("f32", "f16", "bf16", "f64", "i32", "i64", "i8", "u8", "i16", "u16", "u32", "u64", "bool")
MAX_ELEMENTS = 20_000  # the most elements of a value
NAMES = ("N", "M", "K", "D")
PARAMETERS = "xywzabcdefgh"


class Axis(NamedTuple):
    """An axis of a parameter: the text of its size in the program, such as `2 * N`, and its size in the sample arrays."""

    text: str
    size: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a program. The elements of its array are drawn from the range `low` to `high`."""

    name: str
    type: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Value:
    """A sample value of a parameter or variable.

    If `exact` is true, every stage must compute this value bit for bit.
    """

    data: Any
    dtype: DType
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.data)

    @property
    def largest(self) -> float:
        """The largest absolute value of the finite elements."""
        wide = np.abs(np.asarray(self.data, np.float64))
        return float(np.max(wide, where=np.isfinite(wide), initial=0))

    @property
    def overflows(self) -> bool:
        return bool(np.isinf(np.asarray(self.data, np.float64)).any())


class ParameterWriter(StatementWriter):
    """Makes parameters, and finds values that a statement can read.

    sizes   the dimensions that parameters have so far
    axes    the axes of each parameter
    """

    def __init__(self, table: Mapping[str, Any], choose: Callable[[Sequence[Any]], Any]) -> None:
        super().__init__(table, choose)
        self.sizes: dict[str, int] = {}
        self.axes: dict[str, tuple[Axis, ...]] = {}

    def chance(self, odds: int) -> bool:
        """Returns True once in `odds` times, and never in a shrunk program."""
        return self.choose(range(odds)) == odds - 1

    def found(self, suits: Callable[[Value], bool]) -> str | None:
        """Returns an array for which `suits` is true, most often an array that was added late."""
        found = [n for n, v in reversed(self.values.items()) if n != "s" and suits(v)]
        return self.choose([*found[:1], *found[:1], *found[:3], *found]) if found else None

    def dimensions(self) -> dict[str, int]:
        """Returns the dimensions that a statement can name, because a parameter has them."""
        named = {word for p in self.arrays.values() for word in words(p.type)}
        return {n: s for n, s in self.sizes.items() if n in named}

    def new_axes(self, rank: int | None = None, room: int = MAX_ELEMENTS) -> tuple[Axis, ...]:
        axes: list[Axis] = []
        for _ in range(self.choose((1, 2, 2, 3, 0)) if rank is None else rank):
            axes.append(self.new_axis(room // max(1, math.prod(a.size for a in axes))))
        return tuple(axes)

    def new_axis(self, room: int) -> Axis:
        fitting = [n for n, s in self.sizes.items() if s <= room]
        new = [n for n in NAMES if n not in self.sizes][:1]
        form = self.choose(("name", "name", "name", "number", "more"))
        if form == "number" or not (fitting or new):
            size = self.choose([s for s in SIZES if s <= min(room, 33)])
            return Axis(str(size), size)
        name = self.choose([*new, *fitting, *new])
        if name not in self.sizes:
            self.sizes[name] = self.choose([s for s in SIZES if s <= room])
        size = self.sizes[name]
        alone = any(a.text == name for array in self.arrays for a in self.axes[array])
        if form == "more" and 2 * size + 1 <= room and alone:
            return self.choose((Axis(f"{name} + 1", size + 1), Axis(f"2 * {name}", 2 * size)))
        return Axis(name, size)

    def array(self, dtype: str, axes: Sequence[Axis], low: float = -4, high: float = 4) -> str:
        """Adds a new array parameter and returns its name."""
        count = len(self.arrays)
        name = PARAMETERS[count] if count < len(PARAMETERS) else f"p{count}"
        kind, shape = DTYPES[dtype], tuple(a.size for a in axes)
        data = np.array(elements(kind, np.random.default_rng(count), low, high, shape, usual=False))
        if kind.is_integer and (low, high) == (-4, 4):
            data.flat[: data.size // 3] = kind.limits[1]  # arguments may have such elements
        return self.parameter(
            Parameter(name, f"{dtype}[{', '.join(a.text for a in axes)}]", low, high), Value(data, kind, True), axes
        )

    def parameter(self, parameter: Parameter, value: Value, axes: Sequence[Axis] = ()) -> str:
        name = parameter.name
        self.arrays[name], self.values[name], self.axes[name] = parameter, value, tuple(axes)
        return name

    def size(self, name: str, k: int) -> str:
        """Returns the text of the size of an axis."""
        return self.axes[name][k].text if name in self.arrays else f"{name}.shape[{k}]"
