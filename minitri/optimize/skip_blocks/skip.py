"""tile → tile: a loop leaves out blocks that change none of its carried values ("index-set splitting").

    for r {                                           for r {last = min(S, i_start + 64)} {
      …                                                 …
      %9: bool[i, r] = greater_equal %7, %8             (the index of i is at least that of r)
      %10: f32[i, r] = where %9, %6, %3                 (elsewhere -inf)

In: a program. Out: the same, with bounds of loops in the indices that its block of the grid starts at. Causal and
windowed attention compute half of their blocks or fewer. Nothing here knows what the program is for; two proofs say
what may be left out:

    where      outside of which indices a condition fails for every element of a block (optimize/skip_blocks/conditions.py)
    nothing    a round in which it fails gives on each carried value as it was (optimize/skip_blocks/identity_proofs.py)

Where the condition surely holds the loop does without the test. So one loop becomes two or three over the same carried
values. What was proven stands beside each of them (`because`). In loops over products a last block that may be short is
apart, so that no other is tested for where the axis ends.

Left out: loops over several axes, loops that store, and conditions on what is read from memory. (Splitting of the index
set: Griebl, Feautrier and Lengauer, "Index set splitting", 2000.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from minitri.base.dims import Dim, floordiv
from minitri.base.extremes import largest, smallest
from minitri.kernels.ir import Carry, Compute, Dot, Op, Position, Reduce, Scan, Spread, Store, live, with_operands
from minitri.optimize.skip_blocks.abstract_values import constant
from minitri.optimize.skip_blocks.conditions import NOWHERE, Interval, all_of, can_hold, formula, said, surely_holds
from minitri.optimize.skip_blocks.identity_proofs import unchanged
from minitri.tiles.ir import Loop, Program, Stmt, block_start


def skip(program: Program) -> Program:
    body: list[Stmt] = []
    for s in program.body:
        body += _Skipping(program, s).loops() if isinstance(s, Loop) and len(s.axes) == 1 else [s]
    return program if body == list(program.body) else replace(program, body=tuple(body))


@dataclass(frozen=True, slots=True)
class _Choice:
    """A `where` by a condition on positions. Where the condition is not `holds` the iteration changes nothing."""

    op: Compute
    holds: bool
    reasons: tuple[str, ...]

    @property
    def chosen(self) -> Op:
        """What it gives where the condition is `holds`."""
        return self.op.args[1 if self.holds else 2]


class _Skipping:
    """One loop over one axis."""

    def __init__(self, program: Program, loop: Loop) -> None:
        self.program, self.loop = program, loop
        self.axis = program.axis(loop.axes[0])
        stores = any(isinstance(op, Store) for op in loop.body)
        self.choices = [] if stores or not loop.carries else self._neutral_choices()
        self.condition = all_of(dict.fromkeys(formula(c.op.args[0], c.holds) for c in self.choices))

    def _neutral_choices(self) -> list[_Choice]:
        """The choices that may leave an iteration without effect."""
        before = list(self.program.ops())
        before = before[: before.index(self.loop.body[0])] if self.loop.body else before

        @cache
        def reasons(condition: Op, holds: bool) -> tuple[str, ...] | None:
            return unchanged(self.loop, before, {condition: constant(not holds, condition.dtype)})

        found = (op for op in self.loop.body if isinstance(op, Compute) and op.op == "where")
        by_block = [op for op in found if self.axis.name in op.args[0].axes]
        tried = ((op, holds, reasons(op.args[0], holds)) for op in by_block for holds in (True, False))
        return [_Choice(op, holds, why) for op, holds, why in tried if why is not None]

    def loops(self) -> list[Stmt]:
        """The pieces in the order of the axis; of products the last one first. The piece with most rounds then
        comes last, and takes fewer registers; and where it is followed by one that surely runs, NVIDIA's
        assembler has the tensor cores wait for each instruction (its message C7515). (minitri/optimize/software_pipelining.py
        puts a loop that it rotates ahead again.)"""
        pieces = self._pieces()
        return pieces[::-1] if self._may_turn() else pieces

    def _may_turn(self) -> bool:
        """Whether a product, and nothing that asks what came before, is made."""
        return not any(map(self._is_ordered, self.loop.body)) and any(isinstance(op, Dot) for op in self.loop.body)

    def _is_ordered(self, op: Op) -> bool:
        match op:
            case Position():  # elements before this block
                return block_start(self.axis.name).atom in op.expr.symbols()
            case Compute(op="greater" | "less", args=(_, Carry())):  # of equal ones
                return True
            case Reduce():
                return op.index is not None
            case _:
                return isinstance(op, Scan)

    # ---- pieces ----------------------------------------------------------------------------------

    def _pieces(self) -> list[Stmt]:
        """Blocks where the condition holds for some elements, for all, for some again."""
        axis, extent = self.axis, self.axis.extent
        whole = self._down(extent) if self._may_end_short() else extent
        some = can_hold(self.condition, axis.symbol, extent, lambda d: _most(self.program, d))
        if some == Interval():
            return [self.loop] if whole == extent else [self._loop(None, whole), self._loop(whole, None)]
        every = surely_holds(self.condition, axis.symbol, extent, lambda d: _least(self.program, d))
        start = some.low and self._down(some.low)
        if every == NOWHERE or self._has_no_block(every):
            return [self._loop(start, some.high)]
        made: list[Stmt] = []
        if every.low is not None:
            inner = self._up(every.low)
            made.append(self._loop(start, smallest(inner, extent if some.high is None else some.high)))
            start = inner
        return [*made, *self._from_full(start, every.high, some.high, whole)]

    def _from_full(self, start: Dim | None, inner_last: Dim | None, last: Dim | None, whole: Dim) -> list[Stmt]:
        """From the first block on where the condition holds for all elements."""
        extent = self.axis.extent
        if inner_last is None and whole == extent:
            return [self._loop(start, None, full=True)]
        end = whole if inner_last is None else self._down(largest(inner_last, 0))
        end = end if whole == extent else smallest(end, whole)
        full = self._loop(start, smallest(end, extent), full=True)
        return [full, self._loop(end if start is None else largest(start, end), last, full=inner_last is None)]

    def _has_no_block(self, every: Interval) -> bool:
        """Whether an interval of known ends has room for no whole block."""
        first = 0 if every.low is None else self._up(every.low).constant
        last = (self.axis.extent if every.high is None else self._down(every.high)).constant
        return first is not None and last is not None and first >= last

    def _may_end_short(self) -> bool:
        kinds, extent = {type(op) for op in self.loop.body}, self.axis.extent
        if extent.constant is not None and extent.constant < 2 * self.axis.block:
            return False  # most of it is the last block
        return {Dot, Reduce} <= kinds and any(c % self.axis.block for _, c in extent.terms)

    def _down(self, d: Dim) -> Dim:
        return floordiv(d, Dim.of(self.axis.block)) * self.axis.block

    def _up(self, d: Dim) -> Dim:
        return self._down(d + (self.axis.block - 1))

    def _loop(self, first: Dim | None, last: Dim | None, full: bool = False) -> Loop:
        """The loop between bounds; `full`: the condition holds for all of its elements."""
        chosen = {c.op: c.chosen for c in self.choices} if full else {}
        made: dict[Op, Op] = {}
        body: list[Op] = []
        for op in self.loop.body:
            if op in chosen:
                x = chosen[op]
                made[op] = made.get(x, x)
                if set(x.axes) == set(op.axes):
                    continue
                made[op] = Spread(dtype=op.dtype, axes=op.axes, spans=op.spans, x=made[op])
            else:
                new = with_operands(op, lambda o: made.get(o, o))
                made[op] = replace(new) if new is op else new
            body.append(made[op])
        carries = tuple((c, made.get(n, n)) for c, n in self.loop.carries)
        return Loop(self.loop.axes, carries, live(body, [n for _, n in carries]), first, last, self._because(full))

    def _because(self, full: bool) -> tuple[str, ...]:
        """What was proven of a piece."""
        if not self.choices:
            return (f"whole blocks of {self.axis.name} stand apart from the last one",)
        if full:
            return (f"{said(self.condition)}: no test, it holds for all elements of these blocks",)
        neutral = dict.fromkeys(reason for c in self.choices for reason in c.reasons)
        return (f"{said(self.condition)}: the other blocks are left out, it fails for all of their elements", *neutral)


# ---- bounds of a block ----------------------------------------------------------------------


def _most(program: Program, d: Dim) -> Dim | None:
    """The largest value in a block, as an expression of where it starts; None if there is none."""
    for a in program.axes:
        if a.symbol not in d.symbols():
            continue
        split = d.coefficient(a.symbol)
        if split is None or split[0].constant is None:
            return None
        end = block_start(a.name) + (a.lanes - 1 if split[0].constant > 0 else 0)
        d = split[0] * end + split[1]
    ours = {f"{a.name}_start" for a in program.grid}
    return d if all(s.kind == "size" or s.name in ours for s in d.symbols()) else None


def _least(program: Program, d: Dim) -> Dim | None:
    most = _most(program, -d)
    return None if most is None else -most
