"""Computes array operations in numpy: conversions, reductions, scans, matrix products and gathers.

    reduce("sum", x, [0])        sum(x, axis=0)
    scan("sum", x, 0)            cumulative_sum(x, axis=0)

An evaluator runs the minitri program of one compiler stage in numpy. All evaluators use the functions of this file. The
file minitri/base/operators.py has the tables of reductions and of elementwise operators. Arrays in this file have
compute dtypes (the dtypes of arithmetic in kernels). For example, the compute dtype of f16 is f32. Only a cast can
return an array of f16 or bf16. The evaluators switch off numpy's warnings of overflow and of division by zero.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitri.base.operators import OPERATORS, Reduction, fill_value, neutral, reduction, running
from minitri.base.operators_unlike_numpy import float_to_int, round_to_tf32
from minitri.base.tf32_splitting import SPLIT_SCALE, tf32_parts
from minitri.base.types import BY_NUMPY_NAME, DType, f64


def cast(x: Any, dtype: DType) -> Any:
    """Converts an array to a dtype.

    The conversion of floats to an integer dtype clips each value to the range of the dtype, and turns NaN into 0. The
    conversion of x to bool is x != 0.
    """
    x = np.asarray(x)
    if dtype.kind == "b":
        return x != 0
    is_float = x.dtype.kind == "f" or x.dtype.name == "bfloat16"
    if dtype.is_integer and is_float:
        return float_to_int(x if x.dtype.itemsize >= 4 else x.astype(np.float32), dtype.numpy)
    if dtype.name == "bf16" and not is_float:
        x = x.astype(np.float32)
    return x.astype(dtype.numpy)


def apply(op: str, dtype: DType, arrays: Sequence[Any]) -> Any:
    """Applies the elementwise operator `op` to arrays. The operator "cast" converts an array to `dtype`."""
    return cast(arrays[0], dtype) if op == "cast" else OPERATORS[op].numpy(*arrays)


@np.errstate(all="ignore")
def elementwise(op: str, dtype: DType, operands: Sequence[tuple[DType, Any]]) -> Any:
    """Converts the operands to numpy arrays, and applies the elementwise operator `op`. Each operand is a pair (dtype,
    value).
    """
    return np.asarray(apply(op, dtype, [np.asarray(value, of.numpy) for of, value in operands]))


def reduce(op: str, x: Any, axes: Sequence[int]) -> Any:
    """Applies the reduction `op`, such as "sum", along the given axes. The reduced axes are not in the result."""
    row = reduction(op)
    if row.kind == "position":
        return position(row, x, axes[0])
    start: dict[str, Any] = {"initial": neutral(op, _dtype_of(x))} if isinstance(row.neutral, str) else {}
    return row.ufunc.reduce(x, axis=tuple(axes), dtype=x.dtype, **start)


def position(row: Reduction, x: Any, axis: int | None, keepdims: bool = False) -> Any:
    """Returns the index of the first largest (argmax) or smallest (argmin) element along an axis.

    A NaN counts as the largest element for argmax, and as the smallest element for argmin.

    If `axis` is None, the index counts all elements of the array in row-major order: for element [1, 0] of a 2 × 3
    array, the index is 3.
    """
    return np.asarray(np.argmax(_best(row, x, axis), axis=axis, keepdims=keepdims), np.int64)


def least_index(row: Reduction, x: Any, index: Any, axis: int) -> Any:
    """Returns the index of the largest (argmax) or smallest (argmin) element along an axis. The result keeps the axis,
    with length 1.

    The array `index` contains the index of each element of `x`. The indices need not be in ascending order. If several
    elements are the largest, the result is the smallest of their indices. A NaN counts as the largest element for
    argmax, and as the smallest element for argmin.
    """
    return np.where(_best(row, x, axis), index, np.iinfo(index.dtype).max).min(axis, keepdims=True)


def _best(row: Reduction, x: Any, axis: int | None) -> Any:
    """Returns a bool array that marks the largest (argmax) or smallest (argmin) elements of each row."""
    best = row.ufunc.reduce(x, axis=axis, keepdims=True)
    return (x == best) | ((x != x) & (best != best))  # here NaN equals NaN


def _dtype_of(x: Any) -> DType:
    """Returns the dtype of an array."""
    return BY_NUMPY_NAME.get(x.dtype.name, f64)  # f64 for numpy's longdouble


def scan(op: str, x: Any, axis: int) -> Any:
    """Returns the partial results of the reduction `op` along an axis, such as cumulative sums."""
    return running(op).ufunc.accumulate(x, axis=axis, dtype=x.dtype)


def contract(a: Any, b: Any, dtype: DType, precision: str = "ieee") -> Any:
    """Returns the matrix product of arrays of the shapes [*B, M, K] and [*B, K, N], accumulated in `dtype`.

    `precision` says how f32 factors are multiplied (minitri/kernels/ir.py). The precision "tf32" rounds each f32 factor
    to TF32. The precision "tf32x3" writes each f32 factor as a sum of two TF32 numbers, and multiplies the TF32
    numbers. With "tf32x3", each infinite or nan element of the product is computed again from the original f32 factors.
    The precision "tf32x3_unchecked" is like "tf32x3", but does not compute any element again.
    """
    a, b = (np.asarray(x).astype(dtype.numpy) for x in (a, b))
    if precision in ("ieee", "f32") or dtype.name != "f32":
        return np.matmul(a, b)
    if precision == "tf32":
        return np.matmul(round_to_tf32(a), round_to_tf32(b))
    (high_a, low_a), (high_b, low_b) = tf32_parts(a), tf32_parts(b)
    sums = np.matmul(high_a, low_b) + np.matmul(low_a, high_b) + np.matmul(high_a, high_b)
    sums = sums * np.float32(1 / SPLIT_SCALE**2)
    unchecked = precision == "tf32x3_unchecked" or np.isfinite(sums).all()
    return sums if unchecked else np.where(np.isfinite(sums), sums, np.matmul(a, b))


def take(x: Any, index: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Returns x[index]. `index` has one integer array for each axis of x, and each of these arrays is broadcast to
    `shape`.

    An element whose index is out of bounds gets the fill value, which is NaN for floats, 0 for integers, and False for
    bools.
    """
    index = [np.broadcast_to(np.asarray(i), shape) for i in index]
    inside = np.ones(shape, bool)
    for i, extent in zip(index, x.shape):
        inside &= (i >= 0) & (i < extent)
    read = x[tuple(np.where(inside, i, 0) for i in index)] if x.size else np.zeros(shape, x.dtype)
    return read if inside.all() else np.where(inside, read, np.asarray(fill_value(_dtype_of(x)), x.dtype))
