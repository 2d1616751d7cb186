"""Computes the least number of bytes that each kernel of a plan must read from GPU memory and write to GPU memory.

The function `traffic` takes a plan of kernels, and the number for each size. The function returns how many bytes each
kernel reads from each buffer and writes to each buffer. Each element of a buffer is counted once, even if a kernel uses
it several times.

    relu(x @ w) in one kernel      k0 reads x, w                 writes out
    the same in two kernels        k0 reads x, w                 writes %2
                                   k1 reads %2                   writes out

The number of accessed elements follows from the axes in the index of a load or store. For example, `x[i, 0]` accesses
one element for each index of the axis `i`. For a gather, the counted number of elements is at most the number of
elements in the gather's result. For most kernels, the computed number of bytes is a lower bound: no implementation of
the kernel can move fewer bytes.

Repeated reads of the same element are not counted, because most of them come from the L2 cache. For example, a tiled
product `x @ w` reads `x` again for each column of tiles, but the number of bytes contains `x` once. Guards (conditions)
of loads have no effect on the count: skipped elements are counted too.
"""

from collections import Counter
from collections.abc import Mapping
from math import prod

from minitri.base.nodes import Record
from minitri.kernels.ir import Buffer, Kernel, Load, Plan, Store


class Traffic(Record):
    """The numbers of bytes that one kernel reads and writes, in dicts with the names of buffers as keys."""

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
    """Returns the memory traffic of each kernel, in launch order."""
    return tuple(_of_kernel(k, sizes) for k in plan.kernels)


def _of_kernel(kernel: Kernel, sizes: Mapping[str, int]) -> Traffic:
    extents = {a.name: a.extent.evaluate(sizes) for a in kernel.axes}
    if 0 in (extents[a.name] for a in kernel.parallel):
        return Traffic(kernel.name, {}, {})  # no grid program runs
    reads = _moved([op for op in kernel.body if isinstance(op, Load)], extents, sizes)
    writes = _moved([op for op in kernel.body if isinstance(op, Store)], extents, sizes)
    return Traffic(kernel.name, reads, writes)


def _moved(accesses: list[Load] | list[Store], extents: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Returns for each buffer how many bytes the given loads or stores move."""
    places = {(op.buffer.name, op.index, tuple(v for _, v in getattr(op, "picks", ()))): op for op in accesses}
    buffers = {op.buffer.name: op.buffer for op in places.values()}
    touched: Counter[str] = Counter()
    for op in places.values():
        picked = {a for _, value in getattr(op, "picks", ()) for a in value.axes}
        touched[op.buffer.name] += prod(extents[name] for name in op.indexed_by | picked)
    # Accesses at different indices are added, up to the size of the buffer.
    return {n: min(touched[n], _count(b, sizes)) * b.dtype.bytes for n, b in buffers.items()}


def _count(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    """Returns the number of elements that a buffer has in memory."""
    # Along an axis of stride 0, the same element is repeated.
    return prod(e.evaluate(sizes) for e, stride in zip(buffer.shape, buffer.strides) if stride != 0)
