"""Fast approximations of functions, for values that a kernel later rounds to 16 bits.

    rt.sigmoid(x)            division and exp with correct or nearly correct rounding
    rt.relaxed_sigmoid(x)    a relative error of at most 2**-17: two approximate GPU instructions and a few others

Each function of this module takes a tile or scalar of f32. The result has the dtype f32 and the shape of the argument.
The docstring of each `relaxed_` function gives its largest error. The rounding to 16 bits hides the error of an
approximation. The one idea: Triton writes several instructions to keep denormals, but an approximation uses a single
instruction of the GPU's special function unit. The special function unit flushes denormals to 0. Kernels call the
approximations as `rt.NAME` (minitri/triton/rt.py). The package minitri/optimize/fast_math decides which kernels use the
approximations.
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice


@tl.core.builtin
def exp2(x, _semantic: Any = None):
    """Returns 2 to the power x, computed by one instruction that gives 0 instead of a denormal result.

    `tl.exp2` keeps denormals, and needs four instructions.
    """
    return _one_instruction("ex2.approx.ftz.f32", x, tl.exp2, _semantic)


@tl.core.builtin
def reciprocal(y, _semantic: Any = None):
    """Returns 1 / y, computed by one instruction that treats denormal numbers as 0.

    The plain spelling `1.0 / y` keeps denormals, and needs four instructions.
    """
    return _one_instruction("rcp.approx.ftz.f32", y, lambda y, _semantic: _semantic.truediv(1.0, y), _semantic)


@tl.core.builtin
def _log2(x, _semantic: Any = None):
    """Returns the logarithm to base 2, with an absolute error of at most 2**-22 near 1."""
    # `tl.log2` calls the math library, which needs about 25 instructions
    return _one_instruction("lg2.approx.f32", x, tl.log2, _semantic)


def _one_instruction(name: str, x, elsewhere: Callable[..., Any], semantic: Any):
    """Applies the instruction `name` to `x` on NVIDIA GPUs, and calls `elsewhere(x)` on other GPUs."""
    if semantic.builder.options.backend_name != "cuda":
        return elsewhere(x, _semantic=semantic)
    code = f"{name} $0, $1;"
    return tl.inline_asm_elementwise(code, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1, _semantic=semantic)


@triton.jit
def relaxed_sigmoid(x):
    """Returns 1 / (1 + exp(-x)) with a relative error of at most 2**-17. Denormal results are not replaced by 0."""
    z = tl.exp(tl.abs(x) * -1.0)
    return tl.where(x >= 0, 1.0, z) * reciprocal(1.0 + z)


@triton.jit
def relaxed_tanh(x):
    """Returns tanh(x) with a relative error of at most 2**-18.

    The function computes tanh from 2**(|x| * 2 log2 e). For |x| < 0.085, the function uses a polynomial of two terms,
    because a power of two would lose digits by cancellation.
    """
    far = 1.0 - 2.0 * reciprocal(1.0 + exp2(tl.abs(x) * 2.8853900817779268))
    near = x * (0.999999106 - 0.332372516 * (x * x))
    return tl.where(tl.abs(x) < 0.085, near, libdevice.copysign(far, x))


@triton.jit
def relaxed_erf(x):
    """Returns erf(x) with a relative error of at most 2**-18, and an absolute error of at most 2**-22.

    The function computes erfc(|x|) as `2**p(|x|)`, where p is a polynomial. Near zero, computing erf from erfc would
    lose digits by cancellation, so the function uses a polynomial of two terms for x near zero. The polynomial p has
    degree 8. For |x| from 0.088 to 4, `2**p(|x|)`, with the polynomial p, differs from erfc(|x|) by at most 1e-8. For
    |x| above 4, the polynomial p decreases without bound, so `2**p` goes to 0. For large or infinite |x|, the computed
    power of two is 0, so relaxed_erf(x) is 1 or -1 without a special case. The coefficients of the polynomials in this
    function come from linear programming: they minimise the largest error against math.erfc and math.erf at Chebyshev
    nodes. The test file tests/test_ops.py measures the errors of the polynomials.
    """
    t = tl.abs(x)
    p = -3.69898225e-05 * t + 3.72217241e-04
    p = p * t - 1.23171927e-03
    p = p * t - 1.24408759e-03
    p = p * t + 2.87305620e-02
    p = p * t - 1.48752540e-01
    p = p * t - 9.18334603e-01
    p = p * t - 1.62792015e00
    p = p * t + 5.59136765e-07
    far = libdevice.copysign(1.0 - exp2(p), x)
    near = x * (1.12837827 - 0.375213861 * (x * x))
    return tl.where(t < 0.09, near, far)


@triton.jit
def relaxed_log(x):
    """Returns log(x) with a relative error of at most 2**-18."""
    return _log_of_sum(x - 1.0, x)


@triton.jit
def relaxed_log1p(x):
    """Returns log(1 + x) with a relative error of at most 2**-18."""
    return _log_of_sum(x, 1.0 + x)


@triton.jit
def _log_of_sum(t, x):
    """Returns log(x) for x = 1 + t, accurately even for x near 1."""
    # the GPU's logarithm has few correct digits near 1; these are five terms of the power series of log(1 + t)
    near = t * (1.0 + t * (-0.5 + t * (0.333333333 + t * (-0.25 + t * 0.2))))
    return tl.where(tl.abs(t) < 0.09, near, _log2(x) * 0.693147182)
