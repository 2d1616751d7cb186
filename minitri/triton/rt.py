"""The functions that generated kernels call as `rt.NAME`. Triton compiles these functions together with the kernels.

The functions of rt.py take tiles or scalars of f32, f64, an integer dtype or int1. Conversions and `dot` also take f16
and bf16. The functions of rt.py return the result that numpy would give. Most functions of rt.py exist because the
operation of Triton gives a result that differs from numpy's (docs/reference/semantics.md). For example, Triton's
integer division rounds towards zero, and Triton's maxima ignore NaN. In Triton, a shift by too many bits has an
undefined result. A conversion of a number outside the range of the new dtype is also undefined.

For Triton's interpreter, minitri/triton/rt_interpreter.py defines functions with the same names. Change rt.py and
rt_interpreter.py together; tests/test_ops.py compares the names of their functions. Importing rt.py needs triton, but
not torch. Because triton is not always installed, minitri imports rt.py only when it runs or compiles a generated
kernel.

If a function of `tl` or `libdevice` already gives numpy's result, kernels call this function directly. Approximations
are in minitri/triton/rt_fast_math.py. Accurate divisions with few instructions are in
minitri/triton/rt_float_division.py. Functions that make kernels faster or avoid a compiler error, without changing
results, are in minitri/triton/rt_intrinsics.py. The module rt.py also exports the functions of rt_fast_math.py,
rt_float_division.py and rt_intrinsics.py.
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false
# pyright: reportOptionalOperand=false

from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

from minitri.triton.rt_fast_math import exp2, relaxed_erf, relaxed_log, relaxed_log1p, relaxed_sigmoid, relaxed_tanh  # noqa: F401
from minitri.triton.rt_float_division import divide, sigmoid  # noqa: F401
from minitri.triton.rt_intrinsics import byte_to_f16, settle, unknown, wait_for_previous  # noqa: F401

# ---- elementwise -------------------------------------------------------------------------


@triton.jit
def maximum(a, b):
    """Returns the larger operand, or NaN if either operand is NaN."""
    if a.dtype == tl.int1:
        return a | b
    else:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """Returns the smaller operand, or NaN if either operand is NaN."""
    if a.dtype == tl.int1:
        return a & b
    else:
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def floordiv(a, b):
    """Returns a / b rounded down. For integers, a // 0 is 0, and INT_MIN // -1 wraps around to INT_MIN."""
    if a.dtype.is_floating():
        return _float_floordiv(a, b)
    elif a.dtype.is_int_signed():
        # b = 0 and b = -1 trap or overflow in the hardware's division: divide by 1 instead.
        safe = tl.where((b == 0) | (b == -1), 1, b)
        quotient = a // safe
        rest = a - quotient * safe
        quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
        return tl.where(b == 0, 0, tl.where(b == -1, 0 - a, quotient))
    else:
        return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))


@triton.jit
def remainder(a, b):
    """Returns a - floor(a / b) * b, which has the sign of b. For integers, remainder(a, 0) is 0."""
    if a.dtype.is_floating():
        rest = libdevice.fmod(a, b)
        fixed = tl.where((rest < 0) != (b < 0), rest + b, rest)
        return tl.where(rest == 0, libdevice.copysign(rest, b), fixed)
    elif a.dtype.is_int_signed():
        rest = fmod(a, b)
        return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
    else:
        return fmod(a, b)


@triton.jit
def fmod(a, b):
    """Returns a - trunc(a / b) * b, which has the sign of a. For integers, fmod(a, 0) is 0."""
    if a.dtype.is_floating():
        return libdevice.fmod(a, b)
    elif a.dtype.is_int_signed():
        safe = tl.where((b == 0) | (b == -1), 1, b)
        return a - (a // safe) * safe
    else:
        safe = tl.where(b == 0, 1, b)
        return a - (a // safe) * safe


@triton.jit
def signbit(x):
    """Checks whether the sign bit of a float is set, as it is for -0.0."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    else:
        return x.to(tl.int32, bitcast=True) < 0


@triton.jit
def _float_floordiv(a, b):
    # numpy's algorithm: the quotient of a - fmod(a, b) is an integer up to rounding.
    rest = libdevice.fmod(a, b)
    quotient = divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    exact = divide(a, b)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient, exact), whole)
    return tl.where(b == 0, exact, whole)


@triton.jit
def power(b, n):
    """Returns b ** n for integers. A result that is too large for the dtype wraps around.

    For a negative n, the result is 1 / b**(-n), rounded toward zero. The power 0 ** n with a negative n is 0.
    """
    base, exponent = tl.broadcast(b, n)
    result = base * 0 + 1
    for _ in range(b.dtype.primitive_bitwidth):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    if n.dtype.is_int_signed():
        sign = tl.where((n & 1) != 0, b, 1)  # the result for b = 1 and b = -1
        result = tl.where(n < 0, tl.where((b == 1) | (b == -1), sign, 0), result)
    return result


@triton.jit
def shift_left(a, n):
    """Returns a << n. If n is negative, or at least the number of bits, the result is 0."""
    inside = (n >= 0) & (n < a.dtype.primitive_bitwidth)
    return tl.where(inside, a << tl.where(inside, n, 0), 0)


@triton.jit
def shift_right(a, n):
    """Returns a >> n.

    For n < 0, and for n >= the number of bits, the result is -1 if a < 0, and otherwise 0.
    """
    inside = (n >= 0) & (n < a.dtype.primitive_bitwidth)
    shifted = a >> tl.where(inside, n, 0)
    if a.dtype.is_int_signed():
        return tl.where(inside, shifted, tl.where(a < 0, -1, 0).to(a.dtype))
    else:
        return tl.where(inside, shifted, 0)


@triton.jit
def round_to_tf32(x):
    """Rounds a number to tf32, which has 11 significant bits and the range of f32. A number halfway between two tf32
    numbers is rounded away from zero.

    The function adds half a unit in the last place of tf32, and then clears all lower bits.
    """
    if x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True) + (1 << 41)
        rounded = ((bits >> 42) << 42).to(tl.float64, bitcast=True)
        steps = x * 8.711228593176025e40  # 2**136: x in multiples of the smallest denormal tf32
        least = libdevice.trunc(tl.where(steps < 0, steps - 0.5, steps + 0.5)) * 1.1479437019748901e-41
        rounded = tl.where(tl.abs(x) < 1.1754943508222875e-38, least, rounded)
        rounded = tl.where(tl.abs(rounded) < 3.402823669209385e38, rounded, rounded * float("inf"))
    else:
        bits = x.to(tl.int32, bitcast=True) + (1 << 12)
        rounded = ((bits >> 13) << 13).to(tl.float32, bitcast=True)
    return tl.where((tl.abs(x) < float("inf")) & (x != 0), rounded, x)


# ---- conversion --------------------------------------------------------------------------


@triton.jit
def float_to_int(x, dtype: tl.constexpr):
    """Returns x truncated to an integer, and clamped to the limits of `dtype`. NaN gives 0."""
    low: tl.constexpr = dtype.get_int_min_value()
    high: tl.constexpr = dtype.get_int_max_value()
    above: tl.constexpr = float(high + 1)  # a power of two: exact in f32, but `high` is not
    inside = (x >= low) & (x < above)
    result = tl.where(inside, x, 0.0).to(dtype)
    result = tl.where(x >= above, high, result)
    return tl.where(x < low, low, result)


@triton.jit
def to_bool(x):
    """Checks whether x is not zero. NaN counts as not zero."""
    return x != 0


@triton.jit
def to_f32(x):
    return x.to(tl.float32)


@triton.jit
def to_bf16(x):
    """Rounds f32 or f64 to the nearest bf16, ties to even. An f64 is rounded to f32 first."""
    return x.to(tl.float32).to(tl.bfloat16)


@triton.jit
def to_f16(x):
    """Rounds f32 or f64 to the nearest f16, ties to even."""
    return x.to(tl.float16)


# ---- reductions and scans along one axis -----------------------------------------------------


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _multiply(a, b):
    return a * b


def _along(primitive, combine):
    """Makes a function that computes a reduction or a scan along one axis."""

    @tl.core.builtin
    def function(x, axis, _semantic: Any = None, _generator: Any = None):
        # `tl.reduce` or `tl.associative_scan`
        return primitive(x, axis, combine, _semantic=_semantic, _generator=_generator)

    return function


_COMBINED = (_add, _multiply, maximum, minimum)
reduce_sum, reduce_prod, reduce_max, reduce_min = (_along(tl.reduce, function) for function in _COMBINED)
scan_sum, scan_prod, scan_max, scan_min = (_along(tl.associative_scan, function) for function in _COMBINED)


@triton.jit
def reduce_max_in_parts(x):
    """Returns the maximum of each row of a matrix product. The function first splits each row into blocks of 16
    columns, and computes the elementwise maximum of the blocks.

    After a product on tensor cores, each thread holds a quarter of a row in its registers. If a row were reduced in one
    step, each thread would compare its elements in one chain of instructions. Each instruction of a chain waits for the
    previous instruction. If a thread first computes elementwise maxima, its instructions form four independent chains.
    The GPU overlaps the instructions of independent chains.
    """
    parts = tl.reshape(x, (x.shape[0], x.shape[1] // 16, 16))
    return tl.reduce(tl.reduce(parts, 1, maximum), 1, maximum)


@triton.jit
def reduce_any(x, axis: tl.constexpr):
    return tl.reduce(x.to(tl.int32), axis, maximum) != 0


@triton.jit
def reduce_all(x, axis: tl.constexpr):
    return tl.reduce(x.to(tl.int32), axis, minimum) != 0


@triton.jit
def _better(wins, v1, i1, v2, i2):
    """Returns the better of the pairs (v1, i1) and (v2, i2) for argmax or argmin."""
    nan1, nan2 = v1 != v1, v2 != v2
    ties = (v1 == v2) | (nan1 & nan2)  # NaN counts as equal to NaN
    # NaN is better than any number; `wins` says whether v1 is better than v2; then the smaller index is better
    keep = wins | (nan1 & ~nan2) | (ties & (i1 < i2))
    return tl.where(keep, v1, v2), tl.where(keep, i1, i2)


@triton.jit
def _better_maximum(v1, i1, v2, i2):
    return _better(v1 > v2, v1, i1, v2, i2)


@triton.jit
def _better_minimum(v1, i1, v2, i2):
    return _better(v1 < v2, v1, i1, v2, i2)


@triton.jit
def reduce_argmax(x, index, axis: tl.constexpr):
    """Returns the largest value along an axis, and its index. The tile `index` holds the index of each element."""
    return tl.reduce((x, index), axis, _better_maximum)


@triton.jit
def reduce_argmin(x, index, axis: tl.constexpr):
    """Returns the smallest value along an axis, and the index of this value. The tile `index` holds the index of each
    element.
    """
    return tl.reduce((x, index), axis, _better_minimum)


# ---- contraction -------------------------------------------------------------------------


@triton.jit
def dot(a, b, acc, precision: tl.constexpr = tl.constexpr("ieee")):
    """Returns a @ b + acc, accumulated in the dtype of `acc`. The docstring of minitri/kernels/ir.py explains
    `precision`.
    """
    # 1.4901161193847656e-08 is 2**-26, which undoes the factor of `_dot_of_parts`.
    if precision == "tf32x3_unchecked":
        return tl.fma(_dot_of_parts(a, b), 1.4901161193847656e-08, acc)
    elif precision == "tf32x3":
        sums = _dot_of_parts(a, b) * 1.4901161193847656e-08
        if not is_finite(sums):
            sums = tl.dot(a, b, input_precision="ieee")
        return acc + sums
    elif precision == "f32":
        return tl.dot(a, b, acc, input_precision="ieee", out_dtype=acc.dtype)
    else:
        return tl.dot(a, b, acc, input_precision=precision, out_dtype=acc.dtype)


@triton.jit
def _dot_of_parts(a, b):
    """Returns `a @ b * 2**26`, computed from three products of TF32 numbers."""
    a_high, a_low = _tf32_parts(a)  # times 2**13, as for b
    b_high, b_low = _tf32_parts(b)
    # The sums start from 0, because tensor cores truncate sums. The caller, `dot`, adds the accumulator.
    sums = tl.dot(a_high, b_low, input_precision="tf32")
    sums = tl.dot(a_low, b_high, sums, input_precision="tf32")
    return tl.dot(a_high, b_high, sums, input_precision="tf32")


@triton.jit
def _tf32_parts(x):
    """Returns x * 2**13 as a sum of two TF32 numbers."""
    # see minitri/base/tf32_splitting.py; `tl.fma` rounds only after the addition, so its multiplications are exact
    more = x * 67117056.0  # 2**13 * (2**13 + 1)
    high = more - tl.fma(x, -8192.0, more)
    # the second number is not rounded to TF32, because a tensor core truncates its operands to TF32
    return high, tl.fma(x, 8192.0, -high)


@triton.jit
def is_finite(x):
    """Checks whether every element of a tile is finite, neither infinite nor NaN."""
    return tl.max(tl.ravel((tl.abs(x) < float("inf")).to(tl.int32) ^ 1), 0) == 0
