"""The functions of `rt` and `libdevice` for kernels that run in Triton's interpreter.

The functions of `rt` and `libdevice` take and return tensors of the interpreter. A tensor of the interpreter is a
`tl.tensor` that contains a numpy array (in a `TensorHandle`). numpy computes the elements of the results. For example,
a generated kernel calls `rt.reduce_max(x, 1)` or `libdevice.tanh(x)`. In a compiled kernel, the name `rt` means
minitri/triton/rt.py, and `libdevice` means Triton's math library. In an interpreted kernel, `rt` and `libdevice` mean
the two `Namespace` objects of this module. This module replaces slow or wrong functions of Triton's own interpreter. In
Triton's own interpreter, reductions are slow Python loops over elements, `libdevice` functions return nothing,
conversions to bf16 truncate, and maxima ignore NaN.

Elementwise functions come from the operator table. Each row of the operator table has the spelling of an operator in
Triton, and a numpy function. Some operators are a single call in Triton, such as `libdevice.tanh({0})`. For these
operators, an interpreted kernel calls the numpy function instead.

Interpreted kernels add elements in numpy's order, which differs from the order in compiled kernels.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from minitri.base import numpy_array_operations
from minitri.base.operators import OPERATORS, REDUCTIONS, SCANS, Reduction
from minitri.base.operators_unlike_numpy import float_to_int
from minitri.base.types import BY_NUMPY_NAME, DTYPES

_TRITON = {d.numpy: getattr(tl, d.triton) for d in DTYPES.values()}
_BF16 = np.dtype(ml_dtypes.bfloat16)


def _unwrap(x: Any) -> Any:
    """Returns the numpy array in a Triton tensor."""
    if not isinstance(x, tl.tensor):
        return x.value if isinstance(x, tl.constexpr) else x
    data = x.handle.data
    if x.dtype == tl.bfloat16:  # the interpreter stores the bits as integers
        data = data.view(_BF16)
    return data if isinstance(x.type, tl.block_type) else data.reshape(())


def _wrap(data: Any) -> Any:
    """Returns a Triton tensor with the elements of a numpy array."""
    data = np.asarray(data)
    dtype, shape = _TRITON[data.dtype], list(data.shape)
    bits = data.view(np.uint16) if data.dtype == _BF16 else data
    # The interpreter keeps the value of a scalar tensor in an array of one element.
    bits = np.ascontiguousarray(bits).reshape(shape or (1,))
    return tl.tensor(TensorHandle(bits, dtype), tl.block_type(dtype, shape) if shape else dtype)


def _lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a function of numpy arrays into a function of Triton tensors."""

    def lifted(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(*map(_unwrap, args))
        return tuple(map(_wrap, result)) if isinstance(result, tuple) else _wrap(result)

    return lifted


class Namespace:
    """A replacement for a module. The attributes of a `Namespace` are the given functions and the functions of the
    operator table.
    """

    def __init__(self, name: str, functions: dict[str, Callable[..., Any]]) -> None:
        self._name, self._functions = name, functions

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = self._functions.get(name) or self._reference(name)
        if function is None:
            raise AttributeError(f"the interpreter has no {self._name}.{name}")
        setattr(self, name, _lift(function))  # the next access does not call __getattr__
        return getattr(self, name)

    def _reference(self, name: str) -> Callable[..., Any] | None:
        for row in OPERATORS.values():
            operands = ", ".join(f"{{{k}}}" for k in range(row.arity))
            if f"{self._name}.{name}({operands})" in (*row.templates.values(), row.relaxed):
                return row.numpy
        return None


def _reduction(row: Reduction) -> Callable[..., Any]:
    if row.kind == "position":
        return partial(_argument, row)
    is_logical = row.kind == "logical"  # the interpreter may represent truth values as integers
    return lambda x, axis: numpy_array_operations.reduce(row.name, x != 0 if is_logical else x, (axis,))


def _argument(row: Reduction, x: Any, index: Any, axis: int) -> tuple[Any, Any]:
    """Returns, for argmax or argmin, the best value along an axis and the smallest index of this value."""
    best = row.ufunc.reduce(x, axis=axis)
    return best, numpy_array_operations.least_index(row, x, index, axis).squeeze(axis)


def _dot(a: Any, b: Any, acc: Any, precision: str = "ieee") -> Any:
    return numpy_array_operations.contract(a, b, BY_NUMPY_NAME[acc.dtype.name], precision) + acc


libdevice = Namespace("libdevice", {})

_FUNCTIONS = {
    "float_to_int": lambda x, dtype: float_to_int(x, next(n for n, t in _TRITON.items() if t == dtype)),
    "to_bool": lambda x: x != 0,
    "is_finite": lambda x: np.isfinite(x).all(),
    "to_f32": lambda x: x.astype(np.float32),
    **dict.fromkeys(("to_f16", "byte_to_f16"), lambda x: x.astype(np.float16)),
    **dict.fromkeys(("settle", "wait_for_previous"), lambda: np.int32(0)),  # the interpreter need not wait
    "unknown": lambda x: x,
    "to_bf16": lambda x: x.astype(np.float32).astype(_BF16),
    "reduce_max_in_parts": lambda x: np.maximum.reduce(x, axis=1),
    **{f"reduce_{name}": _reduction(row) for name, row in REDUCTIONS.items()},
    **{f"scan_{name}": partial(numpy_array_operations.scan, name) for name in SCANS},
    "dot": _dot,
}
rt = Namespace("rt", _FUNCTIONS)
