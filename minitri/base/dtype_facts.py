"""What programs can ask about dtypes: `finfo(f32).eps`, `iinfo(i8).max`, the kinds of `isdtype`."""

from __future__ import annotations

from dataclasses import dataclass

from minitri.base.diagnostics import CompileError
from minitri.base.types import DType

KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "", "numeric": "iuf",
}  # fmt: skip
"""The kinds of `isdtype`, as letters of `DType.kind`."""


_FLOATS = {"f16": (11, 15), "bf16": (8, 127), "f32": (24, 127), "f64": (53, 1023)}  # significant bits, largest exponent


@dataclass(frozen=True, slots=True)
class Info:
    """What `finfo(f32)` or `iinfo(i8)` gives: facts about a dtype, by name."""

    name: str
    facts: dict[str, int | float | DType]

    def __str__(self) -> str:
        return self.name


def finfo(dtype: DType) -> Info:
    """bits, eps, max, min, smallest_normal and dtype of a float; CompileError MT0202 for another dtype."""
    if not dtype.is_float:
        raise CompileError("MT0202", f"finfo takes floats, not {dtype}", help="iinfo is for integers")
    digits, exponent = _FLOATS[dtype.name]
    eps = 2.0 ** (1 - digits)
    most = (2 - eps) * 2.0**exponent
    facts = {"bits": dtype.bits, "eps": eps, "max": most, "min": -most, "smallest_normal": 2.0 ** (1 - exponent)}
    return Info(f"finfo({dtype})", {**facts, "dtype": dtype})


def iinfo(dtype: DType) -> Info:
    """bits, max, min and dtype of an integer; CompileError MT0202 for another dtype."""
    if not dtype.is_integer:
        raise CompileError("MT0202", f"iinfo takes integers, not {dtype}", help="finfo is for floats")
    low, high = dtype.limits
    return Info(f"iinfo({dtype})", {"bits": dtype.bits, "max": high, "min": low, "dtype": dtype})
