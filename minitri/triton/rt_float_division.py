"""Divisions that are as accurate as Triton's `div_rn`, and take fewer instructions.

    tl.div_rn(x, y)      about 16 instructions for each element, and a branch for special cases
    rt.divide(x, y)      8 instructions for each element if y has one value for a whole row, and no branch

In: tiles or scalars of f32 or f64. Out: the result, with an error of a few units in the last place (`ulp` in
minitri/base/operators.toml). The one idea: work that all elements of a row share is done once, and special cases that
cannot occur need no instructions. Kernels call the functions as `rt.NAME` (minitri/triton/rt.py).

Left out: quotients of two tiles of the same shape, which `div_rn` computes.
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false

import triton
import triton.language as tl
from triton.language.extra import libdevice

from minitri.triton.rt_fast_math import reciprocal


@triton.jit
def sigmoid(x):
    """Returns 1 / (1 + exp(-x)), computed from exp(-|x|), because exp(-|x|) cannot overflow.

    The divisor is in [1, 2], so its reciprocal needs no special cases: one step of Newton's method makes the GPU's
    approximation exact, up to a rounding.
    """
    z = libdevice.exp(-tl.abs(x))
    above, below = tl.where(x >= 0, 1.0, z), 1.0 + z
    if x.dtype == tl.float64:
        return above / below
    else:
        r = reciprocal(below)
        return above * tl.fma(r, tl.fma(-r, below, 1.0), r)


@triton.jit
def divide(a, b):
    """Returns a / b. If b has one value for a whole row of a, the reciprocal of b is computed once for the row.

    The quotient of f32 numbers is rounded correctly. But if one value of b divides a row, a quotient below 2**-100 has an
    error of up to 2 ulp.
    """
    if a.dtype == tl.float64:
        return a / b
    elif len(a.shape) == 0:
        return tl.div_rn(a, b)
    elif a.numel < 32768 and (len(b.shape) == 0 or b.numel < a.numel):
        return _divide_by_few(a, b)
    else:  # also for 32 elements of each of 1024 threads, which leave no registers for intermediate results
        return tl.div_rn(a, b)


@triton.jit
def _divide_by_few(a, b):
    """Returns a / b with few instructions for each element of a.

    A power of two scales a and b, so that b is between 1/2 and 1. The quotient a * (1 / b) is corrected twice by its
    remainder, which a fused multiplication and addition computes exactly. The second correction rounds correctly:
    Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, 1990. A remainder is not
    smaller than a if a is zero, infinite or NaN, or if the quotient is.
    """
    # The exponent of an f32 has 8 bits, above 23 bits of mantissa, and is stored plus 127. The stored exponents of b and
    # of the scale add up to 253, so that of b * scale is 253 - 127 = 126, which stands for a number from 1/2 to 1.
    exponent = (b.to(tl.int32, bitcast=True) >> 23) & 255
    scale = (tl.maximum(253 - exponent, 1) << 23).to(tl.float32, bitcast=True)
    a, b = a * scale, b * scale
    r = tl.div_rn(1.0, b)
    q = a * r
    rest = tl.fma(q, b, -a)
    near = tl.fma(-rest, r, q)
    near = tl.fma(-tl.fma(near, b, -a), r, near)
    return tl.where(tl.abs(rest) < tl.abs(a), near, q)
