"""A cost model of matrix products that convert ("dequantise") an 8-bit second factor while they load it.

    x @ (w.astype(f16) * scale)          x: f16[128, 4096], w: i8[4096, 4096]

A grid program waits for each block twice: until the block is loaded, and until the block is converted
(triton/workarounds/loops.py). Each multiprocessor should run two grid programs: while one program waits for a block,
the other program multiplies. The result of f16[128, 4096] @ f16[4096, 4096] has 64 tiles of 128 rows and 64 columns,
but an H200 GPU has 132 multiprocessors. To get 256 grid programs from 64 tiles, the depth (the axis that is summed
over) is divided into four parts for each tile. If the depth is divided into parts, a second kernel adds the results of
the parts (split_k.py).

Tiles with few rows let more programs share the work, but the programs read the second factor more often in total. If
the summed axis is divided into more parts, more partial results must be added. The cost model in product_cost.py
estimates the time of the product for each number of parts and each number of rows in a tile.

The function `choose` takes a chip and the sizes of a product. The function returns the choice with the least estimated
time: a number of parts and a tile. The file split_k.py divides the depth into as many parts as `choose` returns. The
file schedules/products.py uses the number of rows of the returned tile. For each number of rows in a tile, the time
that a block takes was measured on an H200. The script tests/sweep_dequantised_product_cost.py measures all choices on a
chip and compares them with the choice of the cost model. All measured products compute their second factor from 8-bit
elements. For second factors that are computed from wider elements than 8 bits, such as f16, the cost model assumes the
same times. The cost model is not used for products with many rows. Such products read a second factor that was
converted and stored beforehand (pack_operands.py).
"""

from minitri.graph.ir import Apply, Const, Contract, Index, Input, View, children, is_copy, postorder, viewed
from minitri.hardware.chips import Chip
from minitri.optimize.product_cost import PACES, Choice, cheapest

LITTLE = {"cast", "multiply", "add", "subtract", "negative"}  # operators that run while a tensor core multiplies
UNIT = 64  # the depth of a part is a multiple of this
PART = 512  # the least depth of a part
MOST = 16  # the largest number of parts; each part's sums are written and read again


def is_converted(node: Contract) -> bool:
    """Checks two properties of a product: its first factor is read from memory, and its second factor is cheap to
    compute from 8-bit elements.
    """
    made = postorder([node.b], children)
    simple = all(isinstance(n, (Input, Const, Index, View)) or isinstance(n, Apply) and n.op in LITTLE for n in made)
    narrow = any(isinstance(n, Input) and n.dtype.bits == 8 and n.rank > 1 for n in made)
    read = isinstance(viewed(node.a), Input)
    return simple and narrow and not any(map(is_copy, made)) and node.b.dtype.bits == 16 and read


def choose(chip: Chip, batch: int, rows: int, columns: int, depth: int, most: int = MOST) -> Choice:
    """Returns the choice with the least estimated time: a number of parts (at most `most`) and a tile.

    Among choices with equal times, the choice with the fewest parts is returned.
    """
    powers = [1 << k for k in range(most.bit_length())]
    parts = [p for p in powers if p == 1 or depth % (p * UNIT) == 0 and depth >= p * PART]
    return cheapest(chip, PACES["transposed"], parts, batch, rows, columns, depth)
