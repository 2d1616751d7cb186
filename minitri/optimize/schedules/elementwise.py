"""Chooses tiles for elementwise kernels so that memory accesses coalesce, on both sides of a transpose.

    x + y, x: f32[M, 300]       {i: 2, j: 512}       neighbouring threads take neighbours along j
    x.T + y                     {i: 64, j: 64}       x is contiguous along i, y along j

The function `elementwise` returns the schedule of a kernel without reductions. Neighbouring threads process
neighbouring elements along the axis with the most contiguous bytes in loads and stores. In a transpose, loads and
stores are contiguous along different axes. The tile of a transpose is a square, so that loads and stores both access
whole cache lines. A transpose gets a rectangular tile instead of a square tile if an axis is short, or if rows have an
odd length. If the contiguous axis is short, the tile also covers several indices of another axis.

The tile of a kernel without a transpose has about 1024 elements. For elements of at most 16 bits, the tile has about
2048 elements. A program without a transpose has at most 4 warps. A program of a transpose has 8 warps, or 16 warps if
each element needs much computation. A transpose of few elements has smaller tiles than other transposes, so that more
multiprocessors get a tile.

The expression `x[:, ::2]` reads every second element, so one instruction cannot load several neighbouring elements of
the result. Each instruction loads one element for each thread of a warp. These elements lie in many cache lines,
because a thread has several neighbouring elements. Therefore the tile has only 512 elements: four or fewer for each
thread. `log(abs(x) + 1)[:, ::2]` then takes half as long for bf16[57925, 128], and 0.93 times as long for f32 (H200).
Rows of odd length have the same problem. They get small tiles only if the L1 cache would move far more bytes than the
memory.

For x of shape [64, 127, 4090] and y of shape [4090, 64, 1], the expression `x - permute_dims(y, (1, 2, 0))` reads
elements of y that are far apart. Results with other indices along the axis of length 127 need the same elements again.
A tile covers 64 indices along the contiguous axis, and 16 indices along the axis of length 127. So a program loads each
element of y once for 16 results. The program f32 201/7 of `minitri bench --random` takes 0.53 times as long (H200).

If loads and stores are contiguous along three axes, the tile has 32 bytes along two axes (16 elements at most), and 32
elements along the axis with the most contiguous bytes. In `concat((x, y.mT), axis=2)`, stored with the axes reversed,
x, y and the result have three different contiguous axes. The program 201/12 of `minitri bench --random` takes 0.56 times
as long for bf16, and 0.75 times for f32 (H200). An array of few elements has the tile of a transpose instead.

If rows have an odd length, one instruction loads or stores only one element of a row. A transpose of rows with an odd
length has tiles of 2048 elements, so each thread has 8 elements. Compared with tiles of 2048 elements, larger tiles
took up to three times as long for the shape [16, 197, 777] (H200). For rows of odd length, the tile of a transpose has
32 rows. If one instruction can load or store several elements of one of the two arrays, the tile has 16 rows, not 32.

In Triton's interpreter a program costs about a millisecond and an element costs almost nothing, so tiles are very
large.
"""

import math
from collections.abc import Sequence

from minitri.hardware.chips import SECTOR, Chip
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Axis, Kernel, Load, Store
from minitri.optimize.schedules import block_sizes
from minitri.optimize.schedules.block_sizes import at_most, contiguity, filled, innermost, rivals, touched, vector
from minitri.optimize.schedules.long_bodies import more_warps
from minitri.optimize.schedules.rule_arguments import Request
from minitri.tiles.schedule import INTERPRETER, Schedule, ceil_pow2, size

SQUARE = 64 * 64  # elements of a tile that is contiguous along two axes
UNALIGNED = 64 * 32  # the same if accesses along the first axis move single elements
FAR_APART = 512  # elements of a tile without a transpose, if one instruction loads elements that are far apart
REUSED, AGAIN = 64, 16  # the least elements along two axes of a tile that uses elements far apart several times
LONGEST, THIRD = 32, 16  # elements along the first axis of a tile with three contiguous axes, and most along the others
L1_LIMIT = 10  # the L1 cache limits the speed if it moves this many times as many bytes as the memory


def elementwise(kernel: Kernel, request: Request) -> Schedule | None:
    """Returns the schedule of a kernel without reductions. Returns None for a kernel with reductions."""
    if kernel.reduced:
        return None
    if not kernel.axes:
        return Schedule({}, "one element", warps=1)
    order = innermost(kernel.axes, contiguity(kernel))
    if request.interpreter:
        blocks, warps = filled(order, INTERPRETER.elements), 4
        rule = f"elements, contiguous along {order[0].name}"
    elif others := rivals(order, kernel):
        blocks, warps = _transpose(kernel, order, others, request.chip)
        shape = "a square" if blocks[order[0].name] == blocks[others[0].name] else "a rectangle"
        three = others[1:] and blocks[others[1].name] > 1
        rule = f"{shape}: {'three' if three else 'two'} axes are contiguous"
    else:
        apart = _read_far_apart(kernel, order[0])
        elements = FAR_APART if apart else block_sizes.elements_of_a_program(kernel)
        blocks, warps = filled(order, elements, {} if apart else _reused(kernel, order)), 4
        rule = f"elements, contiguous along {order[0].name}"
    return Schedule({a.name: ("grid", blocks[a.name]) for a in kernel.axes}, rule, warps=at_most(warps, blocks))


def _transpose(kernel: Kernel, order: Sequence[Axis], others: Sequence[Axis], chip: Chip) -> tuple[dict[str, int], int]:
    """Returns the block sizes and the number of warps of a transpose."""
    second, *more = others
    # small arrays have smaller tiles, so that more multiprocessors have a tile
    share = math.prod(size(a, SQUARE) for a in kernel.axes) // chip.multiprocessors
    # Accesses are contiguous along the axes `order[0]` and `others`.
    if not _has_vectors(kernel, order[0]):  # accesses along the first axis move single elements
        rows = 16 if _has_vectors(kernel, second) else 32
        return filled(order, UNALIGNED, filled(order[:1], UNALIGNED // rows) | filled([second], rows)), 8
    sector = min(SECTOR // block_sizes.widest_bytes(kernel), THIRD)
    if more and share >= LONGEST * THIRD * THIRD:  # contiguous along three axes, and enough tiles
        blocks = filled(order[:1], LONGEST) | filled([second], sector) | filled(more[:1], sector)
        return filled(order, math.prod(blocks.values()), blocks), more_warps(kernel, blocks, 8, most=512)
    side = min(128 if block_sizes.widest_bytes(kernel) <= 2 else 64, max(SECTOR, ceil_pow2(math.isqrt(share))))
    blocks = filled(order, min(SQUARE, share), filled(order[:1], side) | filled([second], side))
    return blocks, more_warps(kernel, blocks, 8, most=512)


def _has_vectors(kernel: Kernel, axis: Axis) -> bool:
    """Checks whether one instruction can access several neighbouring elements along an axis."""
    # of these accesses, neighbouring elements along the axis are neighbours in memory
    near = [op for op in _large(kernel) if ((axis.symbol,), 1) in op.offset.terms]
    return any(vector(op, axis.symbol) > 1 for op in near)


def _read_far_apart(kernel: Kernel, axis: Axis) -> bool:
    """Checks whether the L1 cache limits the speed, because one instruction loads elements that are far apart."""
    large = _large(kernel)
    single = [op for op in kernel.body if isinstance(op, Load) and vector(op, axis.symbol) == 1]
    strides = {op: abs(block_sizes.step(op.offset, axis.symbol)) for op in single}
    # A thread has 16 bytes of neighbouring elements. An instruction loads one of them for each thread of a warp.
    elements = ALIGNMENT // block_sizes.widest_bytes(kernel)
    cached = elements * sum(op.dtype.bytes for op in single if strides[op])
    skipping = any(1 < stride < SECTOR // op.dtype.bytes for op, stride in strides.items() if op in large)
    return skipping or cached > L1_LIMIT * sum(op.dtype.bytes for op in large)


def _reused(kernel: Kernel, order: Sequence[Axis]) -> dict[str, int]:
    """Returns least block sizes, so that a program reuses loaded elements that are far apart in memory."""
    first, *others = order
    loads = [op for op in kernel.body if isinstance(op, Load)]
    apart = [op for op in loads if abs(block_sizes.step(op.offset, first.symbol)) * op.dtype.bytes >= SECTOR]
    # along these axes, the same elements are needed again
    again = [a for a in others if size(a, AGAIN) >= AGAIN and not any(a.name in op.indexed_by for op in apart)]
    return filled([first], REUSED) | filled(again[:1], AGAIN) if apart and again else {}


def _large(kernel: Kernel) -> list[Load | Store]:
    """Returns the loads and stores of a kernel, except those of small arrays, such as a bias."""
    accesses = {op: touched(kernel, op) for op in kernel.body if isinstance(op, (Load, Store))}
    return [op for op, count in accesses.items() if count * 8 > max(accesses.values())]
