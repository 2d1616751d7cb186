"""Whether 32-bit integers hold every index and offset of a kernel.

    softmax(q @ k.mT) @ v        bf16[4, 16, 8192, 64]: 2**32 scores, of which none has a place in memory

In: a kernel of a program that may need 64 bits (graph/offsets.py looks at all of its values). Out: whether this one
does not: sizes are known, and its axes and all that it computes of them are small. What is fused has no offsets. Where an
index is read from memory, or a size is not known, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterator

from minitri.dims import ONE, ZERO, Dim
from minitri.graph.offsets import LIMIT, reach
from minitri.intervals import Ranges
from minitri.kernel.ir import Inside, Kernel, Load, Op, Position, Store


def fits_32_bits(kernel: Kernel) -> bool:
    if any(a.extent.constant is None for a in kernel.axes):
        return False
    ranges: Ranges = {a.symbol: (ZERO, a.extent - ONE) for a in kernel.axes}
    exprs = [a.index for a in kernel.axes] + [d for op in kernel.body for d in _computed(op)]
    known = all(s in ranges for d in exprs for s in d.symbols())
    return known and all(reach(d, ranges, {}) < LIMIT for d in exprs)


def _computed(op: Op) -> Iterator[Dim]:
    """What an op computes of indices."""
    match op:
        case Load() | Store():
            yield from op.index
            yield from op.guards if isinstance(op, Load) else ()
            yield sum((d * s for d, s in zip(op.index, op.buffer.strides)), ZERO)
        case Position():
            yield op.expr
        case Inside():
            yield from op.conditions
        case _:
            pass
