"""tile → tile: skips the loop iterations that change no carried value ("index-set splitting").

    for r {                                           for r {last = min(S, i_start + 64)} {
      …                                                 …
      %9: bool[i, r] = greater_equal %7, %8             (the index of i is at least that of r)
      %10: f32[i, r] = where %9, %6, %3                 (elsewhere -inf)

The pass `skip-blocks` shortens some loops of a tile program, so that they run over only a part of their axis. Such a
loop gets a start and an end, computed from the start of the grid program's block. Because of the loop bounds, causal
attention and windowed attention skip about half of their blocks or more. The pass `skip-blocks` has no rule for
attention in particular. The pass `skip-blocks` skips a block if two facts are proven:

  - A condition, such as the condition of a `where`, fails for every element of the block
    (optimize/skip_blocks/condition_ranges.py).
  - An iteration in which the condition fails changes no carried value (optimize/skip_blocks/no_effect_proofs.py).

In causal attention, the condition of the mask (a `where`) holds for all elements of the blocks below the diagonal. A
loop need not test a condition that holds for every element of every block in the loop. The pass `skip-blocks` cuts one
loop into two or three loops, which run one after another and update the same variables. In causal attention, the new
loop over the blocks below the diagonal does not test the condition of the `where`. In the printed program, the
attribute `because` of a loop lists what was proven about the blocks of the loop. If the last block of a loop with
products can be incomplete, this block gets a loop of its own. If the last block has a loop of its own, the loop over
all complete blocks needs no bounds check.

No block is skipped in a loop that runs over several axes, or in a loop that contains stores. A condition on values from
memory never causes a skipped block. Index-set splitting is from Griebl, Feautrier and Lengauer, "Index set splitting",
2000.
"""

from dataclasses import replace
from functools import cache, partial
from itertools import product

from minitri.base.dims import Dim
from minitri.base.intervals import Range, bounds
from minitri.base.nodes import Record
from minitri.base.symbolic_minmax import largest, smallest
from minitri.kernels.ir import Carry, Compute, Dot, Op, Position, Reduce, Scan, Spread, Store, live, with_children
from minitri.optimize.skip_blocks import condition_ranges as ranges
from minitri.optimize.skip_blocks.abstract_values import constant
from minitri.optimize.skip_blocks.no_effect_proofs import unchanged
from minitri.tiles.ir import Loop, Program, Stmt, block_start


def skip(program: Program) -> Program:
    body: list[Stmt] = []
    for s in program.body:
        body += _Skipping(program, s).loops() if isinstance(s, Loop) and len(s.axes) == 1 else [s]
    return program if body == list(program.body) else replace(program, body=tuple(body))


class _Choice(Record):
    """A selection (`where` op) in a loop, with a condition that depends on positions."""

    op: Compute
    holds: bool
    reasons: tuple[str, ...]

    @property
    def chosen(self) -> Op:
        """The operand that the `where` op selects if its condition has the value `holds`."""
        return self.op.args[1 if self.holds else 2]


class _Skipping:
    """Splits one loop over one axis into several loops, called pieces."""

    def __init__(self, program: Program, loop: Loop) -> None:
        self.program, self.loop = program, loop
        self.axis = program.axis(loop.axes[0])
        stores = any(isinstance(op, Store) for op in loop.body)
        self.choices = [] if stores or not loop.carries else self._neutral_choices()
        self.condition = ranges.all_of(dict.fromkeys(ranges.formula(c.op.args[0], c.holds) for c in self.choices))

    def _neutral_choices(self) -> list[_Choice]:
        """Returns the `where` ops whose conditions let the loop skip blocks."""
        before = list(self.program.ops())
        before = before[: before.index(self.loop.body[0])] if self.loop.body else before

        @cache
        def reasons(condition: Op, holds: bool) -> tuple[str, ...] | None:
            return unchanged(self.loop, before, {condition: constant(not holds, condition.dtype)})

        found = (op for op in self.loop.body if isinstance(op, Compute) and op.op == "where")
        by_block = product((op for op in found if self.axis.name in op.args[0].axes), (True, False))
        # if `holds` is true, the loop can skip each block in which the condition is false for all elements
        return [_Choice(op, holds, why) for op, holds in by_block if (why := reasons(op.args[0], holds)) is not None]

    def loops(self) -> list[Stmt]:
        """Returns the loops that replace the original loop (the pieces of the loop), in the order in which they run.
        The pieces of a loop run in the order along the axis, or in reverse order if the loop computes a product.

        In reverse order, the piece with the most iterations runs last, where the loop of this piece needs the fewest
        registers. In causal attention, the loop over the blocks at the diagonal always has iterations. If the loop over
        the diagonal blocks ran last, NVIDIA's assembler would serialise the tensor core instructions (message C7515).
        Later, minitri/optimize/software_pipelining.py moves each pipelined loop to the front, so that this loop runs
        before the other loops.
        """
        pieces, ops = self._pieces(), self.loop.body
        reverse = any(isinstance(op, Dot) for op in ops) and not any(map(self._is_ordered, ops))
        return pieces[::-1] if reverse else pieces

    def _is_ordered(self, op: Op) -> bool:
        match op:
            case Position():  # counts the elements before this block
                return block_start(self.axis.name).atom in op.expr.symbols()
            case Compute(op="greater" | "less", args=(_, Carry())):  # keeps the first of equal values
                return True
            case Reduce():
                return op.index is not None
        return isinstance(op, Scan)

    # ---- pieces ----------------------------------------------------------------------------------

    def _pieces(self) -> list[Stmt]:
        """Returns up to three loops over consecutive ranges of the axis, to replace the original loop."""
        axis, extent, ends = self.axis, self.axis.extent, partial(ends_in_block, self.program)
        whole = self._down(extent) if self._may_end_short() else extent
        some = ranges.can_hold(self.condition, axis.symbol, extent, ends)
        if some == ranges.EVERYWHERE:
            return [self.loop] if whole == extent else [self._loop(None, whole), self._loop(whole, None)]
        # in the blocks of the second loop, the condition holds for all elements; in the other blocks only for some
        every = ranges.surely_holds(self.condition, axis.symbol, extent, ends)
        start = some.low and self._down(some.low)
        if every == ranges.NOWHERE or self._has_no_block(every):
            return [self._loop(start, some.high)]
        made: list[Stmt] = []
        if every.low is not None:
            inner = self._up(every.low)
            made.append(self._loop(start, smallest(inner, extent if some.high is None else some.high)))
            start = inner
        if every.high is None and whole == extent:
            return [*made, self._loop(start, None, full=True)]
        end = whole if every.high is None else self._down(largest(every.high, 0))
        end = end if whole == extent else smallest(end, whole)
        full = self._loop(start, smallest(end, extent), full=True)
        end = end if start is None else largest(start, end)
        return [*made, full, self._loop(end, some.high, full=every.high is None)]

    def _has_no_block(self, every: ranges.Interval) -> bool:
        """Checks whether an interval of indices certainly contains no complete block."""
        first = 0 if every.low is None else self._up(every.low).constant
        last = (self.axis.extent if every.high is None else self._down(every.high)).constant
        return first is not None and last is not None and first >= last

    def _may_end_short(self) -> bool:
        """Checks whether the last block gets its own loop because it can be incomplete."""
        kinds, extent = {type(op) for op in self.loop.body}, self.axis.extent
        # an axis of one or two blocks: the last block is a large part of it
        one = extent.constant is not None and extent.constant < 2 * self.axis.block
        return not one and {Dot, Reduce} <= kinds and any(c % self.axis.block for _, c in extent.terms)

    def _down(self, d: Dim) -> Dim:
        """Returns `d`, rounded down to the start of a block."""
        return d // self.axis.block * self.axis.block

    def _up(self, d: Dim) -> Dim:
        """Returns `d`, rounded up to the start of a block."""
        return self._down(d + (self.axis.block - 1))

    def _loop(self, first: Dim | None, last: Dim | None, full: bool = False) -> Loop:
        """Returns a copy of the loop that runs from the index `first` to the index `last`."""
        # if the conditions of the `where` ops hold in the whole loop (`full`), the loop does not test them
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
                new = with_children(op, lambda o: made.get(o, o))
                made[op] = replace(new) if new is op else new
            body.append(made[op])
        carries = tuple((c, made.get(n, n)) for c, n in self.loop.carries)
        return Loop(self.loop.axes, carries, live(body, [n for _, n in carries]), first, last, self._because(full))

    def _because(self, full: bool) -> tuple[str, ...]:
        """Returns a text that says why a loop can skip blocks or omit the test of a condition."""
        if not self.choices:
            return (f"whole blocks of {self.axis.name} stand apart from the last one",)
        condition = ranges.as_text(self.condition)
        if full:
            return (f"{condition}: no test, it holds for all elements of these blocks",)
        neutral = dict.fromkeys(reason for c in self.choices for reason in c.reasons)
        return (f"{condition}: the other blocks are left out, it fails for all of their elements", *neutral)


# ---- bounds of a block ----------------------------------------------------------------------


def ends_in_block(program: Program, d: Dim) -> Range | None:
    """Returns the least and the largest value of `d` in a block, as expressions of the index at which the block starts.
    Returns None if the least or the largest value is unknown.
    """
    starts = {a: block_start(a.name) for a in program.grid}
    return bounds(d, {a.symbol: (start, start + (a.lanes - 1)) for a, start in starts.items()})
