"""Random programs of everyday sizes for the benchmark, and smaller programs cut out of them.

The function `draw` takes a seed, a dtype and a range of sizes. The result is a `RandomProgram`: the text of a program,
with the shapes and layouts of its arrays. The method `case` of a `RandomProgram` makes a `Case`, so that a random
program is measured like any other case. The module torch_twin.py makes the torch function of the `Case` from the text
of the program.

    def program(x1: bf16[8192, 4096], row2: bf16[4096]):
        v1 = layer_norm(x1, row2)
        v2 = gelu(v1)
        return v2

The file random_programs.toml lists statements with placeholders, such as `gelu({x})`. The class `EverydayWriter`
chooses statements at random, and replaces placeholders such as {x} by names of values
(minitri/testing/statement_writer.py). `EverydayWriter` runs each statement on torch's meta device, whose tensors have a
shape but no data. A statement is dropped if torch raises an error or if an array is too large.

The package minitri/testing makes the small random programs with awkward values that the command `minitri fuzz` checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, permutations
from random import Random
from typing import Any, NamedTuple

from minitri.base.toml_tables import table_beside
from minitri.bench.cases import Case, Input
from minitri.bench.measure_case import tensor
from minitri.bench.torch_twin import torch_twin
from minitri.testing.statement_writer import DoesNotFit, Filled, Statement, StatementWriter, names_read, refuse_if

TABLE = table_beside(__file__, "random_programs.toml")
LARGEST, FLOPS, EVERYDAY = (TABLE[name] for name in ("largest", "flops", "everyday"))
Sizes = Mapping[str, Any]
Shape = tuple[int, ...]
VIEWS = ("transpose", "slice")
TRIES = 200  # statements that are tried for one program
ARRAYS = 8  # most parameters of a program
NORMAL = math.log(6)  # log of the largest of many normally distributed numbers
FEW, MANY = 4 << 20, 32 << 20  # the numbers of elements that separate the classes of sizes


class RandomProgram(NamedTuple):
    """A random program: its parameters, its statements, and the names of the results."""

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
        """The names of the classes that the program belongs to, such as "odd sizes", "strided" or "several results"."""
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
        """Yields all parts of the program: each part has `length` consecutive statements.

        A value that the part reads, but does not compute, becomes a parameter of the part.
        """
        shapes = {s.name: Input(self.dtype, s.shape) for s in self.statements} | dict(self.arrays)
        for start in range(len(self.statements) - length + 1):
            part = self.statements[start : start + length]
            read, made = names_read(part), {s.name for s in part}
            ends = [s.name for s in part if s.name not in read or s.name in self.results]
            arrays = {n: i for n, i in shapes.items() if n in read - made}
            yield RandomProgram(f"{self.name} [{start}:{start + length}]", self.dtype, arrays, part, ends)


def draw(seed: str, dtype: str, sizes: Sizes = EVERYDAY) -> RandomProgram:
    """Returns the random program of a seed. Two calls with the same seed return the same program."""
    rng = Random(seed)
    tried = (EverydayWriter(rng, dtype, sizes).program(f"{dtype} {seed}") for _ in count())
    return next(found for found in tried if found is not None)


def _flops(twin: Callable[..., Any], inputs: Sequence[Input]) -> int:
    """Returns the number of floating-point operations of the program's matrix products."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        twin(*(tensor(i, "meta") for i in inputs))
    return int(counter.get_total_flops())


# ---- writing -----------------------------------------------------------------------------------


class Value(NamedTuple):
    """A torch tensor without data, and the approximate logarithm of the largest element that the tensor would have."""

    meta: Any
    log: float

    @property
    def shape(self) -> Shape:
        return tuple(self.meta.shape)


class EverydayWriter(StatementWriter):
    """Writes a program whose arrays have sizes from the table `sizes`."""

    refusals = (DoesNotFit, LookupError, RuntimeError, TypeError, ValueError)

    def __init__(self, rng: Random, dtype: str, sizes: Sizes) -> None:
        super().__init__(TABLE, rng.choice)
        self.rng, self.dtype, self.sizes = rng, dtype, sizes

    def program(self, name: str) -> RandomProgram | None:
        """Returns a random program with one to three results. The results are variables that no statement of the
        program reads.

        The program has only the statements that its results need. Returns None if too few statements could be added, or
        if the matrix products need too many operations.
        """
        self.array("x", self.first_shape())
        wanted = self.rng.randint(2, 7)
        weights = [row["weight"] for row in self.kinds.values()]
        for _ in range(TRIES):
            if len(self.statements) < wanted:
                self.attempt(self.rng.choices(list(self.kinds), weights)[0], self.operand())
        for end in self.ends():
            if end.kind in VIEWS:  # torch would return a view, which costs nothing
                self.attempt("elementwise", end.name, "{x} * 2")
        results = [s.name for s in self.ends()][-3:]
        kept = self.needed(results)
        arrays = {n: i for n, i in self.arrays.items() if n in names_read(kept)}
        found = RandomProgram(name, self.dtype, arrays, kept, results)
        return found if len(self.statements) >= wanted and found.case().flops <= FLOPS[self.dtype] else None

    def first_shape(self) -> Shape:
        """Returns a random shape of 1 to 4 axes."""
        rng, sizes = self.rng, self.sizes
        room = int(math.exp(rng.uniform(math.log(sizes["least"]), math.log(sizes["most"]))))
        inner: list[int] = []
        for axis in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 3))):
            extents = [n for n in (sizes["inner"] if axis else sizes["last"]) if n * 8 <= room]
            inner.insert(0, rng.choice(extents or [1]))
            room //= inner[0]
        return (rng.choice((room, room // 10 * 10 or room, *[1 << room.bit_length() - 1] * 3)), *inner)

    def operand(self) -> str:
        """Randomly chooses an array for the next statement, and returns its name. The newest large array is the most
        likely choice.
        """
        counts = {n: math.prod(v.shape) for n, v in self.values.items() if n[0] in "vxy" and v.shape}
        large = [n for n, count in counts.items() if count * 16 >= counts["x1"]]
        return self.choose([*list(counts)[-1:], *large[-1:] * 8, *large])

    def array(self, role: str, shape: Shape, depth: int = 1) -> str:
        """Adds a new parameter to the program and returns the name of the parameter.

        For a factor of a matrix product, `depth` is the number of terms in each sum. The elements of the factor are
        about depth**-0.5, so that the sums are about 1.
        """
        refuse_if(len(self.arrays) >= ARRAYS or math.prod(shape) > 2 * self.sizes["most"])
        name = f"{role}{len(self.arrays) + 1}"
        layouts = (*[""] * 12, "transposed", "wide rows", "every other")
        layout = self.choose(layouts) if len(shape) > 1 and role in "xy" else ""
        dtype, below = ("bool", 2) if role == "mask" else (self.dtype, 0)
        self.arrays[name] = Input(dtype, tuple(shape), below, layout=layout, scale=depth**-0.5)
        self.values[name] = Value(tensor(self.arrays[name], "meta"), NORMAL)
        return name

    def value(self, text: str, reads: Sequence[str], group: str) -> Value:
        operands = [self.values[n] for n in reads]
        meta = torch_twin(f"def f({', '.join(reads)}):\n    return {text}\n")(*(v.meta for v in operands))
        log = max(v.log for v in operands if v.meta.is_floating_point())
        if group == "totals":  # a total of many elements that are about 1
            log += math.log(max(operands[0].meta.numel() / meta.numel(), *operands[0].shape)) - 1
        log *= {"squares": 2, "cubes": 3}.get(group, 1)
        refuse_if(log > math.log(LARGEST[self.dtype]))
        refuse_if(not 0 < meta.numel() <= 2 * self.sizes["most"] or meta.dim() > 5)
        return Value(meta, log)

    def placeholder(self, name: str, filled: Filled) -> Any:
        of = self.values[filled["x"]].shape
        if name in VALUES:
            return VALUES[name](self, filled, of)
        alike = [n for n, v in self.values.items() if v.shape == of and n != filled["x"] and n[0] in "vxy"]
        if name == "y" and alike and self.choose((True, True, False)):
            return self.choose(alike)
        shape = SHAPES[name](self, filled, of)
        return self.array(name, shape, shape[DEPTHS[name]] if name in DEPTHS else 1)

    def scores(self, filled: Filled, of: Shape) -> Shape:
        """Returns `of`, the shape of the queries, because the keys of an attention program need the same shape.

        Raises DoesNotFit if the matrix of attention scores would be too large.
        """
        refuse_if(of[-1] > 256 or math.prod(of[:-1]) * of[-2] > 2 * self.sizes["most"])
        return of

    def groups(self, filled: Filled, of: Shape) -> Shape:
        groups = self.choose([n for n in (2, 8, 32) if of[2:] and of[1] % n == 0])
        return (of[0], groups, math.prod(of[1:]) // groups)


# The shapes of new arrays.
SHAPES: dict[str, Callable[[EverydayWriter, Filled, Shape], Shape]] = {
    "y": lambda w, f, of: of, "mask": lambda w, f, of: of, "keys": EverydayWriter.scores,
    "row": lambda w, f, of: of[-1:], "shift": lambda w, f, of: of[-1:], "column": lambda w, f, of: (*of[:-1], 1),
    "channel": lambda w, f, of: (of[1], *[1] * (len(of) - 2)), "b": lambda w, f, of: (f["columns"],),
    "w": lambda w, f, of: (of[-1], f["columns"]), "wt": lambda w, f, of: (f["columns"], of[-1]),
    "batch": lambda w, f, of: (*of[:-2], of[-1], f["columns"]), "conv": lambda w, f, of: (f["columns"], of[1]),
}  # fmt: skip
# The axes over which products sum.
DEPTHS = {"w": -2, "batch": -2, "wt": -1, "conv": -1}
# numbers of zeros (before, after) that padding can add: to the first axes, and to the last axis
PAIRS = ((0, 0), (0, 0), (1, 1), (0, 3)), ((1, 1), (1, 0), (0, 3), (8, 8))
# Numbers and shapes.
VALUES: dict[str, Callable[[EverydayWriter, Filled, Shape], Any]] = {
    "columns": lambda w, f, of: w.choose(w.sizes["widths"]), "scale": lambda w, f, of: f"{of[-1] ** -0.5:.4g}",
    "axis": lambda w, f, of: w.choose(range(-len(of), len(of))),
    "axes": lambda w, f, of: tuple(sorted(w.rng.sample(range(len(of)), w.choose(range(2, len(of) + 1))))),
    "others": lambda w, f, of: (0, *range(2, len(of))), "n": lambda w, f, of: of[-1], "half": lambda w, f, of: of[-1] // 2,
    "shape": lambda w, f, of: of, "groups": EverydayWriter.groups, "pixels": lambda w, f, of: (of[0], of[1], of[2] * math.prod(of[3:])),
    "order": lambda w, f, of: w.choose([p for p in permutations(range(len(of))) if list(p) != sorted(p)]),
    "pads": lambda w, f, of: (*(w.choose(PAIRS[0]) for _ in of[1:]), w.choose(PAIRS[1])),
    "first": lambda w, f, of: (*[(0, 0)] * (len(of) - 1), (1, 0)),
}  # fmt: skip
