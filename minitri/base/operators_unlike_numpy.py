"""Defines elementwise operators that are missing in numpy or differ from numpy's operators.

    power(np.int32(2), np.int32(-1))        0, where numpy raises an error

A function in this file takes the operands of an operator, as numpy arrays of one compute dtype (f32 for f16 and bf16).
The function returns the operator's result as a numpy array. If this file has a function with the name of an operator in
operators.toml, that function defines the operator.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def float_to_int(x: Any, dtype: Any) -> Any:
    """Converts floats to integers: drops the fraction, clips to the range of `dtype`, and turns NaN into 0."""
    limits = np.iinfo(dtype)
    low, high = float(limits.min), float(2 ** int(limits.max).bit_length())  # powers of two: exact
    out = np.where((x >= low) & (x < high), x, 0).astype(dtype)
    out = np.where(x >= high, limits.max, out)
    return np.where(x < low, limits.min, out).astype(dtype)


def round_to_tf32(x: Any) -> Any:
    """Rounds f32 values to TF32, which has 11 significant bits and the exponents of f32. A value halfway between two
    TF32 values is rounded away from zero.

    Neighbouring subnormal TF32 values are 2**-136 apart.
    """
    wide = x.astype(np.float64)
    step = np.ldexp(1.0, np.maximum(np.frexp(wide)[1], -125) - 11)
    rounded = np.trunc(wide / step + np.copysign(0.5, wide)) * step
    rounded = np.where(np.abs(rounded) < 2.0**128, rounded, np.copysign(np.inf, wide))
    return np.where(np.isfinite(wide), rounded, wide).astype(x.dtype)


def power(b: Any, n: Any) -> Any:
    """Returns a power. Powers of floats are the same as those of the C function `pow`."""
    if b.dtype.kind == "f":
        shape = np.broadcast_shapes(b.shape, n.shape)
        # For a scalar exponent 0.5, numpy computes a square root, which differs from C's `pow` for -inf and -0.0. An
        # exponent in an array prevents the square root.
        flat = [np.array(np.broadcast_to(v, shape)).reshape(-1) for v in (b, n)]
        return np.power(*flat).reshape(shape)
    if b.dtype.kind == "u":
        return np.power(b, n)
    one, odd = b.dtype.type(1), (n & 1) != 0
    reciprocal = np.where(b == 1, one, np.where(b == -1, np.where(odd, -one, one), 0 * one))
    return np.where(n < 0, reciprocal, np.power(b, np.maximum(n, 0)))


def bitwise_left_shift(x: Any, n: Any) -> Any:
    inside = (n >= 0) & (n < x.dtype.itemsize * 8)
    return np.where(inside, np.left_shift(x, np.where(inside, n, 0)), 0 * x)


def bitwise_right_shift(x: Any, n: Any) -> Any:
    last = x.dtype.type(x.dtype.itemsize * 8 - 1)
    inside = (n >= 0) & (n <= last)
    shifted = np.right_shift(x, np.where(inside, n, last))
    return shifted if x.dtype.kind == "i" else np.where(inside, shifted, 0 * x)


def _unless_integer(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a rounding function that leaves integers and bools unchanged."""
    # The rounding functions of numpy before 2.1 convert integers and bools to floats.
    return lambda x: function(x) if x.dtype.kind == "f" else x


floor, ceil, trunc, round = map(_unless_integer, (np.floor, np.ceil, np.trunc, np.rint))


def clip(x: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def sigmoid(x: Any) -> Any:
    z = np.exp(-np.abs(x))  # in (0, 1]: never overflows
    return np.where(x >= 0, 1, z).astype(x.dtype) / (1 + z)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> Any:
    """Computes the error function in f64, and rounds the result to the dtype of x."""
    return _erf(np.asarray(x, np.float64)).astype(x.dtype)


def rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)
