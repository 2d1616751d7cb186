"""Random programs of everyday sizes for the benchmark, and smaller programs cut out of them.

In: a seed, a dtype and a range of sizes. Out: a `RandomProgram`: its text, its arrays and its operations. As a
`Case` it has the torch function of the same text (torch_twin.py), so it is measured like any other case.

    def program(x1: bf16[8192, 4096], row2: bf16[4096]):
        v1 = layer_norm(x1, row2)
        v2 = gelu(v1)
        return v2

The table random_programs.toml has the forms of statements. The writer draws a form, an operand and new arrays. It
runs the statement on torch's meta device, which knows shapes without data. A statement stays if it runs and if its
result is not too large.

Left out: small programs of all kinds with awkward values, which `minitri fuzz` draws (minitri/testing).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from minitri.base.types import DTYPES
from minitri.bench.case import Case, Input, torch
from minitri.bench.torch_twin import torch_twin

TABLE = tomllib.loads(Path(__file__).with_name("random_programs.toml").read_text(encoding="utf-8"))
GROWTH = ("forms", "squares", "cubes", "totals")
VIEWS = ("transpose", "slice")
TRIES = 200  # statements that are tried for one program
ARRAYS = 8  # most parameters of a program
NORMAL = math.log(6)  # log of the largest of many normally distributed numbers
LARGEST = {"f16": math.log(3e4), "bf16": math.log(1e12), "f32": math.log(1e12)}
FLOPS = {"f32": 8e10, "f16": 1e12, "bf16": 1e12}  # about 2 ms on an H200
FEW, MANY = 4 << 20, 32 << 20  # elements that divide the classes of sizes


@dataclass(frozen=True, slots=True)
class Sizes:
    """The range of sizes: elements of the main array, and the extents of its last axis and of inner axes."""

    least: int
    most: int
    last: Sequence[int]
    inner: Sequence[int]
    widths: Sequence[int]  # columns of weights


EVERYDAY = Sizes(
    1 << 20, 1 << 27,
    (64, 128, 256, 512, 768, 1024, 1024, 2048, 2048, 4096, 4096, 5120, 8192, 16384, 100, 200, 777, 1000, 1023, 1500, 2050, 3000, 4090, 4095, 4100, 11008, 50257),
    (3, 8, 12, 16, 32, 32, 64, 64, 100, 128, 197, 256, 512, 1000, 1024, 2048),
    (16, 64, 128, 256, 512, 1000, 1024, 2048, 3000, 4096, 8192),
)  # fmt: skip


class DoesNotFit(Exception):
    """A form does not fit its operand, or the result would be too large."""


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
    """Statements and parameters. `whole` names the values that are results even if other statements read them."""

    name: str
    dtype: str
    arrays: Mapping[str, Input]
    statements: Sequence[Statement]
    results: Sequence[str]

    @property
    def text(self) -> str:
        types = [f"{n}: {i.dtype}[{', '.join(map(str, i.shape))}]" for n, i in self.arrays.items()]
        body = [f"{s.name} = {s.text}" for s in self.statements] + [f"return {', '.join(self.results)}"]
        return f"def program({', '.join(types)}):\n" + "".join(f"    {line}\n" for line in body)

    @property
    def classes(self) -> tuple[str, ...]:
        """The kinds of its structured statements, and words for its sizes, layouts and results."""
        kinds = sorted({s.kind for s in self.statements} - {"elementwise"}) or ["elementwise"]
        elements = max(math.prod(i.shape) for i in self.arrays.values())
        size = "up to 4M" if elements <= FEW else "up to 32M" if elements <= MANY else "over 32M"
        odd = any(i.shape[-1] % 8 for n, i in self.arrays.items() if n[0] in "xy")
        marks = {
            "odd sizes": odd,
            "strided": any(i.layout for i in self.arrays.values()),
            "several results": len(self.results) > 1,
        }
        return (*kinds, size, *(word for word, held in marks.items() if held))

    def case(self) -> Case:
        twin, inputs = torch_twin(self.text), tuple(self.arrays.values())
        return Case(self.name, self.text, inputs, twin, flops=_flops(twin, inputs), kind=", ".join(self.classes))

    def parts(self, length: int) -> Iterator[RandomProgram]:
        """The parts of `length` neighbouring statements. Values from before a part become its parameters."""
        shapes = {s.name: Input(self.dtype, s.shape) for s in self.statements} | dict(self.arrays)
        for start in range(len(self.statements) - length + 1):
            part = self.statements[start : start + length]
            read = set().union(*(s.reads for s in part))
            ends = [s.name for s in part if s.name not in read or s.name in self.results]
            made = {s.name for s in part}
            arrays = {n: i for n, i in shapes.items() if n in read - made}
            yield RandomProgram(f"{self.name} [{start}:{start + length}]", self.dtype, arrays, part, ends)


def draw(seed: str, dtype: str, sizes: Sizes = EVERYDAY) -> RandomProgram:
    """The program of a seed. The same seed gives the same program."""
    rng = Random(seed)
    return next(found for _ in count() if (found := _Writer(rng, dtype, sizes).program(f"{dtype} {seed}")) is not None)


def _flops(twin: Callable[..., Any], inputs: Sequence[Input]) -> int:
    """The floating-point operations of the program's products."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        twin(*map(_meta, inputs))
    return int(counter.get_total_flops())


def _meta(given: Input) -> Any:
    """A tensor without data."""
    return torch.empty(
        given.shape, dtype=getattr(torch, "bool" if given.below else DTYPES[given.dtype].triton), device="meta"
    )


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
        """The whole program. None if too few statements fit."""
        self.array("x", self.shape())
        wanted = self.rng.randint(2, 7)
        for _ in range(TRIES):
            if len(self.statements) < wanted:
                kind = self.rng.choices(list(TABLE), [row["weight"] for row in TABLE.values()])[0]
                self.attempt(kind, self.operand())
        ends = self.ends()
        for end in [s for s in ends if s.kind in VIEWS]:  # torch would return a view, which costs nothing
            self.attempt("elementwise", end.name, "{x} * 2", "forms")
        return self.finished(name) if len(self.statements) >= wanted else None

    def shape(self) -> tuple[int, ...]:
        """A shape of 1 to 4 axes."""
        rng, sizes = self.rng, self.sizes
        room = int(math.exp(rng.uniform(math.log(sizes.least), math.log(sizes.most))))
        rank = rng.choice((1, 2, 2, 2, 2, 3, 3, 3, 4, 4))
        if rank == 1:
            return (rng.choice((room, 1 << room.bit_length() - 1, room // 1000 * 1000 or room)),)
        inner = [rng.choice([n for n in sizes.last if n * 8 <= room])]
        room //= inner[0]
        for _ in range(rank - 2):
            inner.insert(0, rng.choice([n for n in sizes.inner if n * 2 <= room] or [1]))
            room //= inner[0]
        round_numbers = (room, room // 10 * 10 or room, *[1 << room.bit_length() - 1] * 3)
        return (rng.choice(round_numbers), *inner)

    def operand(self) -> str:
        """A value for the next statement: most often the newest one, and seldom one that is small."""
        whole = [n for n, v in self.values.items() if n[0] in "vxy" and v.dim() > 0]
        large = [n for n in whole if self.values[n].numel() * 16 >= self.values["x1"].numel()]
        return self.rng.choice([*whole[-1:], *large[-1:] * 8, *large])

    def array(self, role: str, shape: Sequence[int], depth: int = 0) -> str:
        """A new parameter. A factor of a product of `depth` has elements of about depth**-0.5."""
        if len(self.arrays) >= ARRAYS:
            raise DoesNotFit
        name = f"{role}{len(self.arrays) + 1}"
        below = 2 if role == "mask" else 0
        layouts = (*[""] * 12, "transposed", "wide rows", "every other")
        layout = self.rng.choice(layouts) if len(shape) > 1 and role in "xy" else ""
        given = Input(
            "bool" if below else self.dtype, tuple(shape), below, layout=layout, scale=depth**-0.5 if depth else 1.0
        )
        self.arrays[name], self.values[name], self.logs[name] = given, _meta(given), NORMAL
        return name

    def attempt(self, kind: str, operand: str, form: str = "", growth: str = "") -> None:
        """Adds a statement if it fits, else forgets the arrays that were made for it."""
        before = dict(self.arrays)
        if not form:
            growth = self.rng.choices(*zip(*((g, len(TABLE[kind][g])) for g in GROWTH if g in TABLE[kind])))[0]
            form = self.rng.choice(TABLE[kind][growth])
        try:
            self.add(kind, form.format_map(_Blanks(self, operand)), growth)
        except (DoesNotFit, RuntimeError, IndexError, TypeError, ValueError):
            for name in self.arrays.keys() - before.keys():
                del self.arrays[name], self.values[name], self.logs[name]

    def add(self, kind: str, text: str, growth: str) -> None:
        made = Statement(f"v{len(self.statements) + 1}", text, kind, ())
        read = sorted(made.reads)
        header = f"def f({', '.join(read)}):\n    return {text}\n"
        twin, operands = torch_twin(header), [self.values[n] for n in read]
        value = twin(*operands)
        largest = max(self.logs[n] for n in read if self.values[n].is_floating_point())
        if growth == "totals":  # of many elements of about 1
            largest += math.log(max(operands[0].numel() / value.numel(), *operands[0].shape)) - 1
        largest *= {"squares": 2, "cubes": 3}.get(growth, 1)
        if largest > LARGEST[self.dtype] or not 0 < value.numel() <= 2 * self.sizes.most or value.dim() > 5:
            raise DoesNotFit
        self.statements.append(Statement(made.name, text, kind, tuple(value.shape)))
        self.values[made.name], self.logs[made.name] = value, largest

    def ends(self) -> list[Statement]:
        """The statements that no other statement reads."""
        read = set[str]().union(*(s.reads for s in self.statements))
        return [s for s in self.statements if s.name not in read]

    def finished(self, name: str) -> RandomProgram | None:
        """The program of the last three ends and what they need, if its products are not too long."""
        results = [s.name for s in self.ends()][-3:]
        needed, kept = set(results), list[Statement]()
        for s in reversed(self.statements):
            if s.name in needed:
                kept.insert(0, s)
                needed |= s.reads
        arrays = {n: i for n, i in self.arrays.items() if n in needed}
        found = RandomProgram(name, self.dtype, arrays, kept, results)
        return found if found.case().flops <= FLOPS[self.dtype] else None


class _Blanks(dict[str, Any]):
    """The texts of a form's placeholders, made when they are first asked for."""

    def __init__(self, writer: _Writer, x: str) -> None:
        super().__init__(x=x)
        self.writer, self.choose = writer, writer.rng.choice
        self.of: tuple[int, ...] = tuple(writer.values[x].shape)

    def __missing__(self, key: str) -> Any:
        made = getattr(self, f"_{key}")()
        self[key] = made
        return made

    def require(self, held: bool) -> None:
        if not held:
            raise DoesNotFit

    # ---- arrays: names of new parameters

    def _y(self) -> str:
        alike = [
            n for n, v in self.writer.values.items() if tuple(v.shape) == self.of and n != self["x"] and n[0] in "vxy"
        ]
        return self.choose([*alike, *alike, ""]) or self.writer.array("y", self.of)

    def _row(self) -> str:
        return self.writer.array("row", self.of[-1:])

    _shift = _row

    def _column(self) -> str:
        return self.writer.array("column", (*self.of[:-1], 1))

    def _channel(self) -> str:
        self.require(len(self.of) > 2)
        return self.writer.array("channel", (self.of[1], *[1] * (len(self.of) - 2)))

    def _mask(self) -> str:
        return self.writer.array("mask", self.of)

    def _columns(self) -> int:
        return self.choose(self.writer.sizes.widths)

    def _w(self) -> str:
        return self.writer.array("w", (self.of[-1], self["columns"]), self.of[-1])

    def _wt(self) -> str:
        return self.writer.array("w", (self["columns"], self.of[-1]), self.of[-1])

    def _b(self) -> str:
        return self.writer.array("b", (self["columns"],))

    def _batch(self) -> str:
        self.require(len(self.of) > 2)
        return self.writer.array("w", (*self.of[:-2], self.of[-1], self["columns"]), self.of[-1])

    def _conv(self) -> str:
        return self.writer.array("w", (self["columns"], self.of[1]), self.of[1])

    def _keys(self) -> str:
        self.require(
            len(self.of) > 2
            and self.of[-1] <= 256
            and math.prod(self.of[:-1]) * self.of[-2] <= 2 * self.writer.sizes.most
        )
        return self.writer.array("k", self.of)

    # ---- numbers

    def _scale(self) -> str:
        return f"{self.of[-1] ** -0.5:.4g}"

    def _axis(self) -> int:
        axis = self.choose(range(len(self.of)))
        return self.choose((axis, axis - len(self.of)))

    def _axes(self) -> tuple[int, ...]:
        self.require(len(self.of) > 1)
        return tuple(sorted(self.writer.rng.sample(range(len(self.of)), self.choose(range(2, len(self.of) + 1)))))

    def _others(self) -> tuple[int, ...]:
        self.require(len(self.of) > 1)
        return tuple(k for k in range(len(self.of)) if k != 1)

    def _n(self) -> int:
        return self.of[-1]

    def _half(self) -> int:
        return self.of[-1] // 2

    def _shape(self) -> tuple[int, ...]:
        return self.of

    def _order(self) -> tuple[int, ...]:
        order = tuple(self.writer.rng.sample(range(len(self.of)), len(self.of)))
        self.require(list(order) != sorted(order))
        return order

    def _pixels(self) -> tuple[int, ...]:
        self.require(len(self.of) > 3)
        return (*self.of[:2], math.prod(self.of[2:]))

    def _groups(self) -> tuple[int, ...]:
        groups = self.choose((2, 8, 32))
        self.require(len(self.of) > 2 and self.of[1] % groups == 0)
        return (*self.of[:1], groups, math.prod(self.of[1:]) // groups)

    def _pads(self) -> tuple[tuple[int, int], ...]:
        return tuple(self.choose(((0, 0), (0, 0), (1, 1), (0, 3))) for _ in self.of[1:]) + (
            self.choose(((1, 1), (1, 0), (0, 3), (8, 8))),
        )

    def _first(self) -> tuple[tuple[int, int], ...]:
        return (*[(0, 0)] * (len(self.of) - 1), (1, 0))
