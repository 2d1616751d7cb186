"""What functions mean that move data or ask about dtypes, in numpy.

Most call numpy's function of the same name on the data of the arrays.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minitri.base.dtype_limits import KINDS, finfo, iinfo
from minitri.base.types import DType, promote
from minitri.language import reference_arrays as lifted
from minitri.language.reference_arrays import Array, Value, array, convert, elementwise, rounded, settled, strong


def _listed(value: Value) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _reshape(x: Any, shape: Value) -> Any:
    """numpy cannot infer -1 beside a size of 0. Here, equal sizes of the two shapes cancel first."""
    shape = _listed(shape)
    if -1 in shape and 0 in shape:
        rest = list(x.shape)
        for extent in shape:
            if extent in rest:
                rest.remove(extent)
        shape = tuple(math.prod(rest) if extent == -1 else extent for extent in shape)
    return np.reshape(x, shape)


def _pad(x: Value, pad_width: Value, constant_values: Value) -> Array:
    a = strong(x)
    return Array(np.pad(a.data, pad_width, constant_values=rounded(constant_values, a.dtype).data), a.dtype)


def _flatten(x: Any, start_dim: int, end_dim: int) -> Any:
    x = np.atleast_1d(x)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    joined = int(np.prod(x.shape[first : last + 1], dtype=np.int64))
    return x.reshape(*x.shape[:first], joined, *x.shape[last + 1 :])


def _unstack(x: Value, axis: int) -> tuple[Array, ...]:
    a = array(x)
    return tuple(Array(part, a.dtype, a.weak) for part in np.moveaxis(a.data, axis, 0))


def _split(x: Value, indices_or_sections: Value, axis: int) -> tuple[Array, ...]:
    """Each part begins where the last one ends. numpy's parts may overlap."""
    a = array(x)
    return tuple(Array(part, a.dtype, a.weak) for part in np.split(a.data, indices_or_sections, axis))


def _diagonal(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    offset = max(-x.shape[axis1], min(offset, x.shape[axis2]))
    return np.diagonal(x, offset, axis1, axis2)


def _diag(x: Value, k: int) -> Array:
    a = strong(x)
    k = k if a.data.ndim == 1 else max(-a.data.shape[0], min(k, a.data.shape[1]))
    return Array(np.diag(a.data, k), a.dtype)


def _repeat(x: Any, repeats: Value, axis: int | None) -> Any:
    return np.repeat(x, list(repeats) if isinstance(repeats, tuple) else repeats, axis)


def _broadcast_arrays(arrays: Value) -> tuple[Array, ...]:
    parts = [array(a) for a in _listed(arrays)]
    return tuple(Array(d, p.dtype, p.weak) for d, p in zip(np.broadcast_arrays(*(p.data for p in parts)), parts))


def _broadcast_shapes(shapes: Value) -> tuple[int, ...]:
    several = isinstance(shapes, tuple) and any(isinstance(s, tuple) for s in shapes)
    return tuple(np.broadcast_shapes(*(shapes if several else (shapes,))))


def _meshgrid(arrays: Value, indexing: Any) -> tuple[Array, ...]:
    parts = [array(a) for a in _listed(arrays)]
    grids = np.meshgrid(*(p.data for p in parts), indexing=indexing)
    return tuple(Array(g, p.dtype, p.weak) for g, p in zip(grids, parts))


def _diff(x: Value, axis: int, n: int, prepend: Value, append: Value) -> Array:
    """In the common dtype of all three. numpy promotes only when it concatenates."""
    dtype = settled(*(v for v in (prepend, x, append) if v is not None))
    ends = {k: convert(v, dtype) for k, v in (("prepend", prepend), ("append", append)) if v is not None}
    whole = convert(x, dtype)
    length = whole.shape[axis] + sum(e.shape[axis] if e.ndim else 1 for e in ends.values())
    return Array(np.diff(whole, min(n, length), axis, **ends), dtype)


# ---- making and asking -----------------------------------------------------------------


def _nextafter(x1: Value, x2: Value) -> Array:
    """In the common dtype of both, f16 and bf16 as well."""
    dtype = settled(x1, x2)
    if not dtype.is_float or dtype.bits > 16:
        return elementwise("next_float", [x1, x2])
    a, b = (rounded(x, dtype).data.astype(dtype.numpy) for x in (x1, x2))
    found = np.where(a == b, b, np.nextafter(a, b))  # from -0.0 to 0.0, where numpy's halves stay
    return Array(found.astype(dtype.compute.numpy), dtype)


def _searchsorted(x1: Value, x2: Value, side: str, sorter: Value) -> Array:
    """numpy's binary search, with the same comparisons in the same order. So even unsorted arrays give the same result."""
    a, wanted = convert(x1, settled(x1, x2)), convert(x2, settled(x1, x2))
    a = a if sorter is None else a[array(sorter).data]
    found = np.zeros(wanted.shape, np.int64)
    for bit in reversed(range(len(a).bit_length())):
        place = found + (1 << bit)
        inside = place <= len(a)
        read = a[np.where(inside, place - 1, 0)]
        before = (read <= wanted) | (wanted != wanted) if side == "right" else (read < wanted)
        if side == "left":
            before = before | ((wanted != wanted) & (read == read))
        found = np.where(inside & before, place, found)
    return Array(found, settled(0))


def _result_type(arrays_and_dtypes: Value) -> DType:
    given = _listed(arrays_and_dtypes)
    return settled(*(Array(np.zeros((), v.compute.numpy), v) if isinstance(v, DType) else v for v in given))


def _can_cast(from_: Value, to: DType) -> bool:
    return promote(from_.dtype if isinstance(from_, Array) else from_, to) == to


def _isdtype(dtype: DType, kind: Value) -> bool:
    return any(dtype == k if isinstance(k, DType) else dtype.kind in KINDS[k] for k in _listed(kind))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "reshape": lifted.view(_reshape),
    "expand_dims": lifted.view(np.expand_dims), "squeeze": lifted.view(np.squeeze),
    "permute_dims": lifted.view(np.transpose), "matrix_transpose": lifted.view(lambda x: np.swapaxes(x, -1, -2)),
    "broadcast_to": lifted.view(np.broadcast_to), "flip": lifted.view(np.flip), "roll": lifted.view(np.roll),
    "concat": lifted.join(np.concatenate), "stack": lifted.join(np.stack),
    "pad": _pad,
    "moveaxis": lifted.view(np.moveaxis), "swapaxes": lifted.view(np.swapaxes), "flatten": lifted.view(_flatten),
    "unstack": _unstack, "split": _split, "diagonal": lifted.view(_diagonal), "diag": _diag,
    "tile": lifted.view(lambda x, repetitions: np.tile(x, repetitions)), "repeat": lifted.view(_repeat),
    "broadcast_arrays": _broadcast_arrays, "broadcast_shapes": _broadcast_shapes, "meshgrid": _meshgrid,
    "hstack": lifted.join(np.hstack), "vstack": lifted.join(np.vstack), "dstack": lifted.join(np.dstack),
    "column_stack": lifted.join(np.column_stack), "diff": _diff,
    "nextafter": _nextafter, "searchsorted": _searchsorted,
    "result_type": _result_type, "can_cast": _can_cast, "isdtype": _isdtype,
    "finfo": lambda type: finfo(type.dtype if isinstance(type, Array) else type),
    "iinfo": lambda type: iinfo(type.dtype if isinstance(type, Array) else type),
}  # fmt: skip
