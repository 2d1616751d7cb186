"""Functions that permute, join, split or repeat axes, or take a diagonal. All are Views, except a few that join arrays.

moveaxis(x, 0, -1)      x: f32[M, N, K]     f32[N, K, M]
unstack(x, axis=0)      x: f32[3, N]        three arrays f32[N]
tile(x, 2)              x: (a, b)           (a, b, a, b): element d is x[d % 2]
repeat(x, 2)            x: (a, b)           (a, a, b, b): element d is x[d // 2]
"""

from collections.abc import Sequence

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.resource_limits import current, exceeded
from minitri.base.symbolic_minmax import largest, smallest
from minitri.base.types import bool_
from minitri.graph import ir
from minitri.graph.argument_binding import as_axes, as_dim, as_int, as_offset, as_shape, items_of, plain
from minitri.graph.functions.joining import concat, pad
from minitri.graph.functions.making import eye
from minitri.graph.functions.views import expand_dims, one_axis, permute_dims, reshape
from minitri.graph.typing_rules import Array, Typer, Value, ensure, view

# ---- axes in another order -----------------------------------------------------------------


def moveaxis(t: Typer, x: Value, source: Value, destination: Value) -> Array:
    a = t.array(x)
    rank = a.rank
    old, new = as_axes(items_of(source), rank, "source"), as_axes(items_of(destination), rank, "destination")
    ensure(len(old) == len(new), "MT0204", f"moveaxis moves {len(old)} axes to {len(new)} places")
    order = [k for k in range(rank) if k not in old]
    for place, k in sorted(zip(new, old)):
        order.insert(place, k)
    return permute_dims(t, a, tuple(order))


def swapaxes(t: Typer, x: Value, axis1: Value, axis2: Value) -> Array:
    a = t.array(x)
    order = list(range(a.rank))
    ((j,), (k,)) = (as_axes(as_int(axis, "axis"), len(order)) for axis in (axis1, axis2))
    order[j], order[k] = order[k], order[j]
    return permute_dims(t, a, tuple(order))


def flatten(t: Typer, x: Value, start_dim: Value, end_dim: Value) -> Array:
    """Joins the axes from `start_dim` to `end_dim` (inclusive) into one. A 0-d array becomes an array of one axis."""
    a = t.array(x)
    rank = max(a.rank, 1)
    (first,), (last,) = (as_axes(as_int(axis, "axis"), rank) for axis in (start_dim, end_dim))
    ensure(first <= last, "MT0204", f"flatten from axis {first} to axis {last}, which stands before it")
    joined = dims.product(a.shape[first : last + 1])
    return reshape(t, a, (*a.shape[:first], joined, *a.shape[last + 1 :]))


# ---- one array as several -------------------------------------------------------------------


def unstack(t: Typer, x: Value, axis: Value) -> tuple[Value, ...]:
    a = t.array(x)
    (k,) = as_axes(as_int(axis, "axis"), a.rank)
    count = _known(a.shape[k], "unstack", a, k)
    return tuple(element(t, a, k, Dim.of(j)) for j in range(count))


def element(t: Typer, x: Array, axis: int, place: Dim) -> Array:
    """The elements of x at one position along an axis. The result lacks the axis."""
    kept = [k for k in range(x.rank) if k != axis]
    index = [place if k == axis else ir.axis(kept.index(k)) for k in range(x.rank)]
    return view(t, x, [x.shape[k] for k in kept], index)


def _known(size: Dim, name: str, x: Array, axis: int) -> int:
    """A size as an int, where it is the number of results.

    Raises CompileError MT0106 if it is not constant, and MT0401 if it exceeds the limit on operations.
    """
    help = "give the axis a number in the type, or let the call say it"
    ensure(size.constant is not None, "MT0106", f"{name} needs to know the size of axis {axis} of {x}", help)
    if int(size) > (limit := current().operations):
        raise exceeded("operations", f"{name} makes {int(size):,} arrays, the limit is {limit:,} operations")
    return int(size)


def split(t: Typer, x: Value, indices_or_sections: Value, axis: Value) -> tuple[Value, ...]:
    """numpy's split: an integer is the number of equal parts, a tuple has the positions to cut."""
    a = t.array(x)
    (k,) = as_axes(as_int(axis, "axis"), a.rank)
    if isinstance(indices_or_sections, tuple):
        cuts = [_cut(as_offset(c, "a place to cut"), a.shape[k]) for c in indices_or_sections]
        return tuple(slice_axis(t, a, k, *ends) for ends in zip([dims.ZERO, *cuts], [*cuts, a.shape[k]]))
    count = as_int(indices_or_sections, "the number of parts")
    ensure(count >= 1, "MT0205", f"split makes 1 part or more, not {count}")
    _known(Dim.of(count), "split", a, k)
    message = f"split of axis {k} of {a} into {count} equal parts: {count} does not divide {a.shape[k]}"
    t.require(a.shape[k] % count, "==", dims.ZERO, "MT0205", message, help="or say where to cut: split(x, (2, 5))")
    size = a.shape[k] // count
    return tuple(slice_axis(t, a, k, size * j, size * (j + 1)) for j in range(count))


def _cut(place: Dim, size: Dim) -> Dim:
    """A position to cut, clipped to the axis. A negative one counts from the end."""
    if place.constant is not None and place.constant < 0:
        place = size + place
    return smallest(largest(place, 0), size)


def slice_axis(t: Typer, x: Array, axis: int, start: Dim, stop: Dim) -> Array:
    """The elements of x from `start` up to `stop` along an axis."""
    length = largest(stop - start, 0)
    return _along(t, x, axis, length, start + (ir.axis(axis) if length != 1 else 0))


# ---- elements repeated -------------------------------------------------------------------------


def tile(t: Typer, x: Value, repetitions: Value) -> Array:
    """numpy's tile: repeats the whole array along each axis. The last number of repetitions is for the last axis."""
    a = t.array(x)
    times = [as_dim(n, "a number of repetitions") for n in items_of(repetitions)]
    times = [dims.ONE] * (a.rank - len(times)) + list(t.require_sizes(times))
    lead = len(times) - a.rank
    old = (*[dims.ONE] * lead, *a.shape)
    index = [_again(ir.axis(k), e, n) for k, (e, n) in enumerate(zip(old, times))]
    return view(t, a, [e * n for e, n in zip(old, times)], index[lead:])


def _again(place: Dim, extent: Dim, times: Dim) -> Dim:
    """The index along an axis of `extent` elements that is repeated `times` times."""
    if extent == 1:
        return dims.ZERO
    return place if times == 1 else place % largest(extent, 1)


def repeat(t: Typer, x: Value, repeats: Value, axis: Value) -> Array:
    """numpy's repeat: repeats each element. `repeats` is one number, or a tuple with a number for each element."""
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
    """Repeats the first element along an axis `repeats[0]` times, the second `repeats[1]` times, and so on."""
    message = f"repeat has {len(repeats)} numbers for the {x.shape[axis]} elements of axis {axis}"
    t.require(x.shape[axis], "==", Dim.of(len(repeats)), "MT0205", message)
    counts = t.require_sizes(as_shape(tuple(repeats))) if repeats else ()
    parts = [_along(t, x, axis, count, Dim.of(j)) for j, count in enumerate(counts)]
    return concat(t, tuple(parts), axis) if parts else _along(t, x, axis, dims.ZERO, dims.ZERO)


def _along(t: Typer, x: Array, axis: int, size: Dim, place: Dim) -> Array:
    """x with another size along one axis, where `place` is the index map of this axis."""
    shape = [size if k == axis else e for k, e in enumerate(x.shape)]
    return view(t, x, shape, [place if k == axis else ir.axis(k) for k in range(len(shape))])


# ---- several arrays in one shape -------------------------------------------------------------


def broadcast_arrays(t: Typer, arrays: Value) -> tuple[Value, ...]:
    parts = [t.array(a) for a in items_of(arrays)]
    shape = t.broadcast_shapes([p.shape for p in parts], "arrays")
    return tuple(Array(t.broadcast(p.node, shape), p.dtype, p.weak) for p in parts)


def broadcast_shapes(t: Typer, shapes: Value) -> tuple[Value, ...]:
    """The shape to which arrays of these shapes broadcast. A single shape is returned unchanged."""
    several = items_of(shapes)
    several = several if any(isinstance(s, tuple) for s in several) else (several,)
    given = [t.require_sizes(as_shape(s)) for s in several]
    return tuple(plain(e) for e in t.broadcast_shapes(given, "shapes"))


def meshgrid(t: Typer, arrays: Value, indexing: Value) -> tuple[Value, ...]:
    """numpy's meshgrid: repeats each 1-D array over the grid of all arrays. Indexing "xy" swaps the first two axes."""
    ensure(indexing in ("xy", "ij"), "MT0102", 'the indexing of meshgrid is "xy" or "ij"')
    parts = [t.array(a) for a in items_of(arrays)]
    for p in parts:
        ensure(p.rank <= 1, "MT0201", f"meshgrid takes arrays of one axis, not {p}")
    sizes = [p.shape[0] if p.shape else dims.ONE for p in parts]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[:2] = [1, 0]
    shape = [sizes[k] for k in order]
    places = [() if not p.shape or p.shape[0] == 1 else (ir.axis(order.index(k)),) for k, p in enumerate(parts)]
    return tuple(view(t, p, shape, place or (dims.ZERO,) * p.rank) for p, place in zip(parts, places))


# ---- diagonals ------------------------------------------------------------------------------------


def diagonal(t: Typer, x: Value, offset: Value, axis1: Value, axis2: Value) -> Array:
    """numpy's diagonal: the elements with the indices (i, i + offset) of two axes, as a new last axis."""
    a = t.array(x)
    rank = a.rank
    ensure(rank >= 2, "MT0204", f"a diagonal needs rank 2 or more, not {rank}")
    (row,), (column,) = (as_axes(as_int(axis, "axis"), rank) for axis in (axis1, axis2))
    ensure(row != column, "MT0204", f"diagonal needs two axes, not axis {row} twice")
    k = as_offset(offset, "offset")
    starts = {row: largest(-k, 0), column: largest(k, 0)}
    length = largest(smallest(*(a.shape[j] - start for j, start in starts.items())), 0)
    kept = [j for j in range(rank) if j not in starts]
    along = ir.axis(len(kept)) if length != 1 else dims.ZERO
    index = [starts[j] + along if j in starts else ir.axis(kept.index(j)) for j in range(rank)]
    return view(t, a, [*(a.shape[j] for j in kept), length], index)


def diag(t: Typer, x: Value, k: Value) -> Array:
    """numpy's diag: for a vector, a matrix with it on the k-th diagonal; for a matrix, its k-th diagonal."""
    a, by = t.strong(x), as_int(k, "k")
    if a.rank == 2:
        return diagonal(t, a, by, 0, 1)
    ensure(a.rank == 1, "MT0204", f"diag takes arrays of rank 1 or 2, not {a}", "`diagonal` takes any rank")
    on = eye(t, a.shape[0], None, 0, bool_)
    matrix = t.elementwise("where", [on, expand_dims(t, a, 1), t.cast(0, a.dtype)])
    after, before = max(by, 0), max(-by, 0)
    return pad(t, matrix, ((before, after), (after, before)), 0)
