"""Functions that join arrays: concat, stack, pad, and numpy's hstack, vstack, dstack and column_stack."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from minitri.base import dims
from minitri.base.dims import Dim
from minitri.base.minmax_canonical_form import tidy
from minitri.graph import ir
from minitri.graph.argument_binding import as_axis, as_dim, items_of
from minitri.graph.functions.making import full
from minitri.graph.functions.views import expand_dims, reshape
from minitri.graph.ir import Node, Shape
from minitri.graph.literals import names_in
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure, insert_axes, require, view


def concat(t: Typer, arrays: Value, axis: Value) -> Array:
    parts = _arrays(t, arrays, "concat", ", axis=0")
    dtype = t.settled(parts)
    parts = [Array(t.convert(p, dtype), dtype) for p in parts]
    if axis is None:
        parts, axis = [reshape(t, p, (dims.product(p.shape),)) for p in parts], 0
    ranks = {p.rank for p in parts}
    fits = len(ranks) == 1 and ranks != {0}
    ensure(fits, "MT0201", f"concat needs arrays of one rank, 1 or more, not {_listed(parts)}")
    k = as_axis(axis, parts[0].rank)
    nodes, listed = [parts[0].node], _listed(parts)
    for p in parts[1:]:
        for j, (e, first) in enumerate(zip(p.shape, parts[0].shape)):
            if j != k:
                message = f"concat along axis {k} of {listed}: sizes {first} and {e} of axis {j} differ"
                t.require(e, "==", first, "MT0201", message)
        shape = tuple(e if j == k else f for j, (e, f) in enumerate(zip(p.shape, parts[0].shape)))
        nodes.append(p.node if shape == p.shape else view(t, p, shape, list(map(ir.axis, range(len(shape))))).node)
    return Array(t.nodes.concat(concat_shape(nodes, k), tuple(nodes), k), dtype)


def concat_shape(parts: Sequence[Node], axis: int) -> Shape:
    """Returns the shape of a concatenation. Raises ValueError if the arrays have different dtypes or shapes."""
    first = parts[0]
    require(all(p.dtype == first.dtype and p.rank == first.rank for p in parts), "concat of unlike parts")
    require(0 <= axis < first.rank, f"concat axis {axis}")
    for p in parts:
        same = (x == y for k, (x, y) in enumerate(zip(p.shape, first.shape)) if k != axis)
        require(all(same), "concat of unlike shapes")
    total = sum((p.shape[axis] for p in parts[1:]), first.shape[axis])
    return (*first.shape[:axis], tidy(total), *first.shape[axis + 1 :])


def _arrays(t: Typer, arrays: Value, what: str, more: str = "") -> list[Array]:
    """Returns the arrays in the argument of a function such as stack.

    Raises CompileError MT0102 if the argument is no tuple or is empty. The error shows an example call, in which `more`
    follows the arrays.
    """
    message = f"{what} takes a tuple or list of arrays, not {describe(arrays)}"
    ensure(isinstance(arrays, tuple), "MT0102", message, f"write `{what}((x, y){more})`")
    ensure(arrays != (), "MT0102", f"{what} takes one array or more, and there is none")
    return [t.array(a) for a in items_of(arrays)]


def _listed(parts: Sequence[Array]) -> str:
    """Returns the types of at most eight arrays as text, for error messages."""
    return ", ".join([*map(str, parts[:8]), *["…"] * (len(parts) > 8)])


def stack(t: Typer, arrays: Value, axis: Value) -> Array:
    parts = _arrays(t, arrays, "stack", ", axis=0")
    shape = t.broadcast_shapes([p.shape for p in parts], "parts of stack")
    same = all(p.rank == len(shape) for p in parts)
    ensure(same, "MT0201", f"stack needs arrays of one shape, not {_listed(parts)}")
    return concat(t, tuple(expand_dims(t, p, axis) for p in parts), axis)


def pad(t: Typer, x: Strong, pad_width: Value, constant_values: Value) -> Array:
    for k, widths in enumerate(_pad_widths(t, pad_width, x.rank)):
        shapes = [(*x.shape[:k], width, *x.shape[k + 1 :]) for width in widths]
        before, after = ([full(t, s, constant_values, x.dtype)] if s[k] != 0 else [] for s in shapes)
        x = concat(t, (*before, x, *after), k) if before or after else x
    return x


def _pad_widths(t: Typer, value: Value, rank: int) -> list[tuple[Dim, Dim]]:
    """Returns the widths of the padding before and after each axis.

    The argument has one of numpy's forms: n, (before, after) or ((before, after), …).
    """
    if not isinstance(value, tuple):
        value = (value, value)
    rows: list[Any] = list(value) if value and isinstance(value[0], tuple) else [value]
    pairs = [row if isinstance(row, tuple) else (row, row) for row in rows] * (rank if len(rows) == 1 else 1)
    fits = len(pairs) == rank and all(len(pair) == 2 for pair in pairs)
    ensure(fits, "MT0205", f"pad_width of an array of rank {rank} is n, (before, after) or one pair an axis")
    return [(_pad_width(t, before), _pad_width(t, after)) for before, after in pairs]


def _pad_width(t: Typer, value: Value) -> Dim:
    width = as_dim(value, "a pad width")
    message = f"a pad width cannot be negative, and {width} is"
    t.require(width, ">=", dims.ZERO, "MT0205", message, label=names_in(width))
    return width


# ---- stacks along a fixed axis -----------------------------------------------------------------


def _stacked(t: Typer, arrays: Value, *, name: str, axis: int, new: Mapping[int, Sequence[int]]) -> Array:
    """Joins arrays along an axis.

    `new` has, for each rank, the positions at which an array of this rank first gets axes of size 1.
    """
    parts = [insert_axes(t, a, new.get(a.rank, ())) for a in _arrays(t, arrays, name)]
    return concat(t, tuple(parts), min(axis, parts[0].rank - 1))


_STACKS: dict[str, tuple[int, Mapping[int, Sequence[int]]]] = {
    "hstack": (1, {0: [0]}),
    "vstack": (0, {0: [0, 1], 1: [0]}),
    "dstack": (2, {0: [0, 1, 2], 1: [0, 2], 2: [2]}),
    "column_stack": (1, {0: [0, 1], 1: [1]}),
}
BY_OPERATOR = {name: partial(_stacked, name=name, axis=axis, new=new) for name, (axis, new) in _STACKS.items()}
