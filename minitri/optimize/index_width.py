"""Whether 32-bit integers hold every index and offset of a kernel.

    softmax(q @ k.mT) @ v        bf16[4, 16, 8192, 64]: 2**32 scores, of which none has a place in memory

In: a kernel of a program that may need 64 bits (graph/index_width.py looks at all of its values). Out: whether this one
does not: sizes are known, and its axes and all that it computes of them are small. What is fused has no offsets. Where an
index is read from memory, or a size is not known, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from minitri.base.dims import ONE, ZERO, Dim, Pair
from minitri.base.intervals import Ranges
from minitri.graph.index_width import LIMIT, reach
from minitri.kernels.ir import Count, Inside, Kernel, Load, Op, Position, Store


def fits_32_bits(kernel: Kernel) -> bool:
    if any(a.extent.constant is None for a in kernel.axes):
        return False
    extents = {a.name: int(a.extent) for a in kernel.axes}
    ranges: Ranges = {a.symbol: (ZERO, a.extent - ONE) for a in kernel.axes}
    exprs = [a.index for a in kernel.axes] + [d for op in kernel.body for d in _computed(op)]
    known = all(s in ranges for d in exprs for s in d.symbols())
    counted = [prod(extents[n] for n in op.over) for op in kernel.body if isinstance(op, Count)]
    return known and all(_is_small(d, ranges) for d in exprs) and all(n < LIMIT for n in counted)


def _is_small(d: Dim, ranges: Ranges) -> bool:
    """Whether 32 bits hold an expression, each of its terms and factors, and what it divides."""
    parts = [p for atom in d.atoms() if isinstance(atom, Pair) for p in (atom.a, atom.b)]
    numbers = all(abs(c) < LIMIT for _, c in d.terms)
    return numbers and reach(d, ranges, {}) < LIMIT and all(_is_small(p, ranges) for p in parts)


def _computed(op: Op) -> Iterator[Dim]:
    """What an op computes of indices."""
    match op:
        case Load() | Store():
            yield from op.index
            yield from op.guards if isinstance(op, Load) else ()
            yield op.offset
        case Position():
            yield op.expr
        case Inside():
            yield from op.conditions
        case _:
            pass
