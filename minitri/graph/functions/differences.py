"""Differences of neighbours along an axis."""

from __future__ import annotations

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.extremes import largest
from minitri.base.types import bool_
from minitri.graph import ir
from minitri.graph.compile_time import as_axes, as_int
from minitri.graph.functions.making import concat
from minitri.graph.functions.registry import function
from minitri.graph.typer import Array, Typer, Value, view

MOST = 1000  # differences of differences: each is an operation of the program


@function
def diff(t: Typer, x: Value, axis: Value, n: Value, prepend: Value, append: Value) -> Array:
    """x[1:] - x[:-1] along an axis, n times. Of bools: whether they differ, as in numpy."""
    (k,) = as_axes(as_int(axis, "axis"), len(t.array(x).shape))
    a, times = _extended(t, x, k, prepend, append), as_int(n, "n")
    if times < 0:
        raise CompileError("MT0205", f"diff is taken 0 times or more, not {times}")
    if a.shape[k].constant is not None:
        times = min(times, int(a.shape[k]))  # nothing is left after so many
    if times > MOST:
        raise CompileError("MT0401", f"diff is taken {MOST:,} times at most, not {times}")
    for _ in range(times):
        a = _difference(t, a, k)
    return a


def _extended(t: Typer, x: Value, axis: int, prepend: Value, append: Value) -> Array:
    """x between `prepend` and `append`. A number is added once."""
    a, parts = t.strong(x), list[Value]()
    for part in (prepend, x, append):
        if part is not None:
            part = t.array(part)
            single = tuple(dims.ONE if k == axis else e for k, e in enumerate(a.shape))
            parts.append(part if part.shape else Array(t.broadcast(part.node, single), part.dtype, part.weak))
    return concat(t, tuple(parts), axis) if len(parts) > 1 else a


def _difference(t: Typer, x: Array, axis: int) -> Array:
    shape = [largest(e - 1, 0) if k == axis else e for k, e in enumerate(x.shape)]
    here = [ir.axis(k) if e != 1 else dims.ZERO for k, e in enumerate(shape)]
    there = [i + 1 if k == axis else i for k, i in enumerate(here)]
    later, earlier = view(t, x, shape, there), view(t, x, shape, here)
    return t.elementwise("not_equal" if x.dtype == bool_ else "subtract", [later, earlier])
