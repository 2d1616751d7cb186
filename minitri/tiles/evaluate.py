"""Evaluates tile programs with numpy. The result of this evaluator defines what a tile program means.

The function `evaluate` takes tile programs, an array for each input, and the sizes of dimensions. The result is a tuple
of the output arrays. The one idea: numpy runs all grid programs one after another. For each axis, the evaluator stores
the indices of one block, the current block. Each iteration of a loop sets the current block of the loop's axis. The
file minitri/kernels/evaluate.py computes each op.

In an unmasked tile program, the evaluator cuts off a block at the end of its axis. In a masked tile program, every
element of a block exists, and masks decide which elements an access reads or writes. The sanitizer
(minitri/trust/sanitizer.py) checks each access of a masked program. The error for a wrong access names the tile
program, the point of the grid and the statement.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.dims import Dim, Symbol
from minitri.base.operators import reduction
from minitri.kernels.evaluate import Arrays, Sizes, Values, allocate, result
from minitri.kernels.ir import Access, Carry, Dot, Load, Op, Plan, Reduce, Scan
from minitri.tiles.ir import Loop, Program
from minitri.trust.sanitizer import Watch

Place = tuple[int, ...]  # the number of a tile along each axis of the grid


def evaluate(plan: Plan, programs: Sequence[Program], inputs: Arrays, sizes: Sizes, masked: bool) -> tuple[Any, ...]:
    """Runs tile programs and returns their outputs as numpy arrays. `masked` says whether the tile programs have masks
    for their loads and stores.

    Raises AccessError for the first load or store outside of its array.
    """
    watch = Watch(plan, programs, allocate(plan, inputs, sizes), sizes)
    for program in programs:
        for place in places(program, sizes):
            run(program, place, masked, watch)
    watch.finish()
    return tuple(result(watch.memory[b.name], b, sizes) for b in plan.outputs)


def places(program: Program, sizes: Sizes) -> Iterator[Place]:
    """Yields all points of the grid in order. The index of the last axis changes fastest."""
    return np.ndindex(*[a.tiles.evaluate(sizes) for a in program.grid])


@np.errstate(all="ignore")
def run(program: Program, place: Place, masked: bool, watch: Watch) -> None:
    """Runs a tile program once, for the grid indices `place`. The object `watch` checks each access, and contains the
    memory that the tile program reads and writes.
    """
    watch.enter(program, place)
    _Run(program, place, masked, watch).all()


class _Run(Values):
    """The evaluation of one grid program."""

    def __init__(self, program: Program, place: Place, masked: bool, watch: Watch) -> None:
        super().__init__([a.name for a in program.axes], watch.memory, watch.sizes)
        self.program, self.masked, self.watch = program, masked, watch
        self.axes = {a.name: a for a in program.axes}
        self.extents = {a.name: a.extent.evaluate(self.sizes) for a in program.axes}
        self.real: dict[str, int] = {}  # how many elements of the block are inside the extent
        grid = dict(zip((a.name for a in program.grid), place))
        for a in program.axes:
            self.start(a.name, grid.get(a.name, 0) * a.block)

    def start(self, name: str, first: int, looping: bool = False) -> None:
        """Sets the current block of an axis: the block that starts at the index `first`.

        The argument `looping` is true if the block belongs to an iteration of a loop over the axis. If the tile program
        has no masks, the last block of a loop contains only the indices inside the axis.
        """
        a = self.axes[name]
        self.real[name] = max(0, min(a.block, self.extents[name] - first))
        self.env[a.symbol] = self.along(name, first + np.arange(a.lanes if self.masked else self.real[name]))
        self.env[Symbol(f"{name}_start", "axis")] = np.full([1] * len(self.names), first)
        lanes = self.real[name] if looping and not self.masked else a.lanes
        self.env[Symbol(f"{name}_lane", "axis")] = self.along(name, np.arange(lanes))

    def all(self) -> None:
        for stmt in self.program.body:
            if isinstance(stmt, Loop):
                self.loop(stmt, stmt.axes)
            else:
                self.run(stmt)

    def loop(self, loop: Loop, axes: tuple[str, ...]) -> None:
        if loop.redo and axes == loop.axes and np.isfinite(self.values[loop.redo]).all():
            self.values[loop.carries[0][0]] = self.values[loop.redo]
            return
        if axes:
            ends = self.bound(loop.first, 0), self.bound(loop.last, self.extents[axes[0]])
            blocks = range(*ends, self.axes[axes[0]].block)
            for first in reversed(blocks) if self.program.from_end(loop) else blocks:
                self.start(axes[0], first, looping=True)
                self.loop(loop, axes[1:])
            self.start(axes[0], 0)
            return
        full = {c: self.values[c] for c, _ in loop.carries}
        self.values |= {c: value[self.lanes(c)] for c, value in full.items()}
        for op in loop.body:
            self.run(op)
        for c, following in loop.carries:
            self._watch_ends(c, loop.axes, self.values[following], self.values[c])
            whole = full[c].copy()
            whole[self.lanes(c)] = self.values[following]
            self.values[c] = whole

    def run(self, op: Op) -> None:
        super().run(op)
        self.watch.done(op, self.values, self.env, self.real)

    def bound(self, bound: Dim | None, default: int) -> int:
        """Returns the value of a loop bound (`first` or `last` of a loop), or `default` if `bound` is None."""
        return default if bound is None else int(np.asarray(bound.compute(self.env)).item())

    def lanes(self, op: Op) -> tuple[slice, ...]:
        """Returns, for each axis, the slice that selects the current block in an array as large as a complete block."""
        return tuple(slice(0, self.width(n)) if n in op.axes else slice(None) for n in self.names)

    # ---- ops -------------------------------------------------------------------------

    def value(self, op: Op) -> Any:
        match op:
            case Reduce() if not isinstance(op.x, Carry):
                self._watch_ends(op, op.over, self.values[op.x])
            case Scan():
                self._watch_ends(op, (op.along,), self.values[op.x])
            case Dot():
                self._watch_ends(op, (op.over,), self.values[op.a])
                self._watch_ends(op, (op.over,), self.values[op.b])
        return super().value(op)

    def _watch_ends(self, op: Op, axes: Sequence[str], value: Any, before: Any = None) -> None:
        """Reports an error if elements past the end of an axis would change the result of a reduction."""
        for name in axes:
            k = self.names.index(name)
            if self.masked and name in self.axes and self.real[name] < value.shape[k] > 1:
                past = (*[slice(None)] * k, slice(self.real[name], None))
                self.watch.past_end(op, name, value[past], None if before is None else before[past])

    def carry(self, op: Carry) -> Any:
        """Returns the initial value of a `Carry` (a value that a loop passes to its next iteration). The returned array
        is as large as a complete block, even if the axis ends inside a block.
        """
        looped = {a.name: a.block for a in self.program.axes if a.role == "loop"}
        shape = [looped.get(n, self.width(n)) if n in op.axes else 1 for n in self.names]
        return np.broadcast_to(self.values[op.initial], shape).copy()

    def reduce(self, op: Reduce) -> Any:
        if op.index is None:
            return super().reduce(op)
        x, index, k = self.values[op.x], self.values[op.index], self.names.index(op.over[0])
        return numpy_array_operations.least_index(reduction(op.op), x, index, k)

    # ---- accesses --------------------------------------------------------------------

    def check(self, op: Access, index: Sequence[Any], inside: Any) -> None:
        self.watch.bounds(op, index, inside)

    def note(self, op: Access, offset: Any, inside: Any) -> None:
        if isinstance(op, Load):
            self.watch.load(op, offset, inside)
        else:
            self.watch.store(op, offset)

    def tests(self, op: Access) -> Sequence[Dim]:
        """Returns the conditions under which a load or store happens. If the access uses a tensor descriptor, only the
        bounds of the array are tested.
        """
        if self.program.hint(op).descriptor:
            return [c for d, e in zip(op.index, op.buffer.shape) for c in (d, e - 1 - d)]
        if self.masked and op.mask is not None:
            return op.mask.conditions
        return super().tests(op)
