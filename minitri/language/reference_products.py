"""The meaning of functions made of products, in numpy.

Factors are rounded to the dtype in which they meet, as those of `@` are; the results are numpy's own functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitri.language.reference_functions import Array, Value, array, convert, elementwise, rounded, settled, strong


def _contracted(function: Any) -> Callable[..., Array]:
    def contracted(x1: Value, x2: Value, **rest: Value) -> Array:
        dtype = settled(x1, x2)
        return Array(np.asarray(function(rounded(x1, dtype).data, rounded(x2, dtype).data, **rest)), dtype)

    return contracted


def _scaled_or_summed(function: Any) -> Callable[..., Array]:
    def product(x1: Value, x2: Value) -> Array:
        if array(x1).data.ndim == 0 or array(x2).data.ndim == 0:
            return elementwise("multiply", [x1, x2])
        return _contracted(function)(x1, x2)

    return product


def _kron(x1: Value, x2: Value) -> Array:
    dtype = settled(x1, x2)
    return Array(np.asarray(np.kron(convert(x1, dtype), convert(x2, dtype))), dtype)


def _cross(x1: Value, x2: Value, axis: int) -> Array:
    dtype = settled(x1, x2)
    return Array(np.cross(convert(x1, dtype), convert(x2, dtype), axis=axis), dtype)


def _matrix_power(x: Value, n: int) -> Array:
    """By squares. numpy's own goes another way for n = 3."""
    a = strong(x)
    out = Array(np.broadcast_to(np.eye(a.data.shape[-1], dtype=a.data.dtype), a.data.shape), a.dtype)
    first = True
    while n:
        if n & 1:
            out = a if first else _contracted(np.matmul)(out, a)
            first = False
        n >>= 1
        a = _contracted(np.matmul)(a, a) if n else a
    return out


def _matrix_norm(x: Value, keepdims: bool, ord: Value) -> Array:
    a = strong(elementwise("abs", [elementwise("multiply", [x, 1.0])]))
    data = np.linalg.norm(a.data, ord=ord, axis=(-2, -1), keepdims=keepdims)
    return Array(np.asarray(data, a.data.dtype), a.dtype)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "tensordot": _contracted(lambda x1, x2, axes: np.tensordot(x1, x2, axes)),
    "dot": _scaled_or_summed(np.dot), "inner": _scaled_or_summed(np.inner), "kron": _kron, "cross": _cross,
    "matrix_power": _matrix_power, "matrix_norm": _matrix_norm,
}  # fmt: skip
