"""How many bytes a plan must move: each kernel's reads and writes of memory.

In: a plan and its sizes. Out: for each kernel, bytes by buffer. Each element of a buffer counts once, however often a
kernel uses it.

    relu(x @ w) in one kernel      k0 reads x, w                 writes out
    the same in two                k0 reads x, w                 writes %2
                                   k1 reads %2                   writes out

The axes of an access give its elements: `x[i, 0]` touches as many elements as i has indices, a gather no more than its
positions. No kernel can move fewer bytes. Left out: repeated reads (tiles of a product read x once for each column of
tiles, mostly from the L2 cache), and guards (the missing part of a padded array counts as read).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from minitri.kernels.ir import Buffer, Kernel, Load, Plan, Store, op_operands


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one kernel reads and writes, by buffer."""

    kernel: str
    reads: Mapping[str, int]
    writes: Mapping[str, int]

    @property
    def read(self) -> int:
        return sum(self.reads.values())

    @property
    def written(self) -> int:
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        return self.read + self.written


def traffic(plan: Plan, sizes: Mapping[str, int]) -> tuple[Traffic, ...]:
    """One entry a kernel, in the order in which they run."""
    return tuple(_of_kernel(k, sizes) for k in plan.kernels)


def _of_kernel(kernel: Kernel, sizes: Mapping[str, int]) -> Traffic:
    extents = {a.name: a.extent.evaluate(sizes) for a in kernel.axes}
    if 0 in (extents[a.name] for a in kernel.parallel):
        return Traffic(kernel.name, {}, {})  # nothing is launched
    reads = _moved([op for op in kernel.body if isinstance(op, Load)], extents, sizes)
    writes = _moved([op for op in kernel.body if isinstance(op, Store)], extents, sizes)
    return Traffic(kernel.name, reads, writes)


def _moved(accesses: list[Load] | list[Store], extents: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Accesses of one buffer at different indices add up, to the whole buffer at most."""
    places = {(op.buffer.name, op.index, tuple(v for _, v in getattr(op, "picks", ()))): op for op in accesses}
    buffers = {op.buffer.name: op.buffer for op in places.values()}
    touched: Counter[str] = Counter()
    for op in places.values():
        touched[op.buffer.name] += _touched(op, extents)
    return {n: min(touched[n], _count(b, sizes)) * b.dtype.bytes for n, b in buffers.items()}


def _touched(op: Load | Store, extents: Mapping[str, int]) -> int:
    """How many different indices an access has, at most."""
    picked = {a for o in op_operands(op) for a in o.axes} if isinstance(op, Load) else set[str]()
    return prod(extents[name] for name in op.indexed_by | picked)


def _count(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    """Elements of a buffer that have memory of their own: an axis of stride 0 repeats one."""
    return prod(e.evaluate(sizes) for e, stride in zip(buffer.shape, buffer.strides) if stride != 0)
