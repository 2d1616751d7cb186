"""numpy's stacks: hstack, vstack, dstack, column_stack.

Each gives its parts the axes that they lack, and joins them along one axis.
"""

from __future__ import annotations

from minitri.base.diagnostics import CompileError
from minitri.graph.functions.making import concat
from minitri.graph.functions.registry import function
from minitri.graph.functions.views import expand_dims
from minitri.graph.typer import Array, Typer, Value, describe


@function
def hstack(t: Typer, arrays: Value) -> Array:
    parts = [_of_rank(t, a, 1) for a in _listed(t, arrays, "hstack")]
    return concat(t, tuple(parts), 0 if len(parts[0].shape) == 1 else 1)


@function
def vstack(t: Typer, arrays: Value) -> Array:
    return concat(t, tuple(_of_rank(t, a, 2) for a in _listed(t, arrays, "vstack")), 0)


@function
def dstack(t: Typer, arrays: Value) -> Array:
    return concat(t, tuple(_of_rank(t, a, 3) for a in _listed(t, arrays, "dstack")), 2)


@function
def column_stack(t: Typer, arrays: Value) -> Array:
    parts = [_of_rank(t, a, 1) for a in _listed(t, arrays, "column_stack")]
    return concat(t, tuple(expand_dims(t, p, 1) if len(p.shape) == 1 else p for p in parts), 1)


def _listed(t: Typer, arrays: Value, name: str) -> list[Array]:
    if not isinstance(arrays, tuple) or not arrays:
        help = f"write `{name}((x, y))`"
        raise CompileError("MT0102", f"{name} takes a tuple or list of arrays, not {describe(arrays)}", help=help)
    return [t.array(a) for a in arrays]


def _of_rank(t: Typer, x: Array, least: int) -> Array:
    """With as many axes: (3,) becomes (1, 3), and (1, 3, 1), as numpy's `atleast_2d` and `atleast_3d` have it."""
    rank = len(x.shape)
    new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(rank, ()) if least == 3 else tuple(range(max(least - rank, 0)))
    return expand_dims(t, x, new) if new else x
