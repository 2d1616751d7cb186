"""Checks whether 32-bit integers can hold every index and offset of a kernel.

    softmax(q @ k.mT) @ v        bf16[4, 16, 8192, 64]: 2**32 scores, but none of them is stored in memory

The file graph/index_width.py finds the programs that may need 64-bit indices. For the kernels of these programs, the
compiler calls `fits_32_bits`. Values inside a fused kernel are not stored, so they have no offsets. If an index is read
from memory or a size is unknown, `fits_32_bits` returns False.
"""

from math import prod

from minitri.base.dims import ONE, ZERO, Dim, Pair
from minitri.base.intervals import Ranges
from minitri.graph.index_width import LIMIT, reach
from minitri.kernels.ir import Count, Kernel, Load, Store, index_expressions


def fits_32_bits(kernel: Kernel) -> bool:
    """Checks whether 32 bits are enough for all indices and offsets of a kernel."""
    if any(a.extent.constant is None for a in kernel.axes):
        return False
    extents = {a.name: int(a.extent) for a in kernel.axes}
    ranges: Ranges = {a.symbol: (ZERO, a.extent - ONE) for a in kernel.axes}
    exprs = [a.index for a in kernel.axes] + [d for op in kernel.body for d in index_expressions(op)]
    exprs += [op.offset for op in kernel.body if isinstance(op, (Load, Store))]
    known = all(s in ranges for d in exprs for s in d.symbols())
    counted = [prod(extents[n] for n in op.over) for op in kernel.body if isinstance(op, Count)]
    return known and all(_is_small(d, ranges) for d in exprs) and all(n < LIMIT for n in counted)


def _is_small(d: Dim, ranges: Ranges) -> bool:
    """Checks whether 32-bit integers can hold an index expression and every part of the expression."""
    # parts: the terms and their constant factors, and the operands of divisions
    parts = [p for atom in d.atoms() if isinstance(atom, Pair) for p in (atom.a, atom.b)]
    numbers = all(abs(c) < LIMIT for _, c in d.terms)
    return numbers and reach(d, ranges, {}) < LIMIT and all(_is_small(p, ranges) for p in parts)
