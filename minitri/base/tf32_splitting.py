"""The TF32 parts of f32 numbers, and how exact the products of such parts are.

A tensor core multiplies TF32 numbers, which have 11 significant bits. To multiply f32 numbers a and b, each factor is
written as a sum of two TF32 numbers (parts). For a = a1 + a2 and b = b1 + b2, the product `a*b` is computed as `a1*b2 +
a2*b1 + a1*b1`. The product `a2*b2` is left out, because the other three products are larger (Ootomo and Yokota,
"Recovering single precision accuracy from Tensor Cores", 2022).

The depth K of a matrix product is the number of products `a*b` whose sum is one element. The table below has upper
bounds of the errors of one element of a matrix product. In the table, u is 2**-24, the largest relative error of
rounding to f32, and S is the sum of the K values `|a*b|`.

    IEEE      each of K additions is rounded                                            K u S
    parts     a2*b2 is at most 4u a*b; the last bits of a2 and b2, 2u each              8 u S
              tensor cores truncate: 6.5u for each of 8 instructions (64 elements)     52 u S
              an IEEE addition for the sum of each block of 32 elements              K/32 u S

In each instruction, a tensor core shifts all terms to the exponent of the largest term. The tensor core cuts off all
bits that are more than two places below the last bit of the largest term. An instruction of a tensor core adds nine
terms: eight products and the previous sum. Truncation (cutting off low bits) changes each term by at most u/2, and the
result by at most 2u, where u = 2**-24. The error of one tensor core instruction, with nine terms and one result, is at
most 9 * u/2 + 2u = 6.5u. For a product of depth K = 64, the error bound with TF32 parts is (8 + 52 + 64/32) u S = 62 u
S. The error bound with IEEE arithmetic is 64 u S for K = 64. If K is at least 64, TF32 parts have a smaller error bound
than IEEE arithmetic. The error bounds in this file hold for the tensor cores of Hopper GPUs. The test
tests/sweep_f32_products.py measures how Hopper's tensor cores round.

The evaluators of minitri split an f32 array with the function `tf32_parts`, which returns two arrays of TF32 numbers.
In kernels, the function `_tf32_parts` of minitri/triton/rt.py splits f32 numbers into two TF32 numbers.
"""

from typing import Any

import numpy as np

from minitri.base.operators_unlike_numpy import round_to_tf32

SPLIT_SCALE = 2**13
LEAST_DEPTH = 64
BLOCK = 52  # the error in the sum of a block, in units of u S (see the table above)
FACTOR_ERROR = 2.0**-22  # the relative error of each factor; both together give 8u


def tf32_parts(x: Any) -> tuple[Any, Any]:
    """Returns two arrays of TF32 numbers whose sum is x * SPLIT_SCALE.

    If an element is NaN, or its absolute value is about 2**102 or more, both returned arrays contain NaN for this
    element.

    Subnormal f32 numbers lie 2**-149 apart, but neighbouring TF32 numbers lie at least 2**-136 apart. SPLIT_SCALE is
    2**13, so the last bit of a subnormal number x stands for 2**-136 in x * SPLIT_SCALE. TF32 can represent 2**-136.
    The first returned array is x * SPLIT_SCALE rounded to 11 significant bits. Source of the method: Veltkamp ("ALGOL
    procedures", 1968) and Dekker ("A floating-point technique for extending the available precision", 1971).
    """
    scaled, more = x * np.float32(SPLIT_SCALE), x * np.float32(SPLIT_SCALE * (2**13 + 1))
    high = more - (more - scaled)
    return high, round_to_tf32(scaled - high)
