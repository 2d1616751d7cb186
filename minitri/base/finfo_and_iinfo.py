"""Properties of dtypes that a program can read: `finfo(f32).eps`, `iinfo(i8).max`, and the kinds of `isdtype`."""

from dataclasses import dataclass
from functools import cache

import ml_dtypes

from minitri.base.diagnostics import CompileError
from minitri.base.types import DType

KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "", "numeric": "iuf",
}  # fmt: skip
"""For each kind that `isdtype` knows, the letters of `DType.kind` that belong to it."""


@dataclass(frozen=True, slots=True, eq=False)
class Info:
    """The result of `finfo(f32)` or `iinfo(i8)`. `facts` maps names such as "eps" to values."""

    name: str
    facts: dict[str, int | float | DType]

    def __str__(self) -> str:
        return self.name


@cache
def finfo(dtype: DType) -> Info:
    """Returns the facts bits, eps, max, min, smallest_normal and dtype of a float dtype.

    Raises CompileError MT0202 for another dtype.
    """
    if not dtype.is_float:
        raise CompileError("MT0202", f"finfo takes floats, not {dtype}", help="iinfo is for integers")
    known = ml_dtypes.finfo(dtype.numpy)
    facts = {name: float(getattr(known, name)) for name in ("eps", "max", "min", "smallest_normal")}
    return Info(f"finfo({dtype})", {"bits": dtype.bits, **facts, "dtype": dtype})


@cache
def iinfo(dtype: DType) -> Info:
    """Returns the facts bits, max, min and dtype of an integer dtype. Raises CompileError MT0202 for another dtype."""
    if not dtype.is_integer:
        raise CompileError("MT0202", f"iinfo takes integers, not {dtype}", help="finfo is for floats")
    low, high = dtype.limits
    return Info(f"iinfo({dtype})", {"bits": dtype.bits, "max": high, "min": low, "dtype": dtype})
