"""THE operator table: one row adds an elementwise operator.

    _row("expm1", 1, np.expm1, "libdevice.expm1({0})", "exp(x) - 1, exact near zero", ...)

In: nothing. Out: `OPERATORS`, name → `Operator`, with `BY_SYMBOL` (infix and prefix symbols) and
`ALIASES` (other libraries' spellings). Everything that knows operators iterates over this table:

  - calls and symbols in the language, and typing
  - the reference evaluators and the Triton emitter
  - the functions that Triton's interpreter sees (minitri/triton/rt_interpreter.py)
  - docs/reference/operators.md, which is generated, and the property tests

A row speaks about arithmetic in *compute* dtypes only: f32, f64, integers and bool. f16 and bf16
values are widened to f32 before any operator sees them (docs/reference/semantics.md).

The meaning is numpy's. If numpy raises, warns or leaves the result open, the meaning is:

    x // 0, x % 0                  0 for integers
    b ** -n                        1 / b**n truncated: 1, ±1 for b = ±1, else 0 (also for b = 0)
    x << n, x >> n                 0, or the sign, when n < 0 or n >= the number of bits
    maximum(0.0, -0.0)             either zero (also minimum and clip)

`ulp` is the error for f32 on a CUDA GPU. It is 0.5 if the result is correctly rounded. Otherwise it is
the distance from the correctly rounded result. The figures are from the CUDA C++ Programming Guide
(appendix "Mathematical Functions"); composed operators add them up.

Kernels must be compiled with `enable_reflect_ftz=False`. With Triton's default, the math library
treats denormals as zero, so that sin, tanh or erf of a denormal is 0.

Left out: operators with structure (reductions, contraction, scans, views). They are node classes of
the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minitri.base.types import DType, bool_, f32


@dataclass(frozen=True, slots=True)
class Operator:
    """One elementwise operator.

    name       function name in the language (the array API standard's where it has one)
    arity      number of array operands
    numpy      reference: called with numpy arrays of one compute dtype (see `operands`),
               returns an array of the result dtype; errors are silenced by the caller
    triton     expression template over {0} {1} {2} (operand names) and {t} (`tl.float32`, the
               operand dtype); or one template for each kind or dtype: {"f64": ..., "iu": ...}.
               May use `tl`, `libdevice` (CUDA/HIP math library) and `rt`
               (minitri/triton/rt.py). Must also run in Triton's interpreter, where a
               template that is one call of `libdevice` or `rt` is the row's own `numpy`
    doc        one line
    accepts    dtype kinds it takes, of "b" "i" "u" "f"
    operands   what operands are converted to first: "same" the promoted dtype; "float" the
               same, but integers and bools become f32; "bool"; "where" (bool, then "same")
    result     "operand" the operand dtype; "bool"
    symbol     infix or prefix spelling, if it has one
    domain     interval random f32/f64 test values are drawn from (special values are added)
    ulp        error bound in units in the last place of f32: 0.5 is correctly rounded; a larger
               bound counts from the correctly rounded result
    derivative  one language expression for each operand, over x, y, z, `out` and `g` (gradient of the
               result); None if there is none or it is zero
    cost       "cheap": one or two instructions; "special": a slow or special-function one
    relaxed    a shorter f32 spelling, good to about 2**-18, for kernels whose results are rounded
               to 16 bits (minitri/optimize/fast_math/relax.py)
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    triton: str | dict[str, str]
    doc: str
    accepts: str = "biuf"
    operands: Literal["same", "float", "bool", "where"] = "same"
    result: Literal["operand", "bool"] = "operand"
    symbol: str = ""
    domain: tuple[float, float] = (-1e3, 1e3)
    ulp: float = 0.5
    derivative: tuple[str | None, ...] = ()
    cost: Literal["cheap", "special"] = "cheap"
    relaxed: str = ""

    def operand_dtype(self, promoted: DType) -> DType:
        """The dtype operands are converted to, given their promoted dtype."""
        if self.operands == "bool":
            return bool_
        if self.operands == "float" and not promoted.is_float:
            return f32
        return promoted

    def result_dtype(self, operand: DType) -> DType:
        return bool_ if self.result == "bool" else operand

    @property
    def templates(self) -> dict[str, str]:
        """The Triton templates by the kinds ("iu") or the dtype name ("f64") they are for."""
        return {"biuf": self.triton} if isinstance(self.triton, str) else self.triton

    def spelling(self, operand: DType) -> str:
        """The Triton template for operands of this dtype."""
        choices = self.templates
        if operand.name in choices:
            return choices[operand.name]
        return next(text for kinds, text in choices.items() if kinds.isalpha() and operand.kind in kinds)

    def spell(self, operand: DType, *names: str, relaxed: bool = False) -> str:
        """The Triton expression over operands with these names."""
        short = self.relaxed if relaxed and operand == f32 else ""
        return (short or self.spelling(operand)).format(*names, t=f"tl.{operand.triton}")


# ---- references numpy does not have ------------------------------------------------------


def float_to_int(x: Any, dtype: Any) -> Any:
    """The conversion `astype` makes: truncates, saturates out of range, NaN gives 0."""
    limits = np.iinfo(dtype)
    low, high = float(limits.min), float(2 ** int(limits.max).bit_length())  # powers of two: exact
    out = np.where((x >= low) & (x < high), x, 0).astype(dtype)
    out = np.where(x >= high, limits.max, out)
    return np.where(x < low, limits.min, out).astype(dtype)


def round_to_tf32(x: Any) -> Any:
    """To 11 significant bits in the range of f32, whose least steps are 2**-136; halves away from zero."""
    wide = x.astype(np.float64)
    step = np.ldexp(1.0, np.maximum(np.frexp(wide)[1], -125) - 11)
    rounded = np.trunc(wide / step + np.copysign(0.5, wide)) * step
    rounded = np.where(np.abs(rounded) < 2.0**128, rounded, np.copysign(np.inf, wide))
    return np.where(np.isfinite(wide), rounded, wide).astype(x.dtype)


def _pow(b: Any, n: Any) -> Any:
    """C's pow. For a lone exponent of 0.5 numpy takes the root, which differs for -inf and -0.0."""
    shape = np.broadcast_shapes(b.shape, n.shape)
    flat = [np.array(np.broadcast_to(v, shape)).reshape(-1) for v in (b, n)]
    return np.power(*flat).reshape(shape)


def _power(b: Any, n: Any) -> Any:
    if b.dtype.kind == "f":
        return _pow(b, n)
    if b.dtype.kind == "u":
        return np.power(b, n)
    one, odd = b.dtype.type(1), (n & 1) != 0
    reciprocal = np.where(b == 1, one, np.where(b == -1, np.where(odd, -one, one), 0 * one))
    return np.where(n < 0, reciprocal, np.power(b, np.maximum(n, 0)))


def _shift_left(x: Any, n: Any) -> Any:
    inside = (n >= 0) & (n < x.dtype.itemsize * 8)
    return np.where(inside, np.left_shift(x, np.where(inside, n, 0)), 0 * x)


def _shift_right(x: Any, n: Any) -> Any:
    last = x.dtype.type(x.dtype.itemsize * 8 - 1)
    inside = (n >= 0) & (n <= last)
    shifted = np.right_shift(x, np.where(inside, n, last))
    return shifted if x.dtype.kind == "i" else np.where(inside, shifted, 0 * x)


def _unless_integer(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Rounding: the identity for integers and bools in every numpy (before 2.1 it gave floats)."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _sigmoid(x: Any) -> Any:
    z = np.exp(-np.abs(x))  # in (0, 1]: never overflows
    return np.where(x >= 0, 1, z).astype(x.dtype) / (1 + z)


# W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969):
# numerator and denominator, highest power first, for |x| <= 0.46875 (in x²) and above (in |x|).
_ERF_CENTRE = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)  # fmt: skip
_ERF_TAIL = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip


def _ratio(parts: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    return np.polyval(parts[0], x) / np.polyval(parts[1], x)


def _erf(x: Any) -> Any:
    """In f64 (below 1e-15), rounded back. Past 6 the result is 1 in f64."""
    size = np.abs(np.asarray(x, np.float64))
    centre = size * _ratio(_ERF_CENTRE, np.minimum(size, 0.46875) ** 2)
    t = np.clip(size, 0.46875, 6)
    tail = 1 - np.exp(-t * t) * _ratio(_ERF_TAIL, t)
    return np.copysign(np.where(size <= 0.46875, centre, tail), x).astype(x.dtype)


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


# ---- the table ---------------------------------------------------------------------------

OPERATORS: dict[str, Operator] = {}
BY_SYMBOL: dict[tuple[str, int], Operator] = {}  # (symbol, arity): `-` is prefix and infix


def register(op: Operator) -> Operator:
    """Adds a row to the table."""
    assert op.name not in OPERATORS, op.name
    OPERATORS[op.name] = op
    if op.symbol:
        BY_SYMBOL[op.symbol, op.arity] = op
    return op


def _row(name: str, arity: int, numpy: Callable[..., Any], triton: str | dict[str, str], doc: str,
         **rest: Any) -> None:  # fmt: skip
    register(Operator(name, arity, numpy, triton, doc, **rest))


def _predicate(name: str, arity: int, numpy: Callable[..., Any], triton: str, doc: str, **rest: Any) -> None:
    register(Operator(name, arity, numpy, triton, doc, result="bool", **rest))


def _function(name: str, numpy: Callable[..., Any], doc: str, ulp: float, derivative: str, *,
              triton: str = "", domain: tuple[float, float] = (-1e3, 1e3), relaxed: str = "") -> None:  # fmt: skip
    """A function of one float that the math library has, under the same name unless told."""
    register(Operator(
        name, 1, numpy, triton or f"libdevice.{name}({{0}})", doc, operands="float", domain=domain,
        ulp=ulp, derivative=(derivative,), cost="special", relaxed=relaxed,
    ))  # fmt: skip


# Arithmetic. Triton adds bools modulo 2; in numpy their sum is "or", their product "and".
_row("add", 2, np.add, {"b": "{0} | {1}", "iuf": "{0} + {1}"}, "x + y; `or` of bools",
     symbol="+", derivative=("g", "g"))  # fmt: skip
_row("subtract", 2, np.subtract, "{0} - {1}", "x - y", accepts="iuf", symbol="-", derivative=("g", "-g"))
_row("multiply", 2, np.multiply, {"b": "{0} & {1}", "iuf": "{0} * {1}"}, "x * y; `and` of bools",
     symbol="*", derivative=("g * y", "g * x"))  # fmt: skip
_row("divide", 2, np.divide, {"f32": "tl.div_rn({0}, {1})", "f64": "{0} / {1}"},
     "x / y; integers are divided as f32", operands="float", symbol="/",
     derivative=("g / y", "-g * out / y"), cost="special", relaxed="{0} / {1}")  # fmt: skip
_row("floor_divide", 2, np.floor_divide, "rt.floordiv({0}, {1})", "floor(x / y); 0 for integers if y is 0",
     accepts="iuf", symbol="//", cost="special")  # fmt: skip
_row("remainder", 2, np.remainder, "rt.remainder({0}, {1})", "x - floor(x / y) * y, with the sign of y",
     accepts="iuf", symbol="%", derivative=("g", "-g * floor(x / y)"), cost="special")  # fmt: skip
_row("fmod", 2, np.fmod, "rt.fmod({0}, {1})", "x - trunc(x / y) * y, with the sign of x; 0 for integers if y is 0",
     accepts="iuf", derivative=("g", "-g * trunc(x / y)"), cost="special")  # fmt: skip
_row("power", 2, _power, {"f": "libdevice.pow({0}, {1})", "iu": "rt.power({0}, {1})"},
     "x to the power y; integers wrap", accepts="iuf", symbol="**", domain=(-9.0, 9.0), ulp=4,
     derivative=("g * y * x ** (y - 1)", "where(x == 0, 0, g * out * log(x))"), cost="special")  # fmt: skip
# Some versions of Triton negate as 0 - x, which loses the sign of zero.
_row("negative", 1, np.negative, {"f": "{0} * -1.0", "iu": "-{0}"}, "-x; unsigned integers wrap",
     accepts="iuf", symbol="-", derivative=("-g",))  # fmt: skip
_row("positive", 1, np.positive, "{0}", "x itself", accepts="iuf", symbol="+", derivative=("g",))
_row("square", 1, np.square, "{0} * {0}", "x * x", accepts="iuf", derivative=("2 * g * x",))
_row("reciprocal", 1, np.reciprocal, {"f32": "tl.div_rn(1.0, {0})", "f64": "1.0 / {0}"}, "1 / x",
     operands="float", derivative=("-g * out * out",), cost="special", relaxed="1.0 / {0}")  # fmt: skip

# Comparison: tl.uint32 and tl.uint64 compare unsigned.
_predicate("equal", 2, np.equal, "{0} == {1}", "x == y", symbol="==")
_predicate("not_equal", 2, np.not_equal, "{0} != {1}", "x != y", symbol="!=")
_predicate("less", 2, np.less, "{0} < {1}", "x < y", symbol="<")
_predicate("less_equal", 2, np.less_equal, "{0} <= {1}", "x <= y", symbol="<=")
_predicate("greater", 2, np.greater, "{0} > {1}", "x > y", symbol=">")
_predicate("greater_equal", 2, np.greater_equal, "{0} >= {1}", "x >= y", symbol=">=")
_predicate("isnan", 1, np.isnan, "{0} != {0}", "is x not a number?", operands="float")
_predicate("isinf", 1, np.isinf, 'tl.abs({0}) == float("inf")', "is x infinite?", operands="float")
_predicate("isfinite", 1, np.isfinite, 'tl.abs({0}) < float("inf")', "is x a finite number?", operands="float")

# Bits and logic.
_row("bitwise_and", 2, np.bitwise_and, "{0} & {1}", "x & y", accepts="biu", symbol="&")
_row("bitwise_or", 2, np.bitwise_or, "{0} | {1}", "x | y", accepts="biu", symbol="|")
_row("bitwise_xor", 2, np.bitwise_xor, "{0} ^ {1}", "x ^ y", accepts="biu", symbol="^")
# ~ of an unsigned tensor is an error in the interpreter of some versions; -x - 1 is the same bits.
_row("bitwise_invert", 1, np.invert, {"bi": "~{0}", "u": "-{0} - 1"}, "~x; `not` of bools",
     accepts="biu", symbol="~")  # fmt: skip
_row("bitwise_left_shift", 2, _shift_left, "rt.shift_left({0}, {1})", "x << y", accepts="iu", symbol="<<")
_row("bitwise_right_shift", 2, _shift_right, "rt.shift_right({0}, {1})", "x >> y, keeping the sign",
     accepts="iu", symbol=">>")  # fmt: skip
_predicate("logical_and", 2, np.logical_and, "{0} & {1}", "are x and y both not zero?", operands="bool")
_predicate("logical_or", 2, np.logical_or, "{0} | {1}", "is x or y not zero?", operands="bool")
_predicate("logical_xor", 2, np.logical_xor, "{0} ^ {1}", "is just one of x and y not zero?", operands="bool")
_predicate("logical_not", 1, np.logical_not, "~{0}", "is x zero?", operands="bool")

# Sign, rounding, choice.
_row("abs", 1, np.abs, {"ub": "{0}", "if": "tl.abs({0})"}, "|x|; the smallest integer stays itself",
     derivative=("g * sign(x)",))  # fmt: skip
_row("sign", 1, np.sign,
     {"iu": "({0} > 0).to({t}) - ({0} < 0).to({t})",
      "f": "tl.where({0} == {0}, ({0} > 0).to({t}) - ({0} < 0).to({t}), {0})"},
     "-1, 0 or 1; NaN stays NaN", accepts="iuf")  # fmt: skip
_row("floor", 1, _unless_integer(np.floor), {"biu": "{0}", "f": "tl.floor({0})"}, "x rounded down")
_row("ceil", 1, _unless_integer(np.ceil), {"biu": "{0}", "f": "tl.ceil({0})"}, "x rounded up")
_row("trunc", 1, _unless_integer(np.trunc), {"biu": "{0}", "f": "libdevice.trunc({0})"},
     "x rounded towards zero")  # fmt: skip
_row("round", 1, _unless_integer(np.rint), {"biu": "{0}", "f": "libdevice.nearbyint({0})"},
     "x rounded to the nearest integer, halves to even")  # fmt: skip
_row("round_to_tf32", 1, round_to_tf32, "rt.round_to_tf32({0})",
     "x rounded to 11 significant bits, which TF32 has; halves away from zero", operands="float",
     derivative=("g",))  # fmt: skip
_row("copysign", 2, np.copysign, "libdevice.copysign({0}, {1})", "|x| with the sign of y", operands="float",
     derivative=("g * sign(x) * sign(out)", None))  # fmt: skip
_predicate("signbit", 1, np.signbit, "rt.signbit({0})", "is the sign of x a minus? that of -0.0 is", operands="float")
_row("next_float", 2, np.nextafter, "libdevice.nextafter({0}, {1})",
     "the next number of f32 or f64 from x towards y; `nextafter` knows f16 and bf16 too", operands="float",
     derivative=("g", None))  # fmt: skip
_row("minimum", 2, np.minimum, "rt.minimum({0}, {1})", "the smaller; NaN if either is",
     derivative=("where(x == y, g / 2, where(x < y, g, 0))", "where(x == y, g / 2, where(x < y, 0, g))"),
     )  # fmt: skip
_row("maximum", 2, np.maximum, "rt.maximum({0}, {1})", "the larger; NaN if either is",
     derivative=("where(x == y, g / 2, where(x > y, g, 0))", "where(x == y, g / 2, where(x > y, 0, g))"),
     )  # fmt: skip
_row("clip", 3, lambda x, low, high: np.minimum(np.maximum(x, low), high),
     "rt.minimum(rt.maximum({0}, {1}), {2})", "minimum(maximum(x, low), high)", accepts="iuf",
     derivative=("where((x >= y) & (x <= z), g, 0)", "where((x < y) & (y <= z), g, 0)",
                 "where(maximum(x, y) > z, g, 0)"))  # fmt: skip
_row("where", 3, np.where, "tl.where({0}, {1}, {2})", "y where x holds, z elsewhere", operands="where",
     derivative=(None, "where(x, g, 0)", "where(x, 0, g)"))  # fmt: skip

# Exponentials. `tl.exp` is ex2.approx(x * log2 e): 2 instructions, and up to 60 ulp off near
# |x| = 86, where the product's rounding error is scaled up. `libdevice.exp` reduces the argument
# first: 9 instructions, within 2 ulp. On an H200 both run at the speed of a copy of f32 (4.2 TB/s);
# 16-bit values come twice as fast, and there the short one is good enough.
_function("exp", np.exp, "e to the power x", 2, "g * out", domain=(-87.0, 88.0), relaxed="tl.exp({0})")
_function("exp2", np.exp2, "2 to the power x", 2, "g * out * 0.6931471805599453", domain=(-126.0, 127.0),
          relaxed="rt.exp2({0})")  # fmt: skip
_function("expm1", np.expm1, "exp(x) - 1, exact near zero", 1, "g * (out + 1)", domain=(-87.0, 88.0))
_function("log", np.log, "natural logarithm", 1, "g / x", domain=(0.0, 1e3))
_function("log2", np.log2, "logarithm to base 2", 1, "g / x * 1.4426950408889634", domain=(0.0, 1e3))
_function("log10", np.log10, "logarithm to base 10", 2, "g / x * 0.4342944819032518", domain=(0.0, 1e3))
_function("log1p", np.log1p, "log(1 + x), exact near zero", 1, "g / (1 + x)", domain=(-1.0, 1e3))
_row("sqrt", 1, np.sqrt, {"f32": "tl.sqrt_rn({0})", "f64": "tl.sqrt({0})"}, "square root", operands="float",
     domain=(0.0, 1e3), derivative=("g / (2 * out)",), cost="special", relaxed="tl.sqrt({0})")  # fmt: skip
_function("rsqrt", _rsqrt, "1 / sqrt(x)", 2, "-0.5 * g * out / x", domain=(0.0, 1e3))
_function("sigmoid", _sigmoid, "1 / (1 + exp(-x))", 4, "g * out * (1 - out)", triton="rt.sigmoid({0})",
          relaxed="rt.relaxed_sigmoid({0})")  # fmt: skip
_function("erf", _erf, "the error function", 2, "g * 1.1283791670955126 * exp(-x * x)", domain=(-6.0, 6.0),
          relaxed="rt.relaxed_erf({0})")  # fmt: skip

# Trigonometry.
_function("sin", np.sin, "sine", 2, "g * cos(x)")
_function("cos", np.cos, "cosine", 2, "-g * sin(x)")
_function("tan", np.tan, "tangent", 4, "g * (1 + out * out)")
_function("asin", np.arcsin, "inverse sine", 2, "g * rsqrt(1 - x * x)", domain=(-1.0, 1.0))
_function("acos", np.arccos, "inverse cosine", 2, "-g * rsqrt(1 - x * x)", domain=(-1.0, 1.0))
_function("atan", np.arctan, "inverse tangent", 2, "g / (1 + x * x)")
_function("sinh", np.sinh, "hyperbolic sine", 3, "g * cosh(x)", domain=(-88.0, 88.0))
_function("cosh", np.cosh, "hyperbolic cosine", 2, "g * sinh(x)", domain=(-88.0, 88.0))
_function("tanh", np.tanh, "hyperbolic tangent", 2, "g * (1 - out * out)", domain=(-10.0, 10.0),
          relaxed="rt.relaxed_tanh({0})")  # fmt: skip
_function("asinh", np.arcsinh, "inverse hyperbolic sine", 3, "g * rsqrt(x * x + 1)")
_function("acosh", np.arccosh, "inverse hyperbolic cosine", 4, "g * rsqrt(x * x - 1)", domain=(1.0, 1e3))
_function("atanh", np.arctanh, "inverse hyperbolic tangent", 3, "g / (1 - x * x)", domain=(-1.0, 1.0))
_row("atan2", 2, np.arctan2, "libdevice.atan2({0}, {1})", "the angle of the point (y, x)",
     operands="float", ulp=3, cost="special",
     derivative=("g * y / (x * x + y * y)", "-g * x / (x * x + y * y)"))  # fmt: skip
_row("hypot", 2, np.hypot, "libdevice.hypot({0}, {1})", "sqrt(x * x + y * y) without overflow",
     operands="float", ulp=3, derivative=("g * x / out", "g * y / out"), cost="special")  # fmt: skip

# Floats whose result jumps where an operand passes some value; so does every operator that makes no float of one.
JUMPS = ("floor", "ceil", "trunc", "round", "sign", "floor_divide", "remainder", "fmod", "power")

ALIASES: dict[str, str] = {
    "pow": "power", "absolute": "abs", "mod": "remainder", "true_divide": "divide", "div": "divide",
    "mul": "multiply", "sub": "subtract", "neg": "negative", "pos": "positive",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
    "invert": "bitwise_invert", "bitwise_not": "bitwise_invert", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "rint": "round",
    "clamp": "clip",
}  # fmt: skip
