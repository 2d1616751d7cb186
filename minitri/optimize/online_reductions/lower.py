"""Lowers online reductions to loops that carry running values (minitri/optimize/online_reductions/merge_loops.py).

    for r:  block = reduce.max x[i, r]             m' = maximum(m, block)
            s' = s * exp(m - m') + reduce.sum exp(x[i, r] - m')

The loop carries one value per row for each reduction, and updates this value after each block. In the text of a kernel,
`old` means the value before the current block. For a running maximum and a running mean, the value before the first
block needs a special rule:

Maximum: -inf - -inf is nan, so a finite number replaces the maximum while all elements so far are -inf. If the program
    only subtracts the maximum, the finite number is the lowest float. The correction factor and the sum are then 0. If
    the maximum is used in other ways, the finite number is 0, and the correction factor is 1. After the loop, one more
    factor corrects the sum for the true maximum, which can be -inf. The result is therefore right even for a row that
    contains only -inf.
Mean: while no element has been counted, the mean is 0 / 0. Because 0 / 0 is nan, 0 replaces the correction that is
    added to the sum (the shift).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.base.dims import Dim, product
from minitri.base.operators import COMBINE, neutral
from minitri.base.symbolic_minmax import smallest
from minitri.base.types import f32, f64
from minitri.kernels import ir
from minitri.kernels.ir import Carry, Compute, Constant, Count, Dot, Kernel, Old, Op, Reduce
from minitri.kernels.lower_graph import OpBuilder
from minitri.tiles.ir import TileAxis, block_start
from minitri.tiles.lower import Lowering, Nest


def followed(op: Op) -> tuple[Op, ...]:
    """Returns the reductions and element counts whose old values are used to correct an op's partial sum. An old value
    is the value before the current block of the loop. In a softmax, for example, the sum *follows* the maximum: the
    loop corrects the partial sum with the old maximum.
    """
    transports = [t for name in ("rescale", "shift") if (t := getattr(op, name, None)) is not None]
    olds = [o for t in transports for o in ir.needed(t) if isinstance(o, Old)]
    return tuple(dict.fromkeys(o.x for o in olds))


def moving(ops: Iterable[Op], running: Iterable[Op]) -> set[Op]:
    """Returns the reductions `running` and all ops that depend on one of these reductions. The values of the returned
    ops change with every block of the loop.
    """
    found: set[Op] = set(running)
    for op in ops:
        if not found.isdisjoint(ir.children(op)):
            found.add(op)
    return found


class OnlineLowering(Lowering):
    """Lowers kernels in which a reduction runs in the loop of another reduction."""

    online = True

    def __init__(self, kernel: Kernel, axes: dict[str, TileAxis]) -> None:
        super().__init__(kernel, axes)
        self.follows = {op: followed(op) if self.looped_over(op) else () for op in self.kernel.body}
        self.running = {y for ys in self.follows.values() for y in ys}  # reductions that others follow
        self.moving: set[Op] = set()  # ops of the present phase that change with every block
        self.low: set[Op] = set()  # the maxima in which the lowest finite number may replace -inf

    def level(self, op: Op, levels: dict[Op, int]) -> int:
        """Returns the phase (group of loops) of an op. An online reduction runs in the same phase as the reductions
        that it depends on, not in a later phase.
        """
        if not self.follows[op]:
            return super().level(op, levels)
        own: dict[Op, int] = {}
        for o in self.needed([op], {}):
            ends = [own[p] + (bool(self.looped_over(p)) and p not in self.follows[op]) for p in ir.children(o)]
            own[o] = max(ends, default=0)
        return own[op]

    def phase(self, loops: tuple[str, ...], sinks: list[Op]) -> None:
        """Lowers one phase (group of loops): writes one loop with all reductions of this phase.

        Before the method `phase` writes the loop, it finds the ops whose values change with every block. The method
        `phase` also finds the maxima that are used only in subtractions, as in `exp(x - max)`.
        """
        running = {y for s in sinks for y in self.follows[s]}
        needed = self.needed(sinks, self.top)
        self.moving = moving(needed, running)
        self.low |= {y for y in running if only_subtracted(y, needed)}
        super().phase(loops, sinks)

    def is_invariant(self, op: Op) -> bool:
        return super().is_invariant(op) and op not in self.moving

    def iterate(self, op: Op, new: Any, nest: Nest) -> None:
        if isinstance(op, Count):
            nest.values[op] = self._count(op, nest)
        elif isinstance(op, Old):
            nest.values[op] = self._count(op.x, nest, before=True) if isinstance(op.x, Count) else self.top[op.x]
        elif op in self.running:
            self._lower_followed(op, new, nest)
        elif self.follows[op]:
            nest.carries.append(self._lower_following(op, new, nest))
        else:
            super().iterate(op, new, nest)

    def finish(self, op: Op) -> None:
        if op in self.running:
            return
        if isinstance(op, (Reduce, Dot)) and op.rescale is not None:
            self.top[op] = self._corrected_after_loop(op)
        elif not isinstance(op, Reduce) or op.shift is None:
            super().finish(op)

    # ---- reductions that others follow -----------------------------------------------

    def _lower_followed(self, op: Op, new: Reduce, nest: Nest) -> None:
        """Lowers a reduction that other reductions depend on."""
        # the loop carries one partial result per row
        carry = self.top[op] = self.carry(new.dtype, new.axes, neutral(new.op, new.dtype), new)
        best = nest.body.compute(COMBINE[new.op], carry, nest.body.add(new))
        nest.carries.append((carry, best))
        nest.values[op] = self._finite(nest.body, op, best) if new.op == "max" else best

    def _count(self, op: Count, nest: Nest, before: bool = False) -> Op:
        """Returns how many elements the loop has reduced so far. With `before`, the current block is not counted."""
        looped = [self.axes[a] for a in nest.loops if a in op.over]
        rest = product([self.axes[a].extent for a in op.over if a not in nest.loops])
        return self.number(op, _indices_up_to(looped, before) * rest, nest.body)

    # Several sums can follow one maximum. They share the ops that `once` adds to the loop, or after the loop.

    def _finite(self, body: OpBuilder, op: Op, y: Op) -> Op:
        """Returns the running maximum, or a finite number for rows in which all elements so far are -inf."""
        if op in self.low:
            return body.once(body.computed("maximum", y, self.constant(y, float(np.finfo(y.dtype.numpy).min))))
        return body.once(body.computed("where", self._is_bottom(body, y), self.constant(y, 0.0), y))

    def _is_bottom(self, body: OpBuilder, y: Op) -> Op:
        return body.once(body.computed("equal", y, self.constant(y, neutral("max", y.dtype))))

    # ---- reductions that follow others -----------------------------------------------

    def _lower_following(self, op: Op, new: Reduce | Dot, nest: Nest) -> tuple[Carry, Op]:
        """Lowers a sum that depends on other reductions."""
        # each iteration corrects the partial sum by a factor or summand, and adds the sum of the block
        body = nest.body
        carry = self.top[op] = self.carry(new.dtype, new.axes, neutral("sum", new.dtype), new)
        if isinstance(new, Dot):
            sofar = body.compute("multiply", carry, self._factor(op, new, body))
            return carry, body.add(replace(new, rescale=None, acc=sofar))
        block = body.add(replace(new, rescale=None, shift=None))
        if new.rescale is not None:
            factor = self._factor(op, new, body)
            return carry, body.compute("add", body.compute("multiply", carry, factor), block)
        assert new.shift is not None
        count = next(o for o in ir.needed(op) if isinstance(o, Old) and isinstance(o.x, Count))
        nothing = body.compute("equal", nest.values[count], self.constant(new, 0.0))
        shift = self._transport_or_identity(body, nothing, new.shift, 0.0)
        return carry, body.compute("add", body.compute("add", carry, shift), block)

    def _factor(self, op: Op, new: Reduce | Dot, body: OpBuilder) -> Op:
        """Returns the factor by which each iteration multiplies the partial sum of earlier iterations."""
        (y,) = followed(op)
        assert new.rescale is not None
        if y in self.low:
            return new.rescale
        # 1 while the running maximum is -inf
        return self._transport_or_identity(body, self._is_bottom(body, self.top[y]), new.rescale, 1.0)

    def _transport_or_identity(self, body: OpBuilder, untouched: Op, transport: Op, identity: float) -> Op:
        """Returns the correction of a partial sum, which is `identity` (no effect) where `untouched` is true."""
        # `identity` (0 or 1) has no effect as a correction; the partial sums of `untouched` rows do not need one yet
        return body.once(body.computed("where", untouched, self.constant(transport, identity), transport))

    def _corrected_after_loop(self, op: Reduce | Dot) -> Op:
        """Returns the sum that a loop has computed, corrected for rows that contain only -inf."""
        assert op.rescale is not None
        (y,) = followed(op)
        needed = ir.needed(op.rescale)
        ops = [o for o in self.kernel.body if o in needed]
        changes = moving(ops, {y})
        # In a row of only -inf, the loop used a finite number instead of the maximum, because -inf - -inf is nan. The
        # correction makes the sum the same as with the maximum -inf.
        made: dict[Op, Op] = {y: self.top[y]}
        for o in ops:
            if isinstance(o, Old):
                made[o] = self._finite(self.out, y, self.top[y])
            elif o in changes and o not in made:
                made[o] = self.out.once(ir.with_children(o, lambda p: made.get(p) or self.at_top(p)))
        return self.out.compute("multiply", self.top[op], made[op.rescale])


def only_subtracted(y: Op, ops: Sequence[Op]) -> bool:
    """Checks whether the ops only subtract the running maximum `y`. If so, the lowest finite number can replace a
    running maximum of -inf.

    The function accepts a maximum y that is subtracted from the elements x, as in `exp(x - y)`. The ops may subtract y
    from the maximum of the earlier blocks, `old y`. An example is the correction factor of a sum, `exp(old y - y)`. The
    maximum may be multiplied by a positive constant of at most 1 before it is subtracted.
    """
    if not isinstance(y, Reduce) or y.op != "max" or y.dtype not in (f32, f64):
        return False
    # y times a positive number of at most 1 is finite for a finite y
    shifts = {y} | {o for o in ops if y in ir.children(o) and 0 < _factor(o) <= 1}
    for o in ops:
        used = [x for x in ir.children(o) if x in shifts]
        subtracted = isinstance(o, Compute) and o.op == "subtract" and used == [o.args[1]]
        if used and o not in shifts and not subtracted and not isinstance(o, Old):
            return False
    olds = [o for o in ops if isinstance(o, Old) and o.x is y]
    return all(_leads_to_exp(u, ops) for u in ops if any(o in olds for o in ir.children(u)))


def _leads_to_exp(op: Op, ops: Sequence[Op]) -> bool:
    """Checks whether an op is a difference `x - y`, used only as `exp(x - y)` or `exp(c * (x - y))` for c > 0."""
    # such as `old y - y`, the difference of a running maximum before and after the current block
    if not isinstance(op, Compute) or op.op != "subtract":
        return False
    users = [u for u in ops if op in ir.children(u)]
    scaled = [u for u in users if _factor(u) > 0]
    powers = [u for u in users if u not in scaled] + [u for u in ops if any(s in ir.children(u) for s in scaled)]
    return bool(users) and all(isinstance(u, Compute) and u.op in ("exp", "exp2") for u in powers)


def _factor(op: Op) -> float:
    """Returns the constant by which an op multiplies, or 0 if there is none."""
    factors = op.args if isinstance(op, Compute) and op.op == "multiply" else ()
    return max((a.value for a in factors if isinstance(a, Constant)), default=0)


def _indices_up_to(axes: Sequence[TileAxis], before: bool) -> Dim:
    """Returns how many indices nested loops have visited at the start (`before`) or at the end of the current block."""
    first, *inner = axes
    start = block_start(first.name)
    if not inner:
        return start if before else _end(first)
    return start * product([a.extent for a in inner]) + (_end(first) - start) * _indices_up_to(inner, before)


def _end(a: TileAxis) -> Dim:
    """Returns the first index after the current block of the axis `a`."""
    whole = all(c % a.block == 0 for _, c in a.extent.terms)
    end = block_start(a.name) + a.block
    return end if whole else smallest(end, a.extent)
