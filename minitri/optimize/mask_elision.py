"""tile → tile.masked: masks loads and stores, but omits needless tests ("bounds-check elimination").

    grid i: 7 by 4         load x[i]      x: f32[8]        no test of i < 7, because x has an element 7
    grid i: 7 by 4         load x[i]      where i < 5      no test of i < 7, because i < 5 is tested
    whole j: 5 by 8        reduce.max x   the load of x returns -inf for j >= 5, so the maximum needs no `where`

The class `MaskElision` adds masks to a tile program. It adds fewer tests than minitri/tiles/mask.py does. The printed
program gives the reason for each omitted test. A bounds test is omitted if another test implies this test. The bounds
test of a grid axis is also omitted if all elements of the last block lie in the array. On a grid axis, elements past
the end of the axis change no result, because the masked store does not write these elements. For an element past the
end, a load returns the neutral element of the reduction that uses the load. For example, the neutral element of a sum
is 0. The class `MaskElision` evaluates the ops between the load and the reduction, with the neutral element as the
loaded value. If the value that reaches the reduction is the neutral element of the reduction, the reduction needs no
`where`.

Besides mask_elision.py, four other files of minitri/optimize/ omit bounds tests. If the last block of a loop is
incomplete, the file skip_blocks/skip.py computes this block in a separate loop. The loop over the complete blocks needs
no bounds test. The pass `boundary-peeling` runs before the pass `mask`, and marks some programs `peeled`. In a peeled
program, the code for complete tiles does not test the end of the last grid axis. If tensor descriptors load a block
(tensor_descriptors.py), the GPU's copy engine tests the bounds, so the program needs no test. The file
deferred_tf32_checks.py adds a loop that needs no bounds test. The added loop reads one index in each iteration, and
this index is always inside the axis.

The proof that a test is needless uses the range of each axis (minitri/base/intervals.py). For an index that is not a
polynomial, the proof uses facts about blocks (minitri/tiles/index_facts.py). If a proof would need a relation between
several axes, such as `i <= j`, the test is not omitted. Gupta describes how a compiler omits bounds tests ("Optimizing
array bound checks using flow analysis", 1993).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from minitri.base.dims import ZERO, Dim, Symbol
from minitri.base.inequalities import prove as follows
from minitri.base.intervals import Range, proves_nonnegative
from minitri.base.numpy_array_operations import elementwise
from minitri.base.operators import neutral
from minitri.base.pass_logs import fired
from minitri.graph.ir import postorder
from minitri.kernels.ir import Compute, Constant, Load, Op, Reduce, Scan, Spread, Store, children
from minitri.kernels.lower_graph import OpBuilder
from minitri.kernels.text import comparison
from minitri.tiles.index_facts import known
from minitri.tiles.ir import Loop, Program, TileAxis, ends_whole
from minitri.tiles.mask import Masking, Number, accumulated, overhangs, same

WHOLE = "another loop has the short last block"


def mask(program: Program) -> Program:
    """Adds masks to a program, and returns the program. The masks contain only necessary tests."""
    return MaskElision(program).run()


class MaskElision(Masking):
    """Adds masks, but omits every test and every `where` that provably changes nothing."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.others = _wanted_others(program)
        self.fixed: dict[tuple[Op, str, str], Op] = {}  # (op, axis, value) → the op with that value past the end
        self.past_end: dict[tuple[Op, str], Any] = {}  # the value of an op past the end of an axis, None if unknown
        self.whole: set[str] = set()  # axes along which the current loop has only complete blocks

    def loop(self, loop: Loop) -> Loop:
        self.fixed, self.whole = {}, {n for n in loop.axes if ends_whole(loop, self.axes[n])}
        new = super().loop(loop)
        self.fixed, self.whole = {}, set()
        return new

    # ---- accesses --------------------------------------------------------------------

    def needless(self, op: Load | Store, tests: Mapping[Dim, TileAxis], conditions: Collection[Dim]) -> dict[Dim, str]:
        whole = {self.axes[name].inside: WHOLE for name in self.whole}
        empty = next((a.name for a in self.program.grid if a.extent == 0), None)
        if empty is not None:
            return {**dict.fromkeys(conditions, f"nothing runs, {empty} is empty"), **whole}
        found = whole
        for c in (c for c in conditions if c not in whole):
            others = [o for o in conditions if o != c and o not in found]
            stronger = next((o for o in others if implies(o, c)), None)
            if stronger is not None:
                found[c] = f"{comparison(stronger)} is tested"
            elif isinstance(op, Load) and c in tests and self._stays_in_array(op, tests[c], others):
                found[c] = f"{op.buffer.name} reaches further"
        return found

    def _stays_in_array(self, op: Load, axis: TileAxis, others: Sequence[Dim]) -> bool:
        """Checks whether a tile along an axis stays in the loaded array."""
        # on a grid axis, no result depends on elements past the end: the mask of the store drops them
        if axis.role != "grid":
            return False
        touched = [(d, e) for d, e in zip(op.index, op.buffer.shape) if axis.symbol in d.symbols()]
        ends = [end for d, e in touched for end in (d, e - 1 - d)]
        ranges = {a.symbol: _between(a, others) for a in self.program.axes}
        if all(isinstance(a, Symbol) for d, _ in touched for a in d.atoms()):
            return all(proves_nonnegative(end, ranges) for end in ends)
        facts = known(self.program, op, others)
        return all(follows(end, facts) is not None for end in ends)

    # ---- reductions ------------------------------------------------------------------

    def where(self, x: Op, axis: TileAxis, value: Number, out: OpBuilder) -> Op:
        key = (x, axis.name, repr(value))
        if key not in self.fixed:
            self.fixed[key] = super().where(x, axis, value, out)
            fired(Masking.where, x, self.fixed[key], x.spans)
        return self.fixed[key]

    def is_neutral(self, x: Op, axis: TileAxis, value: Number) -> bool:
        found = self._masked_value(x, axis.name)
        return axis.name in self.whole or (found is not None and same(found, value))

    def _masked_value(self, root: Op, axis: str) -> Any:
        """Returns the value of an op at elements past the end of an axis, or None if this value is unknown."""
        for op in postorder([root], _elementwise_operands):
            if (op, axis) not in self.past_end:
                self.past_end[op, axis] = self._past_end(op, axis)
        return self.past_end[root, axis]

    def _past_end(self, op: Op, axis: str) -> Any:
        operands = [self.past_end[o, axis] for o in _elementwise_operands(op)]
        match op:
            case Load() if axis in op.axes and op.mask is not None:
                tested = any(implies(c, self.axes[axis].inside) for c in op.mask.conditions)
                return op.other if tested else None
            case Constant():
                return op.value
            case Spread() if axis in op.x.axes:
                return operands[0]
            case Compute() if None not in operands:
                return elementwise(op.op, op.dtype, [(a.dtype, v) for a, v in zip(op.args, operands)]).item()
        return None


# ---- ranges ----------------------------------------------------------------------------------


def _between(axis: TileAxis, tests: Sequence[Dim]) -> Range:
    """Returns the smallest and the largest index of an axis at which all given conditions can hold."""
    fits = not overhangs(axis) and axis.lanes == axis.block
    first, last = ZERO, axis.extent - 1 if fits else (axis.blocks - 1) * axis.block + (axis.lanes - 1)
    for test in tests:
        split = test.coefficient(axis.symbol)
        if split is not None and split[0] in (1, -1) and all(s.kind == "size" for s in split[1].symbols()):
            first, last = (-split[1], last) if split[0] == 1 else (first, split[1])
    return first, last


def implies(stronger: Dim, c: Dim) -> bool:
    """Checks whether the bounds check `stronger` implies the bounds check `c`: for example, i < N implies i < N + 2.

    Returns False if a bounds check contains several indices, as in i + j < N. In 32-bit arithmetic, i + j could
    overflow.
    """
    solved, room = stronger.solved(lambda s: s.kind != "size"), c - stronger
    plain = solved is not None and all(s.kind == "size" for s in room.symbols())
    return plain and follows(room, ()) is not None


# ---- values past the end ---------------------------------------------------------------------


def _elementwise_operands(op: Op) -> tuple[Op, ...]:
    return children(op) if isinstance(op, (Compute, Spread)) else ()


def _wanted_others(program: Program) -> dict[Op, Number]:
    """Maps each load of a reduction's operand to the neutral element of the reduction, such as 0 for a sum."""
    wanted: dict[Op, Number] = {}
    for op in program.ops():
        step = (op.x, neutral(op.op, op.x.dtype)) if isinstance(op, (Reduce, Scan)) else accumulated(op)
        x, value = step or (op, 0)
        while isinstance(x, Compute) and x.op == "cast" and x.dtype.kind == x.args[0].dtype.kind:
            x = x.args[0]
        if step and isinstance(x, Load) and not x.guards:
            low, high = x.dtype.limits if x.dtype.is_integer else (value, value)
            if low <= value <= high:
                wanted.setdefault(x, value)
    return wanted
