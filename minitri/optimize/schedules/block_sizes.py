"""Helpers that choose block sizes: how many indices of each axis a tile covers.

    sum(x, axis=1), x: f32[1000000, 8, 4]    filled([k, i], 1024, {r: 8}) = {r: 8, k: 4, i: 32}

The function `filled` takes the axes of a kernel. It returns a block size for each axis. First, a tile grows along the
axis that is contiguous in memory. If the contiguous axis has fewer elements than the tile needs, the tile also grows
along further axes.

Block sizes are powers of two, because Triton requires tiles whose sizes are powers of two. The schedule rules choose
the order of the axes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minitri.base.dims import Dim, Pair, Quotient, Remainder, Symbol
from minitri.hardware.chips import SECTOR
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Axis, Kernel, Load, Store
from minitri.tiles.schedule import ceil_pow2, size

LEAST = 128  # elements: shorter rows of a tile use cache lines badly
ENOUGH = 1024  # the usual number of elements of a program, if they have more than 16 bits


def filled(axes: Iterable[Axis], elements: int, blocks: Mapping[str, int] = {}) -> dict[str, int]:
    """Returns block sizes whose product is about `elements`, or less if the axes are short.

    The argument `blocks` gives the smallest allowed block sizes. Block sizes are chosen for one axis after another, in
    the given order. An axis of unknown size is assumed to be long. For example, an array of shape [1000, 528] gets
    blocks of 8 by 128, because a block of 1 by 1024 would have 496 indices past the end of its row.
    """
    made, axes = dict(blocks), [*axes]
    left = elements // math.prod(blocks.values())
    for k, a in enumerate(axes):
        block = made.get(a.name, 1)
        others = min(left, math.prod(size(b, left) for b in axes[k + 1 :]))
        made[a.name] = _fitting(size(a, block * left), block, max(block, block * left), left // max(1, others))
        left //= made[a.name] // block
    return made


def _fitting(extent: int, block: int, most: int, times: int) -> int:
    """Returns the largest block size that leaves few indices past the end of an axis."""
    largest = max(block, min(most, ceil_pow2(extent)))
    fewest = -(-extent // LEAST) * LEAST
    # at least `block * times` if the axis is long enough
    sizes = (largest >> k for k in range(largest.bit_length()) if largest >> k >= max(LEAST, block * times))
    return next((n for n in sizes if -(-extent // n) * n * 8 <= fewest * 9), largest)


def innermost(axes: Sequence[Axis], weight: Mapping[str, int]) -> list[Axis]:
    """Sorts the axes by the number of contiguous bytes along each axis, the largest number first. The argument `weight`
    gives the number of contiguous bytes along each axis, as the function `contiguity` computes it.
    """
    return sorted(reversed(axes), key=lambda a: -weight[a.name])


def contiguity(kernel: Kernel, fastest: bool = False, sectors: bool = False) -> dict[str, int]:
    """Returns, for each axis, how many of the loaded and stored bytes are contiguous in memory along the axis.

    If the stride is small but not 1, only the used bytes of each memory sector are counted. If the argument `fastest`
    is true, each load or store is counted only for the axis along which its stride is smallest. If the argument
    `sectors` is true, each element counts as a whole memory sector.
    """
    weight = {a.name: 0 for a in kernel.axes}
    for op in kernel.body:
        if isinstance(op, (Load, Store)):
            bytes, strides = op.buffer.dtype.bytes, {a.name: abs(step(op.offset, a.symbol)) for a in kernel.axes}
            small = {name: stride for name, stride in strides.items() if stride == 1 or 0 < stride * bytes < SECTOR}
            for name, stride in small.items():
                if not fastest or stride == min(small.values()):
                    weight[name] += (SECTOR if sectors else bytes) * touched(kernel, op) // stride
    return weight


def step(offset: Dim, symbol: Symbol) -> int:
    """Returns the change of a memory offset from one index of an axis to the next."""
    # The offset `4096*(i//64) + i%64` changes by 1 from one index i to the next, except at the end of a row of 64
    # elements.
    steps = Dim.of(0)
    for monomial, c in offset.terms:
        for atom in monomial:
            if atom == symbol or isinstance(atom, Remainder) and _counts_along(atom, symbol):
                steps += c if len(monomial) == 1 else Dim({tuple(a for a in monomial if a is not atom): c})
    return steps.constant or 0  # 0 if the change is unknown


def _counts_along(remainder: Remainder, symbol: Symbol) -> bool:
    """Checks whether a remainder such as `i % 64` grows by 1 along an axis."""
    split = remainder.a.coefficient(symbol)
    # False for a divisor n if n elements of 2 bytes fit into one memory sector
    return split is not None and split[0] == 1 and (remainder.b.constant or 0) * 2 > SECTOR


def rivals(order: Sequence[Axis], kernel: Kernel) -> list[Axis]:
    """Returns further axes along which memory accesses are contiguous, as in a transpose. The axis with the most
    contiguous bytes is first. The first axis in `order` is never returned. The list is empty if almost all contiguous
    accesses of the kernel run along the first axis.
    """
    weight = contiguity(kernel, fastest=True)
    found = [a for a in order[1:] if weight[a.name] * 8 > weight[order[0].name] > 0]
    return sorted(found, key=lambda a: -weight[a.name])


def rival(order: Sequence[Axis], kernel: Kernel) -> Axis | None:
    """Returns the first of the `rivals`, or None."""
    return next(iter(rivals(order, kernel)), None)


def touched(kernel: Kernel, op: Load | Store) -> int:
    """Returns the number of different elements that a load or store accesses. For example, `x + bias` reads each
    element of the bias for many rows. Each element of the bias is counted only once.
    """
    indexed = math.prod(size(a, 4096) for a in kernel.axes if a.name in op.indexed_by)
    return min(indexed, math.prod(e.constant or 4096 for e in op.buffer.shape))


def vector(op: Load | Store, along: Symbol) -> int:
    """Returns how many neighbouring elements along the axis `along` one instruction can load or store. An instruction
    can load or store several elements only if the first element's address is a multiple of their total size.
    """
    width = ALIGNMENT // op.dtype.bytes
    for monomial, c in op.offset.terms:
        nested: list[Any] = [*monomial[:1]]
        while nested and isinstance(nested[-1], Pair):
            nested.append(nested[-1].a.atom)
        quotients = [p for p in nested if isinstance(p, Quotient)]  # each is equal for so many neighbours
        moves = along in Dim({monomial: 1}).symbols() and not quotients
        rows = [p.b.constant or 1 for p in quotients or nested if isinstance(p, Pair)]
        width = math.gcd(width, int(c != 1) if moves else c, *rows)
    return width


def widest_bytes(kernel: Kernel) -> int:
    """Returns the element size, in bytes, of the load or store that accesses the most elements."""
    accesses = (op for op in kernel.body if isinstance(op, (Load, Store)))
    return max(((touched(kernel, op), op.buffer.dtype.bytes) for op in accesses), default=(0, 4))[1]


def elements_of_a_program(kernel: Kernel) -> int:
    """Returns how many elements each grid program of a kernel usually computes: ENOUGH (1024), or twice as many if
    elements have at most 16 bits.
    """
    return 2 * ENOUGH if widest_bytes(kernel) <= 2 else ENOUGH


def at_most(warps: int, blocks: Mapping[str, int]) -> int:
    """Returns `warps`, or fewer warps if there is little work. Each thread gets at least four elements, so that a
    thread can load four elements at once.
    """
    most = math.prod(blocks.values()) // 128
    return max(1, min(warps, 1 << most.bit_length() >> 1))  # Triton requires a power of two
