"""Functions that repeat elements: tile, repeat, meshgrid, broadcast_arrays. Views again.

`tile(x, 2)` of (a, b) is (a, b, a, b): element d is x[d % 2]. `repeat(x, 2)` is (a, a, b, b): x[d // 2].
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.extremes import largest
from minitri.graph import ir
from minitri.graph.compile_time import as_dim, as_int, as_shape, plain
from minitri.graph.functions.making import concat
from minitri.graph.functions.registry import function
from minitri.graph.functions.views import one_axis
from minitri.graph.typer import Array, Typer, Value, view


@function
def tile(t: Typer, x: Value, repetitions: Value) -> Array:
    """x repeated along each axis. Repetitions count from the last axis, as in numpy."""
    a = t.array(x)
    times = [as_dim(n, "a number of repetitions") for n in _listed(repetitions)]
    times = [dims.ONE] * (len(a.shape) - len(times)) + list(t.require_sizes(times))
    lead = len(times) - len(a.shape)
    old = (*[dims.ONE] * lead, *a.shape)
    index = [_again(ir.axis(k), e, n) for k, (e, n) in enumerate(zip(old, times))]
    return view(t, a, [e * n for e, n in zip(old, times)], index[lead:])


def _listed(value: Value) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _again(place: Dim, extent: Dim, times: Dim) -> Dim:
    if extent == 1:
        return dims.ZERO
    return place if times == 1 else place % largest(extent, 1)


@function
def repeat(t: Typer, x: Value, repeats: Value, axis: Value) -> Array:
    """Each element repeated. `repeats` is one number, or a tuple with a number for each element."""
    a, k = one_axis(t, x, axis)
    if isinstance(repeats, Array):
        help = "the size of the result would depend on data; write a number, or a tuple of numbers"
        raise CompileError("MT0106", f"repeat takes a known number of repeats, not {repeats}", help=help)
    if isinstance(repeats, tuple):
        return _each(t, a, k, [as_int(n, "a number of repeats") for n in repeats])
    (times,) = t.require_sizes([as_dim(repeats, "the number of repeats")])
    place = dims.ZERO if a.shape[k] == 1 else ir.axis(k) // largest(times, 1)
    return _along(t, a, k, a.shape[k] * times, place)


def _each(t: Typer, x: Array, axis: int, repeats: Sequence[int]) -> Array:
    """The first element `repeats[0]` times, the second `repeats[1]` times, and so on."""
    message = f"repeat has {len(repeats)} numbers for the {x.shape[axis]} elements of axis {axis}"
    t.require(x.shape[axis], "==", Dim.of(len(repeats)), "MT0205", message)
    counts = t.require_sizes(as_shape(tuple(repeats))) if repeats else ()
    parts = [_along(t, x, axis, count, Dim.of(j)) for j, count in enumerate(counts)]
    return concat(t, tuple(parts), axis) if parts else _along(t, x, axis, dims.ZERO, dims.ZERO)


def _along(t: Typer, x: Array, axis: int, size: Dim, place: Dim) -> Array:
    """x with another size along one axis, where an element comes from `place`."""
    shape = [size if k == axis else e for k, e in enumerate(x.shape)]
    return view(t, x, shape, [place if k == axis else ir.axis(k) for k in range(len(shape))])


# ---- several arrays in one shape -------------------------------------------------------------


@function
def broadcast_arrays(t: Typer, arrays: Value) -> tuple[Value, ...]:
    parts = [t.array(a) for a in _listed(arrays)]
    shape = t.broadcast_shapes([p.shape for p in parts], "arrays")
    return tuple(Array(t.broadcast(p.node, shape), p.dtype, p.weak) for p in parts)


@function
def broadcast_shapes(t: Typer, shapes: Value) -> tuple[Value, ...]:
    """The shape in which arrays of these shapes meet. One shape alone is itself."""
    listed = _listed(shapes)
    given = [t.require_sizes(as_shape(s)) for s in (listed if any(isinstance(s, tuple) for s in listed) else (listed,))]
    return tuple(plain(e) for e in t.broadcast_shapes(given, "shapes"))


@function
def meshgrid(t: Typer, arrays: Value, indexing: Value) -> tuple[Value, ...]:
    """For each array its elements over a grid of all of them; "xy" swaps the first two axes."""
    if indexing not in ("xy", "ij"):
        raise CompileError("MT0102", 'the indexing of meshgrid is "xy" or "ij"')
    parts = [t.array(a) for a in _listed(arrays)]
    for p in parts:
        if len(p.shape) > 1:
            raise CompileError("MT0201", f"meshgrid takes arrays of one axis, not {p}")
    sizes = [p.shape[0] if p.shape else dims.ONE for p in parts]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[:2] = [1, 0]
    shape = [sizes[k] for k in order]
    places = [() if not p.shape or p.shape[0] == 1 else (ir.axis(order.index(k)),) for k, p in enumerate(parts)]
    return tuple(view(t, p, shape, place or (dims.ZERO,) * len(p.shape)) for p, place in zip(parts, places))
