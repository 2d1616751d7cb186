"""tile → tile: changes the order of tiles and blocks, so that long grid programs start first ("longest first").

    for r {last = i_start + 128}       the larger i_start, the more iterations
    warps 4                            becomes   warps 4 group 8 descending

The pass `program-order` changes the order of tiles in programs that skip blocks of a loop
(optimize/skip_blocks/skip.py). A GPU starts the programs of a grid in the order of their indices. If a long program
starts last, most of the chip is idle until that program ends. The programs that run longest must therefore start first
(Graham, "Bounds on multiprocessing timing anomalies", 1969: longest processing time first). If the last tiles along the
last grid axis have the most work, the programs for these tiles start first. In causal attention, the tiles at the end
of the last grid axis have the most work. The tiles along the last-but-one grid axis are divided into groups. Within a
group, programs with more work start earlier. A group has about as many programs as the GPU runs at once. The L2 cache
can then hold the data of one group of tiles.

If two loops of a program run over the same elements, the second loop visits the blocks in reverse order. When the
second loop over the same elements starts, the cache still contains the last blocks that the first loop has read.

    for j { … }                        blocks 0, 1, 2, 3
    for j { store … }                  becomes   3, 2, 1, 0                    warps 16 returning

The order of tiles changes only if the length of the loops depends on the last grid axis. The pass `program-order` does
not change plain matrix products, because all their programs take equally long. The file schedules/products.py groups
the tiles of matrix products.
"""

from dataclasses import replace

from minitri.base.dims import Dim
from minitri.hardware.chips import Chip
from minitri.tiles.ir import Program, TileAxis, block_start

AT_ONCE = 2  # the approximate number of programs that run together on each multiprocessor
USUAL = 8  # tiles in a group if the extent of the last axis is unknown
FAR = 1024  # tiles of an axis of unknown extent


def order(program: Program, chip: Chip, group: int | None = None) -> Program:
    """Returns the program with a new order of tiles and blocks.

    The argument `group` is the number of tiles per group that the caller wants. If `group` is None, this pass chooses
    the number of tiles per group.
    """
    program = replace(program, returning=True) if _returns(program) else program
    grid = program.grid
    if not grid or not _rises(program, grid[-1]):
        return program
    given = group or (program.group if program.group > 1 else None)
    chosen = given or (_group(grid[-1], chip) if len(grid) > 1 else 1)
    return replace(program, group=chosen, descending=True)


def _returns(program: Program) -> bool:
    """Checks whether a loop carries no values and has the axes of the previous loop."""
    loops = [loop for loop in program.loops if loop.first is None and loop.last is None]
    # Triton merges the loops of persistent programs
    return any(not b.carries and a.axes == b.axes for a, b in zip(loops, loops[1:])) and not program.persistent


def _rises(program: Program, axis: TileAxis) -> bool:
    """Checks whether loops run longer in the last tile of an axis than in the middle tile of the axis."""
    last = (axis.tiles.constant or FAR) - 1
    return _length(program, axis, last) > _length(program, axis, last // 2)


def _length(program: Program, axis: TileAxis, tile: int) -> int:
    """Returns how many indices the loops visit in the grid program of one tile."""
    # an axis of unknown size is assumed to have FAR blocks
    start, far = block_start(axis.name).atom, FAR * axis.block

    def at(bound: Dim) -> int:
        return bound.evaluate({s.name: tile * axis.block if s == start else far for s in bound.symbols()})

    # loops over a whole axis have the same length in every grid program
    loops = [s for s in program.loops if s.first is not None or s.last is not None]
    ends = [(s.first or Dim.of(0), program.axis(s.axes[0]).extent if s.last is None else s.last) for s in loops]
    return sum(max(0, at(last) - at(first)) for first, last in ends)


def _group(axis: TileAxis, chip: Chip) -> int:
    """Returns the number of tiles per group. A group should have as many grid programs as the chip runs at once."""
    tiles, at_once = axis.tiles.constant, 1 << (AT_ONCE * chip.multiprocessors).bit_length() - 1
    return USUAL if tiles is None else max(1, at_once // max(1, tiles))
