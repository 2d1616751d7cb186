"""Tile programs: one structured program a kernel, run once for each point of the grid.

    program = Program(name, axes, buffers, body, warps, stages)
    axis    = TileAxis(name, extent, role, block)
              "grid"   this program works on `block` neighbouring indices (any number of them)
              "whole"  the program holds all of them at once (block >= extent)
              "loop"   the program walks them, `block` at a time
    stmt    = an op of minitri/kernels/ir.py, on tiles now
            | Loop(axes, carries, body, first, last)     nested loops, the last axis innermost
    stage   = Programs(plan, programs)      what runs, in which order, over which memory

A value of type `f32[i, r]` is a tile with `lanes` lanes along each of its axes: `block` of them,
up to the next power of two, which is what Triton has. A lane whose index is past the axis' extent
exists too, and so does one past its block: that is what masks are for. `Carry` ops are the
values a loop passes on; each stands before its loop, and after the loop it is the last value.

What it no longer has: operations on whole arrays. The order of computation is explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from typing import Union

from minitri.base.dims import ZERO, Dim, Smallest, Symbol, axis, floordiv
from minitri.kernels.ir import Buffer, Carry, Dot, Load, Op, Plan, Store, op_operands, with_operands


@dataclass(frozen=True, slots=True)
class TileAxis:
    name: str
    extent: Dim
    role: str
    block: int

    @property
    def index(self) -> Dim:
        return axis(self.name)

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.name, "axis")

    @property
    def lanes(self) -> int:
        """The width of a tile: the power of two that holds the block."""
        return 1 << max(0, self.block - 1).bit_length()

    @property
    def inside(self) -> Dim:
        """>= 0 where the index is inside of the extent."""
        return self.extent - 1 - self.index

    @property
    def tiles(self) -> Dim:
        """How many blocks cover the extent."""
        return floordiv(self.extent + (self.block - 1), Dim.of(self.block))


def lane_number(name: str) -> Dim:
    """0 … lanes-1 along an axis, wherever its block is."""
    return axis(f"{name}_lane")


def block_start(name: str) -> Dim:
    """The first index of the block that a loop stands at."""
    return axis(f"{name}_start")


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    axes: tuple[str, ...]
    carries: tuple[tuple[Carry, Op], ...]  # (carried value, its value for the next round)
    body: tuple[Op, ...]
    first: Dim | None = None  # of one axis: the index that it starts at, a multiple of the block,
    last: Dim | None = None  # and the one that it ends before
    because: tuple[str, ...] = ()  # why blocks outside of its bounds, or tests inside of them, may be left out


Stmt = Union[Op, Loop]
Access = Union[Load, Store]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """`warps` and `stages` are hints for Triton's compiler, and so is `registers`: a thread has no more (0: as many as
    its compiler takes); `group`: how many tiles of the
    last-but-one grid axis run side by side, so that their operands stay in the L2 cache;
    `wide`: offsets need 64 bits; `relaxed`: as of the kernel; `descriptors`: blocks are read through tensor
    descriptors where they can be; `persistent`: so many programs run, each takes one tile after the other (0: one
    a tile); `descending`: the tiles of the last grid axis come from its end on; `returning`: so do the blocks of
    loops that carry nothing; `peeled`: tiles that lie in the last grid axis whole are computed without its tests;
    `descriptor_stores`: with `descriptors`, blocks are stored through them as well, where they can be."""

    name: str
    axes: tuple[TileAxis, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    warps: int = 4
    stages: int = 3
    group: int = 1
    wide: bool = False
    relaxed: bool = False
    descriptors: bool = False
    persistent: int = 0
    registers: int = 0
    descending: bool = False
    returning: bool = False
    peeled: bool = False
    descriptor_stores: bool = False

    def from_end(self, loop: Loop) -> bool:
        """Whether a loop begins at its last block."""
        return self.returning and not loop.carries and loop.first is None and loop.last is None

    def axis(self, name: str) -> TileAxis:
        return next(a for a in self.axes if a.name == name)

    @property
    def grid(self) -> tuple[TileAxis, ...]:
        return tuple(a for a in self.axes if a.role == "grid")

    def factors(self, dot: Dot) -> tuple[Op, Op]:
        """Of a product, in the order in which they are multiplied: the axis that stands first among a program's is the
        rows of the result."""
        row, column = (next(n for n, a in enumerate(self.axes) if a.name == name) for name in dot.tile)
        return (dot.a, dot.b) if row < column else (dot.b, dot.a)

    @property
    def carried(self) -> set[Op]:
        """What loops carry on to their next rounds."""
        return {following for s in self.body if isinstance(s, Loop) for _, following in s.carries}

    def users(self) -> dict[Op, list[Op]]:
        """For each op those that take it."""
        found: dict[Op, list[Op]] = {op: [] for op in self.ops()}
        for op in self.ops():
            for o in op_operands(op):
                found[o].append(op)
        return found

    def ops(self) -> Iterator[Op]:
        """Every op, loops' bodies included, in order."""
        for stmt in self.body:
            if isinstance(stmt, Loop):
                yield from stmt.body
            else:
                yield stmt


def index_axes(op: Access) -> set[str]:
    """The axes in the index of an access, those of which it takes lane numbers included."""
    return {s.name.removesuffix("_lane") for d in op.index for s in d.symbols() if s.kind == "axis"}


def isolated(condition: Dim, lanes: Container[str]) -> tuple[Symbol, int, Dim] | None:
    """`condition >= 0` with an axis on one side of it: (s, 1, bound) for `s >= bound`, (s, -1, bound) for `s < bound`.
    No axis that has `lanes` is in the bound, and no value that was read. Triton finds out how many neighbours a test is
    the same for if what has lanes stands alone."""

    def varies(s: Symbol) -> bool:
        return s.kind == "value" or (s.kind != "size" and s.name.removesuffix("_lane") in lanes)

    symbols = [s for s in condition.symbols() if s.kind != "size"]
    for symbol in sorted(symbols, key=lambda s: (not varies(s), s.name)):
        sign, rest = condition.coefficient(symbol) or (ZERO, ZERO)
        if sign in (1, -1) and not any(map(varies, rest.symbols())):
            return (symbol, 1, -rest) if sign == 1 else (symbol, -1, rest + 1)
    return None


def enclosing(program: Program, op: Op) -> tuple[str, ...]:
    """The axes of the loops that an op stands in."""
    return next((s.axes for s in program.body if isinstance(s, Loop) and op in s.body), ())


def ends_whole(loop: Loop, axis: TileAxis) -> bool:
    """Whether a loop walks blocks that lie in the axis whole: it starts at a block, and it ends at the last
    multiple of the block that is not past the extent, or before."""
    whole = floordiv(axis.extent, Dim.of(axis.block)) * axis.block
    if loop.last is None or len(loop.axes) != 1:
        return False
    ends = (loop.last.atom.a, loop.last.atom.b) if isinstance(loop.last.atom, Smallest) else (loop.last,)
    return whole in ends


def exchange(program: Program, old: Op, new: Op) -> Program:
    """The program with one op in the place of another; what uses that one uses the new one."""
    made: dict[Op, Op] = {}

    def moved(op: Op) -> Op:
        made[op] = with_operands(new if op is old else op, lambda o: made.get(o, o))
        return made[op]

    def carried(carry: Carry) -> Carry:
        found = made[carry]
        assert isinstance(found, Carry)
        return found

    body: list[Stmt] = []
    for stmt in program.body:
        if isinstance(stmt, Loop):
            inside = tuple(moved(op) for op in stmt.body)
            carries = tuple((carried(c), made[n]) for c, n in stmt.carries)
            body.append(replace(stmt, carries=carries, body=inside))
        else:
            body.append(moved(stmt))
    return replace(program, body=tuple(body))


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The programs in the order in which they run. Of the plan only the head counts: what goes in and
    comes out, conditions, temporaries."""

    plan: Plan
    programs: tuple[Program, ...]

    def __iter__(self) -> Iterator[Program]:
        return iter(self.programs)

    def __len__(self) -> int:
        return len(self.programs)

    def __getitem__(self, number: int) -> Program:
        return self.programs[number]

    def map(self, change: Callable[[Program], Program]) -> Programs:
        """The programs changed; these themselves, if none is."""
        made = tuple(map(change, self.programs))
        return self if all(a is b for a, b in zip(made, self.programs)) else replace(self, programs=made)
