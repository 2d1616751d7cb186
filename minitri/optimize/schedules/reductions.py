"""Blocks for reductions of rows, which are contiguous, and of columns, which are strided.

In: a kernel that reduces. Out: a role and a block for each axis, warps, and the rule in words. Which of the rules
a row falls under depends on how long it is, on how wide its elements are, and on whether it is written again:

    short             several rows a program, 1024 elements; 2048 where a thread reads few bytes at once, and rows
                      share something or are only reduced
    fits              held whole: one read, one write. 32768 elements, 16384 of 64 bits, or where a row is only reduced;
                      2048 pairs of a value and its place
    16 bits, near     more than 16384 elements in a quarter of the cache of one multiprocessor: read again
                      for each reduction, so that none runs along with another (minitri/optimize/online_reductions/kernels.py)
    longer            in large blocks if it is read again for its results, else in as many as keep the memory busy

Warps: few, so that a reduction does not wait for many of them: a thousand elements each where rows are only reduced;
where they are written a kilobyte, or two of 16 bits. The numbers come from sweeps on an H200 over rows of 256 to 131072
elements of 16 and 32 bits (tests/sweep_rows.py says how it stands). Left out: sizes that are not known, which get the
blocks of long ones, smaller.
"""

from __future__ import annotations

import math

from minitri.base.operators import POSITIONS
from minitri.hardware.chips import Chip
from minitri.kernels.ir import Axis, Kernel, Load, Old, Reduce, Scan, Store
from minitri.optimize.schedules.block_sizes import ENOUGH, aligned, at_most, contiguity, filled, innermost, widest_bytes
from minitri.optimize.schedules.request import Request
from minitri.tiles.schedule import Schedule, ceil_pow2, size

WHOLE_ROW = 32768  # longest row held in registers
FEW = 2  # programs for each multiprocessor
SHORT_COLUMN = 16  # elements


def reduction(kernel: Kernel, request: Request) -> Schedule | None:
    """The schedule of a kernel that reduces or scans, and has no product."""
    if kernel.dots or not kernel.reduced:
        return None
    chip, weight = request.chip, contiguity(kernel)
    inner = max((weight[a.name] for a in kernel.reduced), default=0)
    outer = max((weight[a.name] for a in kernel.parallel), default=0)
    if outer > inner:
        return _columns(kernel, weight, FEW * chip.multiprocessors)
    row = math.prod(ceil_pow2(size(a, WHOLE_ROW * 2)) for a in kernel.reduced)
    near = _is_near(kernel, row, chip)
    fits = row <= _longest(kernel) and not near
    return _whole_rows(kernel, weight, row) if fits else _looped_rows(kernel, weight, near)


def _longest(kernel: Kernel) -> int:
    """The longest row, in elements, that a program keeps in registers.

    A pair of a value and its index takes three registers. Rows that are only reduced are as fast in blocks as soon as
    one program fills a multiprocessor.
    """
    if _only_reduces(kernel):
        return 2 * ENOUGH if _pairs(kernel) else WHOLE_ROW // 2
    return WHOLE_ROW if widest_bytes(kernel) <= 4 else WHOLE_ROW // 2


def _is_near(kernel: Kernel, row: int, chip: Chip) -> bool:
    """Whether a row of few bytes for its many elements, each of which takes a register, is better read again from the
    cache of its multiprocessor."""
    narrow = widest_bytes(kernel) <= 2 and _reads_again(kernel)
    return narrow and row > WHOLE_ROW // 2 and row * _read(kernel) <= chip.l1 // 4


def _read(kernel: Kernel) -> int:
    """Bytes that each element of a row stands for: of all arrays that have rows of their own."""
    reduced, parallel = ({a.name for a in axes} for axes in (kernel.reduced, kernel.parallel))
    loads = [op for op in kernel.body if isinstance(op, Load) and reduced & {*op.axes} and parallel & {*op.axes}]
    return sum({op.buffer.name: op.buffer.dtype.bytes for op in loads}.values())


def _pairs(kernel: Kernel) -> bool:
    return any(isinstance(op, Reduce) and op.op in POSITIONS for op in kernel.body)


def _whole_rows(kernel: Kernel, weight: dict[str, int], row: int) -> Schedule:
    axes = {a.name: ("whole", ceil_pow2(size(a, 1))) for a in kernel.reduced}
    together = filled(innermost(kernel.parallel, weight), min(_enough(kernel, weight) // row, 128))
    axes |= {name: ("grid", block) for name, block in together.items()}
    count = math.prod(together.values())
    rule = "rows held whole" if count == 1 else f"short rows held whole, {count} a program"
    return Schedule(axes, _row_warps(kernel, row, row * count), rule=rule)


def _enough(kernel: Kernel, weight: dict[str, int]) -> int:
    """Elements of a program with several rows: more where a thread's reads are of few bytes each, if rows are only
    reduced, or share a read (a scale, a bias)."""
    inner, narrow = max(kernel.reduced, key=lambda a: weight[a.name]), widest_bytes(kernel) <= 2
    if aligned(kernel, inner) and not narrow:
        return ENOUGH
    if _only_reduces(kernel):
        return ENOUGH if narrow and _pairs(kernel) else 2 * ENOUGH
    return 2 * ENOUGH if _shares(kernel, inner) else ENOUGH


def _shares(kernel: Kernel, inner: Axis) -> bool:
    """Whether something is read along the rows that is the same for all of them."""
    parallel = {a.name for a in kernel.parallel}
    return any(isinstance(op, Load) and inner.name in op.axes and not parallel & {*op.axes} for op in kernel.body)


def _row_warps(kernel: Kernel, row: int, elements: int) -> int:
    """Warps of a program: one for each kilobyte, or for each thousand elements of rows that are only reduced.

    Short rows have one warp. Rows with much padding have few warps, so that each of them has real elements.
    """
    narrow, reduces = widest_bytes(kernel) <= 2, _only_reduces(kernel)
    if row <= ENOUGH:
        return 1 if elements <= ENOUGH or narrow or reduces else 2
    if math.prod(size(a, row) for a in kernel.reduced) * 4 < row * 3:
        return max(1, min(16, elements // (2048 if narrow or reduces else 1024)))
    if reduces:
        return max(2, min(8, elements // 1024))
    warps = elements * widest_bytes(kernel) // (2048 if narrow else 1024)
    return max(4, min(16 if elements <= 16384 else 32, warps))


def _only_reduces(kernel: Kernel) -> bool:
    """Whether rows are read once and nothing as long is written."""
    reduced = {a.name for a in kernel.reduced}
    return not any(reduced & op.indexed_by for op in kernel.body if isinstance(op, Store))


def _reads_again(kernel: Kernel) -> bool:
    """Whether a looped row is read once more, for its results. A scan stores its results in the first loop."""
    return not _only_reduces(kernel) and not any(isinstance(op, Scan) for op in kernel.body)


def _looped_rows(kernel: Kernel, weight: dict[str, int], near: bool) -> Schedule:
    """Rows too long (or of unknown length): blocks along the contiguous axis, and the next one if that is short.
    Large blocks where a row is read again for its results, else as much as keeps the memory busy."""
    scans = {op.along for op in kernel.body if isinstance(op, Scan)}
    widest = max(kernel.reduced, key=lambda a: (a.name in scans, weight[a.name], size(a, 1 << 30)))
    bytes, length = widest_bytes(kernel), size(widest, WHOLE_ROW)
    jumps = any(isinstance(op, Old) for op in kernel.body)
    reads_again = _reads_again(kernel)
    if near:
        longest, warps = 8192, 32
    elif reads_again:
        longest, warps = (WHOLE_ROW, 32) if bytes <= 4 and -length % WHOLE_ROW * 8 <= length else (8192, 16)
    elif jumps:
        longest, warps = 8192, 4
    elif _pairs(kernel):
        longest, warps = 512, 4 if bytes <= 2 else 8
    else:
        longest, warps = 4096 if scans else 2048, 8
    if widest.extent.constant is None:  # it may be short
        longest, warps = min(longest, 4096), min(warps, 8)
    blocks = filled([widest], longest)
    others = [a for a in reversed(kernel.reduced) if a is not widest]
    more = jumps or blocks[widest.name] < min(ENOUGH, longest)  # each round pays for a jump
    blocks = filled(others, longest if more else 0, blocks)
    axes = {name: ("loop", block) for name, block in blocks.items()}
    warps = min(warps, max(4, math.prod(blocks.values()) // 256)) if reads_again else warps
    again = ", read again for their results" if reads_again else ""
    return Schedule(axes, warps, rule=f"rows in blocks{again}", near=near)


def _columns(kernel: Kernel, weight: dict[str, int], few: int) -> Schedule:
    """Blocks for a strided reduced axis: threads along a parallel axis, and several rows in each iteration.

    If both are short, a program takes more of the other axes. `few`: programs that leave most of the chip idle.
    """
    lanes = innermost(kernel.parallel, weight)
    blocks = filled(lanes[:1], 64)
    (width,) = blocks.values()
    roles = {a.name: "grid" for a in kernel.parallel}
    jumps = any(isinstance(op, Old) for op in kernel.body)
    deep, more = 2 * ENOUGH // width, 2 if jumps else 1  # each round pays for a jump
    programs = math.prod(size(a, 1024) for a in kernel.parallel) // width
    most = 8192 // width if programs <= few else deep  # of few programs each waits for memory once
    for a in reversed(kernel.reduced):
        whole = ceil_pow2(size(a, more * deep))
        if a.extent.constant is not None and whole <= most:
            roles[a.name], blocks[a.name] = "whole", whole
        else:  # a loop stays one for `more`: the pass that made it so has counted on it
            roles[a.name], blocks[a.name] = "loop", min(more * deep, whole)
        deep, most = (max(1, n // blocks[a.name]) for n in (deep, most))
    blocks = filled(lanes if programs > 8 * few else lanes[1:], ENOUGH, blocks)  # else there would be too few
    walked = {a for a, role in roles.items() if role == "loop"}
    warps = at_most(_column_warps(kernel, lanes[0], blocks, jumps, walked), blocks)
    axes = {name: (role, blocks[name]) for name, role in roles.items()}
    return Schedule(axes, warps, rule=f"columns, contiguous along {lanes[0].name}")


def _column_warps(kernel: Kernel, lane: Axis, blocks: dict[str, int], jumps: bool, walked: set[str]) -> int:
    """Warps of a program that reduces columns.

    A thread makes two loads of 16 bytes, or eight of one element, over all arrays of the loop. So enough loads are in
    flight. If each iteration corrects its sums, a thread has 16 elements of 16 bits, or 32 of other widths. Bytes are
    many elements, and each is converted. One thread reduces each group of short columns, with 16 bytes of each row.
    """
    bytes, elements = widest_bytes(kernel), math.prod(blocks.values())
    alone = set(blocks) == {lane.name, *(a.name for a in kernel.reduced)}
    if alone and elements <= SHORT_COLUMN * blocks[lane.name] and _only_reduces(kernel):
        return max(1, min(8, blocks[lane.name] * bytes // (16 * 32)))
    if jumps:
        return 8 if bytes <= 2 else 4
    if bytes == 1:
        return 8
    arrays = {op.buffer for op in kernel.body if isinstance(op, Load) and not walked.isdisjoint(op.axes)}
    return max(4, min(8, max(1, len(arrays)) * elements * (bytes if aligned(kernel, lane) else 4) // 1024))
