"""Functions that move elements without arithmetic, such as reshape, flip and roll.

The functions of this file make View nodes. The index map of a View gives, for each element of the result, the index of
this element in the original array.
"""

from collections import Counter
from collections.abc import Iterator

from minitri.base import dims, intervals
from minitri.base.dims import Dim
from minitri.base.symbolic_minmax import largest
from minitri.base.types import items_of
from minitri.graph import ir
from minitri.graph.ir import Shape
from minitri.graph.literals import shown
from minitri.graph.parameter_binding import FAR, as_axes, as_axis, as_dim, as_shape
from minitri.graph.typing_rules import Array, Typer, Value, ensure, insert_axes, read_at, view


def reshape(t: Typer, x: Array, shape: Value) -> Array:
    target = _resolve_minus_one(t, x.shape, as_shape(shape))
    index: list[Dim] = []
    first = 0
    for old, new in _groups(x.shape, target):
        index += _regroup(old, new, first)
        first += len(new)
    old_size, new_size = dims.product(x.shape), dims.product(target)
    message = f"cannot reshape {x} to {shown(target)}: {old_size} elements are not {new_size}"
    t.require(old_size, "==", new_size, "MT0205", message)
    if new_size == 0:  # an empty result reads no element, and the sizes of the groups may differ next to a 0
        index = [dims.ZERO] * x.rank
    return view(t, x, target, [intervals.simplify(i, ir.ranges(target)) for i in index])


def _resolve_minus_one(t: Typer, old: Shape, shape: Shape) -> Shape:
    """Returns the shape for `reshape`, with a size in place of -1."""
    holes = [k for k, e in enumerate(shape) if e == -1]
    fits = len(holes) <= 1 and all(e.constant is None or e.constant >= -1 for e in shape)
    ensure(fits, "MT0205", "a shape has at most one -1 and no other negative sizes")
    given = t.require_sizes([e for e in shape if e != -1])
    if not holes:
        return shape
    left, right = Counter(old), Counter(given)  # equal sizes cancel: a division by them is wrong, as they may be 0
    rest, known = (dims.product(list(some.elements())) for some in (left - right, right - left))
    message = "cannot tell what -1 stands for next to a size of 0"
    t.require(known, ">=", dims.ONE, "MT0205", message)
    size = rest // known
    if rest != dims.product(old):  # a removed size may be 0, so the whole arrays prove nothing
        message = f"no size fits -1: without the sizes that both shapes have, {rest} is not a multiple of {known}"
        t.require(rest, "==", size * known, "MT0205", message)
    return tuple(size if e == -1 else e for e in shape)


def _groups(old: Shape, new: Shape) -> Iterator[tuple[Shape, Shape]]:
    """Pairs parts of the old and the new shape that have equally many elements, such as [2, 3] with [6]."""
    while old or new:  # [A, B, C] and [A*B, C] give ([A, B], [A*B]) and ([C], [C])
        p, q = _next_run(old, new)
        yield old[:p], new[:q]
        old, new = old[p:], new[q:]


def _next_run(old: Shape, new: Shape) -> tuple[int, int]:
    """Returns how many leading sizes of each shape have equal products: (2, 1) for [A, B, C] and [A*B, C]."""
    products = {dims.product(new[:q]): q for q in range(len(new), 0, -1)}
    for p in range(1, len(old) + 1):
        q = products.get(dims.product(old[:p]))
        if q and ((p < len(old)) == (q < len(new)) or dims.product(old[p:]) == dims.product(new[q:])):
            return p, q  # (2, 1) for [A, B, C] and [A*B, C]
    return len(old), len(new)


def _regroup(old: Shape, new: Shape, first: int) -> list[Dim]:
    """Returns the indices along the old axes of `reshape` as expressions of the indices along the new axes."""
    if len(old) == len(new) == 1:
        return [ir.axis(first)]
    flat = dims.ZERO  # the row-major position of an element; `first` is the number of the axis new[0]
    for k, extent in enumerate(new):
        flat = flat * extent + ir.along(first + k, extent)
    out: list[Dim] = []
    for k, extent in enumerate(old):
        place = flat // dims.product(old[k + 1 :])  # if [A, B] becomes [A*B]: `d0 // B` and `d0 % B`
        out.append(dims.ZERO if extent == 1 else place if k == 0 else place % extent)
    return out


def one_axis(t: Typer, x: Array, axis: Value) -> tuple[Array, int]:
    """Returns x, and `axis` as a number >= 0. If the axis is None, returns the flattened array and the axis 0."""
    return (reshape(t, x, (dims.product(x.shape),)), 0) if axis is None else (x, as_axis(axis, x.rank))


def expand_dims(t: Typer, x: Array, axis: Value) -> Array:
    places = items_of(axis)
    return insert_axes(t, x, as_axes(places, x.rank + len(places)))


def squeeze(t: Typer, x: Array, axis: Value) -> Array:
    gone = as_axes(axis, x.rank)
    if axis is None:
        gone = tuple(k for k, e in enumerate(x.shape) if e == 1)
        for e in (e for e in x.shape if e.constant is None):
            message = f"squeeze of {x} without an axis would drop {e} too"
            t.require(e, "!=", dims.ONE, "MT0205", message, help="name the axis: squeeze(x, axis=0)")
    for k in gone:
        message = f"cannot squeeze axis {k} of {x}: its size {x.shape[k]} is not 1"
        t.require(x.shape[k], "==", dims.ONE, "MT0205", message)
    return read_at(t, x, dict.fromkeys(gone, dims.ZERO))


def permute_dims(t: Typer, x: Array, axes: Value) -> Array:
    rank = x.rank
    order = tuple(reversed(range(rank))) if axes is None else as_axes(axes, rank)
    ensure(len(order) == rank, "MT0204", f"permute_dims of rank {rank} needs {rank} axes, not {len(order)}")
    return view(t, x, [x.shape[k] for k in order], [ir.axis(order.index(k)) for k in range(rank)])


def matrix_transpose(t: Typer, x: Array) -> Array:
    ensure(x.rank >= 2, "MT0204", f"a matrix transpose needs rank 2 or more, not {x.rank}")
    return permute_dims(t, x, (*range(x.rank - 2), -1, -2))


def broadcast_to(t: Typer, x: Array, shape: Value) -> Array:
    target = t.require_sizes(as_shape(shape))
    for have, want in zip(reversed(x.shape), reversed(target)):
        message = f"cannot broadcast {x} to {shown(target)}: {have} is not {want}"
        if have != 1:
            t.require(have, "==", want, "MT0205", message)
    ensure(x.rank <= len(target), "MT0205", f"cannot broadcast {x} to fewer axes")
    node, *wide = (t.broadcast(n, target) for n in (x.node, x.wide) if n is not None)
    return Array(node, x.dtype, x.weak, *wide)


def flip(t: Typer, x: Array, axis: Value) -> Array:
    axes = as_axes(axis, x.rank)
    return view(t, x, x.shape, [e - 1 - ir.axis(k) if k in axes else ir.axis(k) for k, e in enumerate(x.shape)])


def roll(t: Typer, x: Array, shift: Value, axis: Value) -> Array:
    if axis is None:
        return reshape(t, roll(t, one_axis(t, x, None)[0], shift, 0), x.shape)
    by: dict[int, Dim] = {}
    for k, by_k in _shifts(shift, axis, x.rank):
        by[k] = by.get(k, dims.ZERO) + by_k
    by = {k: _short(shift, x.shape[k]) for k, shift in by.items()}
    index = [(ir.axis(k) - by[k]) % largest(e, 1) if k in by else ir.axis(k) for k, e in enumerate(x.shape)]
    return view(t, x, x.shape, index)


def _short(shift: Dim, extent: Dim) -> Dim:
    """Reduces a large shift of `roll` modulo the size of the axis, so that the shift fits 64 bits."""
    if shift.constant is None or abs(shift.constant) < FAR:
        return shift
    help = "a shift along an axis of any size has 60 bits"
    ensure(extent.constant is not None, "MT0208", f"the shift {shift.constant} of roll is too large", help)
    return Dim.of(shift.constant % max(int(extent), 1))


def _shifts(shift: Value, axis: Value, rank: int) -> list[tuple[int, Dim]]:
    """Returns the pairs (axis, shift) of `roll`; one shift or one axis is repeated."""
    shifts = [as_dim(s, "shift") for s in items_of(shift)]
    axes = [as_axes((k,), rank)[0] for k in items_of(axis)]
    counts = {len(shifts), len(axes)} - {1}
    ensure(len(counts) < 2, "MT0102", f"roll has {len(shifts)} shifts for {len(axes)} axes")
    count = max(len(shifts), len(axes))
    return list(zip(axes * count if len(axes) == 1 else axes, shifts * count if len(shifts) == 1 else shifts))
