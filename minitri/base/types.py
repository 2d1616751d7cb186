"""Dtypes, promotion, weak scalars and array types.

A `DType` is one row of `DTYPES`. Promotion follows numpy within integers and within floats. An integer
with a float takes the float's dtype. A Python scalar (a weak type) takes the other operand's dtype,
unless its kind is higher (NEP 50). True division and float functions of integers give f32.
docs/reference/semantics.md has the rules and their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `kind` is one of b (bool) i (signed) u (unsigned) f (float)."""

    name: str
    kind: str
    bits: int
    triton: str  # as in `tl.float32`
    signature: str  # as in an ahead-of-time signature, `*fp32`

    def __repr__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def numpy_name(self) -> str:
        return "bool" if self.kind == "b" else self.triton

    @property
    def numpy(self) -> Any:
        """The numpy dtype (bf16 from ml_dtypes)."""
        return np.dtype(ml_dtypes.bfloat16 if self.name == "bf16" else self.numpy_name)

    @property
    def compute(self) -> DType:
        """The dtype arithmetic is done in: f32 for the 16-bit and 8-bit floats, itself otherwise."""
        return f32 if self.is_float and self.bits < 32 else self

    def is_computed_as(self, other: DType) -> bool:
        """Whether both are floats and arithmetic on both is done in the same dtype."""
        return self.is_float and self.compute == other.compute

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer or bool dtype."""
        if self.kind == "i":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


f16 = DType("f16", "f", 16, "float16", "fp16")
bf16 = DType("bf16", "f", 16, "bfloat16", "bf16")
f32 = DType("f32", "f", 32, "float32", "fp32")
f64 = DType("f64", "f", 64, "float64", "fp64")
i8 = DType("i8", "i", 8, "int8", "i8")
i16 = DType("i16", "i", 16, "int16", "i16")
i32 = DType("i32", "i", 32, "int32", "i32")
i64 = DType("i64", "i", 64, "int64", "i64")
u8 = DType("u8", "u", 8, "uint8", "u8")
u16 = DType("u16", "u", 16, "uint16", "u16")
u32 = DType("u32", "u", 32, "uint32", "u32")
u64 = DType("u64", "u", 64, "uint64", "u64")
bool_ = DType("bool", "b", 1, "int1", "i1")

DTYPES: dict[str, DType] = {d.name: d for d in (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_)}

_BY_NUMPY_NAME = {d.numpy_name: d for d in DTYPES.values()}


def dtype(name: str) -> DType:
    """The dtype called `name`; CompileError MT0202 with a suggestion if there is none."""
    if name not in DTYPES:
        same = from_numpy(name)
        help = f"write `{same}`" if same else suggest(name, DTYPES) or f"dtypes are {' '.join(DTYPES)}"
        raise CompileError("MT0202", f"there is no dtype `{name[:40]}`", help=help)
    return DTYPES[name]


def from_numpy(name: str) -> DType | None:
    """The dtype with this numpy or torch name (`float32`, `bfloat16`), or None."""
    return _BY_NUMPY_NAME.get(name)


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype that two arrays of these dtypes are converted to."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if {a, b} == {f16, bf16}:  # neither holds the other
        return f32
    return _BY_NUMPY_NAME[np.promote_types(a.numpy, b.numpy).name]


class ListValue(tuple[Any, ...]):
    """The value of `[a, b]`: a tuple of values. As an index it is an array, where `(a, b)` is two indices."""


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A dtype and a shape of symbolic dimensions; prints as `f32[M, N]`."""

    dtype: DType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
