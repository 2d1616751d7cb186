"""tile → tile: complete tiles run without masks, and only the incomplete last tile uses masks ("loop peeling").

    grid i: 134217426 by 2048                i_tile < 65535: without tests
    store out[i] …               becomes     else: with i < 134217426          warps 4 peeled

The pass `boundary-peeling` marks a tile program `peeled` if separate code for complete tiles makes the program faster.
A thread loads up to 16 bytes at once, but only if all elements in these bytes have the same mask value. Without
peeling, a thread loads only 4 bytes of bf16[134217426] at once, because 2 divides 134217426 but 4 does not. Only the
last 1746 of the 134217426 elements need a mask, because they do not fill a tile of 2048 elements. For a program marked
`peeled`, triton/emit.py prints the statements twice: once with the bounds checks of the last grid axis, and once
without these checks. With peeling, the sum of two bf16 arrays of 134217426 elements is as fast as a copy on an H200
(`python tests/sweep_rows.py add`). Compilers for CPUs also peel loops: they move the last iterations out of a loop.

The pass leaves programs with loops unchanged, because peeling does not remove the masks inside a loop. The pass does
not change programs for arrays of unknown size. A program of few tiles is not peeled, because launching its kernel takes
most of the run time.
"""

from dataclasses import replace
from math import gcd, prod

from minitri.base.dims import ONE, ZERO
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Load, Store
from minitri.tiles.ir import Access, Loop, Program, TileAxis

WARP = 32  # threads
MANY = 64  # the fewest tiles for which peeling pays


def peel(program: Program) -> Program:
    axis = program.grid[-1] if program.grid else None
    extent = axis and axis.extent.constant
    if axis is None or extent is None or extent < MANY * axis.block or any(isinstance(s, Loop) for s in program.body):
        return program
    pays = any(isinstance(op, (Load, Store)) and _narrowed(program, op, axis, extent) for op in program.body)
    return replace(program, peeled=True) if pays else program


def _narrowed(program: Program, op: Access, axis: TileAxis, extent: int) -> bool:
    """Checks whether a thread would load or store more bytes at once without a mask."""
    step, rest = op.offset.coefficient(axis.symbol) or (ZERO, ZERO)
    tile = [program.axis(a).lanes for a in (op.axes if isinstance(op, Load) else op.value.axes)]
    share = max(1, prod(tile) // (WARP * program.warps))
    # the number of contiguous elements that a thread loads at once without a mask
    at_once = gcd(ALIGNMENT // op.buffer.dtype.bytes, axis.block, share, *(c for _, c in rest.terms))
    # If `at_once` does not divide the extent, one load can contain both masked and unmasked elements.
    return step == ONE and axis.lanes == axis.block and extent % at_once > 0
