"""graph → graph: splits the summed axis of a matrix product with few tiles into parts, to fill the GPU ("split-K").

    %0: f32[16, 4096] = contract x, w                 x: f16[16, 8192], w: f16[8192, 4096]
becomes
    %0: f16[8, 16, 1024] = view x {index = [d1, 1024*d0 + d2]}
    %1: f16[8, 1024, 4096] = view w {index = [1024*d0 + d1, d2]}
    %2: f32[8, 16, 4096] = contract %0, %1            each program computes one tile of one part
    %3: f32[16, 4096] = reduce.sum %2 {axes = [0]}    the operations after the product join this kernel

The length of the summed axis is called the depth. The order in which partial sums are added depends on the sizes alone.
Left out: weights of 8 bits, whose parts dequantised_product_cost.py chooses; depths that no power of two divides into long
parts; and factors that come from other reductions or products. Such factors may share a loop with this product
(minitri/optimize/online_reductions/kernels.py).
"""

import math

from minitri.base.dims import Dim
from minitri.graph.ir import Concat, Contract, Graph, Input, Interner, Node, Reduce, Scan, axis
from minitri.hardware.chips import Chip
from minitri.optimize import dequantised_product_cost
from minitri.optimize.dequantised_product_cost import MOST, PART, viewed
from minitri.optimize.split_parts import Halves, contract_in_parts, made_of, split

ROWS, COLUMNS = 64, 128  # the approximate size of a tile
FEW_ROWS, NARROW = 32, 32  # products with at most FEW_ROWS rows have tiles of NARROW columns
SHORTEST, SHORTEST_STREAM = 4096, 8192  # a smaller depth is not worth a second kernel; the latter if small tiles do


def split_products(graph: Graph, chip: Chip) -> Graph:
    """The graph with deep products computed in parts. Its field `splits` lists them."""
    return split(graph, split_products, lambda i, _, node: _halves(i, node, chip), Contract)


def _halves(i: Interner, node: Contract, chip: Chip) -> Halves | None:
    """The sum of partial products; None if the product stays whole."""
    if any(e.constant is None for e in (*node.shape, node.a.shape[-1])) or not (is_read(node.a) and is_read(node.b)):
        return None
    *batch, m, n, depth = map(int, (*node.shape, node.a.shape[-1]))
    if dequantised_product_cost.is_converted(node):
        parts = dequantised_product_cost.choose(chip, math.prod(batch), m, n, depth).parts
    else:
        parts = _parts(node, chip.multiprocessors, math.prod(batch), m, n, depth)
    if parts == 1:
        return None
    lead, length = node.rank - 2, Dim.of(depth // parts)
    index = (*map(axis, range(lead)), axis(lead + 1), axis(lead) * length + axis(lead + 2))
    rows = i.view(node.a, (*node.shape[:-2], Dim.of(parts), Dim.of(m), length), index)
    partial = contract_in_parts(i, node, rows, node.b, parts, length)
    return i.reduce("sum", node.dtype, node.shape, partial, (lead,)), parts, length


def _streams(node: Contract) -> bool:
    """Whether both factors are plain 16-bit inputs, whose blocks need no arithmetic. Small tiles are then fast
    enough."""
    return node.a.dtype.bits == 16 and all(isinstance(viewed(f), Input) for f in (node.a, node.b))


def _parts(node: Contract, multiprocessors: int, batch: int, m: int, n: int, depth: int) -> int:
    """The number of parts, a power of two that divides the depth. It aims at two programs on each multiprocessor."""
    tiles = batch * -(-m // ROWS) * -(-n // COLUMNS)
    fills = m <= FEW_ROWS and batch * -(-n // NARROW) >= multiprocessors - 4
    if depth < (SHORTEST_STREAM if fills or _streams(node) else SHORTEST) or not 0 < tiles < multiprocessors:
        return 1
    wanted = max(1, min(2 * multiprocessors // tiles, depth // PART, MOST))
    return math.gcd(depth, 1 << (wanted.bit_length() - 1))


def is_read(node: Node) -> bool:
    """Whether a factor is computed from inputs by elementwise operations alone."""
    return not any(isinstance(n, (Concat, Contract, Reduce, Scan)) for n in made_of(node))
