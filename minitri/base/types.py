"""Defines dtypes, type promotion, array types, and the properties of dtypes such as `finfo(f32).eps`.

Two integers, or two floats, are promoted as in numpy. An integer and a float are promoted to the float's dtype. A
Python scalar has a weak type: it takes the dtype of the other operand, unless the scalar is of a higher kind (NEP 50).
For an f16 array x, `x + 1` is f16. True division and float functions of integers give f32. The page
docs/reference/semantics.md has the rules of type promotion, and the reasons for these rules.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from minitri.base.diagnostics import CompileError, ensure, suggest
from minitri.base.dims import Dim
from minitri.base.nodes import Record


class DType(Record):
    """The type of an array element.

    `kind` is "b" (bool), "i" (signed integer), "u" (unsigned integer) or "f" (float).
    """

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
        """The numpy dtype that has the same values as this dtype. For bf16, which numpy lacks, the result is the bf16
        of the package ml_dtypes.
        """
        return np.dtype(ml_dtypes.bfloat16 if self.name == "bf16" else self.numpy_name)

    @property
    def compute(self) -> DType:
        """The dtype in which arithmetic is done: f32 for 16-bit floats, otherwise the dtype itself."""
        return f32 if self.is_float and self.bits < 32 else self

    def is_computed_as(self, other: DType) -> bool:
        """Checks whether both dtypes are floats with the same compute dtype."""
        return self.is_float and self.compute == other.compute

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer or bool dtype."""
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

# By the names of numpy and torch, such as `float32` for f32.
BY_NUMPY_NAME = {d.numpy_name: d for d in DTYPES.values()}


def dtype(name: str) -> DType:
    """Returns the dtype with the name `name`. For an unknown name, raises CompileError MT0202, which suggests a similar
    name.
    """
    if name not in DTYPES:
        same = BY_NUMPY_NAME.get(name)
        help = f"write `{same}`" if same else suggest(name, DTYPES) or f"dtypes are {' '.join(DTYPES)}"
        raise CompileError("MT0202", f"there is no dtype `{name[:40]}`", help=help)
    return DTYPES[name]


@cache
def promote(a: DType, b: DType) -> DType:
    """Returns the common dtype to which arrays of the dtypes a and b are converted before an operation."""
    if a.is_float != b.is_float:
        return a if a.is_float else b
    is_mixed = {a, b} == {f16, bf16}  # neither can represent all values of the other
    return f32 if is_mixed else BY_NUMPY_NAME[np.promote_types(a.numpy, b.numpy).name]


def items_of(value: Any) -> tuple[Any, ...]:
    """Returns a tuple unchanged, and any other value as a tuple of one item."""
    return value if isinstance(value, tuple) else (value,)


class ListValue(tuple[Any, ...]):
    """A subclass of tuple for the value of a list `[a, b]`.

    Lists and tuples differ as indices: x[[a, b]] has one index, an array of two elements, and x[a, b] has two indices.
    """


class ArrayType(Record):
    """A dtype and a shape of symbolic sizes. The text of an array type is, for example, `f32[M, N]`."""

    dtype: DType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


# ---- properties of dtypes that a program can read ----------------------------------------------

# For each kind that `isdtype` knows, the letters of `DType.kind` that belong to it.
KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "", "numeric": "iuf",
}  # fmt: skip


class Info(Record, eq=False):
    """The result of `finfo(f32)` or `iinfo(i8)`. `facts` is a dictionary with an entry for each fact about the dtype,
    such as "eps".
    """

    name: str
    facts: dict[str, int | float | DType]

    def __str__(self) -> str:
        return self.name


@cache
def finfo(dtype: DType) -> Info:
    """Returns an `Info` about a float dtype, with the facts bits, eps, max, min, smallest_normal and dtype.

    Raises CompileError MT0202 if `dtype` is not a float dtype.
    """
    ensure(dtype.is_float, "MT0202", f"finfo takes floats, not {dtype}", "iinfo is for integers")
    known = ml_dtypes.finfo(dtype.numpy)
    facts = {name: float(getattr(known, name)) for name in ("eps", "max", "min", "smallest_normal")}
    return Info(f"finfo({dtype})", {"bits": dtype.bits, **facts, "dtype": dtype})


@cache
def iinfo(dtype: DType) -> Info:
    """Returns an `Info` about an integer dtype, with the facts bits, max, min and dtype. Raises CompileError MT0202 if
    `dtype` is not an integer dtype.
    """
    ensure(dtype.is_integer, "MT0202", f"iinfo takes integers, not {dtype}", "finfo is for floats")
    low, high = dtype.limits
    return Info(f"iinfo({dtype})", {"bits": dtype.bits, "max": high, "min": low, "dtype": dtype})
