"""Diagonals of arrays, and matrices made from diagonals."""

from __future__ import annotations

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.extremes import largest, smallest
from minitri.base.types import bool_
from minitri.graph import ir
from minitri.graph.compile_time import as_axes, as_int, as_offset
from minitri.graph.functions.making import eye, pad
from minitri.graph.functions.registry import function
from minitri.graph.functions.views import expand_dims
from minitri.graph.typer import Array, Typer, Value, view


@function
def diagonal(t: Typer, x: Value, offset: Value, axis1: Value, axis2: Value) -> Array:
    """The elements (i, i + offset) of two axes, as a new last axis."""
    a = t.array(x)
    rank = len(a.shape)
    if rank < 2:
        raise CompileError("MT0204", f"a diagonal needs rank 2 or more, not {rank}")
    (row,), (column,) = (as_axes(as_int(axis, "axis"), rank) for axis in (axis1, axis2))
    if row == column:
        raise CompileError("MT0204", f"diagonal needs two axes, not axis {row} twice")
    k = as_offset(offset, "offset")
    starts = {row: largest(-k, 0), column: largest(k, 0)}
    length = largest(smallest(*(a.shape[j] - start for j, start in starts.items())), 0)
    kept = [j for j in range(rank) if j not in starts]
    along = ir.axis(len(kept)) if length != 1 else dims.ZERO
    index = [starts[j] + along if j in starts else ir.axis(kept.index(j)) for j in range(rank)]
    return view(t, a, [*(a.shape[j] for j in kept), length], index)


@function
def diag(t: Typer, x: Value, k: Value) -> Array:
    """A matrix with x on its k-th diagonal; of a matrix that diagonal."""
    a, by = t.strong(x), as_int(k, "k")
    if len(a.shape) == 2:
        return diagonal(t, a, by, 0, 1)
    if len(a.shape) != 1:
        raise CompileError("MT0204", f"diag takes arrays of rank 1 or 2, not {a}", help="`diagonal` takes any rank")
    on = eye(t, a.shape[0], None, 0, bool_)
    matrix = t.elementwise("where", [on, expand_dims(t, a, 1), t.cast(0, a.dtype)])
    after, before = max(by, 0), max(-by, 0)
    return pad(t, matrix, ((before, after), (after, before)), 0)
