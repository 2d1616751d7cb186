"""Derives facts about the indices of a tile program, for use in proofs.

    grid i: M by 4     i = 4*tile + element,  0 <= tile < (M + 3)//4,  0 <= element < 4

The function `known` takes a tile program, and one load or store of this program. The returned facts
(minitri/base/inequalities.py) are true whenever this load or store runs. The one idea: facts about indices follow
from the division of each axis into blocks, and from the conditions in the mask. A grid program runs only if no grid
axis is empty, so the extents of the grid axes are at least 1. A loaded value can be any number, so only the mask gives
facts about loaded values.
"""

from collections.abc import Iterator, Sequence

from minitri.base.dims import Dim, Symbol
from minitri.base.inequalities import Fact
from minitri.tiles.ir import Access, Program, TileAxis, ends_whole, lane_number


def known(program: Program, op: Access, tests: Sequence[Dim]) -> list[Fact]:
    """Returns the facts that are true whenever the load or store `op` runs. The argument `tests` lists the conditions
    in the mask of `op`.
    """
    symbols = {s for d in (*op.index, *tests) for s in d.symbols() if s.kind == "axis"}
    names = {s.name.removesuffix("_lane") for s in symbols}
    facts = [*running(program), *(Fact(c, "tested") for c in tests)]
    loop = next((loop for loop in program.loops if op in loop.body), None)
    for a in map(program.axis, loop.axes if loop else ()):
        facts += _not_empty(a)
        if loop and ends_whole(loop, a):
            facts.append(Fact(a.inside, f"{a.name} walks whole blocks"))
    for a in program.axes:
        if a.name in names:
            facts += _range(a, lane_symbol(a) in symbols or a.lanes != a.block)
    return facts


def running(program: Program) -> Iterator[Fact]:
    """Returns facts about the axes of the grid: the extent of each axis is at least 1. If an axis had no elements, no
    grid program would start.
    """
    for a in program.grid:
        yield from _not_empty(a)


def lane_symbol(a: TileAxis) -> Symbol:
    """Returns the symbol for the position of an element in its block."""
    return Symbol(f"{a.name}_lane", "axis")


def _range(a: TileAxis, lanes: bool) -> Iterator[Fact]:
    """Yields inequalities that limit the index of an axis, and the position of an element in its block."""
    said = f"{a.name} < {a.blocks * a.block} by {a.blocks} blocks of {a.block}"
    if a.role == "whole":
        said = f"{a.name} < {a.block}, one block"
    yield Fact(a.blocks * a.block - a.block + a.lanes - 1 - a.index, said)
    if lanes:  # the position of an element in its block
        lane = lane_number(a.name)
        yield Fact(Dim.of(a.lanes - 1) - lane, f"{a.name} has {a.lanes} lanes")
        yield Fact(a.index - lane, f"{a.name} starts at a block")
        yield Fact(a.blocks * a.block - a.block + lane - a.index, said)


def _not_empty(a: TileAxis) -> Iterator[Fact]:
    """Yields inequalities that hold for an axis with at least one block, such as `extent >= 1`."""
    yield Fact(a.tiles - 1, f"{a.name} has a block")
    if a.tiles == (a.extent + (a.block - 1)) // a.block:
        yield Fact(a.extent - 1, f"{a.name} has a block")
        if len(a.extent.terms) == 1 and a.extent.terms[0][1] > 0:
            for atom in a.extent.atoms():  # each factor of the extent is at least 1
                yield Fact(Dim({(atom,): 1}) - 1, f"{a.name} has a block")
