"""Makes random arrays in any memory layout. Some arrays contain special values such as NaN and infinity."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations as numpy_arrays
from minitri.base.types import DTYPES, DType
from minitri.language import ast
from minitri.language.parser import parse_type
from minitri.language.reference_evaluator import Reference


def random_array(type: str, sizes: dict[str, int], rng: np.random.Generator, low: float = -4, high: float = 4) -> Any:
    """Returns a random numpy array of `type`, with elements from `low` to `high` and a random memory layout.

    `type` is a type of the language, such as `"f32[M, N]"`, and `sizes` maps the dimensions to numbers. If `type` is
    `"float"`, the result is a Python float.
    """
    parsed = parse_type(type)
    if isinstance(parsed, ast.ScalarType):
        return float(rng.uniform(low, high))
    make = partial(elements, DTYPES[parsed.dtype], rng, low, high, usual=(low, high) == (-4, 4))
    return _laid_out(make, tuple(Reference({}).expression(d, dict(sizes)) for d in parsed.dims), rng)


def elements(
    dtype: DType, rng: np.random.Generator, low: float, high: float, shape: tuple[int, ...], *, usual: bool
) -> Any:
    """Returns random elements for an array.

    If `usual` is true, some arrays contain special values such as NaN, and some integer arrays contain integers outside
    the range from `low` to `high`.
    """
    special = usual and rng.random() < 0.25
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.is_float:
        whole = rng.random() < 0.25  # small integers: sums are exact, and there are ties
        x = rng.integers(int(low), int(high) + 1, shape) if whole else rng.uniform(low, high, shape)
        chosen = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 0.5]
    else:
        reach = rng.choice((0, 6, 196)) if usual else 0  # sometimes more than the small dtypes hold
        least, most = max(int(low) - reach, dtype.limits[0]), min(int(high) + reach, dtype.limits[1])
        x = rng.integers(least, most + 1, shape)
        chosen = [*dtype.limits, 0, 1]
    x = numpy_arrays.cast(x, dtype)
    if not special:
        return x
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.15, rng.choice(np.array(chosen, dtype.numpy), shape), x)


def _laid_out(make: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Makes an array with a random memory layout, most often row-major."""
    layout = rng.choice(("rows", "rows", "rows", "columns", "part", -1, 2, 0))
    if not shape or layout == "rows":
        return make(shape)
    if layout == "columns":  # axes in reverse order
        return make(shape[::-1]).T
    if layout == "part":  # a part of a larger array
        return make(tuple(n + 3 for n in shape))[tuple(slice(2, n + 2) for n in shape)]
    step, axis = int(layout), int(rng.integers(0, len(shape)))  # a stride that is negative, larger, or 0
    whole = make(tuple(n * abs(step) or 1 if k == axis else n for k, n in enumerate(shape)))
    steps = tuple(slice(None, None, step or None) if k == axis else slice(None) for k in range(len(shape)))
    return np.broadcast_to(whole[steps], shape)
