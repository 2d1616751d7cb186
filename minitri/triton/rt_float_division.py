"""Accurate divisions that take fewer instructions than Triton's `div_rn`.

    tl.div_rn(x, y)      about 16 instructions for each element, and a branch for special cases
    rt.divide(x, y)      9 instructions for each element if y has one value for a whole row, and no branch

The functions `divide` and `sigmoid` take tiles or scalars of f32 or f64. `divide` returns the quotient of two operands.
`sigmoid` returns 1 / (1 + exp(-x)). The numbers `ulp` in minitri/base/operators.toml give the largest errors, in units
in the last place. The one idea: if all elements of a row are divided by the same number, its reciprocal is computed
only once. The functions omit instructions for special cases that cannot occur: for example, the divisor in `sigmoid` is
never 0. Kernels call the functions of this file as `rt.NAME` (minitri/triton/rt.py).

For two f32 tiles of the same shape, `divide` calls Triton's `div_rn`.
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

    The divisor 1 + exp(-|x|) is in [1, 2], so its reciprocal needs no special cases. One step of Newton's method
    corrects the GPU's approximation of the reciprocal, so that only a rounding error remains.
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
    """Returns a / b. If a whole row of a is divided by one number, the reciprocal of this number is computed only once.

    All f32 quotients of at least `2**-100` are rounded correctly. If a reciprocal is used, smaller quotients are off by
    up to 3 units in the last place. Without a reciprocal, smaller f32 quotients are rounded correctly too.
    """
    if a.dtype == tl.float64:
        return a / b
    elif len(a.shape) == 0:
        return tl.div_rn(a, b)
    elif a.numel < 32768 and (len(b.shape) == 0 or b.numel < a.numel):
        return _divide_by_few(a, b)
    else:  # also if each of 1024 threads has 32 elements: no registers are left for intermediate results
        return tl.div_rn(a, b)


@triton.jit
def _divide_by_few(a, b):
    """Returns a / b with few instructions for each element of a."""
    # The exponent of an f32 has 8 bits, above 23 bits of mantissa, and is stored plus 127. The stored exponents of b and
    # of the scale add up to 253, so that of b * scale is 253 - 127 = 126, which stands for a number from 1/2 to 1.
    exponent = (b.to(tl.int32, bitcast=True) >> 23) & 255
    scale = (tl.maximum(253 - exponent, 1) << 23).to(tl.float32, bitcast=True)
    # Half of the quotient is finite even if a / b is the largest float or slightly larger.
    a, b = a * (scale * 0.5), b * scale
    # A denormal b or `|b| >= 2**126` gives a scaled b from `2**-23` to 4, so r is a normal number for every finite b
    # except 0.
    r = tl.div_rn(1.0, b)
    q = a * r
    rest = tl.fma(q, b, -a)  # the exact remainder
    near = tl.fma(-rest, r, q)
    # After this second correction, the quotient is rounded correctly (Markstein, Computation of elementary functions on
    # the IBM RISC System/6000 processor, 1990).
    near = tl.fma(-tl.fma(near, b, -a), r, near)
    # The remainder is smaller than a in absolute value, unless a or a / b is zero, infinite or NaN. Then the result is
    # q without corrections.
    return tl.where(tl.abs(rest) < tl.abs(a), near, q) * 2.0
