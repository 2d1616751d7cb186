"""tile → tile.masked: every access gets its mask, and for each axis the reason why it is tested or not.

    %0: f32[i] = load x[i]
    becomes
    %0: f32[i] = load x[i] {mask = [i < 7], because = [i: tested, 4 does not divide 7, so i = 7 is reached]}

The one idea: an access is right if every index is inside its axis, because the kernel was made that
way. Two kinds of access need a bounds check. The first has an axis whose block does not divide its
extent, so that elements lie past the end (an *overhang*). The second has guards of its own: pieces
of a concat and gathered indices.

Elements past the end of a reduced axis must not change the reduction. They get its neutral element.

Left out: proofs that a test changes nothing. For them minitri/optimize/mask_elision.py extends `Masking`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from minitri.base.dims import Dim
from minitri.base.limits import check_time
from minitri.base.operators import COMBINE, neutral
from minitri.base.types import bool_
from minitri.kernels import ir
from minitri.kernels.ir import Compute, Constant, Dot, Inside, Load, Mask, Op, Reduce, Scan, Store
from minitri.tiles.ir import Loop, Program, TileAxis, lane_number

Number = int | float | bool


def mask(program: Program) -> Program:
    """The program with a test for every axis that overhangs."""
    return Masking(program).run()


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


def accumulated(op: Op) -> tuple[Op, Number] | None:
    """The x of a step `carry = combine(carry, x)` of a looped reduction, and what the carry begins with."""
    match op:
        case Compute(args=(ir.Carry(initial=Constant(value=value)), x)) if op.op in COMBINE.values():
            return x, value
        case _:  # a carried product begins with no number
            return None


def same(a: Number, b: Number) -> bool:
    """Whether two numbers are equal, and zeros of one sign."""
    return a == b and str(a)[0] == str(b)[0]


class Masking:
    """Rewrites one program. Subclasses say which tests and which neutral elements it can do without."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.axes = {a.name: a for a in program.axes}
        self.new: dict[Op, Op] = {}
        self.others: dict[Op, Number] = {}  # what loads give past the end, where it is not 0

    def run(self) -> Program:
        body: list[Any] = []
        for stmt in self.program.body:
            if isinstance(stmt, Loop):
                body.append(self.loop(stmt))
            else:
                self._op(stmt, body)
        return replace(self.program, body=tuple(body))

    def loop(self, loop: Loop) -> Loop:
        body: list[Any] = []
        for op in loop.body:
            self._op(op, body)
        carries = tuple((self._carry(c), self.new[n]) for c, n in loop.carries)
        return replace(loop, carries=carries, body=tuple(body))

    def _carry(self, carry: ir.Carry) -> ir.Carry:
        new = self.new[carry]
        assert isinstance(new, ir.Carry)
        return new

    def _op(self, op: Op, out: list[Any]) -> None:
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
            case Compute(op="greater" | "less", args=(x, ir.Carry(initial=Constant(value=value)) as best)):
                assert isinstance(op, Compute)
                x = self.new[op.args[0]] = self._neutral(x, self._walked(best), value, out)
                new = replace(new, args=(x, best))
            case Compute(args=(carry, *_)) if step := accumulated(new):
                new = replace(new, args=(carry, self._neutral(step[0], self._walked(carry), step[1], out)))
            case _:
                pass
        out.append(new)
        self.new[op] = new

    def _walked(self, carry: Op) -> tuple[str, ...]:
        """The axes along which a loop reduces what it carries."""
        return tuple(a for a in carry.axes if self.axes[a].role != "grid")

    # ---- what can be proven ----------------------------------------------------------

    def needless(self, op: Load | Store, tests: Mapping[Dim, TileAxis], conditions: Collection[Dim]) -> dict[Dim, str]:
        """The conditions that change nothing, each with why. `tests`: the conditions of each axis."""
        return {}

    def is_neutral(self, x: Op, axis: TileAxis, value: Number) -> bool:
        """Whether x is known to be this past the end of an axis: a load that tests the axis says what it gives there."""
        if not isinstance(x, Load) or x.mask is None:
            return False
        return axis.inside in x.mask.conditions and same(x.other, value)

    # ---- accesses --------------------------------------------------------------------

    def _mask(self, op: Load | Store) -> Mask:
        """Tests for the overhanging axes an access uses, and for its guards, as far as they are needed."""
        guards = op.guards if isinstance(op, Load) else ()
        names = {s.name for d in (*op.index, *guards) for s in d.symbols() if s.kind == "axis"}
        used = [a for a in self.program.axes if a.name in names]
        tests = {a.inside: a for a in used if overhangs(a)} | {_spare(a): a for a in used if a.lanes != a.block}
        conditions = dict.fromkeys((*tests, *guards))
        needless = self.needless(op, tests, conditions)
        kept = tuple(c for c in conditions if c not in needless)
        reasons = [reason(a, needless.get(a.inside, "")) for a in used]
        return Mask(kept, (*reasons, *(spare(a) for c, a in tests.items() if c in kept and c == _spare(a))))

    # ---- reductions ------------------------------------------------------------------

    def _neutral(self, x: Op, over: tuple[str, ...], value: Number, out: list[Any]) -> Op:
        """x, with the neutral element past the end of the reduced axes."""
        for axis in (self.axes[name] for name in over if name in x.axes):
            if overhangs(axis) and not self.is_neutral(x, axis, value):
                x = self.where(x, axis, value, out)
        return x

    def where(self, x: Op, axis: TileAxis, value: Number, out: list[Any]) -> Op:
        """Gives elements past the end of an axis a value that does not count."""
        inside = Inside(dtype=bool_, axes=(axis.name,), spans=x.spans, conditions=(axis.inside,))
        filler = Constant(dtype=x.dtype, axes=(), spans=x.spans, value=value)
        chosen = Compute(dtype=x.dtype, axes=x.axes, spans=x.spans, op="where", args=(inside, x, filler))
        out += [inside, filler, chosen]
        return chosen
