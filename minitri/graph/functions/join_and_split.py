"""Functions that permute, join, split or repeat axes, and functions that take a diagonal.

All functions of this file make View nodes. The functions that join arrays also make Concat nodes. Examples:

    moveaxis(x, 0, -1)      x: f32[M, N, K]     f32[N, K, M]
    unstack(x, axis=0)      x: f32[3, N]        three arrays f32[N]
    hstack((x, y))          x, y: f32[M, N]     f32[M, 2*N]
    tile(x, 2)              x: (a, b)           (a, b, a, b): element d is x[d % 2]
    repeat(x, 2)            x: (a, b)           (a, a, b, b): element d is x[d // 2]
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from minitri.base.dims import ONE, ZERO, Dim, product
from minitri.base.resource_limits import check_limit
from minitri.base.symbolic_minmax import largest, smallest
from minitri.base.types import bool_, items_of
from minitri.graph import ir, typing_rules
from minitri.graph.functions.creation_and_dtypes import eye, full
from minitri.graph.functions.views import expand_dims, one_axis, permute_dims, reshape
from minitri.graph.parameter_binding import as_axes, as_axis, as_dim, as_int, as_offset, as_shape, plain
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure, insert_axes, read_at, view

# ---- axes in another order -----------------------------------------------------------------


def moveaxis(t: Typer, x: Array, source: Value, destination: Value) -> Array:
    old, new = as_axes(items_of(source), x.rank, "source"), as_axes(items_of(destination), x.rank, "destination")
    ensure(len(old) == len(new), "MT0204", f"moveaxis moves {len(old)} axes to {len(new)} places")
    order = [k for k in range(x.rank) if k not in old]
    for place, k in sorted(zip(new, old)):
        order.insert(place, k)
    return permute_dims(t, x, tuple(order))


def swapaxes(t: Typer, x: Array, axis1: Value, axis2: Value) -> Array:
    order = list(range(x.rank))
    j, k = as_axis(axis1, x.rank), as_axis(axis2, x.rank)
    order[j], order[k] = order[k], order[j]
    return permute_dims(t, x, tuple(order))


def flatten(t: Typer, x: Array, start_dim: Value, end_dim: Value) -> Array:
    """Joins the axes from `start_dim` to `end_dim` (inclusive) into one axis.

    A 0-d array becomes an array of one axis.
    """
    first, last = (as_axis(axis, max(x.rank, 1)) for axis in (start_dim, end_dim))
    ensure(first <= last, "MT0204", f"flatten from axis {first} to axis {last}, which stands before it")
    return reshape(t, x, (*x.shape[:first], product(x.shape[first : last + 1]), *x.shape[last + 1 :]))


# ---- several arrays as one -------------------------------------------------------------------


def concat(t: Typer, arrays: Value, axis: Value) -> Array:
    parts = _arrays(t, arrays, "concat", ", axis=0")
    dtype = t.settled(parts)
    parts = [Array(t.convert(p, dtype), dtype) for p in parts]
    if axis is None:
        parts, axis = [reshape(t, p, (product(p.shape),)) for p in parts], 0
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
    return Array(t.nodes.concat(typing_rules.concat_shape(nodes, k), tuple(nodes), k), dtype)


def _arrays(t: Typer, arrays: Value, what: str, more: str = "") -> list[Array]:
    """Returns the arrays in the argument of a function such as `stack`."""
    message = f"{what} takes a tuple or list of arrays, not {describe(arrays)}"
    ensure(isinstance(arrays, tuple), "MT0102", message, f"write `{what}((x, y){more})`")
    ensure(arrays != (), "MT0102", f"{what} takes one array or more, and there is none")
    return [t.array(a) for a in items_of(arrays)]


def _listed(parts: Sequence[Array]) -> str:
    """Returns the types of at most eight arrays as text."""
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


def _pad_widths(t: Typer, value: Value, rank: int) -> list[ir.Shape]:
    """Returns the widths of the padding before and after each axis."""
    # numpy's forms are n, (before, after) and ((before, after), …)
    rows: list[Any] = list(value) if isinstance(value, tuple) and value and isinstance(value[0], tuple) else [value]
    pairs = [row if isinstance(row, tuple) else (row, row) for row in rows] * (rank if len(rows) == 1 else 1)
    fits = len(pairs) == rank and all(len(pair) == 2 for pair in pairs)
    ensure(fits, "MT0205", f"pad_width of an array of rank {rank} is n, (before, after) or one pair an axis")
    return [t.require_sizes([as_dim(width, "a pad width") for width in pair], "a pad width") for pair in pairs]


def _stacked(t: Typer, arrays: Value, *, name: str, axis: int, new: Mapping[int, Sequence[int]]) -> Array:
    """Adds axes of size 1 to arrays, and joins the arrays along an axis."""
    # `new[k]`: the positions of the added axes of an array of rank k
    parts = [insert_axes(t, a, new.get(a.rank, ())) for a in _arrays(t, arrays, name)]
    return concat(t, tuple(parts), min(axis, parts[0].rank - 1))


_STACKS: dict[str, tuple[int, Mapping[int, Sequence[int]]]] = {
    "hstack": (1, {0: [0]}),
    "vstack": (0, {0: [0, 1], 1: [0]}),
    "dstack": (2, {0: [0, 1, 2], 1: [0, 2], 2: [2]}),
    "column_stack": (1, {0: [0, 1], 1: [1]}),
}
BY_OPERATOR = {name: partial(_stacked, name=name, axis=axis, new=new) for name, (axis, new) in _STACKS.items()}


# ---- one array as several -------------------------------------------------------------------


def unstack(t: Typer, x: Array, axis: Value) -> tuple[Value, ...]:
    k = as_axis(axis, x.rank)
    return tuple(read_at(t, x, {k: Dim.of(j)}) for j in range(_known(x.shape[k], "unstack", x, k)))


def _known(size: Dim, name: str, x: Array, axis: int) -> int:
    """Returns the size of an axis as an int, or raises CompileError."""
    help = "give the axis a number in the type, or let the call say it"
    ensure(size.constant is not None, "MT0106", f"{name} needs to know the size of axis {axis} of {x}", help)
    # `name`, such as unstack, makes an array for each element.
    check_limit("operations", int(size), name + " makes {count:,} arrays, the limit is {limit:,} operations")
    return int(size)


def split(t: Typer, x: Array, indices_or_sections: Value, axis: Value) -> tuple[Value, ...]:
    """Defines numpy's split.

    If `indices_or_sections` is an integer, the integer is the number of equal pieces. If `indices_or_sections` is a
    tuple, its items are the positions at which to cut.
    """
    k = as_axis(axis, x.rank)
    size = x.shape[k]
    if isinstance(indices_or_sections, tuple):
        places = [as_offset(c, "a place to cut") for c in indices_or_sections]
        places = [size + p if (p.constant or 0) < 0 else p for p in places]  # negative: counted from the end
        ends = [ZERO, *(smallest(largest(p, 0), size) for p in places), size]
    else:
        count = as_int(indices_or_sections, "the number of parts")
        ensure(count >= 1, "MT0205", f"split makes 1 part or more, not {count}")
        _known(Dim.of(count), "split", x, k)
        message = f"split of axis {k} of {x} into {count} equal parts: {count} does not divide {size}"
        t.require(size % count, "==", ZERO, "MT0205", message, help="or say where to cut: split(x, (2, 5))")
        ends = [size // count * j for j in range(count + 1)]
    return tuple(slice_axis(t, x, k, start, stop) for start, stop in pairwise(ends))


def slice_axis(t: Typer, x: Array, axis: int, start: Dim, stop: Dim) -> Array:
    """Returns the elements of x from `start` up to `stop` along an axis."""
    length = largest(stop - start, 0)
    return _along(t, x, axis, length, start + ir.along(axis, length))


# ---- elements repeated -------------------------------------------------------------------------


def tile(t: Typer, x: Array, repetitions: Value) -> Array:
    """Defines numpy's tile: repeats the whole array along each axis.

    The last item of `repetitions` applies to the last axis.
    """
    times = [as_dim(n, "a number of repetitions") for n in items_of(repetitions)]
    times = [ONE] * (x.rank - len(times)) + list(t.require_sizes(times))
    lead = len(times) - x.rank
    old = (*[ONE] * lead, *x.shape)
    index = [ir.along(k, e) if n == 1 else ir.along(k, e) % largest(e, 1) for k, (e, n) in enumerate(zip(old, times))]
    return view(t, x, [e * n for e, n in zip(old, times)], index[lead:])


def repeat(t: Typer, x: Array, repeats: Value, axis: Value) -> Array:
    """Defines numpy's repeat: repeats each element.

    The argument `repeats` is one number, or a tuple with a number for each element.
    """
    a, k = one_axis(t, x, axis)
    help = "the size of the result would depend on data; write a number, or a tuple of numbers"
    is_array = isinstance(repeats, Array)
    ensure(not is_array, "MT0106", f"repeat takes a known number of repeats, not {repeats}", help)
    if isinstance(repeats, tuple):
        return _each(t, a, k, [as_int(n, "a number of repeats") for n in repeats])
    (times,) = t.require_sizes([as_dim(repeats, "the number of repeats")])
    return _along(t, a, k, a.shape[k] * times, ir.along(k, a.shape[k]) // largest(times, 1))


def _each(t: Typer, x: Array, axis: int, repeats: Sequence[int]) -> Array:
    """Repeats each element along an axis, like `np.repeat` with several counts."""
    message = f"repeat has {len(repeats)} numbers for the {x.shape[axis]} elements of axis {axis}"
    t.require(x.shape[axis], "==", Dim.of(len(repeats)), "MT0205", message)
    counts = t.require_sizes(as_shape(tuple(repeats))) if repeats else ()
    parts = [_along(t, x, axis, count, Dim.of(j)) for j, count in enumerate(counts)]
    return concat(t, tuple(parts), axis) if parts else _along(t, x, axis, ZERO, ZERO)


def _along(t: Typer, x: Array, axis: int, size: Dim, place: Dim) -> Array:
    """Returns a view that reads `x` at the index `place` along `axis`, where the view has `size` elements."""
    shape = [size if k == axis else e for k, e in enumerate(x.shape)]
    return view(t, x, shape, [place if k == axis else ir.axis(k) for k in range(len(shape))])


# ---- several arrays in one shape -------------------------------------------------------------


def broadcast_arrays(t: Typer, arrays: Value) -> tuple[Value, ...]:
    parts = [t.array(a) for a in items_of(arrays)]
    shape = t.broadcast_shapes([p.shape for p in parts], "arrays")
    return tuple(Array(t.broadcast(p.node, shape), p.dtype, p.weak) for p in parts)


def broadcast_shapes(t: Typer, shapes: Value) -> tuple[Value, ...]:
    """Returns the shape to which arrays of these shapes broadcast. If only one shape is given, returns this shape."""
    several = items_of(shapes)
    several = several if any(isinstance(s, tuple) for s in several) else (several,)
    given = [t.require_sizes(as_shape(s)) for s in several]
    return tuple(plain(e) for e in t.broadcast_shapes(given, "shapes"))


def meshgrid(t: Typer, arrays: Value, indexing: Value) -> tuple[Value, ...]:
    """Defines numpy's meshgrid: repeats each 1-D array over the grid of all arrays.

    With the indexing "xy", the first two axes of the grid are swapped. With the indexing "ij", axis k of the grid
    belongs to array k.
    """
    ensure(indexing in ("xy", "ij"), "MT0102", 'the indexing of meshgrid is "xy" or "ij"')
    parts = [t.array(a) for a in items_of(arrays)]
    for p in parts:
        ensure(p.rank <= 1, "MT0201", f"meshgrid takes arrays of one axis, not {p}")
    sizes = [p.shape[0] if p.shape else ONE for p in parts]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[:2] = [1, 0]
    shape = [sizes[k] for k in order]
    return tuple(view(t, p, shape, [ir.along(order.index(k), e) for e in p.shape]) for k, p in enumerate(parts))


# ---- diagonals ------------------------------------------------------------------------------------


def diagonal(t: Typer, x: Array, offset: Value, axis1: Value, axis2: Value) -> Array:
    """Defines numpy's diagonal: the diagonal of two axes becomes the last axis. Example: for a matrix x, element i of
    the result is x[i, i + offset] if `offset` is not negative.
    """
    ensure(x.rank >= 2, "MT0204", f"a diagonal needs rank 2 or more, not {x.rank}")
    row, column = as_axis(axis1, x.rank), as_axis(axis2, x.rank)
    ensure(row != column, "MT0204", f"diagonal needs two axes, not axis {row} twice")
    k = as_offset(offset, "offset")
    starts = {row: largest(-k, 0), column: largest(k, 0)}
    length = largest(smallest(*(x.shape[j] - start for j, start in starts.items())), 0)
    place = ir.along(x.rank - 2, length)
    return read_at(t, x, {j: start + place for j, start in starts.items()}, length)


def diag(t: Typer, x: Strong, k: Value) -> Array:
    """Defines numpy's diag. For a vector, returns a matrix whose k-th diagonal is the vector.

    For a matrix, returns the matrix's k-th diagonal.
    """
    by = as_int(k, "k")
    if x.rank == 2:
        return diagonal(t, x, by, 0, 1)
    ensure(x.rank == 1, "MT0204", f"diag takes arrays of rank 1 or 2, not {x}", "`diagonal` takes any rank")
    on = eye(t, x.shape[0], None, 0, bool_)
    matrix = t.elementwise("where", [on, expand_dims(t, x, 1), t.cast(0, x.dtype)])
    after, before = max(by, 0), max(-by, 0)
    return pad(t, matrix, ((before, after), (after, before)), 0)
