"""tile → tile: programs with much to do start before those with little.

    for r {last = i_start + 128}       the further i_start, the more rounds
    warps 4                            becomes   warps 4 group 8 descending

In: a program whose loops have bounds (tile/skip.py). Out: the same, its tiles in another order. A GPU starts
programs by their numbers, as others end; what starts last should be short, or most of the chip waits for it. So
the last axis of the grid is walked from its end, and the axis before it in groups: a group's longest programs all
come before its shorter ones, and a group is about as many programs as run at once, so that what they read stays
in the L2 cache. (Longest processing time first: Graham, "Bounds on multiprocessing timing anomalies", 1969.)

Left out: loops that get longer along another axis than the last, of which products have a grouped order already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minitri.dims import Dim
from minitri.tile.ir import Loop, Program, TileAxis, block_start

AT_ONCE = 256  # programs that run together: about two on each processor
USUAL = 8  # tiles of the axis before the last, where nobody knows how many the last has


def order(program: Program) -> Program:
    grid = program.grid
    if not grid or not _rises([s for s in program.body if isinstance(s, Loop)], grid[-1]):
        return program
    group = _group(grid[-1]) if program.group == 1 and len(grid) > 1 else program.group
    return replace(program, group=group, descending=True)


def _rises(loops: Sequence[Loop], axis: TileAxis) -> bool:
    """Whether loops get longer along an axis of the grid: all end where it says, and one does not begin there."""
    start = block_start(axis.name).atom

    def depends(bound: Dim | None) -> bool:
        return bound is not None and start in bound.symbols()

    return bool(loops) and all(depends(s.last) for s in loops) and not all(depends(s.first) for s in loops)


def _group(axis: TileAxis) -> int:
    tiles = axis.tiles.constant
    return USUAL if tiles is None else max(1, AT_ONCE // max(1, tiles))
