"""kernels → tile: index notation becomes loops over blocks.

In: a kernel and a schedule (which axis is a grid axis, held whole, or walked in a loop, and
its block). Out: a tile program. The one idea: a reduction over a looped axis ends a phase.

    m[i] = max over r of x[i, r]          m' = carry -inf
    s[i] = sum over r of exp(x - m)       for r:  m' = maximum(m', x[i, r])
                                          m = reduce.max m'
                                          s' = carry 0
                                          for r:  s' = s' + exp(x[i, r] - m)
                                          s = reduce.sum s'

Each phase is one loop nest for each set of looped axes; what it needs is computed again in
it (re-read: only a whole axis reads its row once). Carried values keep their lanes along the
looped axis and are reduced once, after the loop.

A sum with a `rescale` (minitri/kernel/online.py) runs in the phase of the maximum it follows; of
both one value a row is carried then:

    for r:  block = reduce.max x[i, r]             m' = maximum(m, block)
            s' = s * exp(m - m') + reduce.sum exp(x[i, r] - m')

While nothing but -inf has been seen the maximum is taken for 0 (-inf - -inf is nan) and the factor
for 1; after the loop one more rescaling goes from there to the true maximum, so that a row of
nothing but -inf comes to what the definition says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from minitri.arrays import neutral
from minitri.kernel import ir
from minitri.kernel.ir import Carry, Compute, Constant, Dot, Inside, Kernel, Old, Op, Position, Reduce, Scan, Store
from minitri.tile.ir import Loop, Program, Stmt, TileAxis, lane_number
from minitri.tile.schedule import Schedule
from minitri.types import DType, bool_, i64

COMBINE = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}


def lower(kernel: Kernel, schedule: Schedule) -> Program:
    axes = tuple(TileAxis(a.name, a.extent, *schedule.axes[a.name]) for a in kernel.axes)
    body = _Lowering(kernel, {a.name: a for a in axes}).run()
    hints = schedule.warps, schedule.stages, schedule.group
    return Program(kernel.name, axes, kernel.buffers, tuple(body), *hints, relaxed=kernel.relaxed)


class _Lowering:
    def __init__(self, kernel: Kernel, axes: dict[str, TileAxis]) -> None:
        self.kernel, self.axes = kernel, axes
        self.looped = [a for a, t in axes.items() if t.role == "loop"]
        self.level = self._levels()
        self.out: list[Stmt] = []
        self.top: dict[Op, Op] = {}  # ops of the kernel → ops outside of loops
        self.constants: dict[tuple[DType, str], Op] = {}

    def _levels(self) -> dict[Op, int]:
        """How many phases must be over before an op can run."""
        level: dict[Op, int] = {}
        for op in self.kernel.body:
            level[op] = self._level(op, level)
        return level

    def _level(self, op: Op, level: dict[Op, int]) -> int:
        followed = self._followed(op)
        if followed is None:
            return max((level[o] + self._ends_phase(o) for o in ir.op_operands(op)), default=0)
        own: dict[Op, int] = {}  # as if the maximum that is followed did not end its phase
        for o in self._needed([op], {}):
            ends = [own[p] + (self._ends_phase(p) and p is not followed) for p in ir.op_operands(o)]
            own[o] = max(ends, default=0)
        return own[op]

    def _followed(self, op: Op) -> Reduce | None:
        """The running maximum that a sum is in one loop with."""
        if not (isinstance(op, Reduce) and op.rescale is not None and self._over(op)):
            return None
        (old,) = [o for o in self._needed([op.rescale], {}) if isinstance(o, Old)]
        assert isinstance(old.x, Reduce)
        return old.x

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
        return self.out

    def _at_top(self, op: Op) -> Op:
        """An op outside of all loops, and whatever it needs that is not there yet."""
        for needed in self._needed([op], self.top):
            new = ir.with_operands(needed, self.top.__getitem__)
            if isinstance(new, Reduce) and new.op in ("argmax", "argmin"):
                new = replace(new, index=self._add(self._lane(new.over[0], new)))
            self.top[needed] = self._add(new)
        return self.top[op]

    def _add(self, op: Op) -> Op:
        self.out.append(op)
        return op

    def _needed(self, ops: Iterable[Op], have: dict[Op, Op]) -> list[Op]:
        """The ops that must be made for these, operands first."""
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
        running = {y for s in sinks if (y := self._followed(s)) is not None}
        needed = self._needed(sinks, self.top)
        moving = self._moving(needed, running)
        for op in needed:
            if not self.loops_of(op) and op not in moving:
                self._at_top(op)
        for op in needed:
            if op in self.top and op not in running:
                continue
            new = ir.with_operands(op, lambda o: inside.get(o) or self.top[o])
            new = replace(new) if new is op else new  # every phase has an op of its own
            if op in running:
                carries.append(self._run_along(op, new, body, inside))
            elif isinstance(op, Old):
                inside[op] = self.top[op.x]
            elif self._followed(op) is not None:
                carries.append(self._follow(op, new, body))
            elif self._over(op):
                carries += self._accumulate(op, new, body)
            elif isinstance(new, Scan) and new.along in self.looped:
                inside[op] = self._scan(new, body, carries)
            else:
                if isinstance(new, Reduce) and new.op in ("argmax", "argmin"):
                    new = replace(new, index=self._append(body, self._lane(new.over[0], new)))
                inside[op] = self._append(body, new)
        self.out.append(Loop(loops, tuple(carries), tuple(body)))
        for op in sinks:
            if self._over(op):
                self._finish(op)

    def _append(self, body: list[Op], op: Op) -> Op:
        body.append(op)
        return op

    def _carry(self, dtype: DType, axes: tuple[str, ...], value: int | float | bool, op: Op) -> Carry:
        start = self._add(Constant(dtype=dtype, axes=(), spans=op.spans, value=value))
        carry = Carry(dtype=dtype, axes=axes, spans=op.spans, initial=start)
        self._add(carry)
        return carry

    def _accumulate(self, op: Op, new: Op, body: list[Op]) -> list[tuple[Carry, Op]]:
        """One round of a reduction or product over looped axes."""
        if isinstance(new, Dot):
            carry = self._carry(new.dtype, new.axes, 0.0, new)
            self.top[op] = carry
            return [(carry, self._append(body, replace(new, acc=carry)))]
        assert isinstance(new, Reduce)
        if new.op in ("argmax", "argmin"):
            return self._accumulate_arg(op, new, body)
        carry = self._carry(new.dtype, new.x.axes, neutral(new.op, new.dtype), new)
        self.top[op] = carry
        step = Compute(dtype=new.dtype, axes=new.x.axes, spans=new.spans, op=COMBINE[new.op], args=(carry, new.x))
        return [(carry, self._append(body, step))]

    def _moving(self, ops: Iterable[Op], running: set[Reduce]) -> set[Op]:
        """What changes with every block because a running maximum does."""
        moving: set[Op] = set(running)
        for op in ops:
            if any(o in moving for o in ir.op_operands(op)):
                moving.add(op)
        return moving

    def _run_along(self, op: Op, new: Op, body: list[Op], inside: dict[Op, Op]) -> tuple[Carry, Op]:
        """A maximum that sums follow: one value a row, as it stands after this block."""
        assert isinstance(new, Reduce)
        carry = self._carry(new.dtype, new.axes, neutral(new.op, new.dtype), new)
        self.top[op] = carry
        best = self._compute(body, COMBINE[new.op], carry, self._append(body, new))
        inside[op] = self._finite(body, best)
        return carry, best

    def _finite(self, body: list[Any], y: Op) -> Op:
        """0 while a maximum has seen nothing but -inf."""
        return self._compute(body, "where", self._is_bottom(body, y), self._constant(y, 0.0), y)

    def _is_bottom(self, body: list[Any], y: Op) -> Op:
        return self._compute(body, "equal", y, self._constant(y, neutral("max", y.dtype)))

    def _constant(self, like: Op, value: int | float | bool) -> Op:
        """A number that loops use, made before them."""
        key = (like.dtype, repr(value))
        if key not in self.constants:
            constant = Constant(dtype=like.dtype, axes=(), spans=like.spans, value=value)
            self.constants[key] = self._add(constant)
        return self.constants[key]

    def _compute(self, body: list[Any], name: str, *args: Op) -> Op:
        axes = tuple(a for a in self.axes if any(a in x.axes for x in args))
        dtype = bool_ if name == "equal" else args[-1].dtype
        return self._append(body, Compute(dtype=dtype, axes=axes, spans=args[-1].spans, op=name, args=args))

    def _follow(self, op: Op, new: Op, body: list[Op]) -> tuple[Carry, Op]:
        """A sum in the loop of the maximum that it follows."""
        followed = self._followed(op)
        assert isinstance(new, Reduce) and new.rescale is not None and followed is not None
        carry = self._carry(new.dtype, new.axes, neutral(new.op, new.dtype), new)
        self.top[op] = carry
        block = self._append(body, replace(new, rescale=None))
        untouched = self._is_bottom(body, self.top[followed])
        factor = self._compute(body, "where", untouched, self._constant(new, 1.0), new.rescale)
        return carry, self._compute(body, "add", self._compute(body, "multiply", carry, factor), block)

    def _accumulate_arg(self, op: Op, new: Reduce, body: list[Op]) -> list[tuple[Carry, Op]]:
        """Best value and its position, a lane at a time: a later element must be better to win."""
        x = new.x
        best = self._carry(x.dtype, x.axes, neutral(new.op, x.dtype), new)
        lane = self._add(self._lane(new.over[0], new, first=True))
        where = Carry(dtype=i64, axes=x.axes, spans=new.spans, initial=lane)
        self._add(where)
        self.top[op] = Reduce(dtype=i64, axes=new.axes, spans=new.spans, op=new.op, x=best, over=new.over, index=where)

        def compute(name: str, dtype: DType, *args: Op) -> Op:
            return self._append(body, Compute(dtype=dtype, axes=x.axes, spans=new.spans, op=name, args=args))

        better = compute("greater" if new.op == "argmax" else "less", bool_, x, best)
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
        """The index along an axis; `first`: the lane number alone, as in the first block."""
        expr = lane_number(axis) if first else self.axes[axis].index
        return Position(dtype=i64, axes=(axis,), spans=op.spans, expr=expr)

    def _scan(self, new: Scan, body: list[Op], carries: list[tuple[Carry, Op]]) -> Op:
        """A running sum over blocks: the block's own, after what all blocks before it came to.

        What is carried on is the last lane, picked by a sum over zeros. (A sum of the block, added to
        what was carried, is a pattern that Triton 3.6 recognises and fails to compile.)
        """
        rest = tuple(a for a in new.axes if a != new.along)
        carry = self._carry(new.dtype, rest, neutral(new.op, new.dtype), new)
        own = self._append(body, new)
        result = self._compute(body, COMBINE[new.op], carry, own)
        lane = lane_number(new.along) - (self.axes[new.along].block - 1)
        last = self._append(body, Inside(dtype=bool_, axes=(new.along,), spans=new.spans, conditions=(lane,)))
        alone = self._compute(body, "where", last, result, self._constant(new, neutral("sum", new.dtype)))
        following = Reduce(dtype=new.dtype, axes=rest, spans=new.spans, op="sum", x=alone, over=(new.along,))
        carries.append((carry, self._append(body, following)))
        return result

    def _finish(self, op: Op) -> None:
        """After the loop: the lanes of the carried value are reduced."""
        carried = self.top[op]
        if isinstance(op, Dot) or any(self._followed(o) is op for o in self.kernel.body):
            return
        assert isinstance(op, Reduce)
        if op.rescale is not None:
            self.top[op] = self._settled(op, carried)
            return
        if isinstance(carried, Reduce):  # argmax: made with its carries
            self.top[op] = self._add(carried)
            return
        final = Reduce(dtype=op.dtype, axes=op.axes, spans=op.spans, op=op.op, x=carried, over=op.over)
        self.top[op] = self._add(final)

    def _settled(self, op: Reduce, carried: Op) -> Op:
        """After the loop: from the finite stand-in for the maximum to the maximum itself."""
        followed = self._followed(op)
        assert op.rescale is not None and followed is not None
        needed = self._needed([op.rescale], {})
        moving = self._moving(needed, {followed})
        made: dict[Op, Op] = {followed: self.top[followed]}
        for o in needed:
            if isinstance(o, Old):
                made[o] = self._finite(self.out, self.top[followed])
            elif o in moving and o not in made:
                made[o] = self._add(ir.with_operands(o, lambda p: made.get(p) or self._at_top(p)))
        return self._compute(self.out, "multiply", carried, made[op.rescale])
