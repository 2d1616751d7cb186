"""Chooses tiles for elementwise kernels so that memory accesses coalesce, on both sides of a transpose.

    x + y, x: f32[M, 300]       {i: 2, j: 512}       neighbouring threads take neighbours along j
    x.T + y                     {i: 64, j: 64}       x is contiguous along i, y along j

In: a kernel without reductions. Out: the schedule of the kernel. Neighbouring threads process neighbouring elements
along a single axis: the axis along which the most loaded and stored bytes are contiguous. In a transpose, loads are
contiguous along one axis and stores along another axis. The tile of a transpose is a square, or a rectangle if one axis
is short, so that loads and stores both access whole cache lines. If the contiguous axis is short, the tile covers the
next axis too.

A program has about 1024 elements (2048 if they have 16 bits or fewer, 512 in small kernels) and at most 4 warps. A transpose has 8 warps, or 16
if it computes much for each element. If rows are not aligned to 8 bytes, as in `x[:, 1:] - x[:, :-1]`, a program has a
whole row of up to 8192 elements. In Triton's interpreter a program costs about a millisecond and an element costs almost
nothing, so tiles are very large.
"""

import math

from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Axis, Kernel
from minitri.optimize.schedules.block_sizes import ENOUGH, at_most, contiguity, filled, innermost, rival, widest_bytes
from minitri.optimize.schedules.long_bodies import more_warps
from minitri.optimize.schedules.rule_arguments import Request
from minitri.tiles.schedule import INTERPRETER, Schedule, ceil_pow2, size

SQUARE = 64 * 64  # elements of a tile that is contiguous along two axes
LONGEST_ROW, MOST_OPS = 8192, 16  # of a program with a whole row that is not aligned


def elementwise(kernel: Kernel, request: Request) -> Schedule | None:
    """Returns the schedule of a kernel without reductions. Returns None for any other kernel."""
    if kernel.reduced:
        return None
    if not kernel.axes:
        return Schedule({}, "one element", warps=1)
    order, bytes = innermost(kernel.axes, contiguity(kernel)), widest_bytes(kernel)
    first, second = order[0], rival(order, kernel)
    if second is not None and not request.interpreter:
        side = 128 if bytes <= 2 else 64
        blocks = filled(order, SQUARE, filled([first], side) | filled([second], side))
        shape = "a square" if blocks[first.name] == blocks[second.name] else "a rectangle"
        warps, rule = more_warps(kernel, blocks, 8, most=512), f"{shape}: two axes are contiguous"
    else:
        blocks = filled(order, INTERPRETER.elements if request.interpreter else _elements(kernel, bytes, request))
        warps, rule = 4, f"elements, contiguous along {first.name}"
        if not request.interpreter and blocks[first.name] < _row_of_a_program(kernel, first, request):
            blocks = dict.fromkeys(blocks, 1) | {first.name: _row_of_a_program(kernel, first, request)}
            warps, rule = max(4, blocks[first.name] // 1024), f"rows that are not aligned, along {first.name}"
    return Schedule({a.name: ("grid", blocks[a.name]) for a in kernel.axes}, rule, warps=at_most(warps, blocks))


def _elements(kernel: Kernel, bytes: int, request: Request) -> int:
    """Returns the number of elements of a program. Small kernels have more programs with fewer elements each."""
    all, busy = math.prod(size(a, 1 << 30) for a in kernel.axes), 8 * request.chip.multiprocessors
    return max(512, min(2048 if bytes <= 2 else ENOUGH, ceil_pow2(all // busy + 1) // 2))


def _row_of_a_program(kernel: Kernel, axis: Axis, request: Request) -> int:
    """Returns the block size of a program with a whole row, or 0 if programs should have other blocks.

    A thread accesses four bytes of such a row at a time, so it needs many elements to keep the memory busy. In a
    kernel with many operations, each element has too many instructions for that.
    """
    rows = math.prod(size(a, 4096) for a in kernel.axes if a is not axis)
    few = len(kernel.body) > MOST_OPS or rows < 8 * request.chip.multiprocessors
    length = axis.extent.constant or 0
    aligned = length * widest_bytes(kernel) % (ALIGNMENT // 2) == 0
    return 0 if aligned or few or length > LONGEST_ROW else ceil_pow2(length)
