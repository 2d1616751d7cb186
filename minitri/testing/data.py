"""Random arrays of any memory layout, with special values here and there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitri.base import numpy_semantics as numpy_arrays
from minitri.base.types import DTYPES


def random_array(type: str, sizes: dict[str, int], rng: np.random.Generator, low: float = -4, high: float = 4) -> Any:
    """An array (or a Python float) with elements from low to high, in a random memory layout."""
    if type == "float":
        return float(rng.uniform(low, high))
    name, _, dims = type.rstrip("]").partition("[")
    shape = tuple(_extent(d, sizes) for d in dims.split(",")) if dims else ()
    bare = (low, high) != (-4, 4)
    return _laid_out(lambda s: _elements(name, s, rng, low, high, not bare and rng.random() < 0.25), shape, rng)


def _extent(text: str, sizes: dict[str, int]) -> int:
    """A size in a type: `7`, `N`, `2 * N`, `N + 1`."""
    scale, _, rest = text.replace(" ", "").rpartition("*")
    name, _, more = rest.partition("+")
    return int(scale or 1) * (int(name) if name.isdigit() else sizes[name]) + int(more or 0)


def _elements(
    name: str, shape: tuple[int, ...], rng: np.random.Generator, low: float, high: float, special: bool
) -> Any:
    dtype = DTYPES[name]
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.is_float:
        whole = rng.random() < 0.25  # small integers: sums are exact, and there are ties
        x = rng.integers(int(low), int(high) + 1, shape) if whole else rng.uniform(low, high, shape)
        chosen = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 0.5]
    else:
        reach = rng.choice((0, 6, 196)) if (low, high) == (-4, 4) else 0  # sometimes past the small dtypes
        least, most = max(int(low) - reach, dtype.limits[0]), min(int(high) + reach, dtype.limits[1])
        x = rng.integers(least, most + 1, shape)
        chosen = [*dtype.limits, 0, 1]
    x = numpy_arrays.cast(x, dtype)
    if not special:
        return x
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.15, rng.choice(np.array(chosen, dtype.numpy), shape), x)


def _laid_out(make: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    layout = int(rng.integers(0, 8))
    if not shape or layout < 3:
        return make(shape)
    axis = int(rng.integers(0, len(shape)))
    here = tuple(slice(None) for _ in shape[:axis])
    match layout:
        case 3:  # the axes the other way round
            return make(shape[::-1]).T
        case 4:  # backwards
            return make(shape)[(*here, slice(None, None, -1))]
        case 5:  # every other element
            wide = tuple(2 * n if k == axis else n for k, n in enumerate(shape))
            return make(wide)[(*here, slice(None, None, 2))]
        case 6:  # one element for a whole axis
            return np.broadcast_to(make(tuple(1 if k == axis else n for k, n in enumerate(shape))), shape)
        case _:  # a window into something larger
            return make(tuple(n + 3 for n in shape))[tuple(slice(2, n + 2) for n in shape)]
