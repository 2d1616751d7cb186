"""Defines the values of the reference evaluator: numpy arrays with a dtype of the language.

Two rules for arrays of the language differ from the rules of numpy:

Promotion: an integer and a float give the float's dtype. A number or a size takes the dtype of the array.
Values of f16 and bf16 are stored as f32 (`DType.compute`). Only the function `rounded` rounds values to f16 or bf16.

The operator table (operators.toml) defines the elementwise functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.diagnostics import CompileError, ensure
from minitri.base.nodes import Record
from minitri.base.operators import OPERATORS
from minitri.base.types import DType, bool_, f32, f64, i64, promote


class Array(Record, eq=False):
    """An array of the reference evaluator.

    If `dtype` is f16 or bf16, the elements in `data` are stored as f32 (`dtype.compute`).

    If the field `weak` is true, the array was computed from numbers alone. If only one of two operands is weak, the
    operation usually uses the dtype of the other operand. An operation of an integer array x with a float number, such
    as `x * 0.5`, gives an f32 array. The field `wide` of the f32 array `x * 0.5` holds the same elements in f64, for a
    later conversion to f64. For most arrays, the field `wide` is None.
    """

    data: Any
    dtype: DType
    weak: bool = False
    wide: Any = None

    def moved(self, move: Callable[[Any], Any]) -> Array:
        """Returns the array after `move` has rearranged its data. The values of the elements do not change."""
        return Array(move(self.data), self.dtype, self.weak, None if self.wide is None else move(self.wide))


Value = Any  # Array, a Python number (dimensions too), str, None, DType, or a tuple of values


# ---- dtypes ----------------------------------------------------------------------------


def array(value: Value) -> Array:
    match value:
        case Array():
            return value
        case bool():
            return Array(np.asarray(value), bool_)
        case int():
            return Array(np.asarray(value), i64, weak=True)
        case float():
            return Array(np.asarray(value), f64, weak=True)
        case tuple():
            dtype, weak = meet(value)
            return Array(convert(value, dtype), dtype, weak)
    raise CompileError("MT0202", "an array or number is needed here")


def meet(values: Sequence[Value]) -> tuple[DType, bool]:
    """Returns the common dtype of values, and whether all of the values are weak (numbers without a fixed dtype)."""
    items = [array(v) for v in values]
    dtypes = [a.dtype for a in items if not a.weak]
    weak_float = any(a.weak and a.dtype.is_float for a in items)
    if not dtypes:
        return (f64 if weak_float else i64), True
    dtype = functools.reduce(promote, dtypes)
    if weak_float and not dtype.is_float:
        return f32, False
    return (i64 if dtype == bool_ and len(dtypes) < len(items) else dtype), False


def settled(*values: Value) -> DType:
    """Returns the common dtype of values.

    If all values are weak (numbers without a fixed dtype), floats become f32, and integers become i64.
    """
    dtype, weak = meet(values)
    return f32 if weak and dtype == f64 else dtype


def convert(value: Value, dtype: DType) -> Any:
    """Returns the elements of a value as a numpy array of the dtype `dtype.compute`."""
    if isinstance(value, tuple):
        return np.stack([convert(v, dtype) for v in value])
    return numpy_array_operations.cast(_best(array(value), dtype), dtype.compute)


def rounded(value: Value, dtype: DType) -> Array:
    """Converts a value as the function `astype` of the language does.

    A result of dtype f16 or bf16 is rounded to this dtype, but stored as f32.
    """
    exact = isinstance(value, tuple) and not (dtype.is_integer and meet(value)[0].is_float)
    data = convert(value, dtype) if exact else _best(array(value), dtype)
    return Array(numpy_array_operations.cast(numpy_array_operations.cast(data, dtype), dtype.compute), dtype)


def _best(value: Array, dtype: DType) -> Any:
    """Returns the elements of `value` to convert to `dtype`: for f64, the elements in f64 if `value` has them."""
    # `wide` has the elements in f64, and `data` has the elements in the dtype of the computation
    return value.wide if value.wide is not None and dtype == f64 else value.data


def strong(value: Value) -> Array:
    dtype = settled(value)
    return Array(convert(value, dtype), dtype)


def elementwise(name: str, values: Sequence[Value]) -> Array:
    row = OPERATORS[name]
    promoted, weak = meet(values[1:] if row.operands == "where" else values)
    dtype = row.operand_dtype(promoted)
    dtype = f64 if weak and dtype == f32 else dtype
    is_accepted = len(values) == row.arity and dtype.kind in row.accepts
    ensure(is_accepted, "MT0202", f"{name} does not take {len(values)} operands of {dtype}")
    choice = row.operands == "where"

    def applied(dtype: DType) -> Any:
        dtypes = (bool_ if choice else dtype, dtype, dtype)
        return np.asarray(row.numpy(*(convert(v, d) for v, d in zip(values, dtypes))))

    if row.result == "bool":
        return Array(applied(dtype), bool_)
    floats = [a for a in map(array, values[choice:]) if a.dtype.is_float and not a.weak]
    default = dtype == f32 and all(a.wide is not None for a in floats)
    return Array(applied(dtype), dtype, weak, applied(f64) if default else None)


# ---- functions of numpy as functions of the language ---------------------------------------------


def view(function: Any) -> Callable[..., Array]:
    """Makes a function of `Array`s from a numpy function that only moves elements, such as a transposition.

    If the argument is weak (without a fixed dtype), the result is weak too.
    """
    return lambda x, **rest: array(x).moved(lambda data: np.asarray(function(data, **rest)))


def join(function: Any, arrays: Sequence[Value], **rest: Value) -> Array:
    """Converts several arrays to their common dtype, and applies a numpy function to them."""
    dtype = settled(*arrays)
    return Array(np.asarray(function([convert(a, dtype) for a in arrays], **rest)), dtype)


def product(function: Any, x1: Value, x2: Value, exact: bool = False, **rest: Value) -> Array:
    """Applies a numpy function, such as a matrix product, to two factors.

    Unless `exact` is true, the factors are rounded to their common dtype before the multiplication.
    """
    dtype = settled(x1, x2)
    factors = [convert(x, dtype) if exact else rounded(x, dtype).data for x in (x1, x2)]
    return Array(np.asarray(function(*factors, **rest)), dtype)
