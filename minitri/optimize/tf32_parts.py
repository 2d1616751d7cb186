"""When three products of TF32 parts replace a product of f32 arrays, and how exact they are.

A tensor core multiplies TF32 numbers, which have 11 significant bits. So each factor is written as a sum of two such
numbers, a = a1 + a2 and b = b1 + b2. The product is a1*b2 + a2*b1 + a1*b1. The smallest part, a2*b2, is left out (Ootomo
and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022).

The sum is as exact as one of IEEE multiplications and additions. Let u = 2**-24, and let S be the sum of |a*b| along the
depth K, the axis that is summed over. The errors are at most

    IEEE      each of K additions is rounded                                            K u S
    parts     a2*b2 is at most 4u a*b; the last bits of a2 and b2, 2u each              8 u S
              tensor cores truncate: 6.5u for each instruction, 8 for 64 elements      52 u S
              an IEEE addition for the sum of each block, of 32 elements             K/32 u S

A tensor core aligns the terms of an instruction to the largest one with two more bits, and then cuts off what remains.
That costs 9 * u/2 for eight products and a sum, and 2u in the end. From a depth of 64 on, the parts have the smaller
bound: 8 + 52 + 2 < 64. Such a tensor core is Hopper's; tests/sweep_f32_products.py measures how it rounds.

In: the sizes of a product. Out: whether the parts are worth it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from minitri.base.dims import Dim

LEAST_DEPTH = 64
BLOCK = 52  # the roundings in the sum of a block
FACTOR_ERROR = 2.0**-22  # of each factor, relative: together 8u
WORTH = 1 << 28  # the fewest operations of a product: they take about five microseconds
SIDE = 32  # the fewest rows and columns: tensor cores compute 64 rows at a time


def is_worth(sizes: Sequence[Dim], depth: Dim) -> bool:
    """Whether a product is large and deep enough. `sizes` are the sizes of its result."""
    if any(e.constant is None for e in (*sizes, depth)):
        return False
    *_, m, n = map(int, sizes)
    work = 2 * math.prod(map(int, (*sizes, depth)))
    return int(depth) >= LEAST_DEPTH and min(m, n) >= SIDE and work >= WORTH
