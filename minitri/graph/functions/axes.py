"""Functions that permute, join or split axes: Views again.

`moveaxis(x, 0, -1)` of f32[M, N, K] is f32[N, K, M]; `unstack(x, axis=0)` of f32[3, N] is three f32[N].
"""

from __future__ import annotations

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.extremes import largest, smallest
from minitri.base.limits import current, exceeded
from minitri.graph import ir
from minitri.graph.compile_time import as_axes, as_int, as_offset
from minitri.graph.functions.registry import function
from minitri.graph.functions.views import permute_dims, reshape
from minitri.graph.typer import Array, Typer, Value, view

# ---- axes in another order -----------------------------------------------------------------


@function
def moveaxis(t: Typer, x: Value, source: Value, destination: Value) -> Array:
    a = t.array(x)
    rank = len(a.shape)
    old, new = as_axes(_listed(source), rank, "source"), as_axes(_listed(destination), rank, "destination")
    if len(old) != len(new):
        raise CompileError("MT0204", f"moveaxis moves {len(old)} axes to {len(new)} places")
    order = [k for k in range(rank) if k not in old]
    for place, k in sorted(zip(new, old)):
        order.insert(place, k)
    return permute_dims(t, a, tuple(order))


def _listed(axis: Value) -> Value:
    return axis if isinstance(axis, tuple) else (axis,)


@function
def swapaxes(t: Typer, x: Value, axis1: Value, axis2: Value) -> Array:
    a = t.array(x)
    order = list(range(len(a.shape)))
    ((j,), (k,)) = (as_axes(as_int(axis, "axis"), len(order)) for axis in (axis1, axis2))
    order[j], order[k] = order[k], order[j]
    return permute_dims(t, a, tuple(order))


@function
def flatten(t: Typer, x: Value, start_dim: Value, end_dim: Value) -> Array:
    """The axes from `start_dim` to `end_dim` as one. An array of no axes gets one."""
    a = t.array(x)
    rank = max(len(a.shape), 1)
    (first,), (last,) = (as_axes(as_int(axis, "axis"), rank) for axis in (start_dim, end_dim))
    if first > last:
        raise CompileError("MT0204", f"flatten from axis {first} to axis {last}, which stands before it")
    joined = dims.product(a.shape[first : last + 1])
    return reshape(t, a, (*a.shape[:first], joined, *a.shape[last + 1 :]))


# ---- one array as several -------------------------------------------------------------------


@function
def unstack(t: Typer, x: Value, axis: Value) -> tuple[Value, ...]:
    a = t.array(x)
    (k,) = as_axes(as_int(axis, "axis"), len(a.shape))
    count = _known(a.shape[k], "unstack", a, k)
    return tuple(element(t, a, k, Dim.of(j)) for j in range(count))


def element(t: Typer, x: Array, axis: int, place: Dim) -> Array:
    """x without an axis: what lies at one place of it."""
    kept = [k for k in range(len(x.shape)) if k != axis]
    index = [place if k == axis else ir.axis(kept.index(k)) for k in range(len(x.shape))]
    return view(t, x, [x.shape[k] for k in kept], index)


def _known(size: Dim, name: str, x: Array, axis: int) -> int:
    """A size that says how many results there are."""
    if size.constant is None:
        help = "give the axis a number in the type, or let the call say it"
        raise CompileError("MT0106", f"{name} needs to know the size of axis {axis} of {x}", help=help)
    if size.constant > (limit := current().operations):
        raise exceeded("operations", f"{name} makes {size.constant:,} arrays, the limit is {limit:,} operations")
    return size.constant


@function
def split(t: Typer, x: Value, indices_or_sections: Value, axis: Value) -> tuple[Value, ...]:
    """As numpy: a number is how many equal parts, a tuple is where to cut."""
    a = t.array(x)
    (k,) = as_axes(as_int(axis, "axis"), len(a.shape))
    if isinstance(indices_or_sections, tuple):
        cuts = [_cut(as_offset(c, "a place to cut"), a.shape[k]) for c in indices_or_sections]
        return tuple(_part(t, a, k, *ends) for ends in zip([dims.ZERO, *cuts], [*cuts, a.shape[k]]))
    count = as_int(indices_or_sections, "the number of parts")
    if count < 1:
        raise CompileError("MT0205", f"split makes 1 part or more, not {count}")
    _known(Dim.of(count), "split", a, k)
    message = f"split of axis {k} of {a} into {count} equal parts: {count} does not divide {a.shape[k]}"
    t.require(a.shape[k] % count, "==", dims.ZERO, "MT0205", message, help="or say where to cut: split(x, (2, 5))")
    size = a.shape[k] // count
    return tuple(_part(t, a, k, size * j, size * (j + 1)) for j in range(count))


def _cut(place: Dim, size: Dim) -> Dim:
    """A place to cut, from the end if it is negative, within the axis."""
    if place.constant is not None and place.constant < 0:
        place = size + place
    return smallest(largest(place, 0), size)


def _part(t: Typer, x: Array, axis: int, start: Dim, stop: Dim) -> Array:
    length = largest(stop - start, 0)
    shape = [length if k == axis else e for k, e in enumerate(x.shape)]
    places = [dims.ZERO if e == 1 else ir.axis(k) for k, e in enumerate(shape)]
    return view(t, x, shape, [start + p if k == axis else p for k, p in enumerate(places)])
