"""Random programs of everyday sizes for the benchmark, and smaller programs cut out of them.

In: a seed, a dtype and a range of sizes. Out: a `RandomProgram`: its text, its arrays and its operations. As a
`Case` it has the torch function of the same text (torch_twin.py), so it is measured like any other case.

    def program(x1: bf16[8192, 4096], row2: bf16[4096]):
        v1 = layer_norm(x1, row2)
        v2 = gelu(v1)
        return v2

The table random_programs.toml has the forms of statements. The writer draws a form, an operand and new arrays. It
runs the statement on torch's meta device, which knows shapes without data. A statement stays if it runs and if no
array is too large.

Left out: small programs of all kinds with awkward values, which `minitri fuzz` draws (minitri/testing).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, permutations
from pathlib import Path
from random import Random
from typing import Any

from minitri.base.types import DTYPES
from minitri.bench.case import Case, Input, torch
from minitri.bench.torch_twin import torch_twin

TABLE = tomllib.loads(Path(__file__).with_name("random_programs.toml").read_text(encoding="utf-8"))
KINDS, LARGEST, FLOPS, EVERYDAY = (TABLE[name] for name in ("kinds", "largest", "flops", "everyday"))
Sizes = Mapping[str, Any]
Shape = tuple[int, ...]
GROWTH = ("forms", "squares", "cubes", "totals")
VIEWS = ("transpose", "slice")
TRIES = 200  # statements that are tried for one program
ARRAYS = 8  # most parameters of a program
NORMAL = math.log(6)  # log of the largest of many normally distributed numbers
FEW, MANY = 4 << 20, 32 << 20  # elements that divide the classes of sizes
NO_FIT = (LookupError, RuntimeError, TypeError, ValueError)  # a form does not fit its operand, or an array is too large


@dataclass(frozen=True, slots=True)
class Statement:
    """`name = text`, its kind in the table, and the shape of its result."""

    name: str
    text: str
    kind: str
    shape: tuple[int, ...]

    @property
    def reads(self) -> set[str]:
        return set(re.findall(r"\b[a-z]+\d+\b(?!\()", self.text))


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """Parameters, statements, and the names of the results."""

    name: str
    dtype: str
    arrays: Mapping[str, Input]
    statements: Sequence[Statement]
    results: Sequence[str]

    @property
    def text(self) -> str:
        types = ", ".join(f"{n}: {i.dtype}[{', '.join(map(str, i.shape))}]" for n, i in self.arrays.items())
        body = "".join(f"    {s.name} = {s.text}\n" for s in self.statements)
        return f"def program({types}):\n{body}    return {', '.join(self.results)}\n"

    @property
    def classes(self) -> tuple[str, ...]:
        """The kinds of its structured statements, and classes of its sizes, layouts and results."""
        kinds = sorted({s.kind for s in self.statements} - {"elementwise"}) or ["elementwise"]
        elements = max(math.prod(i.shape) for i in self.arrays.values())
        marks = {
            "up to 4M" if elements <= FEW else "up to 32M" if elements <= MANY else "over 32M": True,
            "odd sizes": any(i.shape[-1] % 8 for n, i in self.arrays.items() if n[0] in "xy"),
            "strided": any(i.layout for i in self.arrays.values()),
            "several results": len(self.results) > 1,
        }
        return (*kinds, *(word for word, held in marks.items() if held))

    def case(self) -> Case:
        twin, inputs = torch_twin(self.text), tuple(self.arrays.values())
        return Case(self.name, self.text, inputs, twin, flops=_flops(twin, inputs), kind=", ".join(self.classes))

    def parts(self, length: int) -> Iterator[RandomProgram]:
        """The parts of `length` neighbouring statements. Values from before a part become its parameters."""
        shapes = {s.name: Input(self.dtype, s.shape) for s in self.statements} | dict(self.arrays)
        for start in range(len(self.statements) - length + 1):
            part = self.statements[start : start + length]
            read, made = _read(part), {s.name for s in part}
            ends = [s.name for s in part if s.name not in read or s.name in self.results]
            arrays = {n: i for n, i in shapes.items() if n in read - made}
            yield RandomProgram(f"{self.name} [{start}:{start + length}]", self.dtype, arrays, part, ends)


def draw(seed: str, dtype: str, sizes: Sizes = EVERYDAY) -> RandomProgram:
    """The program of a seed. The same seed gives the same program."""
    rng = Random(seed)
    return next(found for _ in count() if (found := _Writer(rng, dtype, sizes).program(f"{dtype} {seed}")) is not None)


def _read(statements: Sequence[Statement]) -> set[str]:
    return set[str]().union(*(s.reads for s in statements))


def _flops(twin: Callable[..., Any], inputs: Sequence[Input]) -> int:
    """The floating-point operations of the program's products."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        twin(*map(_meta, inputs))
    return int(counter.get_total_flops())


def _meta(given: Input) -> Any:
    """A tensor without data."""
    dtype = "bool" if given.below else DTYPES[given.dtype].triton
    return torch.empty(given.shape, dtype=getattr(torch, dtype), device="meta")


# ---- writing -----------------------------------------------------------------------------------


@dataclass
class _Writer:
    """A program while it is written.

    values   a meta tensor for each value
    logs     the logarithm of the largest element of each value, about
    """

    rng: Random
    dtype: str
    sizes: Sizes
    arrays: dict[str, Input] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, float] = field(default_factory=dict)

    def program(self, name: str) -> RandomProgram | None:
        """The program of the last three ends and what they need. None if few statements fit or products are long."""
        self.array("x", self.shape())
        wanted = self.rng.randint(2, 7)
        for _ in range(TRIES):
            if len(self.statements) < wanted:
                self.attempt(
                    self.rng.choices(list(KINDS), [row["weight"] for row in KINDS.values()])[0], self.operand()
                )
        for end in self.ends():
            if end.kind in VIEWS:  # torch would return a view, which costs nothing
                self.attempt("elementwise", end.name, "{x} * 2")
        results = [s.name for s in self.ends()][-3:]
        needed = set(results)
        for s in reversed(self.statements):
            needed |= s.reads if s.name in needed else set()
        kept = [s for s in self.statements if s.name in needed]
        arrays = {n: i for n, i in self.arrays.items() if n in needed}
        found = RandomProgram(name, self.dtype, arrays, kept, results)
        return found if len(self.statements) >= wanted and found.case().flops <= FLOPS[self.dtype] else None

    def shape(self) -> tuple[int, ...]:
        """A shape of 1 to 4 axes."""
        rng, sizes = self.rng, self.sizes
        room = int(math.exp(rng.uniform(math.log(sizes["least"]), math.log(sizes["most"]))))
        inner: list[int] = []
        for axis in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 3))):
            extents = [n for n in (sizes["inner"] if axis else sizes["last"]) if n * 8 <= room]
            inner.insert(0, rng.choice(extents or [1]))
            room //= inner[0]
        return (rng.choice((room, room // 10 * 10 or room, *[1 << room.bit_length() - 1] * 3)), *inner)

    def operand(self) -> str:
        """A value for the next statement: most often the newest one, and seldom one that is small."""
        whole = [n for n, v in self.values.items() if n[0] in "vxy" and v.dim() > 0]
        large = [n for n in whole if self.values[n].numel() * 16 >= self.values["x1"].numel()]
        return self.rng.choice([*whole[-1:], *large[-1:] * 8, *large])

    def array(self, role: str, shape: Sequence[int], depth: int = 1) -> str:
        """A new parameter. A factor of a product of `depth` has elements of about depth**-0.5."""
        if len(self.arrays) >= ARRAYS or math.prod(shape) > 2 * self.sizes["most"]:
            raise ValueError(f"no {role} of the shape {shape}")
        name = f"{role}{len(self.arrays) + 1}"
        layouts = (*[""] * 12, "transposed", "wide rows", "every other")
        layout = self.rng.choice(layouts) if len(shape) > 1 and role in "xy" else ""
        dtype, below = ("bool", 2) if role == "mask" else (self.dtype, 0)
        self.arrays[name] = Input(dtype, tuple(shape), below, layout=layout, scale=depth**-0.5)
        self.values[name], self.logs[name] = _meta(self.arrays[name]), NORMAL
        return name

    def attempt(self, kind: str, operand: str, form: str = "") -> None:
        """Adds a statement if it fits, else forgets the arrays that were made for it."""
        before = set(self.arrays)
        forms = [(growth, f) for growth in GROWTH for f in KINDS[kind].get(growth, ())]
        growth, chosen = ("forms", form) if form else self.rng.choice(forms)
        try:
            self.add(kind, chosen.format_map(_Blanks(self, operand)), growth)
        except NO_FIT:
            for name in self.arrays.keys() - before:
                del self.arrays[name], self.values[name], self.logs[name]

    def add(self, kind: str, text: str, growth: str) -> None:
        name = f"v{len(self.statements) + 1}"
        read = sorted(Statement(name, text, kind, ()).reads)
        operands = [self.values[n] for n in read]
        value = torch_twin(f"def f({', '.join(read)}):\n    return {text}\n")(*operands)
        largest = max(self.logs[n] for n in read if self.values[n].is_floating_point())
        if growth == "totals":  # of many elements of about 1
            largest += math.log(max(operands[0].numel() / value.numel(), *operands[0].shape)) - 1
        largest *= {"squares": 2, "cubes": 3}.get(growth, 1)
        if (
            largest > math.log(LARGEST[self.dtype])
            or not 0 < value.numel() <= 2 * self.sizes["most"]
            or value.dim() > 5
        ):
            raise ValueError(f"{text} is too large")
        self.statements.append(Statement(name, text, kind, tuple(value.shape)))
        self.values[name], self.logs[name] = value, largest

    def ends(self) -> list[Statement]:
        """The statements that no other statement reads."""
        read = _read(self.statements)
        return [s for s in self.statements if s.name not in read]


# ---- the placeholders of forms -----------------------------------------------------------------


class _Blanks(dict[str, Any]):
    """The values of a form's placeholders, made when they are first asked for."""

    def __init__(self, writer: _Writer, x: str) -> None:
        super().__init__(x=x)
        self.writer, self.choose, self.sample = writer, writer.rng.choice, writer.rng.sample

    def __missing__(self, key: str) -> Any:
        of = tuple(self.writer.values[self["x"]].shape)
        if key in VALUES:
            self[key] = VALUES[key](self, of)
        elif key == "y" and (alike := self.alike(of)) and self.choose((True, True, False)):
            self[key] = self.choose(alike)
        else:
            shape = SHAPES[key](self, of)
            self[key] = self.writer.array(key, shape, shape[DEPTHS[key]] if key in DEPTHS else 1)
        return self[key]

    def alike(self, of: Shape) -> list[str]:
        """Other values of the shape of {x}."""
        values = self.writer.values.items()
        return [n for n, v in values if tuple(v.shape) == of and n != self["x"] and n[0] in "vxy"]

    def scores(self, of: Shape) -> Shape:
        """The shape of keys for {x}, if the matrix of scores is not too large."""
        if of[-1] > 256 or math.prod(of[:-1]) * of[-2] > 2 * self.writer.sizes["most"]:
            raise ValueError("too many scores")
        return of

    def groups(self, of: Shape) -> Shape:
        groups = self.choose([n for n in (2, 8, 32) if of[2:] and of[1] % n == 0])
        return (of[0], groups, math.prod(of[1:]) // groups)


SHAPES: dict[str, Callable[[_Blanks, Shape], Shape]] = {
    "y": lambda b, of: of, "mask": lambda b, of: of, "keys": _Blanks.scores,
    "row": lambda b, of: of[-1:], "shift": lambda b, of: of[-1:], "column": lambda b, of: (*of[:-1], 1),
    "channel": lambda b, of: (of[1], *[1] * (len(of) - 2)), "b": lambda b, of: (b["columns"],),
    "w": lambda b, of: (of[-1], b["columns"]), "wt": lambda b, of: (b["columns"], of[-1]),
    "batch": lambda b, of: (*of[:-2], of[-1], b["columns"]), "conv": lambda b, of: (b["columns"], of[1]),
}  # fmt: skip
"""The shapes of new arrays."""
DEPTHS = {"w": -2, "batch": -2, "wt": -1, "conv": -1}
"""The axes over which products sum."""
VALUES: dict[str, Callable[[_Blanks, Shape], Any]] = {
    "columns": lambda b, of: b.choose(b.writer.sizes["widths"]), "scale": lambda b, of: f"{of[-1] ** -0.5:.4g}",
    "axis": lambda b, of: b.choose(range(-len(of), len(of))),
    "axes": lambda b, of: tuple(sorted(b.sample(range(len(of)), b.choose(range(2, len(of) + 1))))),
    "others": lambda b, of: (0, *range(2, len(of))), "n": lambda b, of: of[-1], "half": lambda b, of: of[-1] // 2,
    "shape": lambda b, of: of, "groups": _Blanks.groups, "pixels": lambda b, of: (of[0], of[1], of[2] * math.prod(of[3:])),
    "order": lambda b, of: b.choose([p for p in permutations(range(len(of))) if list(p) != sorted(p)]),
    "pads": lambda b, of: (*(b.choose(((0, 0), (0, 0), (1, 1), (0, 3))) for _ in of[1:]), b.choose(((1, 1), (1, 0), (0, 3), (8, 8)))),
    "first": lambda b, of: (*[(0, 0)] * (len(of) - 1), (1, 0)),
}  # fmt: skip
"""Numbers and shapes."""
