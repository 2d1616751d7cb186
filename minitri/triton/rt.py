"""The functions that generated kernels call as `rt.NAME`, compiled by Triton.

In: tiles or scalars of a compute dtype (f32, f64, integers, int1); f16 and bf16 only to convert
and to `dot`. Out: what numpy would give. Each exists because the plain Triton spelling differs
from numpy (docs/reference/semantics.md): integers divide towards zero, shifts past the width and
conversions out of range are undefined, maxima drop NaN.

The same names for Triton's interpreter are in minitri/triton/rt_interpreter.py. Both must be
changed together; tests/test_ops.py compares the two lists. Only generated kernels import this
module: it needs triton (not torch).

Left out: anything `tl` or `libdevice` already says right. Approximations are in minitri/triton/rt_fast_math.py,
functions that change no result in minitri/triton/rt_compiler_hints.py. `rt` exports their names.
"""

# Bodies are Triton's dialect of Python: types are known to Triton, not to a type checker.
# pyright: basic, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportAssignmentType=false

import triton
import triton.language as tl
from triton.language.extra import libdevice

from minitri.triton.rt_compiler_hints import byte_to_f16 as byte_to_f16
from minitri.triton.rt_compiler_hints import settle as settle
from minitri.triton.rt_compiler_hints import unknown as unknown
from minitri.triton.rt_compiler_hints import wait_for_previous as wait_for_previous
from minitri.triton.rt_fast_math import exp2 as exp2
from minitri.triton.rt_fast_math import relaxed_erf as relaxed_erf
from minitri.triton.rt_fast_math import relaxed_sigmoid as relaxed_sigmoid
from minitri.triton.rt_fast_math import relaxed_tanh as relaxed_tanh

# ---- elementwise -------------------------------------------------------------------------


@triton.jit
def maximum(a, b):
    """The larger; NaN if either is NaN."""
    if a.dtype.is_floating():
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif a.dtype == tl.int1:
        return a | b
    else:
        return tl.maximum(a, b)


@triton.jit
def minimum(a, b):
    """The smaller; NaN if either is NaN."""
    if a.dtype.is_floating():
        return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif a.dtype == tl.int1:
        return a & b
    else:
        return tl.minimum(a, b)


@triton.jit
def floordiv(a, b):
    """a / b rounded down; integers give 0 for b = 0 and wrap for INT_MIN // -1."""
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
    """a - floor(a / b) * b, which has the sign of b; integers give 0 for b = 0."""
    if a.dtype.is_floating():
        rest = libdevice.fmod(a, b)
        fixed = tl.where((rest < 0) != (b < 0), rest + b, rest)
        return tl.where(rest == 0, libdevice.copysign(rest, b), fixed)
    elif a.dtype.is_int_signed():
        safe = tl.where((b == 0) | (b == -1), 1, b)
        rest = a - (a // safe) * safe
        return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
    else:
        safe = tl.where(b == 0, 1, b)
        return a - (a // safe) * safe


@triton.jit
def fmod(a, b):
    """a - trunc(a / b) * b, which has the sign of a; integers give 0 for b = 0."""
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
    """Is the sign of x a minus? That of -0.0 is."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    else:
        return x.to(tl.int32, bitcast=True) < 0


@triton.jit
def _float_floordiv(a, b):
    # numpy's algorithm: the quotient of a - fmod(a, b) is an integer up to rounding.
    rest = libdevice.fmod(a, b)
    quotient = _divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    exact = _divide(a, b)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient, exact), whole)
    return tl.where(b == 0, exact, whole)


@triton.jit
def _divide(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def power(b, n):
    """Integer b ** n: wraps; 1 / b**-n truncated for negative n (0 for b = 0)."""
    base, exponent = tl.broadcast(b, n)
    result = base * 0 + 1
    for _ in range(b.dtype.primitive_bitwidth):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    if n.dtype.is_int_signed():
        sign = tl.where((n & 1) != 0, b, 1)  # for b = ±1
        result = tl.where(n < 0, tl.where((b == 1) | (b == -1), sign, 0), result)
    return result


@triton.jit
def shift_left(a, n):
    """a << n; 0 for n outside 0 .. bits-1."""
    inside = (n >= 0) & (n < a.dtype.primitive_bitwidth)
    return tl.where(inside, a << tl.where(inside, n, 0), 0)


@triton.jit
def shift_right(a, n):
    """a >> n; 0, or -1 for negative a, for n outside 0 .. bits-1."""
    inside = (n >= 0) & (n < a.dtype.primitive_bitwidth)
    shifted = a >> tl.where(inside, n, 0)
    if a.dtype.is_int_signed():
        return tl.where(inside, shifted, tl.where(a < 0, -1, 0).to(a.dtype))
    else:
        return tl.where(inside, shifted, 0)


@triton.jit
def round_to_tf32(x):
    """To 11 significant bits in the range of f32, halves away from zero: half of the last place is added, what lies
    below it cut off."""
    if x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True) + (1 << 41)
        rounded = ((bits >> 42) << 42).to(tl.float64, bitcast=True)
        steps = x * 8.711228593176025e40  # 2**136: of the least step, where f32 is denormal
        least = libdevice.trunc(tl.where(steps < 0, steps - 0.5, steps + 0.5)) * 1.1479437019748901e-41
        rounded = tl.where(tl.abs(x) < 1.1754943508222875e-38, least, rounded)
        rounded = tl.where(tl.abs(rounded) < 3.402823669209385e38, rounded, rounded * float("inf"))
    else:
        bits = x.to(tl.int32, bitcast=True) + (1 << 12)
        rounded = ((bits >> 13) << 13).to(tl.float32, bitcast=True)
    return tl.where((tl.abs(x) < float("inf")) & (x != 0), rounded, x)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), through exp(-|x|), which cannot overflow."""
    z = libdevice.exp(-tl.abs(x))
    return _divide(tl.where(x >= 0, 1.0, z), 1.0 + z)


# ---- conversion --------------------------------------------------------------------------


@triton.jit
def float_to_int(x, dtype: tl.constexpr):
    """x truncated, saturated at the limits of `dtype`; NaN gives 0."""
    low: tl.constexpr = dtype.get_int_min_value()
    high: tl.constexpr = dtype.get_int_max_value()
    above: tl.constexpr = float(high + 1)  # a power of two, exact in f32, unlike `high`
    inside = (x >= low) & (x < above)
    result = tl.where(inside, x, 0.0).to(dtype)
    result = tl.where(x >= above, high, result)
    return tl.where(x < low, low, result)


@triton.jit
def to_bool(x):
    """Is x not zero? NaN is not."""
    return x != 0


@triton.jit
def to_f32(x):
    return x.to(tl.float32)


@triton.jit
def to_bf16(x):
    """Rounds f32 or f64 to nearest, ties to even (f64 by way of f32)."""
    return x.to(tl.float32).to(tl.bfloat16)


@triton.jit
def to_f16(x):
    """Rounds f32 or f64 to nearest, ties to even."""
    return x.to(tl.float16)


# ---- reductions and scans along one axis: a reduction removes it -----------------------------


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _and(a, b):
    return a & b


@triton.jit
def reduce_sum(x, axis: tl.constexpr):
    return tl.reduce(x, axis, _add)


@triton.jit
def reduce_prod(x, axis: tl.constexpr):
    return tl.reduce(x, axis, _multiply)


@triton.jit
def reduce_max(x, axis: tl.constexpr):
    return tl.reduce(x, axis, maximum)


@triton.jit
def reduce_max_in_parts(x):
    """The maxima of the rows of a product: first of parts of 16 columns, elementwise.

    A thread holds a quarter of a row of what tensor cores make. Its maximum is one chain, in which each step waits
    for the one before; with parts there are four beside each other.
    """
    parts = tl.reshape(x, (x.shape[0], x.shape[1] // 16, 16))
    return tl.reduce(tl.reduce(parts, 1, maximum), 1, maximum)


@triton.jit
def reduce_min(x, axis: tl.constexpr):
    return tl.reduce(x, axis, minimum)


@triton.jit
def reduce_any(x, axis: tl.constexpr):
    return tl.reduce(x.to(tl.int32), axis, _or) != 0


@triton.jit
def reduce_all(x, axis: tl.constexpr):
    return tl.reduce(x.to(tl.int32), axis, _and) != 0


@triton.jit
def _better_maximum(v1, i1, v2, i2):
    """The better of two (value, index) pairs: NaN, then the larger; on a tie the smaller index."""
    nan1, nan2 = v1 != v1, v2 != v2
    wins = (v1 > v2) | (nan1 & ~nan2)
    ties = (v1 == v2) | (nan1 & nan2)
    keep = wins | (ties & (i1 < i2))
    return tl.where(keep, v1, v2), tl.where(keep, i1, i2)


@triton.jit
def _better_minimum(v1, i1, v2, i2):
    """The better of two (value, index) pairs: NaN, then the smaller; on a tie the smaller index."""
    nan1, nan2 = v1 != v1, v2 != v2
    wins = (v1 < v2) | (nan1 & ~nan2)
    ties = (v1 == v2) | (nan1 & nan2)
    keep = wins | (ties & (i1 < i2))
    return tl.where(keep, v1, v2), tl.where(keep, i1, i2)


@triton.jit
def reduce_argmax(x, index, axis: tl.constexpr):
    """(largest value, its index), where `index` holds the index of each element."""
    x, index = tl.broadcast(x, index)
    return tl.reduce((x, index), axis, _better_maximum)


@triton.jit
def reduce_argmin(x, index, axis: tl.constexpr):
    """(smallest value, its index), where `index` holds the index of each element."""
    x, index = tl.broadcast(x, index)
    return tl.reduce((x, index), axis, _better_minimum)


@triton.jit
def scan_sum(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, _add)


@triton.jit
def scan_prod(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, _multiply)


@triton.jit
def scan_max(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, maximum)


@triton.jit
def scan_min(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, minimum)


# ---- contraction -------------------------------------------------------------------------


@triton.jit
def dot(a, b, acc, precision: tl.constexpr = tl.constexpr("ieee")):
    """a @ b + acc, accumulated in the dtype of `acc`; `precision`: as of graph/ir.py."""
    return tl.dot(a, b, acc, input_precision=precision, out_dtype=acc.dtype)
