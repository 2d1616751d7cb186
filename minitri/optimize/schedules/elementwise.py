"""Chooses tiles for elementwise kernels so that memory accesses coalesce, on both sides of a transpose.

    x + y, x: f32[M, 300]       {i: 2, j: 512}       neighbouring threads take neighbours along j
    x.T + y                     {i: 64, j: 64}       x is contiguous along i, y along j

In: a kernel without reductions. Out: the schedule of the kernel. Neighbouring threads process neighbouring elements
along a single axis: the axis along which the most loaded and stored bytes are contiguous. In a transpose, loads are
contiguous along one axis and stores along another axis. The tile of a transpose is a square, or a rectangle if one axis
is short, so that loads and stores both access whole cache lines. If the contiguous axis is short, the tile covers the
next axis too.

A program has about 1024 elements (2048 if they have 16 bits or fewer) and at most 4 warps. A transpose has 8 warps, or
16 if it computes much for each element. A transpose whose accesses move a single element of 16 bits has smaller tiles
and 4 warps, and so does a transpose of few elements. In Triton's interpreter a program costs about a millisecond and an
element costs almost nothing, so tiles are very large.
"""

import math

from minitri.hardware.chips import SECTOR
from minitri.kernels.ir import Axis, Kernel, Load, Store
from minitri.optimize.schedules.block_sizes import (
    ENOUGH,
    at_most,
    contiguity,
    filled,
    innermost,
    rival,
    vector,
    widest_bytes,
)
from minitri.optimize.schedules.long_bodies import more_warps
from minitri.optimize.schedules.rule_arguments import Request
from minitri.tiles.schedule import INTERPRETER, Schedule, ceil_pow2, size

SQUARE = 64 * 64  # elements of a tile that is contiguous along two axes


def elementwise(kernel: Kernel, request: Request) -> Schedule | None:
    """Returns the schedule of a kernel without reductions. Returns None for any other kernel."""
    if kernel.reduced:
        return None
    if not kernel.axes:
        return Schedule({}, "one element", warps=1)
    order, bytes = innermost(kernel.axes, contiguity(kernel)), widest_bytes(kernel)
    first, second = order[0], rival(order, kernel)
    if second is not None and not request.interpreter:
        share = math.prod(size(a, SQUARE) for a in kernel.axes) // request.chip.multiprocessors  # of each, if all work
        side = min(128 if bytes <= 2 else 64, max(SECTOR, ceil_pow2(math.isqrt(share))))
        accesses = [op for op in kernel.body if isinstance(op, (Load, Store)) and _is_unit(op, first)]
        narrow = bytes <= 2 and all(vector(op, first.symbol) == 1 for op in accesses)
        other = min(side, 32) if narrow else side
        blocks = filled(order, min(SQUARE, share), filled([first], side) | filled([second], other))
        shape = "a square" if blocks[first.name] == blocks[second.name] else "a rectangle"
        warps = 4 if narrow else more_warps(kernel, blocks, 8, most=512)
        rule = f"{shape}: two axes are contiguous"
    else:
        blocks = filled(order, INTERPRETER.elements if request.interpreter else 2048 if bytes <= 2 else ENOUGH)
        warps, rule = 4, f"elements, contiguous along {first.name}"
    return Schedule({a.name: ("grid", blocks[a.name]) for a in kernel.axes}, rule, warps=at_most(warps, blocks))


def _is_unit(op: Load | Store, axis: Axis) -> bool:
    """Checks whether neighbouring elements of an access along an axis are neighbours in memory."""
    return ((axis.symbol,), 1) in op.offset.terms
