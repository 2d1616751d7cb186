"""The tile programs' definition: every program of the grid, one after another, in numpy.

In: tile programs, an array for each buffer, the sizes. Out: the arrays are written. Before
masking a block ends where its axis ends; after masking every lane exists, masks decide, and
an access out of bounds that no mask stops is an error with its program and indices. An output
element never written, or written twice, is an error as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minitri import arrays
from minitri.dims import Dim, Symbol
from minitri.kernel.evaluate import allocate
from minitri.kernel.ir import (
    Buffer,
    Carry,
    Compute,
    Constant,
    Dot,
    Inside,
    Load,
    Mask,
    Op,
    Plan,
    Position,
    Reduce,
    Scalar,
    Scan,
    Spread,
    Store,
)  # fmt: skip
from minitri.ops import OPERATORS
from minitri.tile.ir import Loop, Program, lane_number


class AccessError(Exception):
    """An access that the program must not make, with where it happened."""


def evaluate(
    plan: Plan, programs: Sequence[Program], inputs: Mapping[str, Any], sizes: Mapping[str, int], masked: bool
) -> tuple[Any, ...]:
    """The outputs; `masked`: masks are in the programs and are what bounds accesses."""
    memory = allocate(plan, inputs, sizes)
    for program in programs:
        written = {
            b.name: np.zeros(memory[b.name].shape, bool) for b in program.buffers if b.role in ("output", "temporary")
        }
        stored = {op.buffer.name for op in program.ops() if isinstance(op, Store)}
        tiles = [a.tiles.evaluate(sizes) for a in program.grid]
        for number in range(int(np.prod(tiles, dtype=np.int64))):
            place = np.unravel_index(number, tiles) if tiles else ()
            _Run(program, memory, written, sizes, masked, tuple(map(int, place))).all()
        for name in stored:
            if not written[name].all():
                hole = tuple(map(int, np.argwhere(~written[name])[0]))
                raise AccessError(f"{program.name} never writes {name}{list(hole)}")
    return tuple(memory[b.name] for b in plan.outputs)


class _Run:
    """One program of the grid. A value is an array with a dimension for each axis of the program."""

    def __init__(
        self, program: Program, memory: Mapping[str, Any], written: Mapping[str, Any], sizes: Mapping[str, int],
        masked: bool, place: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.program, self.memory, self.written = program, memory, written
        self.masked, self.place, self.sizes = masked, place, sizes
        self.names = [a.name for a in program.axes]
        self.extents = {a.name: a.extent.evaluate(sizes) for a in program.axes}
        self.env: dict[Symbol, Any] = {Symbol(n): v for n, v in sizes.items()}
        self.values: dict[Op, Any] = {}
        grid = dict(zip((a.name for a in program.grid), place))
        for a in program.axes:
            self.start(a.name, grid.get(a.name, 0) * a.block)

    def start(self, name: str, first: int) -> None:
        """Binds an axis to its block that starts at `first`."""
        a = self.program.axis(name)
        last = first + a.lanes if self.masked else min(first + a.block, self.extents[name])
        shape = [-1 if n == name else 1 for n in self.names]
        self.env[a.symbol] = np.arange(first, max(first, last)).reshape(shape)
        lane = lane_number(name).atom
        assert isinstance(lane, Symbol)
        self.env[lane] = np.arange(a.lanes).reshape(shape)

    def all(self) -> None:
        for stmt in self.program.body:
            if isinstance(stmt, Loop):
                self.loop(stmt, stmt.axes)
            else:
                self.run(stmt)

    def loop(self, loop: Loop, axes: tuple[str, ...]) -> None:
        if axes:
            a = self.program.axis(axes[0])
            for first in range(0, self.extents[a.name], a.block):
                self.start(a.name, first)
                self.loop(loop, axes[1:])
            return
        full = {c: self.values[c] for c, _ in loop.carries}
        for c, value in full.items():
            self.values[c] = value[self.lanes(c)]
        for op in loop.body:
            self.run(op)
        for c, following in loop.carries:
            whole = full[c].copy()
            whole[self.lanes(c)] = self.values[following]
            self.values[c] = whole

    def carried(self, op: Carry) -> list[int]:
        """A carried value has all lanes of looped axes, even if the last block is short."""
        looped = {a.name: a.block for a in self.program.axes if a.role == "loop"}
        return [looped.get(n, self.width(n)) if n in op.axes else 1 for n in self.names]

    def lanes(self, op: Op) -> tuple[slice, ...]:
        """The lanes of a carried value that the current blocks have."""
        return tuple(slice(0, self.env[Symbol(n, "axis")].size) if n in op.axes else slice(None) for n in self.names)

    def run(self, op: Op) -> None:
        value = self.value(op)
        if value is not None:
            value = np.asarray(value, op.dtype.numpy)
            self.values[op] = value.reshape([1] * (len(self.names) - value.ndim) + list(value.shape))

    def position(self, expr: Dim, op: Op) -> Any:
        return arrays.index(expr, {**self.env, **{s: self.values[v] for s, v in getattr(op, "picks", ())}})

    def holds(self, conditions: Sequence[Dim], op: Op) -> Any:
        inside: Any = np.ones([1] * len(self.names), bool)
        for c in conditions:
            inside = inside & (self.position(c, op) >= 0)
        return inside

    def width(self, name: str) -> int:
        return int(self.env[Symbol(name, "axis")].size)

    def value(self, op: Op) -> Any:
        match op:
            case Load():
                return self.load(op)
            case Constant():
                return op.value
            case Scalar():
                return self.memory[op.buffer.name]
            case Position():
                return self.position(op.expr, op)
            case Inside():
                return self.holds(op.conditions, op)
            case Compute(op="cast"):
                return arrays.cast(self.values[op.args[0]], op.dtype)
            case Compute():
                with np.errstate(all="ignore"):
                    return OPERATORS[op.op].numpy(*[self.values[a] for a in op.args])
            case Spread():
                shape = [self.width(n) if n in op.axes else 1 for n in self.names]
                return np.broadcast_to(self.values[op.x], shape)
            case Reduce():
                return self.reduce(op)
            case Scan():
                return arrays.scan(op.op, self.values[op.x], self.names.index(op.along))
            case Dot():
                return self.dot(op)
            case Carry():
                return np.broadcast_to(self.values[op.initial], self.carried(op)).copy()
            case Store():
                return self.store(op)

    def reduce(self, op: Reduce) -> Any:
        places = tuple(self.names.index(a) for a in op.over)
        x = self.values[op.x]
        best = np.expand_dims(arrays.reduce(op.op, x, places), places)
        if op.index is None:
            return best
        index = np.broadcast_to(self.values[op.index], x.shape)
        value = np.take_along_axis(x, best, places[0])
        same = (x == value) | (np.isnan(x) & np.isnan(value) if x.dtype.kind == "f" else False)
        return np.where(same, index, np.iinfo(np.int64).max).min(axis=places[0], keepdims=True)

    def dot(self, op: Dot) -> Any:
        a, b = self.values[op.a].astype(op.dtype.numpy), self.values[op.b].astype(op.dtype.numpy)
        k = self.names.index(op.over)
        row, column = (self.names.index(n) for n in op.tile)
        order = [d for d in range(len(self.names)) if d not in (row, column, k)]
        with np.errstate(all="ignore"):
            product = np.matmul(
                a.transpose([*order, column, row, k])[..., 0, :, :], b.transpose([*order, row, k, column])[..., 0, :, :]
            )
        result = np.expand_dims(product, -1).transpose(np.argsort([*order, row, column, k]))
        return result if op.acc is None else self.values[op.acc] + result

    # ---- accesses --------------------------------------------------------------------

    def allowed(self, op: Load | Store, guards: Sequence[Dim], mask: Mask | None) -> Any:
        """Which lanes access memory."""
        if self.masked:
            assert mask is not None
            return self.holds(mask.conditions, op)
        return self.holds(guards, op)

    def places(self, op: Load | Store, inside: Any, extra: Sequence[int] = ()) -> tuple[list[Any], Any]:
        where = [np.asarray(self.position(d, op)) for d in op.index]
        shape = np.broadcast_shapes(inside.shape, tuple(extra), *[w.shape for w in where])
        inside = np.broadcast_to(inside, shape)
        where = [np.broadcast_to(w, shape) for w in where]
        for w, extent in zip(where, self.seen(op.buffer).shape):
            outside = inside & ((w < 0) | (w >= extent))
            if outside.any():
                lane = tuple(np.argwhere(outside)[0])
                index = [int(x[lane]) for x in where]
                kind = "reads" if isinstance(op, Load) else "writes"
                raise AccessError(
                    f"{self.program.name}, program {self.place}: {kind} {op.buffer.name}{index}, out of bounds"
                )
        return [np.where(inside, w, 0) for w in where], inside

    def seen(self, buffer: Buffer) -> Any:
        """The memory of a buffer with the shape that this program sees it in."""
        return self.memory[buffer.name].reshape([e.evaluate(self.sizes) for e in buffer.shape])

    def load(self, op: Load) -> Any:
        where, inside = self.places(op, self.allowed(op, op.guards, op.mask))
        source = self.seen(op.buffer)
        other = np.asarray(op.other, op.dtype.numpy)
        if not inside.any():
            return np.broadcast_to(other, inside.shape)
        return np.where(inside, source[tuple(where)], other)

    def store(self, op: Store) -> None:
        value = self.values[op.value]
        where, inside = self.places(op, self.allowed(op, (), op.mask), value.shape)
        if not inside.any():
            return
        places = tuple(w[inside] for w in where)
        written = self.written[op.buffer.name].reshape(self.seen(op.buffer).shape)
        if (
            written[places].any() or len(set(zip(*map(np.ndarray.tolist, places)))) < len(places[0])
            if places
            else written[()]
        ):
            raise AccessError(f"{self.program.name}, program {self.place}: writes an element of {op.buffer.name} twice")
        written[places] = True
        values = np.broadcast_to(value, inside.shape)[inside]
        self.seen(op.buffer)[places] = values if places else values.item()
