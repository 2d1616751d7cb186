"""Defines subscripts by numpy's rules: x[1:], x[..., None], x[i, j].

The function `subscript` takes an `Array` and the items between the brackets: integers, slices, None, `...` and integer
arrays. The function makes a `View` node (basic indexing). If an item of the subscript is an integer array, a `Gather`
node follows the `View` node. A negative number in an integer array is counted from the end of the indexed axis. A
kernel cannot raise an error for an index that is out of bounds. If an index is out of bounds, the element of the result
is NaN, 0 or False, depending on the dtype. The function `subscript` rejects boolean masks, because the size of their
result depends on the data.
"""

from collections.abc import Sequence
from typing import Any

from minitri.base.dims import ONE, ZERO, Dim, sign
from minitri.base.resource_limits import MAX_ELEMENTS
from minitri.base.symbolic_minmax import at_most_one, largest, smallest, tidy
from minitri.base.types import bool_, i64
from minitri.graph import ir
from minitri.graph.functions.views import one_axis
from minitri.graph.parameter_binding import as_axis, as_int, as_offset, plain
from minitri.graph.typing_rules import Array, Strong, Typer, Value, describe, ensure, view

Item = Any  # Value | slice | Ellipsis
MOST_BITS = 40  # steps of a binary search in an array of unknown size: no memory holds more than 2**40 elements


def subscript(t: Typer, x: Array, items: Sequence[Item]) -> Array:
    """Returns the array `x[items]`. Raises CompileError MT0206 for an item that is not a valid index."""
    given = [_scalar_of(i) for i in items]
    items = _fill_ellipsis(x, given)
    advanced = any(isinstance(i, Array) for i in items)
    x = t.strong(x) if advanced else x
    shape: list[Dim] = []
    index: list[Dim] = []
    picks: list[tuple[int, Array]] = []  # (position in the view's axes, integer array)
    axis = 0
    for item in items:
        if item is None:
            shape.append(ONE)
            continue
        extent = x.shape[axis]
        axis += 1
        if isinstance(item, slice):
            length, position = _slice(t, item, extent, len(shape))
            index.append(position)
            shape.append(length)
        elif advanced:
            is_array = isinstance(item, Array)
            pick = wrapped(t, item, extent) if is_array else t.array(_position(t, item, extent, axis - 1))
            picks.append((len(shape), pick))
            index.append(ir.axis(len(shape)))
            shape.append(extent)
        else:
            index.append(_position(t, item, extent, axis - 1))
    viewed = view(t, x, shape, index)
    return _gather(t, viewed, picks, _adjacent(given)) if picks else viewed


def _scalar_of(item: Item) -> Item:
    """Checks that an item of a subscript can be an index, and returns the item."""
    if isinstance(item, Dim) and item.constant is not None:
        return item.constant
    if isinstance(item, Array):
        help = "the size of x[mask] depends on data; write where(mask, x, 0)"
        ensure(item.dtype != bool_, "MT0206", "a boolean array cannot be an index", help)
        ensure(item.dtype.is_integer, "MT0206", f"an index must be an integer, not {item.dtype}")
    fits = not isinstance(item, (bool, float, str, tuple))
    ensure(fits, "MT0206", f"an index must be an integer, a slice or an array, not {describe(item)}")
    return item


def _fill_ellipsis(x: Array, items: list[Item]) -> list[Item]:
    """Replaces `...` and omitted indices of a subscript by full slices: for a matrix, `x[0]` becomes `x[0, :]`."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    ensure(used <= x.rank, "MT0206", f"{used} indices for {x}, which has {x.rank} axes")
    ensure(items.count(Ellipsis) <= 1, "MT0206", "an index can hold only one ...")
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    everything = [slice(None)] * (x.rank - used)
    return items[:at] + everything + items[at + 1 :]


def _position(t: Typer, item: Item, extent: Dim, axis: int) -> Dim:
    """Converts an integer index to a position from the start of the axis: -1 becomes `extent - 1`."""
    ensure(isinstance(item, (int, Dim)), "MT0206", f"an index must be an integer, not {describe(item)}")
    k = Dim.of(item)
    # `N - 4` counts from the start, so each call checks that N >= 4; `-N` counts from the end
    backwards = _backwards(t, k)
    message = f"index {item} is out of range for axis {axis} of size {extent}"
    ensure(abs(k.constant or 0) <= MAX_ELEMENTS, "MT0206", message)
    t.require(extent, ">=", -k if backwards else k + 1, "MT0206", message)
    return extent + k if backwards else k


def _backwards(t: Typer, k: Dim) -> bool:
    """Checks whether an index or slice bound is negative, and so counts from the end."""
    if k.constant is not None:
        return k.constant < 0
    if sign(k) == -1:  # a symbolic index must have the same sign in each call
        t.require(-k, ">=", ONE, "MT0206", f"the index {k} counts from the end, and is 0 here")
        return True
    t.require(k, ">=", ZERO, "MT0206", f"the index {k} counts from the start, and is negative here")
    return False


def _slice(t: Typer, item: slice, extent: Dim, axis: int) -> tuple[Dim, Dim]:
    """Returns the length of a slice, and the index that each element of the slice reads: `2 + 3*d0` for `x[2::3]`."""
    step = 1 if item.step is None else int(as_offset(as_int(item.step, "the step of a slice"), "the step"))
    ensure(step != 0, "MT0206", "the step of a slice must not be 0")
    start, stop = _bounds(t, item, extent, step > 0)
    distance = stop - start if step > 0 else start - stop
    length = tidy(largest((distance + (abs(step) - 1)) // abs(step), 0))
    if step == 1 and length.constant is None:
        length = _one_element(item, extent) or length
    return length, tidy(start) + step * ir.along(axis, length)  # for `x[2::3]`: `2 + 3*d0`


def _one_element(item: slice, extent: Dim) -> Dim | None:
    """Returns the length (0 or 1) of a slice like `x[2:3]` or `x[-1:]`. Returns None for other slices."""
    first = as_offset(0 if item.start is None else item.start, "a slice bound")
    if first == -1 and item.stop is None or first == extent - 1 and (item.stop is None or item.stop == extent):
        return smallest(extent, 1)  # `at_most_one` recognises min(…, 1)
    if first.constant is None or not isinstance(item.stop, (int, Dim)) or item.stop != first + 1 or first == -1:
        return None
    missing = first if first.constant >= 0 else -first - 1
    length = smallest(largest(extent - missing, 0), 1)
    return tidy(length) if at_most_one(tidy(length)) else length


def _bounds(t: Typer, item: slice, extent: Dim, forwards: bool) -> tuple[Dim, Dim]:
    """Returns the start and the stop of a slice, counted from the beginning of the axis."""
    (start, start_back), (stop, stop_back) = (_bound(t, v) for v in (item.start, item.stop))
    # A bound is clipped only where the slice would be too long. Clipping at both ends would double the length of an
    # index with each further slice.
    if forwards:
        first = ZERO if start is None else extent - smallest(extent, -start) if start_back else start
        last = extent if stop is None else extent + stop if stop_back else smallest(stop, extent)
    else:
        first = extent - 1 if start is None else extent + start if start_back else smallest(start, extent - 1)
        last = ONE * -1 if stop is None else largest(extent + stop, -1) if stop_back else stop
    return first, last


def _bound(t: Typer, value: Value) -> tuple[Dim | None, bool]:
    """Returns a bound of a slice, and whether the bound is counted from the end."""
    if value is None:
        return None, False
    is_known = isinstance(value, (int, Dim)) and not isinstance(value, bool)
    help = "read so many elements by index: `x[k + arange(2)]` has 2, from element k on"
    message = f"a slice bound must be known at compile time, not {describe(value)}"
    ensure(is_known, "MT0106", message, help if isinstance(value, Array) else "")
    bound = as_offset(value, "a slice bound")
    return bound, _backwards(t, bound)


def wrapped(t: Typer, item: Item, extent: Dim) -> Array:
    """Converts an index array to i64, and adds `extent`, the size of the indexed axis, to each negative index."""
    array = t.array(item)
    index = t.cast(array, i64)
    if array.dtype.kind == "u":
        return index
    negative = t.elementwise("less", [index, 0])
    return t.elementwise("where", [negative, t.elementwise("add", [index, plain(extent)]), index])


def _gather(t: Typer, x: Array, picks: list[tuple[int, Array]], adjacent: bool) -> Array:
    """Indexes an array by integer arrays, as `x[i, :, j]` does in numpy."""
    positions = [p for p, _ in picks]  # the indexed axes
    common = t.broadcast_shapes([a.shape for _, a in picks], "index arrays")
    first = positions[0] if adjacent else 0  # if not adjacent, the axes of the index arrays come first, as in numpy
    kept = [k for k in range(x.rank) if k not in positions]
    before, after = [k for k in kept if k < first], [k for k in kept if k >= first]
    shape = tuple([x.shape[k] for k in before] + list(common) + [x.shape[k] for k in after])
    order = [*before, *[None] * len(common), *after]  # of the axes of x, around the axes of the index arrays
    index = [ir.pick(positions.index(k)) if k in positions else ir.axis(order.index(k)) for k in range(x.rank)]
    # each index array is repeated along the axes that are not indexed
    places = tuple(ir.axis(len(before) + k) for k in range(len(common)))
    spread = [t.nodes.view(t.broadcast(a.node, common), shape, places) for _, a in picks]
    return Array(t.nodes.gather(x.node, shape, tuple(index), tuple(spread)), x.dtype)


def _adjacent(items: Sequence[Item]) -> bool:
    """Checks whether all array and integer indices are next to each other."""
    # `...` separates two indices even if it stands for no axis
    flags = [not (i is None or i is Ellipsis or isinstance(i, slice)) for i in items]
    first, last = flags.index(True), len(flags) - 1 - flags[::-1].index(True)
    return all(flags[first : last + 1])


# ---- functions --------------------------------------------------------------------------------


def take(t: Typer, x: Array, indices: Array, axis: Value) -> Array:
    a, k = one_axis(t, x, axis)
    return subscript(t, a, [slice(None)] * k + [indices])


def take_along_axis(t: Typer, x: Strong, indices: Array, axis: Value) -> Array:
    k = as_axis(axis, x.rank)
    ensure(indices.dtype.is_integer, "MT0206", f"take_along_axis needs integer indices, not {indices.dtype}")
    message = f"take_along_axis needs an array and indices of one rank, not {x} and {indices}"
    ensure(indices.rank == x.rank, "MT0206", message)
    others = [tuple(e for j, e in enumerate(s) if j != k) for s in (x.shape, indices.shape)]
    common = t.broadcast_shapes(others, "array and indices of take_along_axis")
    shape = (*common[:k], indices.shape[k], *common[k:])
    where = [ir.pick(0) if j == k else ir.along(j, e) for j, e in enumerate(x.shape)]
    picks = (t.broadcast(wrapped(t, indices, x.shape[k]).node, shape),)
    return Array(t.nodes.gather(x.node, shape, tuple(where), picks), x.dtype)


def searchsorted(t: Typer, x1: Array, x2: Array, side: Value, sorter: Value) -> Array:
    """Defines numpy's searchsorted: finds where the elements of x2 belong in the sorted array x1.

    With side "left", returns for each element v of x2 how many elements of x1 are less than v. With side "right",
    returns for each element v of x2 how many elements of x1 are at most v. NaN counts as larger than every number.
    """
    ensure(side in ("left", "right"), "MT0102", 'the side of searchsorted is "left" or "right"')
    ensure(x1.rank == 1, "MT0201", f"searchsorted looks into an array of one axis, not {x1}")
    if sorter is not None:
        order = t.array(sorter)
        ensure(order.rank == 1, "MT0201", f"the sorter of searchsorted is an array of one axis, not {order}")
        x1 = take(t, x1, order, 0)
    a, size = t.strong(x1), x1.shape[0]
    bits = MOST_BITS if size.constant is None else int(size).bit_length()
    found = Array(t.broadcast(t.constant(0, i64), x2.shape), i64)
    for bit in reversed(range(bits)):
        found = _step(t, a, x2, found, 1 << bit, size, side == "right")
    return found


def _step(t: Typer, x: Array, wanted: Array, found: Array, more: int, size: Dim, equal: bool) -> Array:
    """Makes one step of a binary search for many numbers at once."""
    place = t.elementwise("add", [found, more])  # `found` has a lower bound of the position of each number
    inside = t.elementwise("less_equal", [place, plain(size)])
    last = t.elementwise("where", [inside, t.elementwise("subtract", [place, 1]), 0])
    read = Array(t.nodes.gather(x.node, last.shape, (ir.pick(0),), (last.node,)), x.dtype)
    before = _before(t, read, wanted, equal)
    # the lower bound grows if the element x[place - 1] comes before the number
    return t.elementwise("where", [t.elementwise("logical_and", [inside, before]), place, found])


def _before(t: Typer, x: Array, y: Array, equal: bool) -> Array:
    """Returns `x < y` or `x <= y`, where NaN counts as larger than every number."""
    less = t.elementwise("less_equal" if equal else "less", [x, y])
    if not (x.dtype.is_float or y.dtype.is_float):
        return less
    last = t.elementwise("isnan", [y])
    if not equal:
        last = t.elementwise("logical_and", [last, t.elementwise("logical_not", [t.elementwise("isnan", [x])])])
    return t.elementwise("logical_or", [less, last])
