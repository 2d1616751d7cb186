"""How far rounding can move a sum or a product of many terms, for any order of the terms.

    sum of n terms x, each off by e      sum(e) + (n-1) u sum|x|
    the same of small whole numbers      0: no order of addition rounds

u is half a unit in the last place of 1. Source: N. J. Higham, Accuracy and Stability of Numerical
Algorithms, chapter 4. inf means "cannot tell": in some order a partial sum overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minitri.base.types import DType

LONGER = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps  # not on every machine
BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
GRID = 256.0  # sums of multiples of 1 / GRID are looked at for being exact

Fold = Callable[[str, Any], Any]  # (name of a reduction, array) → the reduction or the scan of the array


def unit(dtype: DType) -> float:
    """u: |rounded(x) - x| <= u |x|. Where the reference of f64 is no longer than f64 it rounds as much again."""
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
    """Which elements are exactly known multiples of 1 / grid."""
    return (e == 0) & (x * grid == np.rint(x * grid)) & np.isfinite(x)


def rounded(e: Any, size: Any, specials: Any, rounds: Any, exact: Any, dtype: DType) -> Any:
    """The error of a sum: that of its terms, and u of their sizes for each time a term is rounded."""
    error = np.where(specials, e, e + np.maximum(rounds, 0) * unit(dtype) * size)
    error = np.where(exact & ~specials, 0, error)
    return np.where(size > float(np.finfo(dtype.numpy).max) / 2, np.inf, error)  # in some order it overflows


def multiplied(x: Any, e: Any, dtype: DType, fold: Fold) -> Any:
    total, product = partial(fold, "sum"), partial(fold, "prod")
    if not dtype.is_float:
        return np.where(total(e) > 0, np.inf, 0.0)
    info = np.finfo(dtype.numpy)
    size = np.abs(x)
    known = np.isfinite(size) & ((size > 0) | (e > 0))  # 0, inf and nan decide the product whatever the order
    low, high = np.where(known, np.maximum(size - e, 0), 1), np.where(known, size + e, 1)
    rounds = np.maximum(total(1.0 * (known & (size != 1))) - 1, 0)
    most = product(high)
    error = (most - product(np.where(known, size, 1))) + most * (rounds * unit(dtype))  # 1 + u may be 1 in f64
    risky = (product(np.maximum(high, 1)) > float(info.max) / 2) | (product(np.minimum(low, 1)) < 2 * float(info.tiny))
    return np.where(risky, np.inf, np.where(total(~known) > 0, np.where(total(e) > 0, np.inf, 0), error))
