"""tile → tile.masked: every load and store gets a mask. A mask lists the conditions that the access tests. The mask
also gives a reason for each bounds check and for each omitted test.

    %0: f32[i] = load x[i]
    becomes
    %0: f32[i] = load x[i] {mask = [i < 7], because = [i: tested, 4 does not divide 7, so i = 7 is reached]}

The one idea: if every index is inside its axis, a kernel only accesses elements inside its arrays. Accesses along an
axis need a test of the bounds if the extent is no multiple of the block size. If the block size does not divide the
extent, the last block has elements past the end of the axis (an *overhang*). Triton requires that the number of
elements of a tile is a power of two. For example, a block of 5 elements lies in a tile of 8 elements. Elements that are
in the tile but not in the block need a test. A load for a gather or a concat can have guards (conditions for reading an
element). Each guard needs a test.

Elements past the end of a reduced axis must not change the reduction. Elements past the end of a reduced axis get the
neutral element of the reduction, such as 0 for a sum.

The function `mask` omits a test only if the block divides the size of the axis. The file
minitri/optimize/mask_elision.py extends `Masking` with proofs that other tests always succeed.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from minitri.base.dims import Dim, axis_names
from minitri.base.operators import COMBINE, neutral
from minitri.base.resource_limits import check_time
from minitri.base.types import bool_
from minitri.kernels.ir import Carry, Compute, Constant, Dot, Inside, Load, Mask, Op, Reduce, Scan, Store, with_children
from minitri.kernels.lower_graph import OpBuilder
from minitri.kernels.text import comparison
from minitri.tiles.ir import Loop, Program, TileAxis, lane_number

Number = int | float | bool


def mask(program: Program) -> Program:
    """Returns the program with a bounds check for every axis whose blocks have elements past its end."""
    return Masking(program).run()


def overhangs(axis: TileAxis) -> bool:
    """Checks whether some block of the axis has elements past the extent."""
    if axis.extent == 0:
        return axis.role == "whole"  # a grid or a loop then has no blocks
    return any(c % axis.block for _, c in axis.extent.terms)


def reason(axis: TileAxis, needless: str = "") -> str:
    """Returns the text that says why an axis needs a bounds check or needs none. If the size of the axis is known, the
    text names the first index after the end of the axis.
    """
    extent, block = axis.extent, axis.block
    if needless:
        return f"{axis.name}: no test, {needless}"
    if not overhangs(axis):
        return f"{axis.name}: no test, {block} divides {extent}"
    if extent.constant is None:
        return f"{axis.name}: tested, {block} need not divide {extent}"
    return f"{axis.name}: tested, {block} does not divide {extent}, so {axis.name} = {extent} is reached"


def accumulated(op: Op) -> tuple[Op, Number] | None:
    """If `op` is a reduction step `carry = combine(carry, x)` in a loop, returns x and the initial value of the carry.
    Returns None if `op` is not a reduction step.
    """
    match op:
        case Compute(args=(Carry(initial=Constant(value=value)), x)) if op.op in COMBINE.values():
            return x, value
    return None  # a carried product has no numeric initial value


def same(a: Number, b: Number) -> bool:
    """Checks whether two numbers are equal. 0.0 and -0.0 count as different."""
    return a == b and str(a)[0] == str(b)[0]


class Masking:
    """Adds masks to one tile program. A subclass can leave out tests that it proves unnecessary. A subclass can also
    leave out unnecessary replacements of elements past the end of an axis.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.axes = {a.name: a for a in program.axes}
        self.new: dict[Any, Any] = {}
        self.others: dict[Op, Number] = {}  # the values of loads past the end that are not 0

    def run(self) -> Program:
        body = OpBuilder(self.axes)
        for stmt in self.program.body:
            if isinstance(stmt, Loop):
                body.add(self.loop(stmt))
            else:
                self._op(stmt, body)
        return replace(self.program, body=tuple(body.ops))

    def loop(self, loop: Loop) -> Loop:
        body = OpBuilder(self.axes)
        for op in loop.body:
            self._op(op, body)
        carries = tuple((self.new[c], self.new[n]) for c, n in loop.carries)
        return replace(loop, carries=carries, body=tuple(body.ops))

    def _op(self, op: Any, out: OpBuilder) -> None:
        check_time()
        new = with_children(op, self.new.__getitem__)
        match new:
            case Load():
                new = replace(new, mask=self._mask(new), other=self.others.get(op, new.other))
            case Store():
                new = replace(new, mask=self._mask(new))
            case Reduce() if not isinstance(new.x, Carry):
                new = replace(new, x=self._neutral(new.x, new.over, neutral(new.op, new.x.dtype), out))
            case Scan():
                new = replace(new, x=self._neutral(new.x, (new.along,), neutral(new.op, new.dtype), out))
            case Dot():
                a = self._neutral(new.a, (new.over,), 0.0, out)
                new = replace(new, a=a, b=self._neutral(new.b, (new.over,), 0.0, out))
            case Compute(op="greater" | "less", args=(x, Carry(initial=Constant(value=value)) as best)):
                x = self.new[op.args[0]] = self._neutral(x, self._walked(best), value, out)
                new = replace(new, args=(x, best))
            case Compute(args=(carry, *_)) if step := accumulated(new):
                new = replace(new, args=(carry, self._neutral(step[0], self._walked(carry), step[1], out)))
        self.new[op] = out.add(new)

    def _walked(self, carry: Op) -> tuple[str, ...]:
        """Returns the axes along which a loop reduces a value."""
        return tuple(a for a in carry.axes if self.axes[a].role != "grid")

    # ---- what can be proven ----------------------------------------------------------

    def needless(self, op: Load | Store, tests: Mapping[Dim, TileAxis], conditions: Collection[Dim]) -> dict[Dim, str]:
        """Finds the mask conditions that need not be tested for the load or store `op`. Returns the reason for each of
        these conditions. `tests` maps each bounds check to its axis.
        """
        return {}

    def is_neutral(self, x: Op, axis: TileAxis, value: Number) -> bool:
        """Checks whether all elements of `x` past the end of the axis `axis` certainly have the value `value`.

        For example, a load with a bounds check returns its field `other` for elements past the end of the axis.
        """
        if not isinstance(x, Load) or x.mask is None:
            return False
        return axis.inside in x.mask.conditions and same(x.other, value)

    # ---- accesses --------------------------------------------------------------------

    def _mask(self, op: Load | Store) -> Mask:
        """Returns the mask of a load or store."""
        names = axis_names((*op.index, *op.guards))
        used = {a.inside: a for a in self.program.axes if a.name in names}
        # A tile is padded to a power of two. The padding contains elements that belong to a different grid program.
        spare = {a.block - 1 - lane_number(a.name): a for a in used.values() if a.lanes != a.block}
        tests = {c: a for c, a in used.items() if overhangs(a)} | spare
        conditions = dict.fromkeys((*tests, *op.guards))
        needless = self.needless(op, tests, conditions)
        kept = tuple(c for c in conditions if c not in needless)
        reasons = [reason(a, needless.get(c, "")) for c, a in used.items()]
        reasons += [f"{comparison(c)}: no test, {needless[c]}" for c in conditions if c in needless and c not in used]
        padded = [a for c, a in spare.items() if c in kept]
        reasons += [f"{a.name}: lanes tested, a block is {a.block} of {a.lanes} lanes" for a in padded]
        return Mask(kept, tuple(reasons))

    # ---- reductions ------------------------------------------------------------------

    def _neutral(self, x: Op, over: tuple[str, ...], value: Number, out: OpBuilder) -> Op:
        """Replaces elements past the end of reduced axes by the neutral element."""
        for axis in (self.axes[name] for name in over if name in x.axes):
            if overhangs(axis) and not self.is_neutral(x, axis, value):
                x = self.where(x, axis, value, out)
        return x

    def where(self, x: Op, axis: TileAxis, value: Number, out: OpBuilder) -> Op:
        """Returns `x` with `value` in place of elements past the end of an axis. The method adds the new ops to the op
        builder `out`.
        """
        inside = out.add(Inside(dtype=bool_, axes=(axis.name,), spans=x.spans, conditions=(axis.inside,)))
        filler = out.add(Constant(dtype=x.dtype, axes=(), spans=x.spans, value=value))
        return out.compute("where", inside, x, filler)
