"""The expected results of reductions, products, indexing and library functions, computed by numpy alone.

In: plain numpy arrays. Out: `Want`s (tests/oracle.py). Integers, maxima and copies must be exact. Sums,
products and library functions have an error bound that is computed from their terms.

minitri differs from numpy in these points:

- the mean of integers and bools is f32
- f16 and bf16 are summed in f32
- an index array reads NaN, 0 or False where it is out of range
- a product rounds its operands to their promoted dtype
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from oracle import UNIT, Want, between, cast, exact, meet, named, summed, widest

from minitri.base.types import DType, bool_, f32, i64, u64

Axes = int | tuple[int, ...] | None


# ---- reductions ----------------------------------------------------------------------------


def count(x: Any, axis: Axes) -> int:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(x.shape[k] for k in axes)


def accumulator(d: DType) -> DType:
    return d if d.is_float else u64 if d.kind == "u" else i64


def reduction(name: str, x: Any, axis: Axes, keepdims: bool, correction: float = 0, dtype: DType | None = None) -> Want:
    d = named(x.dtype)
    with np.errstate(all="ignore"):
        if name in ("sum", "prod"):
            return total(
                name,
                x,
                dtype or accumulator(d),
                lambda f, a, t: f(a, axis=axis, keepdims=keepdims, dtype=t),
                count(x, axis),
            )
        if name == "mean":
            return _mean(x, axis, keepdims)
        if name in ("var", "std"):
            return _spread(name, x, axis, keepdims, correction)
        value = np.asarray(getattr(np, name)(x.astype(d.compute.numpy), axis=axis, keepdims=keepdims))
        kind = {"any": bool_, "all": bool_, "argmax": i64, "argmin": i64}.get(name, d)
        return exact(value, kind, zeros=False)


def total(name: str, x: Any, d: DType, apply: Callable[[Any, Any, Any], Any], terms: int) -> Want:
    """A sum, a product, or a running one. `apply` takes numpy's function, x and a dtype."""
    function = {"sum": np.sum, "prod": np.prod, "cumulative_sum": np.cumsum, "cumulative_prod": np.cumprod}[name]
    if not d.is_float:
        return exact(apply(function, cast(x, d), d.numpy), d)
    wide = cast(x, d.compute).astype(widest(d))
    value = np.asarray(apply(function, wide, widest(d)))
    magnitude = np.asarray(apply(function, np.abs(wide), widest(d)))
    return summed(value, magnitude, terms + (x.dtype != d.numpy), d)


def _mean(x: Any, axis: Axes, keepdims: bool) -> Want:
    d, n = named(x.dtype), count(x, axis)
    if d.name in ("i64", "u64"):
        magnitude = np.asarray(np.sum(np.abs(x.astype(np.float64)), axis=axis, keepdims=keepdims)) / max(n, 1)
        return between(np.asarray(np.mean(x, axis=axis, keepdims=keepdims)), n * 2.0**-52 * magnitude, f32)
    if not d.is_float:
        whole = np.sum(x, axis=axis, keepdims=keepdims, dtype=accumulator(d).numpy)
        return exact(np.asarray(whole.astype(np.float32) / np.float32(n)), f32)
    wide = x.astype(widest(d))
    value = np.asarray(np.sum(wide, axis=axis, keepdims=keepdims)) / n
    magnitude = np.asarray(np.sum(np.abs(wide), axis=axis, keepdims=keepdims)) / max(n, 1)
    return summed(value, magnitude, n + 2, d)


def _spread(name: str, x: Any, axis: Axes, keepdims: bool, correction: float) -> Want:
    d = named(x.dtype)
    out = d if d.is_float else f32
    wide = cast(x, out.compute).astype(widest(out))
    n = count(x, axis)
    mean = np.sum(wide, axis=axis, keepdims=True) / n
    rest = n - correction if n > correction else np.nan
    value = np.asarray(np.sum((wide - mean) ** 2, axis=axis, keepdims=keepdims)) / rest
    scale = np.asarray(np.sum((np.abs(wide) + np.abs(mean)) ** 2, axis=axis, keepdims=keepdims)) / max(
        n - correction, 1
    )
    bound = 4 * (n + 4) * UNIT[out.compute.name] * np.where(np.isfinite(value), scale, 0)
    low, high = np.maximum(value - bound, 0), value + bound
    if name == "std":
        unit = 4 * UNIT[out.compute.name]
        low, high = np.sqrt(low) * (1 - unit), np.sqrt(high) * (1 + unit)
    return Want(cast(low, out), cast(high, out), zeros=False)


def running(name: str, x: Any, axis: int | None, initial: bool = False) -> Want:
    """`initial`: the start value of the running sum or product comes before the other elements."""
    d = accumulator(named(x.dtype))
    axis = 0 if axis is None else axis
    want = total(name, x, d, lambda f, a, t: f(a, axis=axis, dtype=t), x.shape[axis])
    widths = [(int(initial and k == axis % x.ndim), 0) for k in range(x.ndim)]
    start = int(name == "cumulative_prod")
    low, high = (np.pad(e, widths, constant_values=start) for e in (want.low, want.high))
    return Want(low, high, want.zeros)


# ---- products ------------------------------------------------------------------------------


def matmul(a: Any, b: Any) -> Want:
    d = meet([a, b])
    a, b = cast(a, d), cast(b, d)
    with np.errstate(all="ignore"):
        if not d.is_float:
            return exact(np.asarray(np.matmul(a, b)), d)
        value = _products(a.astype(widest(d)), b.astype(widest(d)))
        magnitude = _products(np.abs(a.astype(widest(d))), np.abs(b.astype(widest(d))))
        return summed(value, magnitude, a.shape[-1] + 1, d)


def _products(a: Any, b: Any) -> Any:
    """a @ b as a sum of products, one term at a time."""
    row, column = a.ndim == 1, b.ndim == 1
    a = a[None] if row else a
    b = b[:, None] if column else b
    out = (a[..., :, :, None] * b[..., None, :, :]).sum(-2)
    out = out[..., 0, :] if row else out
    return out[..., 0] if column else out


# ---- indexing ------------------------------------------------------------------------------


def subscript(x: Any, items: Sequence[Any]) -> Want:
    """numpy's indexing, except that index arrays may be out of range."""
    d = named(x.dtype)
    arrays = [i for i in items if isinstance(i, np.ndarray)]
    if not arrays:
        return exact(x[tuple(items)], d)
    common = np.broadcast_shapes(*(i.shape for i in arrays))
    axes = _axes(x.ndim, items)
    inside = np.ones(common, bool)
    safe: list[Any] = []
    place: list[Any] = []  # the same subscript, for an array that says which element of `common` an element comes from
    for item, axis in zip(items, axes):
        if not isinstance(item, np.ndarray):
            safe.append(item)
            place.append(0 if isinstance(item, int) else item)
            continue
        n, index = x.shape[axis], item.astype(object)
        good = ((index >= -n) & (index < n)).astype(bool)
        inside &= np.broadcast_to(good, common)
        safe.append(np.where(good, index, 0).astype(np.int64))
        first = not any(isinstance(p, np.ndarray) for p in place)
        place.append(np.arange(math.prod(common)).reshape(common) if first else np.zeros((), np.int64))
    indexed = {axis for item, axis in zip(items, axes) if isinstance(item, np.ndarray)}
    grown = np.pad(x, [(0, int(k in indexed and n == 0)) for k, n in enumerate(x.shape)])
    value = grown[tuple(safe)]
    lead = next(axis for item, axis in zip(items, axes) if isinstance(item, np.ndarray))
    shape = [math.prod(common) if k == lead else n for k, n in enumerate(grown.shape)]
    numbers = np.arange(shape[lead]).reshape([-1 if k == lead else 1 for k in range(x.ndim)])
    holds = (
        inside.reshape(-1)[np.broadcast_to(numbers, shape)[tuple(place)]] if inside.size else np.ones(value.shape, bool)
    )
    return exact(np.where(holds, value, fill(d)), d)


def fill(d: DType) -> Any:
    """The value that an index out of range reads."""
    return np.array(np.nan if d.is_float else 0).astype(d.numpy)


def _axes(rank: int, items: Sequence[Any]) -> list[int]:
    """The axis of x that each item indexes (for None and ...: the next axis)."""
    used = sum(i is not None and i is not Ellipsis for i in items)
    out: list[int] = []
    axis = 0
    for item in items:
        out.append(axis)
        axis += rank - used if item is Ellipsis else item is not None
    return out


def along_axis(x: Any, indices: Any, axis: int) -> Want:
    """take_along_axis, one element at a time. The other axes broadcast."""
    axis %= x.ndim
    n = x.shape[axis]
    shape = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(x.shape, indices.shape)]
    shape[axis] = indices.shape[axis]
    where = np.broadcast_to(indices, shape)
    out = np.full(shape, fill(named(x.dtype)))
    for at in itertools.product(*map(range, shape)):
        k = int(where[at])
        if -n <= k < n:
            out[at] = x[tuple(k if j == axis else 0 if x.shape[j] == 1 else i for j, i in enumerate(at))]
    return exact(out, named(x.dtype))


# ---- the library ---------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


def library(name: str, d: DType, *args: Any, **options: Any) -> Want:
    """A function of the library in f64 (long double for f64), with a bound on the effect of rounding."""
    out = d if d.is_float else f32
    wide = [np.asarray(cast(a, out.compute)).astype(widest(out)) if isinstance(a, np.ndarray) else a for a in args]
    with np.errstate(all="ignore"):
        value, scale = LIBRARY[name](*wide, **options)
        return between(np.asarray(value), 32 * UNIT[out.compute.name] * scale + np.finfo(np.float32).tiny, out)


Bounded = tuple[Any, Any]  # the value, and the magnitude that an error of u is relative to


def _silu(x: Any) -> Bounded:
    value = x / (1 + np.exp(-x))
    return value, np.abs(value)


def _softplus(x: Any) -> Bounded:
    value = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return value, np.abs(value)


def _gelu_erf(x: Any) -> Bounded:
    return 0.5 * x * (1 + _erf(x * 0.7071067811865476)), np.abs(x) * (1 + np.abs(x))


def _gelu_tanh(x: Any) -> Bounded:
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner)), np.abs(x) * (1 + np.minimum(np.abs(inner), 50))


def _softmax(x: Any, axis: int = -1) -> Bounded:
    shifted = x - np.max(x, axis=axis, keepdims=True)
    value = np.exp(shifted) / np.sum(np.exp(shifted), axis=axis, keepdims=True)
    return value, value * (x.shape[axis] + np.abs(np.where(np.isfinite(shifted), shifted, 0)))


def _logsumexp(x: Any, axis: Axes = None, keepdims: bool = False) -> Bounded:
    m = np.max(x, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(m), m, 0)
    value = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    scale = count(x, axis) + np.abs(shift) + np.where(np.isfinite(value), np.abs(value), 0) + 200
    return (value, scale) if keepdims else (np.squeeze(value, axis), np.squeeze(scale, axis))


def _log_softmax(x: Any, axis: int = -1) -> Bounded:
    shifted = x - np.max(x, axis=axis, keepdims=True)
    value = shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
    return value, x.shape[axis] + np.abs(np.where(np.isfinite(value), value, 0)) + 100


def _layer_norm(x: Any, weight: Any = 1, bias: Any = 0, eps: float = 1e-5, axis: int = -1) -> Bounded:
    mean = np.mean(x, axis=axis, keepdims=True)
    deviation = np.sqrt(np.mean((x - mean) ** 2, axis=axis, keepdims=True) + eps)
    value = (x - mean) / deviation * weight + bias
    largest = np.max(np.abs(x), axis=axis, keepdims=True, initial=0)
    scale = (x.shape[axis] + 4) * (1 + largest / deviation) ** 2 * np.abs(weight) + np.abs(bias)
    return value, np.broadcast_to(scale, value.shape)


def _rms_norm(x: Any, weight: Any = 1, eps: float = 1e-6, axis: int = -1) -> Bounded:
    value = x / np.sqrt(np.mean(x * x, axis=axis, keepdims=True) + eps) * weight
    return value, (x.shape[axis] + 4) * np.abs(value)


LIBRARY: dict[str, Callable[..., Bounded]] = {
    "silu": _silu, "softplus": _softplus, "gelu_erf": _gelu_erf, "gelu_tanh": _gelu_tanh, "gelu": _gelu_erf,
    "softmax": _softmax, "logsumexp": _logsumexp, "log_softmax": _log_softmax, "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}  # fmt: skip
