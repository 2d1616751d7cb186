"""The expected results of elementwise operations, computed by numpy and Python alone: values and allowed errors.

In: operands as plain numpy arrays. Out: a `Want`. Integers are Python's integers, wrapped to the dtype.
f32 functions are computed in f64, f64 functions in numpy's long double. The module uses the compiler's
dtypes and the error bound `ulp` of the operator table, nothing else of it.

minitri differs from numpy in these points (docs/reference/semantics.md):

- x // 0 and x % 0 of integers are 0
- b ** -n of integers is truncated
- a shift by at least the width gives 0 or the sign
- a float is converted to an integer by saturation, and NaN to 0
- an integer operand takes the dtype of a float operand
- a maximum of two zeros may have either sign
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from minitri.base.operators import OPERATORS
from minitri.base.types import DTYPES, DType, bool_, f32, f64, i64

SUM_FACTOR = 4  # c of |err| <= c·K·u·Σ|aᵢ|
UNIT = {"f32": 2.0**-24, "f64": 2.0**-53}  # u, half the distance of 1 to the next number


# ---- results that are allowed ------------------------------------------------------------
# ---- allowed results ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Want:
    """An interval for each element, from `low` to `high`, which have the result's dtype. NaN: the element must be NaN.

    `zeros`: if both ends are the same zero, the sign of the zero must be right.
    """

    low: Any
    high: Any
    zeros: bool = True

    @np.errstate(all="ignore")
    def check(self, got: Any, what: str) -> None:
        assert isinstance(got, (np.ndarray, np.generic)), f"{what}: {type(got)}"
        assert got.dtype == self.low.dtype, f"{what}: {got.dtype} is not {self.low.dtype}"
        assert got.shape == self.low.shape, f"{what}: shape {got.shape} is not {self.low.shape}"
        if got.dtype.kind in "biu":
            if got.dtype.kind == "b":
                assert (np.asarray(got).view(np.uint8) <= 1).all(), f"{what}: a bool that is neither 0 nor 1"
            bad = got != self.low
        else:
            bad = self._outside(np.asarray(got))
        assert not bad.any(), f"{what}: {self._report(np.asarray(got), bad)}"

    def _outside(self, got: Any) -> Any:
        nan, must = np.isnan(got.astype(np.float64)), np.isnan(self.low.astype(np.float64))
        place = ordinal(got)
        low, high = ordinal(self.low), ordinal(self.high)
        bad = np.where(nan | must, nan != must, (place < low) | (place > high))
        if self.zeros:
            signs = [np.signbit(x.astype(np.float64)) for x in (got, self.low, self.high)]
            bad |= (low == 0) & (high == 0) & ~must & (signs[1] == signs[2]) & (signs[0] != signs[1])
        return bad

    def _report(self, got: Any, bad: Any) -> str:
        at = tuple(int(k) for k in np.argwhere(bad)[0])
        count = f"{np.count_nonzero(bad)} of {bad.size} wrong, first at {list(at)}"
        return f"{count}: {got[at]!r} is not in {self.low[at]!r} … {self.high[at]!r}"


def ordinal(x: Any) -> Any:
    """Floats as integers in the same order. Neighbouring floats differ by 1; both zeros are 0."""
    bits = x.view(f"i{x.itemsize}").astype(np.int64)
    return np.where(bits < 0, np.iinfo(f"i{x.itemsize}").min - bits, bits)


def exact(value: Any, d: DType, zeros: bool = True) -> Want:
    value = cast(value, d)
    return Want(value, value, zeros)


def near(value: Any, d: DType, ulp: int) -> Want:
    """Within `ulp` units in the last place of the correctly rounded value."""
    middle = cast(value, d)
    low, high = middle, middle
    with np.errstate(all="ignore"):
        for _ in range(ulp):
            low, high = _step(low, -1), _step(high, 1)
    return Want(low, high)


def _step(x: Any, way: int) -> Any:
    """The next float up or down. NaN and infinities stay."""
    place = ordinal(x) + way
    bits = np.where(place < 0, np.iinfo(f"i{x.itemsize}").min - place, place).astype(f"i{x.itemsize}")
    wide = x.astype(np.float64)
    stays = np.isnan(wide) | ((np.sign(wide) == way) & np.isinf(wide))
    return np.where(stays, x, bits.view(x.dtype))


def between(value: Any, bound: Any, d: DType) -> Want:
    """value ± bound, each end rounded to the dtype. If the value is infinite or NaN, the result must equal it."""
    with np.errstate(all="ignore"):
        bound = np.where(np.isfinite(value) & np.isfinite(bound), bound, 0)
        return Want(cast(value - bound, d), cast(value + bound, d), zeros=False)


def summed(value: Any, magnitude: Any, count: int, d: DType) -> Want:
    """A sum of `count` terms. `magnitude` is the sum of their absolute values."""
    unit = UNIT[d.compute.name]
    tiny = float(np.finfo(d.compute.numpy).tiny) * unit
    return between(value, SUM_FACTOR * max(count - 1, 0) * unit * magnitude + tiny * count, d)


# ---- dtypes ------------------------------------------------------------------------------


def promote(a: DType, b: DType) -> DType:
    """numpy's promotion within integers and within floats. An integer with a float gives the float's dtype."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if {a.name, b.name} == {"f16", "bf16"}:
        return f32
    if "bf16" in (a.name, b.name):
        return max(a, b, key=lambda d: d.bits)
    return named(np.promote_types(a.numpy, b.numpy))


def named(dtype: Any) -> DType:
    return next(d for d in DTYPES.values() if d.numpy == dtype)


def meet(operands: Sequence[Any]) -> DType:
    """The promoted dtype of arrays and Python numbers."""
    dtypes = [named(x.dtype) for x in operands if isinstance(x, (np.ndarray, np.generic))]
    weak = [x for x in operands if isinstance(x, (int, float)) and not isinstance(x, bool)]
    d = functools.reduce(promote, dtypes)
    if any(isinstance(w, float) for w in weak) and not d.is_float:
        return f32
    return i64 if weak and d == bool_ else d


def cast(x: Any, d: DType) -> Any:
    """The result of `astype`."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if d.kind == "b":
            return x != 0
        if d.is_integer and x.dtype.kind not in "biu":
            low, high = d.limits
            whole = [
                0 if math.isnan(v) else low if v <= low else high if v >= high else int(v)
                for v in x.ravel().astype(float)
            ]
            return np.array(whole, d.numpy).reshape(x.shape)
        if d.bits == 16 and d.is_float and x.dtype.kind in "biu":  # converted through f32
            x = x.astype(np.float32)
        return x.astype(d.numpy)


def widest(d: DType) -> Any:
    """The dtype in which an oracle computes."""
    return np.longdouble if d.bits == 64 else np.float64


# ---- elementwise: integers and bools -------------------------------------------------------

Function = Callable[..., Any]


def _raised(b: int, n: int, d: DType) -> int:
    if n < 0:
        return {1: 1, -1: -1 if n % 2 else 1}.get(b, 0)
    return pow(b, n, 1 << d.bits)


def _shifted(x: int, n: int, d: DType, left: bool) -> int:
    n = n if 0 <= n < d.bits else d.bits
    return x << n if left else x >> n


INTEGERS: dict[str, Function] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "floor_divide": lambda x, y: x // y if y else 0, "remainder": lambda x, y: x % y if y else 0,
    "fmod": lambda x, y: (abs(x) % abs(y)) * (-1 if x < 0 else 1) if y else 0,
    "negative": lambda x: -x, "positive": lambda x: x, "square": lambda x: x * x, "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0), "floor": lambda x: x, "ceil": lambda x: x, "trunc": lambda x: x,
    "round": lambda x: x, "minimum": min, "maximum": max, "clip": lambda x, low, high: min(max(x, low), high),
    "where": lambda x, y, z: y if x else z, "bitwise_and": lambda x, y: x & y, "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y, "bitwise_invert": lambda x: ~x,
    "equal": lambda x, y: x == y, "not_equal": lambda x, y: x != y, "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y, "greater": lambda x, y: x > y, "greater_equal": lambda x, y: x >= y,
    "logical_and": lambda x, y: bool(x) and bool(y), "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) != bool(y), "logical_not": lambda x: not x,
}  # fmt: skip
BOOLS: dict[str, Function] = {
    "add": lambda x, y: x or y,
    "multiply": lambda x, y: x and y,
    "bitwise_invert": lambda x: not x,
}


def _integers(name: str, d: DType, args: Sequence[Any]) -> Any:
    """Python's arithmetic for each element, wrapped to the dtype."""
    function = BOOLS.get(name, INTEGERS.get(name)) if d == bool_ else INTEGERS.get(name)
    if name == "power":
        function = functools.partial(_raised, d=d)
    if name.endswith("_shift"):
        function = functools.partial(_shifted, d=d, left=name == "bitwise_left_shift")
    assert function is not None, name
    lists = [a.ravel().tolist() for a in args]
    got = [int(function(*v)) for v in zip(*lists)]
    if OPERATORS[name].result == "bool" or d == bool_:
        return np.array(got, bool).reshape(args[0].shape)
    low, high = d.limits
    return np.array([(v - low) % (high - low + 1) + low for v in got], d.numpy).reshape(args[0].shape)


# ---- elementwise: floats -------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _pow(b: Any, n: Any) -> Any:
    """C's pow. numpy replaces a lone exponent 0.5 by the square root, which gives (-inf) ** 0.5 = nan."""
    return np.power(*(np.array(v).reshape(-1) for v in (b, n))).reshape(b.shape)


# These round at most once: numpy's own result is the only right one.
ROUNDED: dict[str, Function] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "floor_divide": np.floor_divide,
    "remainder": np.remainder, "negative": np.negative, "positive": np.positive, "square": np.square,
    "reciprocal": lambda x: 1 / x, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.rint, "copysign": np.copysign, "fmod": np.fmod, "signbit": np.signbit,
    "next_float": np.nextafter, "minimum": np.minimum, "maximum": np.maximum,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high), "where": np.where, "sqrt": np.sqrt,
}  # fmt: skip
# These may be several ulps off: the value is computed in a wider dtype.
FUNCTIONS: dict[str, Function] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": _erf,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "hypot": np.hypot, "power": _pow,
}  # fmt: skip


def _tf32(x: Any) -> Any:
    """TF32 rounding by exact arithmetic: the nearest multiple of the step, on a tie the one further from zero."""
    flat = [_nearest(float(v)) if math.isfinite(v) else float(v) for v in np.asarray(x, np.float64).reshape(-1)]
    return np.array(flat, np.float64).reshape(np.shape(x)).astype(np.asarray(x).dtype)


def _nearest(v: float) -> float:
    step = Fraction(2) ** (max(math.frexp(v)[1], -125) - 11)
    count = math.floor(abs(Fraction(v)) / step + Fraction(1, 2))
    return math.copysign(float(count * step) if count * step < 2**128 else math.inf, v)


ROUNDED["round_to_tf32"] = _tf32
EITHER_ZERO = ("maximum", "minimum", "clip")
CPU_ULP = 4  # the error that numpy promises for its own functions


def _floats(name: str, d: DType, args: Sequence[Any], on: str) -> Want:
    with np.errstate(all="ignore"):
        if name in ROUNDED:
            value = np.asarray(ROUNDED[name](*args))
            return exact(value, bool_ if value.dtype.kind == "b" else d, name not in EITHER_ZERO)
        value = np.asarray(FUNCTIONS[name](*(a if a.dtype == bool else a.astype(widest(d)) for a in args)))
    if d.bits == 16:
        return near(value, d, 1)
    if name == "power" and d == f64 and on == "cpu":  # numpy with AVX-512 gives 0 for some powers that overflow
        want, own = near(value, d, CPU_ULP), _pow(*args)
        return Want(np.fmin(want.low, own), np.fmax(want.high, own))
    ulp = math.ceil(OPERATORS[name].ulp)
    return near(value, d, max(ulp, CPU_ULP) if on == "cpu" or d == f64 else ulp)


def elementwise(name: str, operands: Sequence[Any], on: str = "cpu") -> Want:
    """A row of the operator table, applied to arrays and Python numbers that broadcast."""
    row = OPERATORS[name]
    d = meet(operands[1:] if name == "where" else operands)
    d = f32 if row.operands == "float" and not d.is_float else bool_ if row.operands == "bool" else d
    kinds = [bool_ if name == "where" else d, d, d]
    args = np.broadcast_arrays(*(cast(x, k.compute) for x, k in zip(operands, kinds)))
    if d.is_float:
        return _floats(name, d, args, on)
    value = _integers(name, d, args)
    return Want(value, value)


def accepts(name: str, d: DType) -> bool:
    row = OPERATORS[name]
    return row.operands != "same" or d.kind in row.accepts
