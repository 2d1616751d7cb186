"""Computes the largest possible error of the result of one operator, from the errors of its operands.

The function `moved` takes an operator and its operands, each with a radius (its largest possible error). For each
element, it returns the largest change that the errors of the operands can cause in the result. The one idea: each
operand lies in an interval, so a pair of operands lies in a rectangle (box). If an operator is monotone or convex in
each operand, the largest change of the result is at a corner of the box. At a corner, each operand is the smallest or
the largest number of its interval. For an operator that is neither monotone nor convex, a function in the table `WILD`
computes the largest change of the result.

    sin, cos             at most the error of the operand
    tan, x / y, 1 / x    anything, if the box holds a pole
    x == y               the other answer, if the intervals of x and y overlap
    x % y                |y|, if the rounded quotient is not certain; twice that for fmod

A sum or product of many terms is computed in an unknown order, and each partial result is rounded. The error of a sum
is at most the sum of the errors of its terms, plus the rounding errors of its additions.

    sum of n terms x, each with radius e    sum(e) + (n-1) u sum|x|
    sum of small whole numbers              0, because no order of addition rounds

In the error bound for a sum of n terms x, the rounding unit u is half a unit in the last place of 1. The error bound
for sums is from chapter 4 of Higham's book "Accuracy and Stability of Numerical Algorithms". If the result can be any
number, the largest possible error of the result is inf. For example, a partial sum can overflow in some orders of
addition. The file error_bounds.py adds the rounding error of the operator itself.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from minitri.base.operators import Operator
from minitri.base.operators_unlike_numpy import float_to_int
from minitri.base.types import DType

Arrays = Sequence[Any]
ERRATIC = ("remainder", "fmod", "floor_divide", "power")  # their integer results can jump, like bit operators
WRAPPING = ("add", "subtract", "multiply", "square", "negative", "abs")
LONGER = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps  # false on some machines
BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
GRID = 256.0  # sums of multiples of 1 / GRID may be exact

Fold = Callable[[str, Any], Any]  # (name of a reduction, array) → the reduction or the scan of the array


def moved(row: Operator, operand: DType, args: Arrays, radii: Arrays, centre: Any) -> Any:
    """Returns the largest possible distance between an operator's result and the value `centre`. The error of the
    operand `args[k]` is at most `radii[k]`.
    """
    far = farthest(centre, [row.numpy(*c) for c in corners(args, radii)])
    if operand.is_integer:
        return np.maximum(far, _integers(row, operand, args, radii))
    wild = WILD.get(row.name)
    return far if wild is None else np.maximum(far, wild(args, radii))


def corners(args: Arrays, radii: Arrays) -> list[list[Any]]:
    """Returns every combination of the operands' smallest and largest possible values: the corners of a box that
    contains all possible operands.

    If the radius of an operand is 0 everywhere, the operand has only one possible value.
    """
    choices = [[x] if not e.any() else [shifted(x, e, -1), shifted(x, e, 1)] for x, e in zip(args, radii)]
    return [list(c) for c in itertools.product(*choices)]


def shifted(x: Any, e: Any, sign: int) -> Any:
    """Returns x + sign * e: the largest possible value of x if `sign` is 1, and the smallest if `sign` is -1. An
    element with the error bound e = 0 is returned unchanged.

    An integer result is limited to the range of its dtype. If the error bound of a bool is not 0, the bool becomes True
    for `sign` 1, and False for `sign` -1. A NaN whose error bound is inf becomes the largest float if `sign` is 1, and
    the negative of this float if `sign` is -1.
    """
    if x.dtype.kind == "b":
        return np.where(e > 0, sign > 0, x)
    if x.dtype.kind == "f":
        end = np.where(np.isnan(x) & np.isinf(e), sign * np.finfo(x.dtype).max, x + sign * e)
        return np.where(e > 0, end, x)
    wide = np.where(e > 0, x.astype(np.float64) + sign * e, 0)
    return np.where(e > 0, float_to_int(wide, x.dtype), x)


def distance(a: Any, b: Any) -> Any:
    """Returns |a - b|, elementwise.

    The distance is 0 for equal infinities and for two NaNs, and inf if only one of the two numbers is finite.
    """
    a, b = np.asarray(a), np.asarray(b)
    same = (a == b) | ((a != a) & (b != b))
    far = np.abs(_wide(a) - _wide(b))
    far = far if a.dtype.kind in "fV" else np.maximum(far, 1)  # large integers may be equal in f64
    return np.where(same, 0, np.where(np.isnan(far), np.inf, far)).astype(np.float64)


def _wide(x: Any) -> Any:
    return x if x.dtype == np.longdouble else x.astype(np.float64)


def farthest(centre: Any, others: Arrays) -> Any:
    return np.max([distance(other, centre) for other in others], axis=0, initial=0)


# ---- neither monotone nor convex -----------------------------------------------------------


def _poles(args: Arrays, radii: Arrays) -> Any:
    place = args[0] / np.pi - 0.5
    return np.where((radii[0] > 0) & (np.floor(place - radii[0]) != np.floor(place + radii[0])), np.inf, 0)


def _holds_zero(x: Any, e: Any) -> Any:
    return (e > 0) & (np.abs(x) <= e)


def _jump(whole: Callable[[Any], Any], args: Arrays, radii: Arrays) -> Any:
    """Returns how far the remainder `x % y` can jump because of operand errors."""
    places = [whole(x / y) for x, y in corners(args, radii)]
    jumps = np.logical_or.reduce([p != places[0] for p in places]) & ((radii[0] > 0) | (radii[1] > 0))
    length = np.where(jumps, np.abs(args[1]) + radii[1], 0)  # where the integer quotient can change
    return np.where(_holds_zero(args[1], radii[1]), np.inf, length)  # y can be 0


def _power(args: Arrays, radii: Arrays) -> Any:
    """Returns inf for each power whose error can be arbitrarily large, and 0 for every other power."""
    (b, n), (eb, en) = args, radii
    # only where the base can be 0 or negative; never for an exact exponent that is not negative
    return np.where((b - eb <= 0) & ((en > 0) | ((eb > 0) & (n < 0))), np.inf, 0)


def _equality(args: Arrays, radii: Arrays) -> Any:
    slack = radii[0] + radii[1]
    return 1.0 * ((slack > 0) & (np.abs(_wide(args[0]) - _wide(args[1])) <= slack))


def _angle(args: Arrays, radii: Arrays) -> Any:
    (y, x), (ey, ex) = args, radii
    crosses_negative_x_axis = (ex + ey > 0) & (x <= ex) & (np.abs(y) <= ey)
    return np.where(crosses_negative_x_axis, 2 * np.pi, 0)


WILD: dict[str, Callable[[Arrays, Arrays], Any]] = {  # of the operands x and their radii e
    **dict.fromkeys(("sin", "cos"), lambda x, e: np.minimum(e[0], 2)),
    **dict.fromkeys(("divide", "reciprocal", "floor_divide"), lambda x, e: np.where(_holds_zero(x[-1], e[-1]), np.inf, 0)),
    "equal": _equality, "not_equal": _equality, "tan": _poles, "power": _power, "atan2": _angle,
    "remainder": partial(_jump, np.floor),
    "fmod": lambda x, e: 2 * _jump(np.trunc, x, e),  # -|y| to |y|
    "signbit": lambda x, e: 1.0 * np.isnan(x[0]),  # arithmetic does not define the sign of a NaN
    "copysign": lambda x, e: np.where(np.isnan(x[1]), 2 * np.abs(_wide(x[0])), 0),
}  # fmt: skip


def _integers(row: Operator, operand: DType, args: Arrays, radii: Arrays) -> Any:
    """Returns the error that inexact operands cause in integer results, for example inf where a result can overflow."""
    unsure = np.logical_or.reduce([e > 0 for e in radii])
    if row.name in ERRATIC or row.name.startswith("bitwise"):
        return np.where(unsure, np.inf, 0)
    if row.name in ("equal", "not_equal"):
        return _equality([x.astype(np.float64) for x in args], radii)
    if row.name not in WRAPPING:
        return 0.0
    low, high = operand.limits
    real = [row.numpy(*c) for c in corners([x.astype(np.float64) for x in args], radii)]
    # an inexact operand can make the result overflow
    return np.where(unsure & np.logical_or.reduce([(r < low) | (r > high) for r in real]), np.inf, 0)


# ---- sums and products of many terms --------------------------------------------------------


def unit(dtype: DType) -> float:
    """Returns the largest relative rounding error u of a dtype: |rounded(x) - x| <= u |x|.

    On machines where numpy's longdouble is only f64, the reference result is also rounded to f64. For f64, the function
    then returns 2 * u.
    """
    return 2.0 ** -BITS[dtype.name] * (2 if dtype.name == "f64" and not LONGER else 1)


def summed(x: Any, e: Any, dtype: DType, fold: Fold) -> Any:
    total = partial(fold, "sum")
    if not dtype.is_float:
        return 1.0 * total(e)
    size = np.abs(x).astype(np.float64)
    finite = np.isfinite(size)
    size = np.where(finite, size, 0) + np.where(np.isfinite(e), e, 0)
    count = total(1.0 * ((x != 0) | (e > 0)))
    exact = (total(1.0 * ~on_grid(x, e, GRID)) == 0) & (total(size) * GRID <= 2 ** BITS[dtype.name])
    return rounded(total(e), total(size), total(~finite) > 0, count - 1, exact, dtype)


def on_grid(x: Any, e: Any, grid: float) -> Any:
    """Returns True for each element of x whose error e is 0 and whose value is a multiple of 1 / `grid`."""
    return (e == 0) & (x * grid == np.rint(x * grid)) & np.isfinite(x)


def rounded(e: Any, size: Any, specials: Any, rounds: Any, exact: Any, dtype: DType) -> Any:
    """Returns the largest possible error of a sum: the errors of its terms (`e` in total) plus the error of each
    rounding.

    One rounding adds at most u * `size`. `size` is the sum of the terms' absolute values, and u is `unit(dtype)`. The
    argument `rounds` is the number of roundings. The error is inf if a partial sum can overflow.
    """
    error = np.where(specials, e, e + np.maximum(rounds, 0) * unit(dtype) * size)
    error = np.where(exact & ~specials, 0, error)
    return np.where(size > float(np.finfo(dtype.numpy).max) / 2, np.inf, error)  # a partial sum may overflow


def multiplied(x: Any, e: Any, dtype: DType, fold: Fold) -> Any:
    total, product = partial(fold, "sum"), partial(fold, "prod")
    if not dtype.is_float:
        return np.where(total(e) > 0, np.inf, 0.0)
    info = np.finfo(dtype.numpy)
    size = np.abs(x)
    known = np.isfinite(size) & ((size > 0) | (e > 0))  # 0, inf and nan decide the product in any order
    low, high = np.where(known, np.maximum(size - e, 0), 1), np.where(known, size + e, 1)
    rounds = np.maximum(total(1.0 * (known & (size != 1))) - 1, 0)
    most = product(high)
    error = (most - product(np.where(known, size, 1))) + most * (rounds * unit(dtype))  # 1 + u may be 1 in f64
    risky = (product(np.maximum(high, 1)) > float(info.max) / 2) | (product(np.minimum(low, 1)) < 2 * float(info.tiny))
    return np.where(risky, np.inf, np.where(total(~known) > 0, np.where(total(e) > 0, np.inf, 0), error))
