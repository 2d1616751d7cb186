"""`rt` and `libdevice` for kernels that run in Triton's interpreter.

In: interpreter tensors (`tl.tensor` around a `TensorHandle` with a numpy array). Out: the same,
computed by numpy. A generated kernel calls `rt.reduce_max(x, 1)` or `libdevice.tanh(x)`; compiled,
these are minitri/triton/rt.py and Triton's math library, interpreted they are the two
namespaces here. The interpreter itself is left alone: on its own, a reduction is a Python loop over
the elements, `libdevice` returns nothing, conversions to bf16 truncate and maxima drop NaN.

Elementwise functions come from the operator table: a row whose Triton spelling is a single
call, `libdevice.tanh({0})`, names its own numpy reference.

Left out: what the compiled functions do beyond numpy's result (the order of sums).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from minitri.base import numpy_semantics
from minitri.base.numpy_operators import float_to_int
from minitri.base.operators import OPERATORS, REDUCTIONS, SCANS, Reduction
from minitri.base.types import DTYPES, from_numpy

_TRITON = {d.numpy: getattr(tl, d.triton) for d in DTYPES.values()}
_BF16 = np.dtype(ml_dtypes.bfloat16)


def _unwrap(x: Any) -> Any:
    """The numpy array in a tensor (bf16 as such, not as the bits the interpreter keeps)."""
    if not isinstance(x, tl.tensor):
        return x.value if isinstance(x, tl.constexpr) else x
    data = x.handle.data
    if x.dtype == tl.bfloat16:
        data = data.view(_BF16)
    return data if isinstance(x.type, tl.block_type) else data.reshape(())


def _wrap(data: Any) -> Any:
    """A tensor around a numpy array; without axes it is a scalar, held as one element."""
    data = np.asarray(data)
    dtype, shape = _TRITON[data.dtype], list(data.shape)
    bits = data.view(np.uint16) if data.dtype == _BF16 else data
    bits = np.ascontiguousarray(bits).reshape(shape or (1,))
    return tl.tensor(TensorHandle(bits, dtype), tl.block_type(dtype, shape) if shape else dtype)


def _lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays as a function of tensors; a tuple of results stays a tuple."""

    def lifted(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            result = function(*map(_unwrap, args))
        return tuple(map(_wrap, result)) if isinstance(result, tuple) else _wrap(result)

    return lifted


class Namespace:
    """The functions of a module by name: those given, then the operator table's."""

    def __init__(self, name: str, functions: dict[str, Callable[..., Any]]) -> None:
        self._name, self._functions = name, functions

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = self._functions.get(name) or self._reference(name)
        if function is None:
            raise AttributeError(f"the interpreter has no {self._name}.{name}")
        setattr(self, name, _lift(function))  # found without __getattr__ from now on
        return getattr(self, name)

    def _reference(self, name: str) -> Callable[..., Any] | None:
        for row in OPERATORS.values():
            operands = ", ".join(f"{{{k}}}" for k in range(row.arity))
            if f"{self._name}.{name}({operands})" in (*row.templates.values(), row.relaxed):
                return row.numpy
        return None


def _reduction(row: Reduction) -> Callable[..., Any]:
    match row.kind:
        case "position":
            return _argument(row.ufunc)
        case "logical":  # the interpreter's truth values may be integers
            return lambda x, axis: row.ufunc.reduce(x != 0, axis)
        case _:
            return lambda x, axis: row.ufunc.reduce(x, axis=axis, dtype=x.dtype)


def _scan(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda x, axis: ufunc.accumulate(x, axis=axis, dtype=x.dtype)


def _argument(ufunc: np.ufunc) -> Callable[..., Any]:
    """(best value, smallest index that has it); `maximum` and `minimum` let NaN win."""

    def reduce(x: Any, index: Any, axis: int) -> tuple[Any, Any]:
        x, index = np.broadcast_arrays(x, index)
        best = ufunc.reduce(x, axis=axis, keepdims=True)
        candidates = (x == best) | ((x != x) & (best != best))
        none = np.iinfo(index.dtype).max
        return best.squeeze(axis), np.where(candidates, index, none).astype(index.dtype).min(axis)

    return reduce


def _dot(a: Any, b: Any, acc: Any, precision: str = "ieee") -> Any:
    dtype = from_numpy(acc.dtype.name)
    assert dtype is not None
    return numpy_semantics.contract(a, b, dtype, precision) + acc


def _to_int(x: Any, dtype: Any) -> Any:
    return float_to_int(x, next(numpy for numpy, triton in _TRITON.items() if triton == dtype))


libdevice = Namespace("libdevice", {})

rt = Namespace(
    "rt",
    {
        "float_to_int": _to_int,
        "to_bool": lambda x: x != 0,
        "to_f32": lambda x: x.astype(np.float32),
        "to_f16": lambda x: x.astype(np.float16),
        "settle": lambda: np.int32(0),  # nothing is in flight
        "unknown": lambda x: x,
        "wait_for_previous": lambda: np.int32(0),  # it has ended
        "byte_to_f16": lambda x: x.astype(np.float16),
        "to_bf16": lambda x: x.astype(np.float32).astype(_BF16),
        "reduce_max_in_parts": lambda x: np.maximum.reduce(x, axis=1),
        **{f"reduce_{name}": _reduction(row) for name, row in REDUCTIONS.items()},
        **{f"scan_{name}": _scan(REDUCTIONS[name].ufunc) for name in SCANS},
        "dot": _dot,
    },
)
