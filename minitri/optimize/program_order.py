"""tile → tile: chooses the order in which tiles and blocks are computed.

Programs with much work start before programs with little:

    for r {last = i_start + 128}       the larger i_start, the more iterations
    warps 4                            becomes   warps 4 group 8 descending

In: a program whose loops have bounds (optimize/skip_blocks/skip.py), and a chip. Out: the same program, its tiles in
another order. A GPU starts programs by their number. A long program that starts last leaves most of the chip idle, so
long programs must start first (Graham, "Bounds on multiprocessing timing anomalies", 1969: longest processing time
first). So the last axis of the grid runs from its end, and the axis before it runs in groups. The longest programs of
a group start before its shorter ones. A group has about as many programs as run at once, so its reads stay in the L2
cache.

A second loop over the same elements starts at their end. The first loop has just read them, and the cache has them:

    for j { … }                        blocks 0, 1, 2, 3
    for j { store … }                  becomes   3, 2, 1, 0                    warps 16 returning

Left out: loops that get longer along another axis than the last. Of these, products have a grouped order already.
"""

from __future__ import annotations

from dataclasses import replace

from minitri.base.dims import Dim
from minitri.hardware.chips import Chip
from minitri.tiles.ir import Loop, Program, TileAxis, block_start

AT_ONCE = 2  # programs that run together on each multiprocessor, about
USUAL = 8  # tiles of the axis before the last, where nobody knows how many the last has
FAR = 1024  # tiles of an axis of which nobody knows


def order(program: Program, chip: Chip, group: int | None = None) -> Program:
    """`group`: how many tiles the caller wants side by side; None leaves it to this pass."""
    program = replace(program, returning=True) if _returns(program) else program
    grid = program.grid
    if not grid or not _rises(program, grid[-1]):
        return program
    given = group or (program.group if program.group > 1 else None)
    chosen = given or (_group(grid[-1], chip) if len(grid) > 1 else 1)
    return replace(program, group=chosen, descending=True)


def _returns(program: Program) -> bool:
    """Whether a loop without carried values has the axes of the loop before it.

    Persistent programs do not count: Triton makes one loop of theirs.
    """
    loops = [s for s in program.body if isinstance(s, Loop) and s.first is None and s.last is None]
    return any(not b.carries and a.axes == b.axes for a, b in zip(loops, loops[1:])) and not program.persistent


def _rises(program: Program, axis: TileAxis) -> bool:
    """Whether loops are longer at the end of an axis of the grid than half way there."""
    last = (axis.tiles.constant or FAR) - 1
    return _length(program, axis, last) > _length(program, axis, last // 2)


def _length(program: Program, axis: TileAxis, tile: int) -> int:
    """How many indices a program with this tile loops over where there are bounds; sizes that nobody knows are as
    long as the axis."""
    start, far = block_start(axis.name).atom, FAR * axis.block

    def at(bound: Dim) -> int:
        return bound.evaluate({s.name: tile * axis.block if s == start else far for s in bound.symbols()})

    loops = [s for s in program.body if isinstance(s, Loop) and (s.first is not None or s.last is not None)]
    ends = [(s.first or Dim.of(0), program.axis(s.axes[0]).extent if s.last is None else s.last) for s in loops]
    return sum(max(0, at(last) - at(first)) for first, last in ends)


def _group(axis: TileAxis, chip: Chip) -> int:
    """As many rows of tiles as run at once, a power of two of programs."""
    tiles, at_once = axis.tiles.constant, 1 << (AT_ONCE * chip.multiprocessors).bit_length() - 1
    return USUAL if tiles is None else max(1, at_once // max(1, tiles))
