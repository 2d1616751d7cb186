"""What is known about the indices of a tile program: facts for proofs.

In: a program and one of its accesses. Out: facts (minitri/base/inequality_proofs.py) that hold wherever the
access is made. The one idea: everything follows from how blocks are laid along an axis,

    grid i: M by 4     i = 4*tile + lane,  0 <= tile < (M + 3)//4,  0 <= lane < 4

and from the fact that the program runs at all. Values that are read can be anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minitri.base.dims import ONE, ZERO, Dim, Largest, Symbol
from minitri.base.inequality_proofs import Fact
from minitri.base.intervals import Range, Ranges, proves_nonnegative
from minitri.tiles.ir import Access, Loop, Program, TileAxis, block_start, enclosing, ends_whole, lane_number


def known(program: Program, op: Access, tests: Sequence[Dim]) -> list[Fact]:
    """What holds wherever an access is made that these tests let through."""
    symbols = {s for d in (*op.index, *tests) for s in d.symbols() if s.kind == "axis"}
    names = {s.name.removesuffix("_lane") for s in symbols}
    facts = [*running(program), *(Fact(c, "tested") for c in tests)]
    for name in enclosing(program, op):
        facts += _not_empty(program.axis(name))
    facts += _whole(program, op)
    for a in program.axes:
        if a.name in names:
            facts += _range(a, lane_symbol(a) in symbols or a.lanes != a.block)
    return facts


def _whole(program: Program, op: Access) -> Iterator[Fact]:
    """In a loop that leaves the last block out, if that is short, all lanes are inside."""
    for loop in (s for s in program.body if isinstance(s, Loop) and op in s.body):
        for a in map(program.axis, loop.axes):
            if ends_whole(loop, a):
                yield Fact(a.extent - 1 - a.index, f"{a.name} walks whole blocks")


def running(program: Program) -> Iterator[Fact]:
    """A program runs, so that no axis of its grid is empty."""
    for a in program.grid:
        yield from _not_empty(a)


def lane_symbol(a: TileAxis) -> Symbol:
    """The number of a lane within its block."""
    atom = lane_number(a.name).atom
    assert isinstance(atom, Symbol)
    return atom


def _range(a: TileAxis, lanes: bool) -> Iterator[Fact]:
    """The indices that an axis takes; `lanes`: and the lanes it has them in."""
    blocks = ONE if a.role == "whole" else a.tiles
    said = (
        f"{a.name} < {blocks * a.block} by {blocks} blocks of {a.block}"
        if a.role != "whole"
        else f"{a.name} < {a.block}, one block"
    )
    yield Fact(blocks * a.block - a.block + a.lanes - 1 - a.index, said)
    if lanes:
        lane = lane_number(a.name)
        yield Fact(Dim.of(a.lanes - 1) - lane, f"{a.name} has {a.lanes} lanes")
        yield Fact(a.index - lane, f"{a.name} starts at a block")
        yield Fact(blocks * a.block - a.block + lane - a.index, said)


def _not_empty(a: TileAxis) -> Iterator[Fact]:
    """There is a block, so there is an index; and no factor of the extent is 0."""
    yield Fact(a.tiles - 1, f"{a.name} has a block")
    if a.tiles == (a.extent + (a.block - 1)) // a.block:
        yield Fact(a.extent - 1, f"{a.name} has a block")
        if len(a.extent.terms) == 1 and a.extent.terms[0][1] > 0:
            for atom in a.extent.atoms():
                yield Fact(Dim({(atom,): 1}) - 1, f"{a.name} has a block")


# ---- for the arithmetic of the kernel --------------------------------------------------------


def index_ranges(program: Program) -> dict[Symbol, Range]:
    """How far axes reach, lanes past the end included, and where their blocks begin."""
    found = {a.symbol: (ZERO, a.tiles * a.block + (a.lanes - a.block - 1)) for a in program.axes}
    starts = {s: (ZERO, a.tiles * a.block) for a in program.axes for s in block_start(a.name).symbols()}
    return {**found, **starts}


def is_natural(d: Dim, ranges: Ranges) -> bool:
    """Whether this is never negative: then the hardware's division rounds down."""
    ends = (d.atom.a.constant, d.atom.b.constant) if isinstance(d.atom, Largest) else ()
    return proves_nonnegative(d, ranges) or any(n is not None and n >= 0 for n in ends)
