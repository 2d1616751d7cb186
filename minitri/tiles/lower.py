"""kernels → tile: index notation becomes loops over blocks.

    m[i] = max over r of x[i, r]          m' = carry -inf
    s[i] = sum over r of exp(x - m)       for r:  m' = maximum(m', x[i, r])
                                          m = reduce.max m'
                                          s' = carry 0
                                          for r:  s' = s' + exp(x[i, r] - m)
                                          s = reduce.sum s'

In: a kernel and its schedule. The schedule gives each axis a block and a role: grid, whole or loop.
Out: a tile program.

The one idea: a reduction over a looped axis ends a phase. A phase has one loop nest for each set of
looped axes. The nest computes and loads again every value that it needs from an earlier phase. Only
a whole axis reads its row once. A carried value keeps all its elements along the looped axis; one
reduction after the loop combines them.

A sum that follows another reduction can share its phase (minitri/optimize/online_reductions/statements.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from minitri.base.numpy_semantics import COMBINE, POSITIONS, neutral, reduction
from minitri.base.types import DType, bool_, i64
from minitri.kernels import ir
from minitri.kernels.ir import (
    Carry,
    Compute,
    Count,
    Dot,
    Inside,
    Kernel,
    Old,
    Op,
    Position,
    Reduce,
    Scan,
    Spread,
    Store,
)
from minitri.optimize.online_reductions.statements import Following, followed, moving
from minitri.tiles.ir import Loop, Program, Stmt, TileAxis, lane_number
from minitri.tiles.schedule import Schedule
from minitri.tiles.statements import Statements


def lower(kernel: Kernel, schedule: Schedule) -> Program:
    axes = tuple(TileAxis(a.name, a.extent, *schedule.axes[a.name]) for a in kernel.axes)
    body = _Lowering(kernel, {a.name: a for a in axes}).run()
    return Program(
        kernel.name, axes, kernel.buffers, tuple(body), schedule.warps, schedule.stages, schedule.group or 1,
        relaxed=kernel.relaxed, descriptors=schedule.descriptors, persistent=schedule.persistent,
        registers=schedule.registers, descriptor_stores=schedule.descriptor_stores,
    )  # fmt: skip


class _Lowering:
    def __init__(self, kernel: Kernel, axes: dict[str, TileAxis]) -> None:
        self.kernel, self.axes = kernel, axes
        self.looped = [a for a, t in axes.items() if t.role == "loop"]
        self.follows = {op: followed(op) if self._over(op) else () for op in kernel.body}
        self.running = {y for ys in self.follows.values() for y in ys}
        self.level = self._levels()
        self.write = Statements(list(axes))
        self.top: dict[Op, Op] = {}  # ops of the kernel → ops outside of loops
        self.following = Following(self.write, axes, self.top)

    def _levels(self) -> dict[Op, int]:
        """For each op, how many phases must end before it can run."""
        level: dict[Op, int] = {}
        for op in self.kernel.body:
            level[op] = self._level(op, level)
        return level

    def _level(self, op: Op, level: dict[Op, int]) -> int:
        if not self.follows[op]:
            return max((level[o] + self._ends_phase(o) for o in ir.op_operands(op)), default=0)
        own: dict[Op, int] = {}  # as if what is followed did not end its phase
        for o in self._needed([op], {}):
            ends = [own[p] + (self._ends_phase(p) and p not in self.follows[op]) for p in ir.op_operands(o)]
            own[o] = max(ends, default=0)
        return own[op]

    def _ends_phase(self, op: Op) -> bool:
        return bool(self._over(op))

    def _over(self, op: Op) -> list[str]:
        """The looped axes that an op reduces."""
        over = op.over if isinstance(op, Reduce) else (op.over,) if isinstance(op, Dot) else ()
        return [a for a in self.looped if a in over]

    def loops_of(self, op: Op) -> tuple[str, ...]:
        """The looped axes that an op runs over."""
        used = set(op.axes) | set(self._over(op))
        if isinstance(op, Reduce):
            used |= set(op.x.axes)
        if isinstance(op, Store):
            used |= {s.name for d in op.index for s in d.symbols()}
        return tuple(a for a in self.looped if a in used)

    def run(self) -> list[Stmt]:
        last = max(self.level.values(), default=0)
        for level in range(last + 1):
            ending = [op for op in self.kernel.body if self.level[op] == level]
            sinks = [op for op in ending if self.loops_of(op) and (self._ends_phase(op) or isinstance(op, Store))]
            for loops in dict.fromkeys(self.loops_of(s) for s in sinks):
                self._phase(loops, [s for s in sinks if self.loops_of(s) == loops])
            for op in ending:
                if isinstance(op, Store) and not self.loops_of(op):
                    self._at_top(op)
        return self.write.out

    def _at_top(self, op: Op) -> Op:
        """Writes an op outside all loops, after the operands that it still needs."""
        for needed in self._needed([op], self.top):
            new = ir.with_operands(needed, self.top.__getitem__)
            self.top[needed] = self._whole(new, self.write.out)
        return self.top[op]

    def _needed(self, ops: Iterable[Op], have: dict[Op, Op]) -> list[Op]:
        """The ops that must be written for `ops`, operands first; `have` is written already."""
        wanted: set[Op] = set()
        stack = [op for op in ops if op not in have]
        while stack:
            op = stack.pop()
            if op not in wanted:
                wanted.add(op)
                stack.extend(o for o in ir.op_operands(op) if o not in have)
        return [op for op in self.kernel.body if op in wanted]

    # ---- one phase -------------------------------------------------------------------

    def _phase(self, loops: tuple[str, ...], sinks: list[Op]) -> None:
        body: list[Op] = []
        inside: dict[Op, Op] = {}
        carries: list[tuple[Carry, Op]] = []
        running = {y for s in sinks for y in self.follows[s]}
        needed = self._needed(sinks, self.top)
        changes = moving(needed, running)
        self.following.begin(running, needed)
        for op in needed:
            if not self.loops_of(op) and op not in changes:
                self._at_top(op)
        for op in needed:
            if op in self.top and op not in running:
                continue
            new = ir.with_operands(op, lambda o: inside.get(o) or self.top[o])
            new = replace(new) if new is op else new  # every phase has an op of its own
            if isinstance(op, Count):
                inside[op] = self.following.count(op, loops, body)
            elif isinstance(op, Old):
                inside[op] = self._old(op, loops, body)
            elif op in running:
                assert isinstance(op, Reduce) and isinstance(new, Reduce)
                carried, inside[op] = self.following.run_along(op, new, body)
                carries.append(carried)
            elif self.follows[op]:
                carries.append(self.following.follow(op, new, inside, body))
            elif self._over(op):
                carries += self._accumulate(op, new, body)
            elif isinstance(new, Scan) and new.along in self.looped:
                inside[op] = self._scan(new, body, carries)
            else:
                inside[op] = self._whole(new, body)
        self.write.out.append(Loop(loops, tuple(carries), tuple(body)))
        for op in sinks:
            if self._over(op):
                self._finish(op)

    def _whole(self, new: Op, body: list[Any]) -> Op:
        """Writes an op that depends on the present block alone."""
        if isinstance(new, Reduce) and new.op in POSITIONS:
            new = replace(new, index=self._append(body, self._lane(new.over[0], new)))
        if isinstance(new, Dot):
            zero = self.write.constant(new, 0.0)
            spread = Spread(dtype=new.dtype, axes=new.axes, spans=new.spans, x=zero)
            new = replace(new, acc=self._append(body, spread))
        return self._append(body, new)

    def _old(self, op: Old, loops: tuple[str, ...], body: list[Op]) -> Op:
        """The value that the loop carried into this iteration."""
        return self.following.count(op.x, loops, body, before=True) if isinstance(op.x, Count) else self.top[op.x]

    def _append(self, body: list[Any], op: Op) -> Op:
        body.append(op)
        return op

    def _accumulate(self, op: Op, new: Op, body: list[Op]) -> list[tuple[Carry, Op]]:
        """One iteration of a reduction or product over looped axes."""
        if isinstance(new, Dot):
            carry = self.write.carry(new.dtype, new.axes, 0.0, new)
            self.top[op] = carry
            return [(carry, self._append(body, replace(new, acc=carry)))]
        assert isinstance(new, Reduce)
        if new.op in POSITIONS:
            return self._accumulate_arg(op, new, body)
        carry = self.write.carry(new.dtype, new.x.axes, neutral(new.op, new.dtype), new)
        self.top[op] = carry
        step = Compute(dtype=new.dtype, axes=new.x.axes, spans=new.spans, op=COMBINE[new.op], args=(carry, new.x))
        return [(carry, self._append(body, step))]

    def _accumulate_arg(self, op: Op, new: Reduce, body: list[Op]) -> list[tuple[Carry, Op]]:
        """Positions: the best value of each element, and its index. A later value wins only if it is better."""
        x = new.x
        best = self.write.carry(x.dtype, x.axes, neutral(new.op, x.dtype), new)
        lane = self.write.add(self._lane(new.over[0], new, first=True))
        where = Carry(dtype=i64, axes=x.axes, spans=new.spans, initial=lane)
        self.write.add(where)
        self.top[op] = Reduce(dtype=i64, axes=new.axes, spans=new.spans, op=new.op, x=best, over=new.over, index=where)

        def compute(name: str, dtype: DType, *args: Op) -> Op:
            return self._append(body, Compute(dtype=dtype, axes=x.axes, spans=new.spans, op=name, args=args))

        better = compute(reduction(new.op).combine, bool_, x, best)
        if x.dtype.is_float:  # the first nan wins
            fresh = compute("logical_not", bool_, compute("isnan", bool_, best))
            better = compute(
                "logical_or", bool_, better, compute("logical_and", bool_, compute("isnan", bool_, x), fresh)
            )
        here = self._append(body, self._lane(new.over[0], new))
        return [
            (best, compute("where", x.dtype, better, x, best)),
            (where, compute("where", i64, better, here, where)),
        ]

    def _lane(self, axis: str, op: Op, first: bool = False) -> Op:
        """The index along an axis; with `first`, the position in the block, which is the index in the first block."""
        expr = lane_number(axis) if first else self.axes[axis].index
        return Position(dtype=i64, axes=(axis,), spans=op.spans, expr=expr)

    def _scan(self, new: Scan, body: list[Op], carries: list[tuple[Carry, Op]]) -> Op:
        """A scan over blocks: the scan of each block, combined with the total of all earlier blocks.

        The loop carries the last element. A sum in which all other elements are 0 picks it. (Triton 3.6
        fails to compile the simpler form, the carried total plus the sum of the block.)
        """
        rest = tuple(a for a in new.axes if a != new.along)
        carry = self.write.carry(new.dtype, rest, neutral(new.op, new.dtype), new)
        own = self._append(body, new)
        result = self.write.compute(body, COMBINE[new.op], carry, own)
        lane = lane_number(new.along) - (self.axes[new.along].block - 1)
        last = self._append(body, Inside(dtype=bool_, axes=(new.along,), spans=new.spans, conditions=(lane,)))
        alone = self.write.compute(body, "where", last, result, self.write.constant(new, neutral("sum", new.dtype)))
        following = Reduce(dtype=new.dtype, axes=rest, spans=new.spans, op="sum", x=alone, over=(new.along,))
        carries.append((carry, self._append(body, following)))
        return result

    def _finish(self, op: Op) -> None:
        """After the loop: reduces the elements of the carried value."""
        carried = self.top[op]
        if op in self.running:
            return
        assert isinstance(op, (Reduce, Dot))
        if op.rescale is not None:
            self.top[op] = self.following.settled(op, self.kernel.body, self._at_top)
            return
        if isinstance(op, Dot) or op.shift is not None:
            return
        if isinstance(carried, Reduce):  # argmax: made with its carries
            self.top[op] = self.write.add(carried)
            return
        final = Reduce(dtype=op.dtype, axes=op.axes, spans=op.spans, op=op.op, x=carried, over=op.over)
        self.top[op] = self.write.add(final)
