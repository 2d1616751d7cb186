"""kernels → tile: index notation becomes loops over blocks.

    m[i] = max over r of x[i, r]          m' = carry -inf
    s[i] = sum over r of exp(x - m)       for r:  m' = maximum(m', x[i, r])
                                          m = reduce.max m'
                                          s' = carry 0
                                          for r:  s' = s' + exp(x[i, r] - m)
                                          s = reduce.sum s'

The function `lower` takes a kernel and its schedule. The result is a tile program. The schedule gives each axis a block
size and a role: grid, whole or loop.

The one idea: the body of a tile program consists of phases, which are executed one after another. Each phase is a group
of loops, followed by reductions over the axes of the loops. If two results of a phase need loops over the same axes,
one loop nest computes both results. If a loop nest needs elements that an earlier phase (group of loops) used, the loop
nest loads and computes these elements again. If an axis has the role "whole", one block contains the whole axis, so the
axis needs no loop. Outside of loops, each op of the kernel is computed only once. For a reduction, a loop carries a
partial result for each position in a block. After the loop, a final reduction over the block combines the partial
results.

The class `Lowering` puts two reductions into separate loops if the second reduction depends on the result of the first
reduction. The file minitri/optimize/online_reductions/lower.py extends `Lowering` for kernels whose reductions share a
loop.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from minitri.base.dims import Dim, product
from minitri.base.operators import COMBINE, POSITIONS, neutral, reduction
from minitri.base.types import DType, bool_, i64
from minitri.graph.ir import postorder
from minitri.kernels import ir
from minitri.kernels.ir import Carry, Compute, Constant, Count, Dot, Kernel, Op, Position, Reduce, Scan, Spread, Store
from minitri.kernels.lower_graph import OpBuilder
from minitri.tiles.ir import LaunchOptions, Loop, Program, Stmt, TileAxis, lane_number
from minitri.tiles.schedule import Schedule


def lower(kernel: Kernel, schedule: Schedule) -> Program:
    """Lowers a kernel to a tile program. If reduction B uses the result of reduction A, the loop of A comes before the
    loop of B.
    """
    return Lowering.lower(kernel, schedule)


@dataclass
class Nest:
    """A loop nest under construction.

    `loops`: the names of the axes over which the loops run.
    `body`: the op builder that makes the ops of the innermost loop.
    `carries`: the values that the loop carries. Each `Carry` is paired with the op that computes its value for the next
        iteration.
    `values`: a dict from each op of the kernel to its value in the current iteration.
    """

    loops: tuple[str, ...]
    body: OpBuilder
    carries: list[tuple[Carry, Op]] = field(default_factory=list)
    values: dict[Op, Op] = field(default_factory=dict)


class Lowering:
    """Makes the statements of one tile program in `out`.

    The constants and initial values that a loop uses come before the loop. Equal constants share one op. In a loop, the
    result of an op has every axis that an operand of the op has. The axes are in the program's order.
    """

    online = False  # whether a reduction can run in the loop of another reduction that it depends on

    def __init__(self, kernel: Kernel, axes: dict[str, TileAxis]) -> None:
        self.axes = axes
        self.looped = [a for a, t in axes.items() if t.role == "loop"]
        self.kernel = self.without_transports(kernel)
        self.out = OpBuilder(axes)
        self.top: dict[Op, Op] = {}  # ops of the kernel → their values outside of loops

    @classmethod
    def lower(cls, kernel: Kernel, schedule: Schedule) -> Program:
        axes = tuple(TileAxis(a.name, a.extent, *schedule.axes[a.name]) for a in kernel.axes)
        body = cls(kernel, {a.name: a for a in axes}).run()
        options = {option.name: getattr(schedule, option.name) for option in fields(LaunchOptions)}
        return Program(kernel.name, axes, kernel.buffers, tuple(body), relaxed=kernel.relaxed, **options)

    def without_transports(self, kernel: Kernel) -> Kernel:
        """Returns the kernel without `rescale` and `shift` (corrections of a partial sum) wherever these corrections
        are not needed. A sum keeps its corrections only if a loop computes the sum and the field `online` is true.

        Corrections are needed only if the sum depends on a reduction whose value changes in the same loop. A reduction
        that reads all elements at once, without a loop, has no partial sum.
        """

        def untransported(op: Op) -> Op:
            lost = {n for n in ("rescale", "shift") if hasattr(op, n) and not (self.online and self.looped_over(op))}
            return replace(op, **dict.fromkeys(lost)) if lost else op

        return replace(kernel, body=ir.live(ir.rewritten(kernel.body, untransported).values()))

    def run(self) -> list[Stmt]:
        """Returns the statements of the tile program. The method writes one phase after another. A phase is a group of
        loops and the reductions after these loops.
        """
        levels: dict[Op, int] = {}
        for op in self.kernel.body:
            levels[op] = self.level(op, levels)
        for level in sorted({*levels.values()}):
            ending = [op for op in self.kernel.body if levels[op] == level]
            sinks = [op for op in ending if self.loops_of(op) and (self.looped_over(op) or isinstance(op, Store))]
            for loops in dict.fromkeys(self.loops_of(s) for s in sinks):
                self.phase(loops, [s for s in sinks if self.loops_of(s) == loops])
            for op in ending:
                if isinstance(op, Store) and not self.loops_of(op):
                    self.at_top(op)
        return self.out.ops

    def level(self, op: Op, levels: dict[Op, int]) -> int:
        """Returns the number of phases (groups of loops) that must end before an op can run. The dict `levels` contains
        the result of this method for each operand of the op.
        """
        return max((levels[o] + bool(self.looped_over(o)) for o in ir.children(op)), default=0)

    def looped_over(self, op: Op) -> list[str]:
        """Returns the axes with the role "loop" that an op reduces. If an op reduces a looped axis, its result exists
        only after the loop.
        """
        return [a for a in self.looped if a in ir.reduced_by(op)]

    def loops_of(self, op: Op) -> tuple[str, ...]:
        """Returns the looped axes that an op depends on, in order. The op belongs inside the loops over the returned
        axes.
        """
        used = set(op.axes) | set(self.looped_over(op))
        if isinstance(op, Reduce):
            used |= set(op.x.axes)
        if isinstance(op, Store):
            used |= op.indexed_by
        return tuple(a for a in self.looped if a in used)

    def at_top(self, op: Op) -> Op:
        """Adds an op to the tile program, outside of all loops. Adds missing operands before the op."""
        for needed in self.needed([op], self.top):
            self.top[needed] = self._whole(ir.with_children(needed, self.top.__getitem__), self.out)
        return self.top[op]

    def needed(self, ops: Iterable[Op], have: dict[Op, Op]) -> list[Op]:
        """Returns the ops that are missing in the tile program and needed to compute `ops`. Operands come before the
        ops that use them. The dict `have` contains the ops that are already in the tile program.
        """
        roots = [op for op in ops if op not in have]
        wanted = {*postorder(roots, lambda op: [o for o in ir.children(op) if o not in have])}
        return [op for op in self.kernel.body if op in wanted]

    # ---- one phase -------------------------------------------------------------------

    def phase(self, loops: tuple[str, ...], sinks: list[Op]) -> None:
        """Writes a loop nest, and the reductions that run after the loop nest. Each op in `sinks` is a result of the
        loop nest: a store, or a reduction over axes of the loops.
        """
        nest, needed = Nest(loops, OpBuilder(self.axes)), self.needed(sinks, self.top)
        for op in needed:
            if self.is_invariant(op):
                self.at_top(op)
        for op in needed:
            if op not in self.top:
                new = ir.with_children(op, lambda o: nest.values.get(o) or self.top[o])
                self.iterate(op, replace(new) if new is op else new, nest)  # a new op: no two phases share an op
        self.out.add(Loop(loops, tuple(nest.carries), tuple(nest.body.ops)))
        for op in sinks:
            if self.looped_over(op):
                self.finish(op)

    def is_invariant(self, op: Op) -> bool:
        """Checks whether an op is loop-invariant, which means that its value is the same in all iterations."""
        return not self.loops_of(op)

    def iterate(self, op: Op, new: Any, nest: Nest) -> None:
        """Writes the statements that compute `op` in one iteration of a loop. The argument `new` is a copy of `op`. The
        operands of the copy are values of the tile program.
        """
        if self.looped_over(op):
            nest.carries += self._accumulate(op, new, nest.body)
        elif isinstance(new, Scan) and new.along in self.looped:
            nest.values[op] = self._scan(new, nest)
        else:
            nest.values[op] = self._whole(new, nest.body)

    def finish(self, op: Op) -> None:
        """Adds the reduction that follows a loop to the tile program. The reduction combines the partial results of the
        loop: one for each position in a block. A loop for a matrix product carries the sums of the product, so no
        reduction follows the loop.
        """
        if isinstance(self.top[op], Reduce):
            self.out.add(self.top[op])

    # ---- ops in loops ----------------------------------------------------------------

    def _whole(self, new: Op, body: OpBuilder) -> Op:
        """Adds an op that needs no value of earlier loop iterations."""
        if isinstance(new, Count):
            return self.number(new, product([self.axes[a].extent for a in new.over]), body)
        if isinstance(new, Reduce) and new.op in ("argmax", "argmin"):
            new = replace(new, index=body.add(self._lane(new.over[0], new)))
        if isinstance(new, Dot):
            spread = Spread(dtype=new.dtype, axes=new.axes, spans=new.spans, x=self.constant(new, 0.0))
            new = replace(new, acc=body.add(spread))
        return body.add(new)

    def _accumulate(self, op: Op, new: Reduce | Dot, body: OpBuilder) -> list[tuple[Carry, Op]]:
        """Adds one iteration of a reduction or product, and returns the updated accumulators."""
        if isinstance(new, Dot):
            carry = self.top[op] = self.carry(new.dtype, new.axes, 0.0, new)
            return [(carry, body.add(replace(new, acc=carry)))]
        if new.op in POSITIONS:
            return self._accumulate_arg(op, new, body)
        carry = self.carry(new.dtype, new.x.axes, neutral(new.op, new.dtype), new)
        self.top[op] = replace(new, x=carry)
        return [(carry, body.compute(COMBINE[new.op], carry, new.x))]

    def _accumulate_arg(self, op: Op, new: Reduce, body: OpBuilder) -> list[tuple[Carry, Op]]:
        """Adds one iteration of argmax or argmin."""
        x = new.x
        # the loop carries the best value so far and its index, for each element of a block
        best = self.carry(x.dtype, x.axes, neutral(new.op, x.dtype), new)
        lane = self.out.add(self._lane(new.over[0], new, first=True))
        where = self.out.add(Carry(dtype=i64, axes=x.axes, spans=new.spans, initial=lane))
        self.top[op] = replace(new, x=best, index=where)
        better = body.compute(reduction(new.op).combine, x, best)  # strictly better, so the first of equal values wins
        if x.dtype.is_float:  # the first nan wins
            fresh = body.compute("logical_not", body.compute("isnan", best))
            first_nan = body.compute("logical_and", body.compute("isnan", x), fresh)
            better = body.compute("logical_or", better, first_nan)
        here = body.add(self._lane(new.over[0], new))
        return [(best, body.compute("where", better, x, best)), (where, body.compute("where", better, here, where))]

    def _lane(self, axis: str, op: Op, first: bool = False) -> Op:
        """Makes an op for the index along an axis."""
        expr = lane_number(axis) if first else self.axes[axis].index  # in the first block, or in the current block
        return Position(dtype=i64, axes=(axis,), spans=op.spans, expr=expr)

    def _scan(self, new: Scan, nest: Nest) -> Op:
        """Adds one iteration of a scan over blocks."""
        rest = tuple(a for a in new.axes if a != new.along)
        carry = self.carry(new.dtype, rest, neutral(new.op, new.dtype), new)  # the last element of the scan so far
        body, own = nest.body, nest.body.add(new)
        result = body.compute(COMBINE[new.op], carry, own)  # combined with the total of all earlier blocks
        lane = lane_number(new.along) - (self.axes[new.along].block - 1)
        last = body.add(ir.Inside(dtype=bool_, axes=(new.along,), spans=new.spans, conditions=(lane,)))
        # Selects the last element: all others become 0, and the elements are added. Triton 3.6 cannot compile a simpler
        # loop, which carries the total and adds the sum of each block.
        alone = body.compute("where", last, result, self.constant(new, neutral("sum", new.dtype)))
        following = Reduce(dtype=new.dtype, axes=rest, spans=new.spans, op="sum", x=alone, over=(new.along,))
        nest.carries.append((carry, body.add(following)))
        return result

    # ---- statements ------------------------------------------------------------------

    def carry(self, dtype: DType, axes: tuple[str, ...], value: int | float | bool, op: Op) -> Carry:
        """Adds a `Carry` to the tile program: a value that the next loop passes from iteration to iteration. The
        argument `value` is the number that the first iteration reads.
        """
        start = self.out.add(Constant(dtype=dtype, axes=(), spans=op.spans, value=value))
        return self.out.add(Carry(dtype=dtype, axes=axes, spans=op.spans, initial=start))

    def number(self, op: Op, expr: Dim, body: OpBuilder) -> Op:
        """Writes the value of an index expression, converted to the dtype of `op`."""
        place = body.add(Position(dtype=i64, axes=(), spans=op.spans, expr=expr))
        return body.add(Compute(dtype=op.dtype, axes=(), spans=op.spans, op="cast", args=(place,)))

    def constant(self, like: Op, value: int | float | bool) -> Op:
        """Returns a constant with the dtype of the op `like`. The constant is written before the loops that use it.
        Equal constants share one op.
        """
        return self.out.once(Constant(dtype=like.dtype, axes=(), spans=like.spans, value=value))
