"""Statements for reductions that share a loop (minitri/optimize/online_reductions/kernels.py).

    for r:  block = reduce.max x[i, r]             m' = maximum(m, block)
            s' = s * exp(m - m') + reduce.sum exp(x[i, r] - m')

The loop carries one value a row for each reduction, updated after each block. `old` is the value before the block.
Before the first block there is nothing to transport:

    a maximum   While all elements so far are -inf, a finite number replaces it, because -inf - -inf is nan. If the
                maximum is only subtracted, the number is the lowest one: the factor and the sum are then 0. Otherwise
                it is 0, and the factor is 1. After the loop one more rescaling leads to the true maximum, so a row of
                nothing but -inf gives the result of the definition
    a mean      While nothing has been counted it is 0 / 0, and the shift is 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.base.dims import Dim, product
from minitri.base.extremes import smallest
from minitri.base.operators import COMBINE, neutral
from minitri.base.types import DType, f32, f64
from minitri.kernels import ir
from minitri.kernels.ir import Carry, Compute, Constant, Count, Dot, Kernel, Old, Op, Reduce
from minitri.tiles.ir import TileAxis, block_start
from minitri.tiles.lower import Lowering, Nest


def followed(op: Op) -> tuple[Op, ...]:
    """The reductions and counts whose old values an op's transport is made of."""
    if not isinstance(op, (Reduce, Dot)):
        return ()
    transports = [t for t in (op.rescale, op.shift if isinstance(op, Reduce) else None) if t is not None]
    olds = [o for t in transports for o in ir.needed(t) if isinstance(o, Old)]
    return tuple(dict.fromkeys(o.x for o in olds))


def moving(ops: Iterable[Op], running: Iterable[Op]) -> set[Op]:
    """What changes with every block because what is followed does."""
    found: set[Op] = set(running)
    for op in ops:
        if any(o in found for o in ir.op_operands(op)):
            found.add(op)
    return found


class OnlineLowering(Lowering):
    """Lowering of kernels in which a reduction runs in the loop of the reduction that it follows."""

    def __init__(self, kernel: Kernel, axes: dict[str, TileAxis]) -> None:
        super().__init__(kernel, axes)
        self.follows = {op: followed(op) if self.looped_over(op) else () for op in self.kernel.body}
        self.running = {y for ys in self.follows.values() for y in ys}  # what others follow: one value a row is carried
        self.moving: set[Op] = set()  # of the present phase
        self.low: set[Op] = set()  # the maxima that the lowest number may stand in for
        self.made: dict[tuple[bool, str, tuple[Op, ...]], Op] = {}

    def shares_a_loop(self, op: Op) -> bool:
        return bool(self.looped_over(op))

    def level(self, op: Op, levels: dict[Op, int]) -> int:
        """A reduction runs in the phase of the reductions that it follows, as if they did not end it."""
        if not self.follows[op]:
            return super().level(op, levels)
        own: dict[Op, int] = {}
        for o in self.needed([op], {}):
            ends = [own[p] + (bool(self.looped_over(p)) and p not in self.follows[op]) for p in ir.op_operands(o)]
            own[o] = max(ends, default=0)
        return own[op]

    def phase(self, loops: tuple[str, ...], sinks: list[Op]) -> None:
        """Finds what moves in the loop, and which of its maxima are only subtracted; then writes it."""
        running = {y for s in sinks for y in self.follows[s]}
        needed = self.needed(sinks, self.top)
        self.moving = moving(needed, running)
        self.low |= {y for y in running if only_subtracted(y, needed)}
        super().phase(loops, sinks)

    def is_invariant(self, op: Op) -> bool:
        return super().is_invariant(op) and op not in self.moving

    def iterate(self, op: Op, new: Op, nest: Nest) -> None:
        if isinstance(op, Count):
            nest.values[op] = self._count(op, nest)
        elif isinstance(op, Old):
            nest.values[op] = self._count(op.x, nest, before=True) if isinstance(op.x, Count) else self.top[op.x]
        elif op in self.running:
            self._run_along(op, new, nest)
        elif self.follows[op]:
            nest.carries.append(self._follow(op, new, nest))
        else:
            super().iterate(op, new, nest)

    def finish(self, op: Op) -> None:
        if op in self.running:
            return
        if isinstance(op, (Reduce, Dot)) and op.rescale is not None:
            self.top[op] = self._settled(op)
        elif not isinstance(op, Reduce) or op.shift is None:
            super().finish(op)

    # ---- what is followed ------------------------------------------------------------

    def _run_along(self, op: Op, new: Op, nest: Nest) -> None:
        """A reduction that others follow: its value so far, one a row."""
        assert isinstance(new, Reduce)
        carry = self.carry(new.dtype, new.axes, neutral(new.op, new.dtype), new)
        self.top[op] = carry
        self.append(nest.body, new)
        best = self.compute(nest.body, COMBINE[new.op], carry, new)
        nest.carries.append((carry, best))
        nest.values[op] = self._finite(nest.body, op, best) if new.op == "max" else best

    def _count(self, op: Count, nest: Nest, before: bool = False) -> Op:
        """How many elements there are up to the end of this block, or up to its start."""
        walked = [self.axes[a] for a in nest.loops if a in op.over]
        rest = product([self.axes[a].extent for a in op.over if a not in nest.loops])
        return self.number(op, _walked(walked, before) * rest, nest.body)

    def _finite(self, body: list[Any], op: Op, y: Op) -> Op:
        """A number while a maximum has seen nothing but -inf."""
        if op in self.low:
            return self._once(body, "maximum", y, self.constant(y, lowest(y.dtype)))
        return self._once(body, "where", self._is_bottom(body, y), self.constant(y, 0.0), y)

    def _is_bottom(self, body: list[Any], y: Op) -> Op:
        return self._once(body, "equal", y, self.constant(y, neutral("max", y.dtype)))

    def _once(self, body: list[Any], name: str, *args: Op) -> Op:
        """What several sums need is made once, in a loop and after it."""
        key = (body is self.out, name, args)
        if key not in self.made:
            self.made[key] = self.compute(body, name, *args)
        return self.made[key]

    # ---- what follows ----------------------------------------------------------------

    def _follow(self, op: Op, new: Op, nest: Nest) -> tuple[Carry, Op]:
        """A sum in the loop of what it follows: the sum so far is transported, then the block added."""
        assert isinstance(new, (Reduce, Dot))
        body = nest.body
        carry = self.carry(new.dtype, new.axes, neutral("sum", new.dtype), new)
        self.top[op] = carry
        if isinstance(new, Dot):
            sofar = self.compute(body, "multiply", carry, self._factor(op, new, body))
            body.append(product := replace(new, rescale=None, acc=sofar))
            return carry, product
        block = replace(new, rescale=None, shift=None)
        body.append(block)
        if new.rescale is not None:
            factor = self._factor(op, new, body)
            return carry, self.compute(body, "add", self.compute(body, "multiply", carry, factor), block)
        assert new.shift is not None
        count = next(o for o in ir.needed(op) if isinstance(o, Old) and isinstance(o.x, Count))
        nothing = self.compute(body, "equal", nest.values[count], self.constant(new, 0.0))
        shift = self._unless(body, nothing, new.shift, 0.0)
        return carry, self.compute(body, "add", self.compute(body, "add", carry, shift), block)

    def _factor(self, op: Op, new: Reduce | Dot, body: list[Op]) -> Op:
        (y,) = followed(op)
        assert new.rescale is not None
        if y in self.low:
            return new.rescale
        return self._unless(body, self._is_bottom(body, self.top[y]), new.rescale, 1.0)

    def _unless(self, body: list[Any], untouched: Op, transport: Op, identity: float) -> Op:
        """A transport, of nothing the one that changes nothing."""
        return self._once(body, "where", untouched, self.constant(transport, identity), transport)

    def _settled(self, op: Reduce | Dot) -> Op:
        """After the loop: from the finite stand-in for a maximum to the maximum itself."""
        assert op.rescale is not None
        (y,) = followed(op)
        needed = ir.needed(op.rescale)
        ops = [o for o in self.kernel.body if o in needed]
        changes = moving(ops, {y})
        made: dict[Op, Op] = {y: self.top[y]}
        for o in ops:
            if isinstance(o, Old):
                made[o] = self._finite(self.out, y, self.top[y])
            elif o in changes and o not in made:
                made[o] = self._settled_part(o, lambda p: made.get(p) or self.at_top(p))
        return self.compute(self.out, "multiply", self.top[op], made[op.rescale])

    def _settled_part(self, op: Op, new: Callable[[Op], Op]) -> Op:
        made = ir.with_operands(op, new)
        if not isinstance(made, Compute):
            return self.add(made)
        key = (True, made.op, made.args)
        if key not in self.made:
            self.made[key] = self.add(made)
        return self.made[key]


def lowest(dtype: DType) -> float:
    return float(np.finfo(dtype.numpy).min)


def only_subtracted(y: Op, ops: Sequence[Op]) -> bool:
    """Whether a running maximum is only subtracted, so that the lowest finite number may replace -inf.

    It may be subtracted from its own elements, and from its old value in transports exp(old y - y), perhaps scaled.
    """
    if not isinstance(y, Reduce) or y.op != "max" or y.dtype not in (f32, f64):
        return False
    shifts = {y} | {o for o in ops if _scaled(o, y)}
    for o in ops:
        used = [x for x in ir.op_operands(o) if x in shifts]
        subtracted = isinstance(o, Compute) and o.op == "subtract" and used == [o.args[1]]
        if used and o not in shifts and not subtracted and not isinstance(o, Old):
            return False
    olds = [o for o in ops if isinstance(o, Old) and o.x is y]
    return all(_leads_to_exp(u, ops) for u in ops if any(o in olds for o in ir.op_operands(u)))


def _scaled(op: Op, y: Op) -> bool:
    """y times a number that is not above 1, so that it stays finite."""
    if not isinstance(op, Compute) or op.op != "multiply" or y not in op.args:
        return False
    other = op.args[op.args[0] is y]
    return isinstance(other, Constant) and 0 < other.value <= 1


def _leads_to_exp(op: Op, ops: Sequence[Op]) -> bool:
    """old y - y, which becomes the exponent of a power, perhaps times a number above 0."""
    if not isinstance(op, Compute) or op.op != "subtract":
        return False
    users = [u for u in ops if op in ir.op_operands(u)]
    return bool(users) and all(_is_power(u) or _times_positive(u) and _to_powers(u, ops) for u in users)


def _to_powers(op: Op, ops: Sequence[Op]) -> bool:
    return all(_is_power(u) for u in ops if op in ir.op_operands(u))


def _is_power(op: Op) -> bool:
    return isinstance(op, Compute) and op.op in ("exp", "exp2")


def _times_positive(op: Op) -> bool:
    constants = [a for a in op.args if isinstance(a, Constant)] if isinstance(op, Compute) else []
    return isinstance(op, Compute) and op.op == "multiply" and any(c.value > 0 for c in constants)


def _walked(axes: Sequence[TileAxis], before: bool) -> Dim:
    """How many indices of nested loops come before the end of this block, or before its start."""
    first, *inner = axes
    start = block_start(first.name)
    if not inner:
        return start if before else _end(first)
    return start * product([a.extent for a in inner]) + (_end(first) - start) * _walked(inner, before)


def _end(a: TileAxis) -> Dim:
    """Where this block ends."""
    whole = all(c % a.block == 0 for _, c in a.extent.terms)
    end = block_start(a.name) + a.block
    return end if whole else smallest(end, a.extent)
