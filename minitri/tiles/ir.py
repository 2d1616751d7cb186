"""Tile programs: one structured program for each kernel, which runs once for each point of the grid.

    program = Program(name, axes, buffers, body, hints, warps, stages)
    axis    = TileAxis(name, extent, role, block)
              "grid"   this program works on `block` neighbouring indices (any number of them)
              "whole"  the program works on all indices at once (block >= extent)
              "loop"   a loop of the program takes `block` indices in each iteration
    stmt    = an op of minitri/kernels/ir.py, now on tiles
            | Loop(axes, carries, body, first, last)     nested loops, the last axis innermost
    hint    = Hints(…) of an op or a loop    what the target learns: only in `tile.target`
    stage   = Programs(plan, programs)      what runs, in which order, over which memory

A value of type `f32[i, r]` is a tile. Along each axis it has `lanes` elements: `block`, rounded up to
a power of two, because Triton's tiles are powers of two. So some elements have an index past the end
of the axis or past their block. Masks stop these.

A `Carry` op is a value that a loop passes from one iteration to the next. It comes before its loop.
After the loop it is the last value.

What it no longer has: operations on whole arrays. The order of computation is explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from minitri.base.dims import ZERO, Dim, Symbol, axis, floordiv
from minitri.base.extremes import Smallest
from minitri.base.intervals import Range
from minitri.kernels.ir import Access, Axis, Buffer, Carry, Dot, Op, Plan


@dataclass(frozen=True, slots=True)
class TileAxis(Axis):
    block: int = 1

    @property
    def lanes(self) -> int:
        """How many elements a tile has along this axis: the block, rounded up to a power of two."""
        return 1 << max(0, self.block - 1).bit_length()

    @property
    def inside(self) -> Dim:
        """>= 0 where the index is inside the extent."""
        return self.extent - 1 - self.index

    @property
    def tiles(self) -> Dim:
        """How many blocks cover the extent."""
        return floordiv(self.extent + (self.block - 1), Dim.of(self.block))


def lane_number(name: str) -> Dim:
    """The position of an element in its block along an axis: 0 … `lanes` - 1."""
    return axis(f"{name}_lane")


def block_start(name: str) -> Dim:
    """The first index of the block that a loop works on."""
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


@dataclass(frozen=True, slots=True)
class Hints:
    """What the target learns about one op or loop. The defaults say nothing. No hint changes a value.

    descriptor     an access goes through a tensor descriptor; the elements of a block along each axis
    evict_first    after a load the L2 cache may drop first what was read
    fast           an operator is spelled as fast math allows
    in_parts       a maximum of a row is made in parts of 16 columns
    unknown_start  Triton's compiler must not see what a carried value starts with
    wait           each iteration of a loop first waits for the tensor cores
    """

    descriptor: tuple[int, ...] = ()
    evict_first: bool = False
    fast: bool = False
    in_parts: bool = False
    unknown_start: bool = False
    wait: bool = False


PLAIN = Hints()


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The code of one kernel, and the options that it is compiled with.

    warps              how many warps run one program (for Triton's compiler)
    stages             how many blocks a pipelined loop keeps in flight (for Triton's compiler)
    group              rasterisation: how many tiles of the last-but-one grid axis run side by side, so
                       that their operands stay in the L2 cache
    wide               offsets need 64 bits
    relaxed            fast math is allowed, as in the kernel
    descriptors        loads go through tensor descriptors where that is possible
    persistent         how many programs a persistent kernel has; 0: one program for each tile
    registers          the most registers of a thread; 0: Triton's compiler decides
    descending         the tiles of the last grid axis run from its end to its start
    returning          loops that carry nothing run from their last block to their first
    peeled             complete tiles of the last grid axis skip the bounds checks of that axis
    descriptor_stores  with `descriptors`: stores go through tensor descriptors too, where possible
    early_start        the program starts while the kernel before it ends, and waits for that kernel itself
    flattened          the loop over tiles of a persistent kernel and the loop inside it become one loop
    hints              what the target learns about single ops and loops
    """

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
    early_start: bool = False
    flattened: bool = False
    hints: Mapping[Op | Loop, Hints] = field(default_factory=dict)

    def hint(self, about: Op | Loop) -> Hints:
        return self.hints.get(about, PLAIN)

    def hinted(self, about: Iterable[Op | Loop], **more: Any) -> Program:
        """The program with `more` hints about some ops or loops; this object itself if there are none."""
        found = {x: replace(self.hint(x), **more) for x in about}
        return replace(self, hints={**self.hints, **found}) if found else self

    def without_descriptors(self) -> Program:
        """The program without tensor descriptors, nor the wish for them."""
        plain = self.hinted([x for x, hints in self.hints.items() if hints.descriptor], descriptor=())
        return replace(plain, descriptors=False, descriptor_stores=False) if self.descriptors else plain

    @property
    def peeled_tests(self) -> frozenset[Dim]:
        """The conditions that need no test in complete tiles of a `peeled` program."""
        if not self.peeled or not self.grid or self.grid[-1].lanes != self.grid[-1].block:
            return frozenset()
        return frozenset((self.grid[-1].inside,))

    def from_end(self, loop: Loop) -> bool:
        """Whether a loop begins at its last block."""
        return self.returning and not loop.carries and loop.first is None and loop.last is None

    def axis(self, name: str) -> TileAxis:
        return next(a for a in self.axes if a.name == name)

    @property
    def grid(self) -> tuple[TileAxis, ...]:
        return tuple(a for a in self.axes if a.role == "grid")

    def factors(self, dot: Dot) -> tuple[Op, Op]:
        """The operands of a product in the order of multiplication.

        The rows of the result are the axis that comes first among the axes of the program.
        """
        row, column = (next(n for n, a in enumerate(self.axes) if a.name == name) for name in dot.tile)
        return (dot.a, dot.b) if row < column else (dot.b, dot.a)

    def ops(self) -> Iterator[Op]:
        """Every op in order, with the bodies of loops."""
        for stmt in self.body:
            if isinstance(stmt, Loop):
                yield from stmt.body
            else:
                yield stmt


def index_axes(op: Access) -> set[str]:
    """The axes in the index of an access. A position within a block counts as its axis."""
    return {name.removesuffix("_lane") for name in op.indexed_by}


def isolated(condition: Dim, lanes: Container[str]) -> tuple[Symbol, int, Dim] | None:
    """`condition >= 0` solved for one axis: (s, 1, bound) for `s >= bound`, (s, -1, bound) for `s < bound`.

    The bound has no axis of `lanes` and no loaded value. None if there is no such form. Triton needs
    this form to find how many neighbours share the result of a bounds check.
    """

    def varies(s: Symbol) -> bool:
        return s.kind == "value" or (s.kind != "size" and s.name.removesuffix("_lane") in lanes)

    symbols = [s for s in condition.symbols() if s.kind != "size"]
    for symbol in sorted(symbols, key=lambda s: (not varies(s), s.name)):
        sign, rest = condition.coefficient(symbol) or (ZERO, ZERO)
        if sign in (1, -1) and not any(map(varies, rest.symbols())):
            return (symbol, 1, -rest) if sign == 1 else (symbol, -1, rest + 1)
    return None


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """An index as elements of a block: those of `axis` (None: a single one), `offset` after its first.

    `walks`: the first element is the start of the block at hand, else it is 0.
    """

    axis: TileAxis | None
    walks: bool
    offset: Dim


def block_index(program: Program, index: Dim) -> BlockIndex | None:
    """None if an index is more than the elements of one axis and a number that a whole program shares."""
    symbols = {s.name for s in index.symbols()}
    axis = next((a for a in program.axes if a.block > 1 and symbols & {a.name, f"{a.name}_lane"}), None)
    if axis is None:
        return BlockIndex(None, False, index)
    walks = axis.name in symbols
    offset = index - (axis.index if walks else lane_number(axis.name))
    single = {a.name for a in program.axes if a.lanes == 1}
    return BlockIndex(axis, walks, offset) if {s.name for s in offset.symbols()} <= single else None


def index_ranges(program: Program) -> dict[Symbol, Range]:
    """The ranges of all axes, with elements past the end, and of the starts of their blocks."""
    found = {a.symbol: (ZERO, a.tiles * a.block + (a.lanes - a.block - 1)) for a in program.axes}
    starts = {s: (ZERO, a.tiles * a.block) for a in program.axes for s in block_start(a.name).symbols()}
    return {**found, **starts}


def enclosing(program: Program, op: Op) -> tuple[str, ...]:
    """The axes of the loops around an op."""
    return next((s.axes for s in program.body if isinstance(s, Loop) and op in s.body), ())


def ends_whole(loop: Loop, axis: TileAxis) -> bool:
    """Whether every block of a loop is inside its axis.

    Such a loop ends at the last multiple of the block that is not past the extent, or before.
    """
    whole = floordiv(axis.extent, Dim.of(axis.block)) * axis.block
    if loop.last is None or len(loop.axes) != 1:
        return False
    ends = (loop.last.atom.a, loop.last.atom.b) if isinstance(loop.last.atom, Smallest) else (loop.last,)
    return whole in ends


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The programs in launch order.

    Of the plan only the head counts: inputs, outputs, conditions and temporaries.
    """

    plan: Plan
    programs: tuple[Program, ...]

    def __iter__(self) -> Iterator[Program]:
        return iter(self.programs)

    def __len__(self) -> int:
        return len(self.programs)

    def __getitem__(self, number: int) -> Program:
        return self.programs[number]

    def map(self, change: Callable[[Program], Program]) -> Programs:
        """The changed programs; this object itself if nothing changed."""
        made = tuple(map(change, self.programs))
        return self if all(a is b for a, b in zip(made, self.programs)) else replace(self, programs=made)
