"""tile → tile: tiles that lie in the array whole are computed apart from the last one.

    grid i: 134217426 by 2048                i_tile < 65535: without tests
    store out[i] …               becomes     else: with i < 134217426          warps 4 peeled

In: a program. Out: the same, `peeled` where that pays. A test that is not the same for all neighbours that a thread
takes at once has them taken in smaller steps: bf16 of 134217426 elements 4 bytes at a time, though all but the last
1746 need no test. So its statements are printed twice (triton/emit.py), once without the tests of the last grid axis.
That is called peeling: of a loop the rounds at its end, where something else holds. On an H200 the sum of two such
arrays is then as fast as a copy (`python tests/sweep_rows.py add`).

Left out: programs with loops, whose tests along the loop stay, arrays of sizes that nobody knows, and those of few
tiles, where the launch is what takes time. (A text can say `peeled` of any program: what is printed is right anyway.)
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from minitri.base.dims import ONE, ZERO
from minitri.kernels.ir import Load, Store
from minitri.optimize.schedules.products import ALIGNMENT
from minitri.tiles.ir import Access, Loop, Program, TileAxis

WARP = 32  # threads
MANY = 64  # tiles: so many programs should gain from it


def peel(program: Program) -> Program:
    axis = program.grid[-1] if program.grid else None
    extent = axis and axis.extent.constant
    if axis is None or extent is None or extent < MANY * axis.block or any(isinstance(s, Loop) for s in program.body):
        return program
    accesses = [op for op in program.body if isinstance(op, (Load, Store))]
    pays = any(_narrowed(program, op, axis, extent) for op in accesses)
    return replace(program, peeled=True) if pays else program


def _narrowed(program: Program, op: Access, axis: TileAxis, extent: int) -> bool:
    """Whether neighbours along an axis lie side by side, and a thread would take more of them at once but for the test
    of its end: their places and the threads' shares have a common divisor that the extent lacks."""
    offset = sum((d * s for d, s in zip(op.index, op.buffer.strides)), ZERO)
    step, rest = offset.coefficient(axis.symbol) or (ZERO, ZERO)
    tile = [program.axis(a).lanes for a in (op.axes if isinstance(op, Load) else op.value.axes)]
    share = max(1, prod(tile) // (WARP * program.warps))
    at_once = gcd(ALIGNMENT // op.buffer.dtype.bytes, axis.block, share, *(c for _, c in rest.terms))
    return step == ONE and axis.lanes == axis.block and extent % at_once > 0
