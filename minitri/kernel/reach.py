"""Whether 32-bit integers hold every index and offset of a kernel.

    softmax(q @ k.mT) @ v        bf16[4, 16, 8192, 64]: 2**32 scores, of which none has a place in memory

In: a kernel of a program that may need 64 bits (graph/offsets.py looks at all of its values). Out: whether this one
does not: sizes are known, and all that it computes of them and of its axes is small. What is fused has no offsets.

Left out: indices that are read from memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from minitri.dims import ONE, ZERO, Dim, Symbol
from minitri.graph.offsets import LIMIT, reach
from minitri.intervals import Ranges
from minitri.kernel.ir import Inside, Kernel, Load, Op, Position, Store, needed


def fits_32_bits(kernel: Kernel) -> bool:
    ranges: Ranges = {Symbol(a.name, "axis"): (ZERO, a.extent - ONE) for a in kernel.axes}
    ops = {o for op in kernel.body for o in needed(op)}
    exprs = [a.extent for a in kernel.axes] + [d for op in ops for d in _computed(op)]
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
