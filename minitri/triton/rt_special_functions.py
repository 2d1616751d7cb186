"""Special functions of f32 that are as accurate as those of the math library, and take fewer instructions.

    libdevice.cos(x)     about 120 instructions: each element has a branch for large |x|
    rt.cos(x)            about 25 instructions, and one branch for a whole tile

In: tiles or scalars of f32; `sigmoid` also takes f64. Out: the result, with an error of a few units in the last place
(`ulp` in minitri/base/operators.toml). The one idea: a special case that is rare, or that cannot occur, costs no
instructions for each element. Kernels call the functions as `rt.NAME` (minitri/triton/rt.py).

Left out: functions that `libdevice` computes without a branch, such as exp and tanh.
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
def sin(x):
    return _sine(x, 0)


@triton.jit
def cos(x):
    return _sine(x, 1)


@triton.jit
def _sine(x, quarters: tl.constexpr):
    """Returns sin(x) for `quarters` = 0, and cos(x) for `quarters` = 1.

    Let n be the integer next to x / (pi / 2). Adding 1.5 * 2**23 rounds a small number to an integer, whose last bits
    are then the last bits of the sum. The remainder r = x - n * pi / 2 is computed with pi / 2 in three parts, which
    is exact enough for |x| < 2**16. The result is the sine or the cosine of r, up to its sign. If a tile has a larger
    |x|, the math library computes the tile again.
    """
    sum = tl.fma(x, 0.636619772, 12582912.0)
    n, k = sum - 12582912.0, sum.to(tl.int32, bitcast=True) + quarters
    r = tl.fma(n, -5.39030253e-15, tl.fma(n, -3.13916473e-07, tl.fma(n, -1.57079601, x)))
    s = r * r
    sine = tl.fma(tl.fma(s, -1.9515295891e-4, 8.3321608736e-3), s, -1.6666654611e-1)
    sine = tl.fma(sine, s, 1.0) * r  # -0.0 for -0.0
    cosine = tl.fma(tl.fma(s, 2.443315711809948e-5, -1.388731625493765e-3), s, 4.166664568298827e-2)
    cosine = tl.fma(tl.fma(cosine, s, -0.5), s, 1.0)
    result = tl.where((k & 1) != 0, cosine, sine)
    result = tl.where((k & 2) != 0, -result, result)
    largest = tl.abs(x)
    if len(x.shape) > 0:
        largest = tl.max(tl.ravel(largest), 0)
    if largest >= 65536.0:
        result = libdevice.cos(x) if quarters == 1 else libdevice.sin(x)
    return result
