"""graph → graph: splits the summed axis of a matrix product into parts if the product's tiles do not fill the GPU
("split-K").

    %0: f32[16, 4096] = contract x, w                 x: f16[16, 8192], w: f16[8192, 4096]
      becomes
    %0: f16[8, 16, 1024] = view x {index = [d1, 1024*d0 + d2]}
    %1: f16[8, 1024, 4096] = view w {index = [1024*d0 + d1, d2]}
    %2: f32[8, 16, 4096] = contract %0, %1            each program computes one tile of one part
    %3: f32[16, 4096] = reduce.sum %2 {axes = [0]}    the operations after the product join this kernel

The depth of a product is the length of its summed axis. The order in which partial sums are added depends on the sizes
alone. The last part of the depth is padded with zeros. A product and a reduction could share a loop if a factor of the
product is computed from the reduction (minitri/optimize/online_reductions/merge_loops.py). Two products could share a
loop if a factor of the second product is computed from the first product. Products that could share a loop with
reductions are split only if most of the GPU would otherwise be idle. Loops of attention are split by split_kv.py.

A cost model chooses the number of parts (product_cost.py). Products with 8-bit weights have their own cost model
(dequantised_product_cost.py). For a product that could share a loop with other reductions or products, a rule of thumb
chooses the number of parts. For 16-bit products with few rows, loads take most of the time, so a rule of thumb chooses
the number of parts too.
"""

import math

from minitri.base.dims import Dim
from minitri.base.types import DType, bf16, f16, f32
from minitri.graph.ir import Contract, Graph, Input, Interner, Node, Reduce, Scan, axis, viewed
from minitri.hardware.chips import Chip
from minitri.hardware.targets import ALIGNMENT
from minitri.optimize.dequantised_product_cost import MOST, PART, UNIT, choose, is_converted
from minitri.optimize.product_cost import PACES, Choice, cheapest, kind_of
from minitri.optimize.split_kv import loops
from minitri.optimize.two_step_reductions import Halves, contract_in_parts, made_of, padded, parts_of, split

MANY = 128  # the most parts of a product with very few tiles
IDLE = 2  # a product of computed factors is split if it has this many times fewer tiles than there are multiprocessors
STEP = 256  # the length of a part is a multiple of this many bytes: a descriptor can load complete blocks only
ROWS, COLUMNS = 64, 128  # the approximate size of a tile
WAVES = 3  # a product with more waves of small tiles gains little from a full last wave
FEW_ROWS, NARROW = 32, 32  # products with at most FEW_ROWS rows have tiles of NARROW columns
SHORTEST_PART = 128  # the least depth of a part whose number the cost model chooses
SHORTEST, SHORTEST_STREAM = 4096, 8192  # the least depth worth a second kernel; the latter if small tiles are fast
SHORTEST_OF_FEW = 2000  # the least depth if most of the chip is idle; half of it if rows are not aligned to ASYNC bytes
ASYNC = 4  # the fewest bytes that an asynchronous copy to shared memory can have


def split_products(graph: Graph, chip: Chip) -> Graph:
    """Returns the graph in which products with a long summed axis are computed in parts. The field `splits` of the
    returned graph lists the products that are computed in parts.
    """
    looped = bool(loops(graph))
    return split(graph, split_products, lambda i, _, node: _halves(i, node, chip, looped), Contract)


def _halves(i: Interner, node: Contract, chip: Chip, looped: bool) -> Halves | None:
    """Returns a matrix product as a sum of partial products over parts of the summed axis, or None."""
    alone = node.precision == "tf32x3" or is_read(node.a) and is_read(node.b)  # products of parts share no loop
    # `looped`: a loop of the program computes attention
    if any(e.constant is None for e in (*node.shape, node.a.shape[-1])) or looped and not alone:
        return None
    *batch, m, n, depth = map(int, (*node.shape, node.a.shape[-1]))
    step = STEP // node.a.dtype.bytes
    if is_converted(node):
        parts, step = choose(chip, math.prod(batch), m, n, depth).parts, UNIT
    elif alone and (node.a.dtype == f32 or node.a.dtype in (f16, bf16) and m > FEW_ROWS):
        parts = fastest(chip, node.precision, node.a.dtype, math.prod(batch), m, n, depth).parts
    else:
        parts = _parts(node, chip.multiprocessors // (1 if alone else IDLE), math.prod(batch), m, n, depth)
        step = step if depth % (parts * _unit(node, depth)) else 1
    if parts == 1:
        return None
    lead = node.rank - 2
    parts, length = parts_of(node.a.shape[-1], parts, step)
    a = padded(i, node.a, node.rank - 1, parts * length - depth, 0.0)
    index = (*map(axis, range(lead)), axis(lead + 1), axis(lead) * length + axis(lead + 2))
    rows = i.view(a, (*node.shape[:-2], Dim.of(parts), Dim.of(m), length), index)
    return i.reduce("sum", contract_in_parts(i, node, rows, parts, length), (lead,)), parts, length


def fastest(chip: Chip, precision: str, dtype: DType, *sizes: int) -> Choice:
    """Returns the number of parts and the tile for which the estimated time is least. The returned `Choice` also has
    the estimated time. The `sizes` of a product are the number of products in its batch, its rows, its columns and its
    depth.
    """
    batch, m, n, depth = sizes
    few = batch * -(-m // ROWS) * -(-n // COLUMNS) <= WAVES * chip.multiprocessors
    most = min(MANY, -(-depth // SHORTEST_PART)) if few else 1
    step = STEP // dtype.bytes  # the length of a part is a multiple of this
    loading = 1e6 * batch * (m + n) * depth * dtype.bytes / chip.peak.bandwidth if chip.peak else 0.0
    paces, numbers = PACES[kind_of(precision, dtype)], range(1, max(1, most) + 1)
    return cheapest(chip, paces, numbers, *sizes, step=step, loading=loading)


def _parts(node: Contract, multiprocessors: int, batch: int, m: int, n: int, depth: int) -> int:
    """Returns the number of parts into which the summed axis is split."""
    tiles = batch * -(-m // ROWS) * -(-n // COLUMNS)
    fills = m <= FEW_ROWS and batch * -(-n // NARROW) >= multiprocessors - 4
    few = 2 * tiles * MOST <= multiprocessors  # half of the chip is idle, even with the usual number of parts
    if 4 * tiles <= multiprocessors and not fills:
        shortest = SHORTEST_OF_FEW if _unit(node, depth) * node.a.dtype.bytes >= ASYNC else SHORTEST_OF_FEW // 2
    else:
        # products of 16-bit inputs are fast even with small tiles
        streams = node.a.dtype.bits == 16 and all(isinstance(viewed(f), Input) for f in (node.a, node.b))
        shortest = SHORTEST_STREAM if fills or streams else SHORTEST
    if depth < shortest or not 0 < tiles < multiprocessors:
        return 1
    # aims at two grid programs on each multiprocessor
    wanted = max(1, min(2 * multiprocessors // tiles, depth // PART, MANY if few else MOST))
    # a power of two that divides the depth (the length of the summed axis), if possible
    even = math.gcd(depth // _unit(node, depth), 1 << (wanted.bit_length() - 1))
    return even if even > 1 and even * 4 > wanted else wanted


def _unit(node: Contract, depth: int) -> int:
    """Returns how many neighbouring elements of a row one instruction can load."""
    # parts of 8 f16 elements begin at multiples of 16 bytes if the rows do
    return math.gcd(depth, ALIGNMENT // node.a.dtype.bytes)


def is_read(node: Node) -> bool:
    """Checks whether a factor is computed without reductions, scans and products."""
    return not any(isinstance(n, (Contract, Reduce, Scan)) for n in made_of(node))
