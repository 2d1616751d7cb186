"""Facts about the indices of a tile program, for proofs.

    grid i: M by 4     i = 4*tile + element,  0 <= tile < (M + 3)//4,  0 <= element < 4

In: a program and one of its accesses. Out: facts (minitri/base/inequalities.py) that hold whenever
the access runs. The one idea: all facts follow from how blocks cover an axis, and from the fact that
the program runs at all. A value that is loaded can be any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minitri.base.dims import ONE, Dim, Symbol
from minitri.base.inequalities import Fact
from minitri.tiles.ir import Access, Loop, Program, TileAxis, enclosing, ends_whole, lane_number


def known(program: Program, op: Access, tests: Sequence[Dim]) -> list[Fact]:
    """Facts that hold whenever an access runs whose conditions are `tests`."""
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
    """If a loop leaves out a short last block, all its elements are inside the axis."""
    for loop in (s for s in program.body if isinstance(s, Loop) and op in s.body):
        for a in map(program.axis, loop.axes):
            if ends_whole(loop, a):
                yield Fact(a.extent - 1 - a.index, f"{a.name} walks whole blocks")


def running(program: Program) -> Iterator[Fact]:
    """No axis of the grid is empty, because a program runs."""
    for a in program.grid:
        yield from _not_empty(a)


def lane_symbol(a: TileAxis) -> Symbol:
    """The symbol for the position of an element in its block."""
    atom = lane_number(a.name).atom
    assert isinstance(atom, Symbol)
    return atom


def _range(a: TileAxis, lanes: bool) -> Iterator[Fact]:
    """The range of an axis; with `lanes`, also the range of positions in its block."""
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
    """The axis has a block, so it has an index, and no factor of its extent is 0."""
    yield Fact(a.tiles - 1, f"{a.name} has a block")
    if a.tiles == (a.extent + (a.block - 1)) // a.block:
        yield Fact(a.extent - 1, f"{a.name} has a block")
        if len(a.extent.terms) == 1 and a.extent.terms[0][1] > 0:
            for atom in a.extent.atoms():
                yield Fact(Dim({(atom,): 1}) - 1, f"{a.name} has a block")
