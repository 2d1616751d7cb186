"""graph → graph: turns a batch of products that share their second factor into one product with many rows.

    %0: f32[15, 3, 32, 8192] = contract x, w          x: f32[15, 3, 32, 4096], w: f32[4096, 8192], for all 45 products
      becomes
    %0: f32[1440, 4096] = view x {index = [d0 // 96, d0 // 32 % 3, d0 % 32, d1]}
    %1: f32[1440, 8192] = contract %0, w              12 tiles of 128 rows instead of 45
    %2: f32[15, 3, 32, 8192] = view %1 {index = [96*d0 + 32*d1 + d2, d3]}

In a matrix product, a tile with few rows uses each element of the second factor for few results only. One large product
is faster than many small products whose rows do not fill a tile. Later passes copy the factors of the large product,
split its depth (the summed axis) and choose its tiles. Without the pass `batch-into-rows`, the pass `collapse-axes`
would merge the batch axes and the row axis later. The pass `collapse-axes` cannot merge the batch axes with the row
axis if the product's result is stored transposed.

The pass `batch-into-rows` changes only matrix products whose sizes are known. The pass does not change products of
8-bit weights, which have special tiles for few rows. A batch stays unchanged if its products have different second
factors along the last batch axis. A product keeps its batch axes if it could share a loop with other reductions, as in
attention. A product that is large enough for TF32 parts (f32_products.py) would share no loop, so its batch axes become
rows.
"""

import math
from typing import TypeGuard

from minitri.base.dims import ZERO, Dim
from minitri.graph.ir import Contract, Graph, Interner, Node, View, axis, axis_symbol, contiguous
from minitri.graph.rewrite import rewritten
from minitri.graph.scalar_form import GraphTerms
from minitri.optimize.collapse_reduced_axes import places
from minitri.optimize.dequantised_product_cost import is_converted
from minitri.optimize.pack_operands import suits_parts
from minitri.optimize.split_kv import MAX_HELD, loops

ROWS = 128  # the rows of a large tile


def fold(graph: Graph, parts: bool = False) -> Graph:
    """Returns the graph in which batches of matrix products with few rows become single products with many rows. The
    argument `parts` says whether tensor cores compute f32 products as sums of products of TF32 parts.
    """
    if not any(map(_is_faster_as_one, graph.nodes())) or loops(graph):
        return graph

    def folded(i: Interner, _: Node, made: Node) -> Node | None:
        if not _is_faster_as_one(made):
            return None
        one, whole = _folded(i, made)
        return whole if not _could_share_a_loop(made) or parts and suits_parts(one) else None

    return rewritten(graph, fold, folded)


def _folded(i: Interner, node: Contract) -> tuple[Contract, View]:
    """Replaces a batch of products by one large product. Returns the product, and its view in the shape of the batch."""
    count = _shared(node)
    lead, rows = node.rank - 2 - count, node.shape[node.rank - 2 - count : -1]
    split, many = places(axis(lead), rows), Dim.of(math.prod(map(int, rows)))
    kept = tuple(map(axis, range(lead)))
    depth, columns = node.a.shape[-1], node.shape[-1]
    a = i.view(node.a, (*node.shape[:lead], many, depth), (*kept, *split, axis(lead + 1)))
    index = (*kept, *[ZERO] * count, axis(lead), axis(lead + 1))
    b = i.view(node.b, (*node.shape[:lead], depth, columns), index)
    one = i.contract(a, b, node.precision)
    row = sum((axis(k) * stride for k, stride in enumerate(contiguous(rows), lead)), ZERO)
    return one, i.view(one, node.shape, (*kept, row, axis(node.rank - 1)))


def _shared(node: Contract) -> int:
    """Counts the trailing batch axes along which all products use the same second factor."""
    if not isinstance(node.b, View):
        return 0
    varies = {s for d in node.b.index for s in d.symbols()}
    batch = range(node.rank - 3, -1, -1)  # the last batch axis lies directly before the rows
    return next((n for n, k in enumerate(batch) if axis_symbol(k) in varies), len(batch))


def _is_faster_as_one(node: Node) -> TypeGuard[Contract]:
    """Checks whether one large product needs fewer rows of tiles than a batch of products."""
    if not isinstance(node, Contract) or any(e.constant is None for e in (*node.shape, *node.a.shape)):
        return False
    sizes = node.shape[-2 - _shared(node) : -1]
    rows, products = int(sizes[-1]), math.prod(map(int, sizes[:-1]))
    # 45 products of 32 rows need 45 tiles of 128 rows, but one product of 45 * 32 rows needs only 12
    tiles, tiles_as_one = products * -(-rows // ROWS), -(-rows * products // ROWS)
    return products > 1 and tiles > tiles_as_one and not is_converted(node)


def _could_share_a_loop(node: Contract) -> bool:
    """Checks whether a loop of a product could also compute the reductions that its first factor needs."""
    # such a loop holds all columns of the product
    return int(node.shape[-1]) <= MAX_HELD and bool(GraphTerms(node.a, (node.rank - 1,), permuted=True).needs())
