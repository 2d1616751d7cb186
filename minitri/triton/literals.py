"""Numbers, and conversions between dtypes, as Triton source.

In: a value and its dtype, or the name of a value and two dtypes. Out: an expression; `rt` in it is
triton/rt.py. Left out: operators, whose spelling is in THE operator table (minitri/base/operators.py).
"""

from __future__ import annotations

import math

from minitri.base.types import DType, f32


def constant(value: int | float | bool, dtype: DType) -> str:
    """A 0-d tensor. Triton makes a zero of every number that equals zero, so -0.0 is a product."""
    if dtype.name == "bf16" and value != 0:  # the interpreter of Triton 3.6 has no bf16 constants but 0
        return f"rt.to_bf16({constant(value, f32)})"
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return f"tl.full((), 0.0, tl.{dtype.triton}) * -1.0"
    return f"tl.full((), {number(value)}, tl.{dtype.triton})"


def other_value(value: int | float | bool, dtype: DType) -> str:
    """What a masked load gives where it reads nothing."""
    return constant(value, dtype) if dtype.name == "bf16" and value != 0 else number(value)


def number(value: int | float | bool) -> str:
    """A number as Python source; inf and nan never as bare names."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{"nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}")'
    return repr(value)


def convert(name: str, source: DType, target: DType) -> str:
    """The conversion between two dtypes, as docs/reference/semantics.md defines it."""
    if source == target:
        return name
    if source.is_float and source.bits == 16:
        name = f"rt.to_f32({name})"
        return name if target.name == "f32" else convert(name, f32, target)
    if target.kind == "b":
        return f"rt.to_bool({name})"
    if source.is_integer and source.bits == 8 and target.name == "f16":
        return f"rt.byte_to_f16({name})"
    if target.is_float and target.bits == 16:
        wide = name if source.is_float else f"{name}.to(tl.float32)"
        return f"rt.to_{target.name}({wide})"
    if source.is_float and target.is_integer:
        return f"rt.float_to_int({name}, tl.{target.triton})"
    return f"{name}.to(tl.{target.triton})"
