"""tile → tile.masked: every access gets its mask, or the reason why it needs none.

    %0: f32[i] = load x[i]
    becomes
    %0: f32[i] = load x[i] {mask = [i < 7], because = [i: tested, 4 does not divide 7, so i = 7 is reached]}

The one idea: an access is right if every index is inside its axis, because the kernel was made that
way. Two kinds of access need a bounds check. The first has an axis whose block does not divide its
extent, so that elements lie past the end (an *overhang*). The second has guards of its own: pieces
of a concat and gathered indices.

Elements past the end of a reduced axis must not change the reduction. They get its neutral element
unless they have it already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.base import numpy_semantics
from minitri.base.dims import ONE, ZERO, Dim, Symbol
from minitri.base.inequalities import prove as follows
from minitri.base.intervals import Range, proves_nonnegative
from minitri.base.limits import check_time
from minitri.base.logs import fired
from minitri.base.operators import COMBINE, OPERATORS, neutral
from minitri.base.types import bool_
from minitri.kernels import ir
from minitri.kernels.ir import Compute, Constant, Dot, Inside, Load, Mask, Op, Reduce, Scan, Spread, Store
from minitri.kernels.text import comparison
from minitri.tiles.index_ranges import known
from minitri.tiles.ir import Loop, Program, Stmt, TileAxis, ends_whole, lane_number

WHOLE = "the loop leaves a short last block to the next one"


def mask(program: Program) -> Program:
    return _Masking(program).run()


def overhangs(axis: TileAxis) -> bool:
    """Whether an element of some block is past the extent."""
    if axis.extent == 0:
        return axis.role == "whole"  # a grid or a loop has no block at all then
    return any(c % axis.block for _, c in axis.extent.terms)


def reason(axis: TileAxis, needless: str = "") -> str:
    """Why an axis needs a test, by an example where sizes are known, or why it does not."""
    extent, block = axis.extent, axis.block
    if needless:
        return f"{axis.name}: no test, {needless}"
    if not overhangs(axis):
        return f"{axis.name}: no test, {block} divides {extent}"
    if extent.constant is None:
        return f"{axis.name}: tested, {block} need not divide {extent}"
    return f"{axis.name}: tested, {block} does not divide {extent}, so {axis.name} = {extent} is reached"


def spare(axis: TileAxis) -> str:
    """Why elements past the block are tested: they belong to the next program."""
    return f"{axis.name}: lanes tested, a block is {axis.block} of {axis.lanes} lanes"


def _spare(axis: TileAxis) -> Dim:
    """>= 0 inside of the block."""
    return axis.block - 1 - lane_number(axis.name)


def _between(axis: TileAxis, tests: Sequence[Dim]) -> Range:
    """The first and the last index of the elements that pass the tests."""
    blocks = ONE if axis.role == "whole" else axis.tiles
    fits = not overhangs(axis) and axis.lanes == axis.block
    first, last = ZERO, axis.extent - 1 if fits else (blocks - 1) * axis.block + (axis.lanes - 1)
    for test in tests:
        split = test.coefficient(axis.symbol)
        if split is not None and split[0] in (1, -1) and all(s.kind == "size" for s in split[1].symbols()):
            first, last = (-split[1], last) if split[0] == 1 else (first, split[1])
    return first, last


def _implies(stronger: Dim, c: Dim) -> bool:
    """i < N implies i < N + 2. Only plain comparisons of one index: they are exact in 32 bits too."""
    (symbol, *more) = [s for s in stronger.symbols() if s.kind != "size"] or [None]
    if symbol is None or more:
        return False
    split = stronger.coefficient(symbol)
    room = c - stronger
    plain = split is not None and split[0] in (1, -1) and all(s.kind == "size" for s in room.symbols())
    return plain and follows(room, ()) is not None


class _Masking:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.axes = {a.name: a for a in program.axes}
        self.new: dict[Op, Op] = {}
        self.others = self._wanted_others()
        self.fixed: dict[tuple[Op, str, str], Op] = {}  # (op, axis, value) → the op with that value past the end
        self.past_end: dict[tuple[Op, str], Any] = {}  # what ops are in lanes past the end of an axis
        self.whole: set[str] = set()  # axes that the loop at hand walks in whole blocks

    def run(self) -> Program:
        body: list[Stmt] = []
        for stmt in self.program.body:
            if isinstance(stmt, Loop):
                inside: list[Op] = []
                self.fixed = {}
                self.whole = {n for n in stmt.axes if ends_whole(stmt, self.axes[n])}
                for op in stmt.body:
                    self._op(op, inside)
                self.fixed, self.whole = {}, set()
                carries = tuple((self._carry(c), self.new[n]) for c, n in stmt.carries)
                body.append(replace(stmt, carries=carries, body=tuple(inside)))
            else:
                top: list[Op] = []
                self._op(stmt, top)
                body += top
        return replace(self.program, body=tuple(body))

    def _carry(self, carry: ir.Carry) -> ir.Carry:
        new = self.new[carry]
        assert isinstance(new, ir.Carry)
        return new

    def _op(self, op: Op, out: list[Op]) -> None:
        check_time()
        new = ir.with_operands(op, self.new.__getitem__)
        match new:
            case Load():
                new = replace(new, mask=self._mask(new), other=self.others.get(op, new.other))
            case Store():
                new = replace(new, mask=self._mask(new))
            case Reduce() if not isinstance(new.x, ir.Carry):
                new = replace(new, x=self._neutral(new.x, new.over, neutral(new.op, new.x.dtype), out))
            case Scan():
                new = replace(new, x=self._neutral(new.x, (new.along,), neutral(new.op, new.dtype), out))
            case Dot():
                a = self._neutral(new.a, (new.over,), 0.0, out)
                new = replace(new, a=a, b=self._neutral(new.b, (new.over,), 0.0, out))
            case Compute() if self._accumulates(new):
                new = self._neutral_step(new, out)
            case Compute(op="greater" | "less", args=(x, ir.Carry(initial=Constant()) as best)):
                assert isinstance(op, Compute) and isinstance(best.initial, Constant)
                lanes = tuple(a for a in best.axes if self.axes[a].role != "grid")
                x = self.new[op.args[0]] = self._neutral(x, lanes, best.initial.value, out)
                new = replace(new, args=(x, best))
            case _:
                pass
        out.append(new)
        self.new[op] = new

    def _overhangs(self, axis: TileAxis) -> bool:
        return overhangs(axis) and axis.name not in self.whole

    # ---- accesses --------------------------------------------------------------------

    def _mask(self, op: Load | Store) -> Mask:
        """Tests for the overhanging axes an access uses, and for its guards, as far as they are needed."""
        guards = op.guards if isinstance(op, Load) else ()
        names = {s.name for d in (*op.index, *guards) for s in d.symbols() if s.kind == "axis"}
        used = [a for a in self.program.axes if a.name in names]
        tests = {a.inside: a for a in used if self._overhangs(a)} | {_spare(a): a for a in used if a.lanes != a.block}
        needless = self._needless(op, tests, tuple(dict.fromkeys((*tests, *guards))))
        kept = tuple(c for c in dict.fromkeys((*tests, *guards)) if c not in needless)
        reasons = [reason(a, WHOLE if a.name in self.whole else needless.get(a.inside, "")) for a in used]
        return Mask(kept, (*reasons, *(spare(a) for c, a in tests.items() if c in kept and c == _spare(a))))

    def _needless(self, op: Load | Store, tests: Mapping[Dim, TileAxis], conditions: Sequence[Dim]) -> dict[Dim, str]:
        """The conditions that change nothing, each with why."""
        empty = next((a.name for a in self.program.grid if a.extent == 0), None)
        if empty is not None:
            return dict.fromkeys(conditions, f"nothing runs, {empty} is empty")
        found: dict[Dim, str] = {}
        for c in conditions:
            others = [o for o in conditions if o != c and o not in found]
            stronger = next((o for o in others if _implies(o, c)), None)
            if stronger is not None:
                found[c] = f"{comparison(stronger)} is tested"
            elif isinstance(op, Load) and c in tests and self._inside_anyway(op, tests[c], others):
                found[c] = f"{op.buffer.name} reaches further"
        return found

    def _inside_anyway(self, op: Load, axis: TileAxis, others: Sequence[Dim]) -> bool:
        """Whether a load stays in its array for every element of an axis.

        On a grid axis nothing uses the elements past the end, because the mask of the store stops them.
        """
        if axis.role != "grid":
            return False
        touched = [(d, e) for d, e in zip(op.index, op.buffer.shape) if axis.symbol in d.symbols()]
        ends = [end for d, e in touched for end in (d, e - 1 - d)]
        ranges = {a.symbol: _between(a, others) for a in self.program.axes}
        if any(not isinstance(a, Symbol) for d, _ in touched for a in d.atoms()):
            facts = known(self.program, op, others)
            return all(follows(end, facts) is not None for end in ends)
        return all(proves_nonnegative(end, ranges) for end in ends)

    # ---- reductions ------------------------------------------------------------------

    def _accumulates(self, op: Compute) -> bool:
        """A step `carry = combine(carry, x)` of a looped reduction. (A carried product begins with no number.)"""
        match op.args:
            case (ir.Carry(initial=Constant()), _):
                return op.op in COMBINE.values()
            case _:
                return False

    def _neutral_step(self, op: Compute, out: list[Op]) -> Compute:
        carry, x = op.args
        assert isinstance(carry, ir.Carry) and isinstance(carry.initial, Constant)
        lanes = tuple(a for a in carry.axes if self.axes[a].role != "grid")
        return replace(op, args=(carry, self._neutral(x, lanes, carry.initial.value, out))) if lanes else op

    def _neutral(self, x: Op, over: tuple[str, ...], value: int | float | bool, out: list[Op]) -> Op:
        """x, with the neutral element past the end of the reduced axes."""
        for name in over:
            axis = self.axes[name]
            known = self._masked_value(x, name) if name in x.axes else value
            if self._overhangs(axis) and not _same(known, value):
                key = (x, name, repr(value))
                if key not in self.fixed:
                    self.fixed[key] = self._where(x, axis, value, out)
                    fired(self._where, x, self.fixed[key], x.spans)
                x = self.fixed[key]
        return x

    def _where(self, x: Op, axis: TileAxis, value: int | float | bool, out: list[Op]) -> Op:
        """Gives elements past the end of an axis a value that does not count."""
        inside = Inside(dtype=bool_, axes=(axis.name,), spans=x.spans, conditions=(axis.inside,))
        filler = Constant(dtype=x.dtype, axes=(), spans=x.spans, value=value)
        chosen = Compute(dtype=x.dtype, axes=x.axes, spans=x.spans, op="where", args=(inside, x, filler))
        out += [inside, filler, chosen]
        return chosen

    def _masked_value(self, root: Op, axis: str) -> Any:
        """The value of an op past the end of an axis if it is known, else None."""
        stack = [root]
        while stack:
            op = stack[-1]
            operands = op.args if isinstance(op, Compute) else (op.x,) if isinstance(op, Spread) else ()
            open_ = [o for o in operands if (o, axis) not in self.past_end]
            stack += open_
            if not open_:
                self.past_end[op, axis] = self._past_end(op, axis, [self.past_end[o, axis] for o in operands])
                stack.pop()
        return self.past_end[root, axis]

    def _past_end(self, op: Op, axis: str, operands: list[Any]) -> Any:
        match op:
            case Load() if axis in op.axes and op.mask is not None:
                tested = any(_implies(c, self.axes[axis].inside) for c in op.mask.conditions)
                return op.other if tested else None
            case Constant():
                return op.value
            case Spread() if axis in op.x.axes:
                return operands[0]
            case Compute():
                return None if any(v is None for v in operands) else _apply(op, operands)
        return None

    def _wanted_others(self) -> dict[Op, int | float | bool]:
        """For loads that flow straight into a reduction, the value that it ignores."""
        wanted: dict[Op, int | float | bool] = {}
        for op in self.program.ops():
            match op:
                case Reduce() | Scan():
                    self._want(op.x, neutral(op.op, op.x.dtype), wanted)
                case Compute() if self._accumulates(op):
                    assert isinstance(op.args[0], ir.Carry) and isinstance(op.args[0].initial, Constant)
                    self._want(op.args[1], op.args[0].initial.value, wanted)
        return wanted

    def _want(self, op: Op, value: int | float | bool, wanted: dict[Op, int | float | bool]) -> None:
        while isinstance(op, Compute) and op.op == "cast" and op.dtype.kind == op.args[0].dtype.kind:
            op = op.args[0]
        if isinstance(op, Load) and not op.guards and _fits(value, op):
            wanted.setdefault(op, value)


def _fits(value: int | float | bool, op: Load) -> bool:
    if not op.dtype.is_integer:
        return True
    low, high = op.dtype.limits
    return low <= value <= high


def _apply(op: Compute, values: list[Any]) -> Any:
    operands = [np.asarray(v, a.dtype.numpy) for v, a in zip(values, op.args)]
    with np.errstate(all="ignore"):
        return (
            numpy_semantics.cast(operands[0], op.dtype) if op.op == "cast" else OPERATORS[op.op].numpy(*operands)
        ).item()


def _same(a: Any, b: Any) -> bool:
    return a is not None and a == b and str(a)[0] == str(b)[0]
