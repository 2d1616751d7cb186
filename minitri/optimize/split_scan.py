"""graph → graph: splits long scans into parts, so that the programs of the parts fill the GPU ("scan-then-propagate").

    %0: f32[4194304] = scan.sum x {axis = 0}          x: f32[4194304]
      becomes
    %0: f32[1024, 4096] = view x {index = [4096*d0 + d1]}
    %1: f32[1024, 4096] = scan.sum %0 {axis = 1}      each part by itself
    %2: f32[1024] = view %1 {index = [d0, 4095]}      the sum of each part: the last element of its scan
    %3: f32[1024] = concat …, %2 {axis = 0}           … shifted: the sum of the part before it
    %4: f32[1024] = scan.sum %3 {axis = 0}            … the sum of all parts before it
    %5: f32[1024, 4096] = add %4, %1

If a scan is computed in parts, every element is read and written twice instead of once. A scan is split into parts only
if most of the GPU would be idle without the split. One program scans many neighbouring columns, because neighbouring
columns share memory sectors. So 1000 columns are scanned by fewer programs than 1000 rows. The scan-then-propagate
method is from Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (NVIDIA 2016), section
2. The single-pass method of Merrill and Garland is not used, because it needs programs that wait for each other. Triton
does not guarantee that all programs of a grid run at the same time, so programs that wait for each other could wait
forever.

The sum of a part is the last element of its scan, not a reduction. A reduction adds in another order, and where
neighbours cancel, as in `cumulative_sum(x[1:] - x[:-1])`, its rounding errors are larger.

The order of additions depends on the sizes alone, so each run gives the same result. A scan is not split if its sizes
are unknown.
"""

import math

from minitri.base import operators
from minitri.base.dims import Dim
from minitri.graph.ir import Graph, Interner, Layouts, Node, Scan, axis
from minitri.graph.rewrite import compute
from minitri.hardware.chips import Chip
from minitri.optimize.split_reduction import MOST_PARTS, contiguous_axes
from minitri.optimize.two_step_reductions import LANES, WAVES, Halves, in_parts, parts_of, split

FEW, FEW_COLUMNS = 64, 256  # with more programs than this, rows or columns are not split
SHORTEST, PART = 16384, 1024  # the fewest elements of a scan that is split, and of a part
SHORTEST_COLUMN, PART_COLUMN = 512, 128  # the same for columns; all parts have this length, up to MOST_PARTS parts


def split_scans(graph: Graph, chip: Chip, layouts: Layouts = {}) -> Graph:
    """Returns the graph in which long scans are computed in parts. The field `splits` of the new graph lists the scans
    that were split.
    """
    return split(graph, split_scans, lambda i, _, node: _halves(i, node, chip, layouts), Scan)


def _halves(i: Interner, node: Scan, chip: Chip, layouts: Layouts) -> Halves | None:
    """Splits a scan into parts, or returns None if no split is useful."""
    k = node.axis
    if any(e.constant is None for e in node.shape):
        return None
    extent = int(node.shape[k])
    others = math.prod(int(e) for j, e in enumerate(node.shape) if j != k)
    if k in contiguous_axes(node, layouts)[1]:
        most = _parts_of_rows(extent, others, WAVES * chip.multiprocessors)
        even = (n for n in range(most, most // 2, -1) if extent % n == 0)  # equal parts need no padding
        most = next(even, most)
    else:
        most = _parts_of_columns(extent, others)
    if most < 2:
        return None
    parts, length = parts_of(node.shape[k], most)
    neutral = operators.neutral(node.op, node.dtype)
    x = in_parts(i, node.x, k, parts, length, neutral)
    scans = i.scan(node.op, x, k + 1)
    last = (*map(axis, range(k + 1)), length - 1, *map(axis, range(k + 1, node.rank)))
    totals = i.view(scans, (*x.shape[: k + 1], *x.shape[k + 2 :]), last)
    # the total of all earlier parts is added to the scan of each part
    before = i.scan(node.op, _shifted_by_one(i, totals, k, neutral), k)
    spread = i.view(before, x.shape, tuple(axis(j) for j in range(x.rank) if j != k + 1))
    made = compute(i, operators.running(node.op).combine, spread, scans)
    back = (*map(axis, range(k)), axis(k) // length, axis(k) % length, *map(axis, range(k + 1, node.rank)))
    return i.view(made, node.shape, back), parts, length


def _shifted_by_one(i: Interner, totals: Node, k: int, neutral: int | float | bool) -> Node:
    """Shifts an array by one element, and puts the neutral element first."""
    first = i.view(i.const(neutral, totals.dtype), (*totals.shape[:k], Dim.of(1), *totals.shape[k + 1 :]), ())
    shape = (*totals.shape[:k], totals.shape[k] - 1, *totals.shape[k + 1 :])
    # each part gets the total of the part before it
    return i.concat(totals.shape, (first, i.view(totals, shape, tuple(map(axis, range(totals.rank))))), k)


def _parts_of_rows(extent: int, others: int, wanted: int) -> int:
    """Returns into how many parts each row of a scan is split."""
    if extent < SHORTEST or not 0 < others <= FEW:  # `others` is the number of rows
        return 1
    # The largest power of two for at most `wanted` programs and at least PART elements in each part.
    return 1 << (max(1, min(wanted // others, extent // PART)).bit_length() - 1)


def _parts_of_columns(extent: int, others: int) -> int:
    """Returns into how many parts each column of a scan is split."""
    # `others` is the number of columns
    few = 0 < others <= FEW_COLUMNS * LANES and extent >= min(SHORTEST, SHORTEST_COLUMN)
    # so short that a program keeps a part in registers
    return min(-(-extent // min(PART, PART_COLUMN)), MOST_PARTS) if few else 1
