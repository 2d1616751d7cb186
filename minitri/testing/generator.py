"""The writer of random programs: it collects values and statements, and prints the whole text.

In: a source of choices. Out: a `RandomProgram`. The kinds of statements are in statement_kinds.py.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from minitri.base.types import DTYPES
from minitri.language.parser import parse_module
from minitri.program import Program
from minitri.testing.data import random_array
from minitri.testing.values import Axis, Value

T = TypeVar("T")
SIZES = (3, 1, 2, 7, 0, 17, 33, 130)
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i32", "i64", "i8", "u8", "i16", "u16", "u32", "u64")
MAX_ELEMENTS = 20_000
NAMES = ("N", "M", "K", "D")
PARAMETERS = "xywzabcdefgh"
HELPERS = {
    "scaled": "def scaled(a, by=2):\n    return a * by\n",
    "centred": "def centred(a):\n    return a - mean(a, axis=-1, keepdims=True)\n",
    "rowwise": "def rowwise(a: f32[*B, L]):\n    return sum(a, axis=-1) / (L + 1)\n",
}


class DoesNotApply(Exception):
    """A kind of statement cannot be written: no value fits, or the result would be too large."""


def required(value: T | None) -> T:
    """The value itself. DoesNotApply if it is None."""
    if value is None:
        raise DoesNotApply
    return value


def require(held: bool) -> None:
    if not held:
        raise DoesNotApply


class Choices(Protocol):
    """A function that chooses one of the options. The first option is the simplest; shrinking prefers it."""

    def __call__(self, options: Sequence[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a program; its elements are drawn from the range `low` to `high`."""

    name: str
    type: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """The text of a module and one choice of sizes. The program is the module's last function, `program`."""

    text: str
    parameters: tuple[Parameter, ...]
    sizes: dict[str, int]

    def __repr__(self) -> str:
        return f"{self.text}# {', '.join(f'{n} = {s}' for n, s in self.sizes.items())}"

    def compile(self, **options: Any) -> Program:
        return Program(parse_module(self.text, "<random>"), **options)

    def arguments(self, seed: int = 0) -> list[Any]:
        """Random arrays and numbers for the parameters, in any memory layout; some contain special values."""
        rng = np.random.default_rng(seed)
        return [random_array(p.type, self.sizes, rng, p.low, p.high) for p in self.parameters]


@dataclass
class Writer:
    """A program while it is written: its values, statements, parameters and sizes."""

    choose: Choices
    values: list[Value] = field(default_factory=list)
    statements: dict[str, str] = field(default_factory=dict)  # the text of each value, by name
    parameters: list[Parameter] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    # ---- what there is to write about ------------------------------------------------

    def chance(self, odds: int) -> bool:
        """True once in `odds` times, and never in a shrunk program."""
        return self.choose(range(odds)) == odds - 1

    def axes(self, rank: int | None = None) -> tuple[Axis, ...]:
        axes: list[Axis] = []
        for _ in range(self.choose((1, 2, 2, 3, 0)) if rank is None else rank):
            axes.append(self.axis(MAX_ELEMENTS // max(1, math.prod(a.size for a in axes))))
        return tuple(axes)

    def axis(self, room: int = MAX_ELEMENTS) -> Axis:
        fitting = [n for n, s in self.sizes.items() if s <= room]
        new = [n for n in NAMES if n not in self.sizes][:1]
        form = self.choose(("name", "name", "name", "known", "more"))
        if form == "known" or not (fitting or new):
            size = self.choose([s for s in SIZES if s <= min(room, 33)])
            return Axis(str(size), size)
        name = self.choose([*new, *fitting, *new])
        if name not in self.sizes:
            self.sizes[name] = self.choose([s for s in SIZES if s <= room])
        size = self.sizes[name]
        alone = any(a.text == name for v in self.values for a in v.axes)
        if form == "more" and 2 * size + 1 <= room and alone:
            return self.choose((Axis(f"{name} + 1", size + 1), Axis(f"2 * {name}", 2 * size)))
        return Axis(name, size)

    def array(self, dtype: str, axes: tuple[Axis, ...], low: float = -4, high: float = 4) -> Value:
        """A new parameter."""
        count = len(self.parameters)
        name = PARAMETERS[count] if count < len(PARAMETERS) else f"p{count}"
        axes = tuple(a if a.text else Axis(str(a.size), a.size) for a in axes)
        self.parameters.append(Parameter(name, f"{dtype}[{', '.join(a.text for a in axes)}]", low, high))
        value = Value(name, dtype, axes, True, 2.0 ** DTYPES[dtype].bits if DTYPES[dtype].is_integer else 4.0)
        self.values.append(value)
        return value

    def pick(self, suits: Callable[[Value], bool] = lambda v: True) -> Value:
        """A value for which `suits` is true. DoesNotApply if there is none."""
        return required(self.find(suits))

    def find(self, suits: Callable[[Value], bool]) -> Value | None:
        found = [v for v in reversed(self.values) if suits(v)]
        return self.choose([*found[:1], *found[:1], *found[:3], *found]) if found else None

    def add(self, text: str, dtype: str, axes: Sequence[Axis], exact: bool, reach: float) -> Value:
        """Adds a statement and returns its value. DoesNotApply if its result is too large."""
        require(math.prod(max(1, a.size) for a in axes) <= MAX_ELEMENTS and len(axes) <= 5)
        if DTYPES[dtype].is_float and not exact and reach < 1e-3:
            reach = 1e-3
        limit = 2.0 ** DTYPES[dtype].bits if DTYPES[dtype].is_integer else reach
        value = Value(
            f"v{len(self.statements) + 1}", dtype, tuple(axes), exact or not DTYPES[dtype].is_float, min(reach, limit)
        )
        self.statements[value.name] = text
        self.values.append(value)
        return value

    def size(self, v: Value, k: int) -> str:
        return v.axes[k].text or f"{v.name}.shape[{k}]"

    def fits(self, reach: float, dtype: str) -> bool:
        return not DTYPES[dtype].is_float or reach <= (2e4 if dtype == "f16" else 1e12)

    # ---- the whole text --------------------------------------------------------------

    def finished(self) -> RandomProgram:
        made = [v for v in self.values if v.name in self.statements] or self.values[:1]
        read = {w for text in self.statements.values() for w in words(text)}
        ends = [v for v in made if v.name not in read]  # no statement uses these
        more = [self.choose([*ends[::-1], *made]).name for _ in range(self.choose((0, 0, 1, 2)))]
        outputs = list(dict.fromkeys([made[-1].name, *more]))
        kept = self._needed(outputs)
        used = {w for text in kept.values() for w in words(text)} | set(outputs)
        body = [f"{name} = {text}" for name, text in self._inlined(kept, outputs).items()]
        body += [f"return {', '.join(outputs)}"]
        parameters = self._taken(used)
        listed = ", ".join(f"{p.name}: {p.type}" for p in parameters)
        sizes = {n: s for n, s in self.sizes.items() if any(n in words(p.type) for p in parameters)}
        text = "".join(f"{text}\n\n" for name, text in HELPERS.items() if name in used)
        text += f"def program({listed}):\n" + "".join(f"    {line}\n" for line in body)
        return RandomProgram(text, tuple(parameters), sizes)

    def _taken(self, used: set[str]) -> list[Parameter]:
        """The parameters that the body uses, and parameters whose type names a dimension that the body uses."""
        taken = [p for p in self.parameters if p.name in used]
        for p in self.parameters:
            missing = (used & self.sizes.keys()).difference(*(words(q.type) for q in taken))
            if p not in taken and missing.intersection(words(p.type)):
                taken.append(p)
        return sorted(taken, key=lambda p: p.type == "float")

    def _needed(self, outputs: Sequence[str]) -> dict[str, str]:
        used = set(outputs)
        for name, text in reversed(self.statements.items()):
            used.update(words(text) if name in used else ())
        return {name: text for name, text in self.statements.items() if name in used}

    def _inlined(self, kept: dict[str, str], outputs: Sequence[str]) -> dict[str, str]:
        """The statements of the body. Some statements that are used once move into the statement that uses them."""
        lines = dict(kept)
        for name in kept:
            readers = [n for n, text in lines.items() if name in words(text)]
            once = len(readers) == 1 and words(lines[readers[0]]).count(name) == 1
            if once and name not in outputs and self.chance(3):
                text = f"({lines.pop(name)})"
                lines[readers[0]] = re.sub(rf"\b{name}\b", lambda _, text=text: text, lines[readers[0]])
        return lines


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", text)
