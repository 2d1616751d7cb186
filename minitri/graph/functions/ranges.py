"""Numbers with equal steps: arange.

In: first number, end and step, known when compiled. Out: an `Index` node, `start + step * d0`, converted. The one
idea: the length is exact integer arithmetic, and an `Index` counts in i64. Numbers that do not fit there are made
from the positions 0, 1, 2, … by a product and a sum that wrap, in u64 if they need it.
"""

from __future__ import annotations

import math

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.extremes import largest
from minitri.base.types import DType, f32, i64, u64
from minitri.graph import ir
from minitri.graph.compile_time import FAR, as_dim, as_dtype, as_int, as_offset
from minitri.graph.functions.registry import function
from minitri.graph.typer import Array, Typer, Value


@function
def arange(t: Typer, start: Value, stop: Value, step: Value, dtype: Value) -> Array:
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, float) for v in (start, stop, step)):
        return _float_arange(t, start, stop, step, as_dtype(dtype, f32))
    first, last, by = as_dim(start, "start"), as_dim(stop, "stop"), as_int(step, "step")
    if by == 0:
        raise CompileError("MT0205", "the step of arange must not be 0")
    count = largest(-((first - last) // by), 0)
    target = as_dtype(dtype, i64)
    if first.constant is not None and count.constant is not None:
        if max(abs(first.constant), abs(by) * count.constant) >= FAR:
            return t.cast(_far_range(t, first.constant, by, count.constant), target)
    stride = as_offset(by, "step") * ir.axis(0) if count != 1 else dims.ZERO
    return t.cast(Array(t.nodes.index(i64, (count,), first + stride), i64), target)


def _far_range(t: Typer, first: int, by: int, count: int) -> Array:
    """first, first + by, …: `count` integers that need all bits of i64 or u64. Products wrap, and so does the sum."""
    ends = (first, first + by * (count - 1)) if count else (0,)
    for wide in (i64, u64):
        low, high = wide.limits
        if low <= min(ends) and max(ends) <= high:
            steps = t.cast(positions(t, Dim.of(count)), wide)
            wrapped = (by - low) % 2**64 + low
            return t.elementwise("add", [t.elementwise("multiply", [steps, wrapped]), first if count else 0])
    raise CompileError("MT0208", f"arange from {first} to {ends[-1]} fits neither i64 nor u64")


def positions(t: Typer, count: Dim) -> Array:
    """0, 1, 2, … as i64."""
    return Array(t.nodes.index(i64, (count,), ir.axis(0) if count != 1 else dims.ZERO), i64)


def _float_arange(t: Typer, start: Value, stop: Value, step: Value, dtype: DType) -> Array:
    if not all(isinstance(v, (int, float)) for v in (start, stop, step)) or not step:
        raise CompileError("MT0106", "arange takes numbers known at compile time, and a step that is not 0")
    try:
        count = math.ceil((stop - start) / step)  # type: ignore[operator]
    except (OverflowError, ValueError):
        raise CompileError("MT0205", "arange needs finite numbers, and not more steps than there are floats") from None
    steps = positions(t, Dim.of(max(0, count)))
    scaled = t.elementwise("multiply", [Array(t.convert(steps, dtype), dtype), float(step)])  # type: ignore[arg-type]
    return t.cast(t.elementwise("add", [scaled, float(start)]), dtype)  # type: ignore[arg-type]
