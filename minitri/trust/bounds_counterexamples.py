"""Counterexamples: small sizes and an index for which an access leaves its array.

The function `out_of_bounds` takes a masked tile program and one of its accesses. It returns an `Example`, or None if no
trial finds a counterexample. The one idea: the search computes array indices from concrete numbers, because a number
shows at once whether an index is out of bounds.

The search tries small sizes first, then sizes close to multiples of the block sizes. For each combination of sizes, the
search tries the indices at the ends of blocks and axes. If there are few indices, the search tries all of them. If an
index is loaded from an array, the search assumes that this index can be any number.

Even if the search finds no counterexample, an access can leave its array. The file minitri/trust/memory_proofs.py
proves that accesses stay in their arrays.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minitri.base.dims import Dim, Symbol
from minitri.graph.ir import Condition
from minitri.kernels.ir import Load, Store
from minitri.tiles.index_facts import lane_symbol
from minitri.tiles.ir import Access, Program, TileAxis, enclosing

MAX_SIZES = 300  # how many combinations of sizes are tried
MAX_LANES = 1 << 18  # how many elements are tried for one combination of sizes


class Example(NamedTuple):
    """A counterexample: sizes, the index along each axis, the loaded values, and what goes wrong for these numbers."""

    sizes: Mapping[str, int]
    at: Mapping[str, int]
    happens: str

    def __str__(self) -> str:
        given, place = (", ".join(f"{name} = {n}" for name, n in of.items()) for of in (self.sizes, self.at))
        return f"{given}{': ' if given else ''}{place}{' ' if place else ''}{self.happens}"


def out_of_bounds(
    program: Program, op: Access, tests: Sequence[Dim], conditions: Sequence[Condition] = (), tries: int = MAX_SIZES
) -> Example | None:
    """Returns an `Example`: sizes and indices for which all `tests` are true, but `op` accesses a place outside of its
    array. Returns None if the search finds no counterexample.

    Each test is an integer expression, and is true if the expression is at least 0. The search tries at most `tries`
    combinations of sizes.
    """
    every = [False, True] if any(not isinstance(a, Symbol) for d in (*op.index, *tests) for a in d.atoms()) else [False]
    for sizes, all_lanes in product(islice(_sizes(program, conditions), tries), every):
        points = _Points(program, op, sizes, all_lanes)
        inside = points.holds(tests)
        index = [points.value(d) for d in op.index]
        shape = [e.evaluate(sizes) for e in op.buffer.shape]
        for i, n in zip(index, shape):
            wrong = inside & ((i < 0) | (i >= n))
            if wrong.any():
                wrong, *index = np.broadcast_arrays(wrong, *index)
                lane = tuple(np.argwhere(wrong)[0])
                does, place = "reads" if isinstance(op, Load) else "writes", [int(x[lane]) for x in index]
                return Example(sizes, points.at(lane), f"{does} {op.buffer.name}{place} of {shape}")
    return None


def not_written_once(
    program: Program, stores: Sequence[Store], tests: Sequence[Sequence[Dim]], conditions: Sequence[Condition] = ()
) -> Example | None:
    """Returns an example in which the stores write an element of the buffer twice or never. Returns None if the search
    finds no counterexample.

    `tests[k]` has the conditions under which `stores[k]` writes an element.
    """
    buffer = stores[0].buffer
    for sizes in _sizes(program, conditions, far=True):
        shape = [e.evaluate(sizes) for e in buffer.shape]
        count, complete = np.zeros(shape, np.int64), True
        for op, own in zip(stores, tests):
            points = _Points(program, op, sizes, every=True)
            complete &= points.complete
            inside, *place = np.broadcast_arrays(points.holds(own), *[points.value(d) for d in op.index])
            for i, n in zip(place, shape):
                inside = inside & (i >= 0) & (i < n)  # accesses out of bounds are reported as another error
            np.add.at(count, tuple(i[inside] for i in place), 1) if place else count.__iadd__(int(inside.sum()))
        for bad, happens in ((count > 1, "is written twice"), (count < 1, "is never written")):
            if complete and bad.any():
                at = ", ".join(map(str, np.argwhere(bad)[0].tolist()))
                return Example(sizes, {}, f"{buffer.name}[{at}] {happens}")
    return None


# ---- sizes ---------------------------------------------------------------------------------


def _sizes(program: Program, conditions: Sequence[Condition], far: bool = False) -> Iterator[dict[str, int]]:
    """Returns combinations of sizes that a call of the program can have."""
    exprs = [a.extent for a in program.axes] + [d for b in program.buffers for d in (*b.shape, *b.strides)]
    exprs += [d for c in conditions for d in (c.left, c.right)]
    names = sorted({s.name for d in exprs for s in d.symbols() if s.kind == "size"})
    ones = dict.fromkeys(names, 1)
    small = sorted(product(range(5), repeat=min(len(names), 4)), key=lambda t: (0 in t, sum(t), t))
    near_blocks = sorted({n for a in program.axes for n in (a.block - 1, a.block, a.block + 1, 2 * a.block + 1)})
    # The smallest sizes come first, then sizes near the block sizes.
    rows = [ones | dict(zip(names, row)) for row in small[:MAX_SIZES]]
    rows += [dict.fromkeys(names, n) for n in near_blocks]
    rows += [ones | {name: n} for n in near_blocks for name in names]
    distinct = map(dict, dict.fromkeys(tuple(sizes.items()) for sizes in rows))
    return (sizes for sizes in distinct if _runs(program, conditions, sizes, far))


def _runs(program: Program, conditions: Sequence[Condition], sizes: Mapping[str, int], far: bool) -> bool:
    """Checks whether the call conditions allow the given sizes, and whether a call with these sizes starts a grid
    program.
    """
    symbols = {Symbol(name): n for name, n in sizes.items()}
    try:
        allowed = all(c.holds(symbols) for c in conditions)
        extents = [a.extent.evaluate(sizes) for a in program.axes if a.role == "grid"]
        elements = [prod(e.evaluate(sizes) for e in b.shape) for b in program.buffers]
    except ZeroDivisionError:
        return False
    # If `far` is true, no buffer may be very large.
    return allowed and all(n > 0 for n in extents) and not (far and max(elements, default=0) > MAX_LANES * 8)


# ---- indices -------------------------------------------------------------------------------


class _Points:
    """Candidate counterexamples for one load or store: combinations of axis indices and loaded values."""

    def __init__(self, program: Program, op: Access, sizes: Mapping[str, int], every: bool = False) -> None:
        self.exprs = [*op.index, *(op.mask.conditions if op.mask else ())]
        symbols = {s for d in self.exprs for s in d.symbols()}
        used = {s.name.removesuffix("_lane") for s in symbols if s.kind == "axis"}
        lanes, repeated = set[str](), set[str]()  # a store is repeated along axes, also if its index lacks them
        if isinstance(op, Store):
            lanes, repeated = set(op.value.axes), {*(a.name for a in program.grid), *enclosing(program, op)}
        self.axes = [a for a in program.axes if a.name in used | repeated | lanes]
        self.values = sorted((s for s in symbols if s.kind == "value"), key=str)
        self.env: dict[Symbol, Any] = {Symbol(n): v for n, v in sizes.items()}
        self.complete = True  # whether the search tries every index of every axis
        lines = [self._line(a, sizes, a.name in used | lanes) for a in self.axes]
        if not every or prod(len(index) for index, _ in lines) > MAX_LANES:
            corners = [self._corners(a, sizes, line) for a, line in zip(self.axes, lines)]
            self.complete = all(len(c[0]) == len(x[0]) for c, x in zip(corners, lines))
            lines = corners
        numbers = np.array(sorted({-1, 0, 1, *(e.evaluate(sizes) + k for e in op.buffer.shape for k in (-1, 0, 1))}))
        given = [(a.symbol, lane_symbol(a)) for a in self.axes] + [(s,) for s in self.values]
        tried = [*lines, *[(numbers,)] * len(self.values)]
        # For each axis, `env` gets an array of indices and an array of their positions within a block; for each loaded
        # value, an array of numbers. The points are all combinations, made by numpy's broadcasting.
        for symbols, arrays, place in zip(given, tried, np.ix_(*(range(len(line)) for line, *_ in tried))):
            self.env |= {s: array[place] for s, array in zip(symbols, arrays)}

    def _line(self, a: TileAxis, sizes: Mapping[str, int], lanes: bool) -> tuple[Any, Any]:
        """Returns the indices of all elements in an axis's blocks, and their positions within a block."""
        lane = np.arange(a.lanes if lanes else 1)  # else only the first element of each block
        first = np.arange(min(a.blocks.evaluate(sizes), MAX_LANES // len(lane) + 1)) * a.block
        return (first[:, None] + lane).reshape(-1), np.tile(lane, len(first))

    def _corners(self, a: TileAxis, sizes: Mapping[str, int], line: tuple[Any, Any]) -> tuple[Any, Any]:
        """Returns the few indices of an axis at which an access most likely goes wrong."""
        if len(line[0]) <= 64:
            return line  # all indices of the axis
        last = a.blocks.evaluate(sizes) - 1
        # Near the ends of blocks and of the axis, and near the zeros of mask conditions and array indices.
        points = {0, 1, 2, 3, a.block - 1, a.block, a.lanes - 1, a.extent.evaluate(sizes), *self._zeros(a, sizes)}
        near = {p + k for p in points for k in (-1, 0, 1)}
        blocks = {b for b in (0, 1, last, *(p // a.block for p in near)) if 0 <= b <= last}
        lanes = {(b, n) for b in blocks for p in near for n in (p - b * a.block, a.lanes - 1) if 0 <= n < a.lanes}
        block, lane = np.array(sorted(lanes), np.int64).reshape(-1, 2).T
        return block * a.block + lane, lane

    def _zeros(self, a: TileAxis, sizes: Mapping[str, int]) -> Iterator[int]:
        """Yields the indices along an axis at which an integer expression, such as an array index, is 0."""
        for d in self.exprs:  # array indices, and mask conditions: integer expressions that must be at least 0
            split = d.coefficient(a.symbol)
            # Expressions that depend on another axis or on a loaded value are skipped.
            if split is not None and split[0] in (1, -1) and all(s.kind == "size" for s in split[1].symbols()):
                yield -split[1].evaluate(sizes) * int(split[0])

    @np.errstate(all="ignore")
    def value(self, d: Dim) -> Any:
        return np.asarray(d.compute(self.env))

    def holds(self, tests: Sequence[Dim]) -> Any:
        shape = np.broadcast_shapes(*(np.shape(line) for line in self.env.values()))
        return reduce(lambda inside, test: inside & (self.value(test) >= 0), tests, np.ones(shape, bool))

    def at(self, lane: Sequence[int]) -> dict[str, int]:
        """Returns a dict for one tried point, with the index along each axis and each value that is loaded from memory.
        For each axis, and then for each loaded value, `lane` has a position in the array of numbers that the search
        tries.
        """
        symbols = [*(a.symbol for a in self.axes), *self.values]
        return {s.name: int(self.env[s].reshape(-1)[lane[k]]) for k, s in enumerate(symbols)}
