"""Keeps a transposed result out of the kernel that reduces rows, if another kernel stores it faster.

    a, b = layer_norm(x), x.mT * 2      two kernels: one has rows, the other one has square tiles
    softmax(x).mT                       x has few rows: the row sums are one kernel, the quotients another one

In: the axes of a future kernel. Out: the reason why this kernel should be divided into several kernels, or None.

A program that reduces rows has few rows, so each store of a transposed result covers only a few bytes of each memory
sector. A separate kernel for the transposed result reads the operands again. But the separate kernel loads and stores
long runs of elements, because its tiles have many indices along both axes. If all results are transposed, one kernel is
enough: one program can compute all rows whose results share a memory sector. But if the operand has few rows, programs
with several rows each are so few that most of the chip is idle. A program that computes a scan always has one row, so a
large transposed result of a scan gets a separate kernel. `minitri explain --measure` shows the time of each kernel, and
with `--without fusion` it shows the times of unfused kernels.
"""

from collections.abc import Container, Iterable, Sequence
from math import prod

from minitri.base.dims import Dim, axis_names
from minitri.graph.ir import Apply, Contract, Node, Scan
from minitri.hardware.chips import SECTOR, Chip
from minitri.kernels.demand import Indexing
from minitri.optimize.output_layouts import memory_order

MANY = 1 << 20  # stands for an unknown size
SMALL = 1 << 18  # bytes: a smaller result is stored before another kernel could begin


def reason_against(part: Indexing, chip: Chip, free: Container[Node]) -> str | None:
    """Returns the reason why some results of a future kernel should be stored by another kernel, or None.

    part   the axes of the kernel, with the elements that its operations need
    free   results that can have another layout (minitri/optimize/output_layouts.py)
    """
    leaves = [(n, d) for n in part.demands if n.rank > 1 and part.is_leaf(n) for d in part.demands[n]]
    accesses = [(n.dtype.bytes, d.index) for n, d in leaves]
    whole = [(n, d) for n, d in part.stores if axis_names(d.index) & part.reduced]
    laid = [(n, [d.index[k] for k in memory_order(d.index, accesses)] if n in free else d.index) for n, d in whole]
    across = [n for n, index in laid if isinstance(n, Apply) and not _innermost(index) & part.reduced]
    if not across or any(isinstance(n, Contract) for n in part.inside):
        return None
    if not any(_innermost(d.index) & part.reduced for n, d in leaves):
        return None  # the kernel reduces columns
    bytes = max(n.dtype.bytes for n in across)
    if max(_count(n.shape) for n in across) * bytes < SMALL:
        return None
    if len(across) < len(whole):
        return "one result is transposed, another one is not"
    rows = _count(part.axes[a] for a in part.parallel)
    if any(isinstance(n, Scan) for n in part.inside):
        return "the result of a scan is transposed"
    few = rows * min(bytes, SECTOR) < SECTOR * chip.multiprocessors
    return "the result is transposed, and there are few rows" if few else None


def _count(extents: Iterable[Dim]) -> int:
    return prod(MANY if e.constant is None else e.constant for e in extents)


def _innermost(index: Sequence[Dim]) -> set[str]:
    """Returns the axes that occur in the index along an array's last axis, along which elements are neighbours in
    memory. Axes of extent 1 do not count as the last axis.
    """
    return axis_names([d for d in index if d != 0][-1:])
