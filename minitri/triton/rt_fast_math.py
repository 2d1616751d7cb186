"""Approximations that generated kernels call where a result of 16 bits hides the difference.

    rt.sigmoid(x)            division and exp, rounded correctly or nearly so
    rt.relaxed_sigmoid(x)    good to 2**-17: two approximate instructions of the GPU and few others

In: tiles or scalars of f32. Out: the same shape in f32; each docstring says how far it may be off. The one
idea: an instruction of the special function unit that flushes denormals replaces a sequence that keeps them.
Kernels reach these functions through minitri/triton/rt.py; minitri/optimize/fast_math/ decides where.
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice


@tl.core.builtin
def exp2(x, _semantic: Any = None):
    """2 to the power x, where a denormal result may be 0: one instruction, where `tl.exp2`, which keeps
    them, is four."""
    if _semantic.builder.options.backend_name != "cuda":
        return tl.exp2(x, _semantic=_semantic)
    code = "ex2.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(code, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1, _semantic=_semantic)


@tl.core.builtin
def _reciprocal(y, _semantic: Any = None):
    """1 / y, where what is denormal may be 0: one instruction, where `1.0 / y`, which keeps it, is four."""
    if _semantic.builder.options.backend_name != "cuda":
        return _semantic.truediv(1.0, y)
    code = "rcp.approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(code, "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1, _semantic=_semantic)


@triton.jit
def relaxed_sigmoid(x):
    """1 / (1 + exp(-x)), good to 2**-17; denormal results are kept."""
    z = tl.exp(tl.abs(x) * -1.0)
    return tl.where(x >= 0, 1.0, z) * _reciprocal(1.0 + z)


@triton.jit
def relaxed_tanh(x):
    """tanh(x), good to 2**-18: through 2**(|x| * 2 log2 e), and near zero, where that cancels, two terms (as
    relaxed_erf)."""
    far = 1.0 - 2.0 * _reciprocal(1.0 + exp2(tl.abs(x) * 2.8853900817779268))
    near = x * (0.999999106 - 0.332372516 * (x * x))
    return tl.where(tl.abs(x) < 0.085, near, libdevice.copysign(far, x))


@triton.jit
def relaxed_erf(x):
    """erf(x), good to 2**-18, and to 2**-22 of 1.

    It uses erfc(|x|) = 2**p(|x|). Near zero, where that cancels, it uses a polynomial of two terms. p is the polynomial of
    degree 8 whose 2**p is closest to erfc in [0.088, 4], with an error of at most 1e-8. Past 4, p falls without bound,
    so large x, infinity too, give 1 without a test. Both parts are minimax fits of math.erfc and math.erf at Chebyshev
    nodes, as linear programs; tests/test_ops.py measures them.
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
