"""How large a tile is: the axes that its elements cover, and how many indices of each.

    sum(x, axis=1), x: f32[1000000, 8, 4]    filled([k, i], 1024, {r: 8}) = {r: 8, k: 4, i: 32}

In: the axes of a kernel. Out: a block size for each. The one idea: a tile first covers the axis that
is contiguous in memory. If that axis is too short to fill a program, the tile covers the next one too.

Blocks are powers of two, as Triton's tiles are. Left out: the choice of the axes, which
the rules make.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from minitri.kernels.ir import Axis, Kernel, Load, Store
from minitri.tiles.schedule import ceil_pow2, size

ENOUGH = 1024  # elements that make a program worth starting


def filled(axes: Iterable[Axis], elements: int, blocks: Mapping[str, int] = {}) -> dict[str, int]:
    """Blocks whose product is about `elements`, or less if the axes are shorter.

    `blocks` are the least blocks. The first axis grows as far as it goes, then the next one. An unknown
    size counts as long enough.
    """
    made = dict(blocks)
    left = elements // math.prod(blocks.values())
    for a in axes:
        block = made.get(a.name, 1)
        times = max(1, min(left, ceil_pow2(size(a, block * left)) // block))
        made[a.name], left = block * times, left // times
    return made


def innermost(axes: Sequence[Axis], weight: Mapping[str, int]) -> list[Axis]:
    """Those first along which memory is contiguous for most bytes (`contiguity`), then the last ones."""
    return sorted(reversed(axes), key=lambda a: -weight[a.name])


def contiguity(kernel: Kernel) -> dict[str, int]:
    """For each axis, how many bytes the accesses with stride 1 along it move."""
    weight = {a.name: 0 for a in kernel.axes}
    for op in kernel.body:
        if isinstance(op, (Load, Store)):
            for axis in kernel.axes:
                split = op.offset.coefficient(axis.symbol)
                if split is not None and split[0] in (1, -1):
                    weight[axis.name] += op.buffer.dtype.bytes * touched(kernel, op)
    return weight


def touched(kernel: Kernel, op: Load | Store) -> int:
    """How many elements an access has: a bias along one axis is next to nothing."""
    return math.prod(size(a, 4096) for a in kernel.axes if a.name in op.indexed_by)


def widest_bytes(kernel: Kernel) -> int:
    """The size of an element of what most is read or written of: not of a row's index, or of a bias."""
    accesses = [op for op in kernel.body if isinstance(op, (Load, Store))]
    most = max((touched(kernel, op) for op in accesses), default=0)
    return max((op.buffer.dtype.bytes for op in accesses if touched(kernel, op) == most), default=4)


def aligned(kernel: Kernel, axis: Axis) -> bool:
    """Whether the length of a row along an axis is a multiple of 16 bytes."""
    return axis.extent.constant is not None and axis.extent.constant * widest_bytes(kernel) % 16 == 0


def at_most(warps: int, blocks: Mapping[str, int]) -> int:
    """`warps`, or fewer if there is little work: each thread gets four elements, which it can read at once."""
    return max(1, min(warps, math.prod(blocks.values()) // 128))
