"""Reductions over neighbouring axes of arrays without gaps, as reductions over one axis.

    sum(x), x: f32[86369, 777]         sum of x[d0 // 777, d0 % 777] over d0: f32[67108713]

In parts (split.py) the one axis is better than the two: parts end where it suits the memory and not where rows do, and
no lane lies past the end of a row. That the quotient and the remainder are x again, seen as one axis, is found when
addresses are made (minitri/kernel/flatten.py). Left out: what has gaps, or lacks one of the axes; its addresses would
need the quotient.
"""

from __future__ import annotations

from collections.abc import Container

from minitri import dims
from minitri.graph.ir import Apply, Input, Interner, Reduce, View, axis, axis_symbol


def joined(i: Interner, node: Reduce, gaps: Container[str]) -> Reduce:
    """The same reduction over one axis, or itself. `gaps`: the inputs whose elements do not lie one after the other."""
    first, count = min(node.axes), len(node.axes)
    last = first + count - 1
    if count < 2 or node.op in ("argmax", "argmin") or {*node.axes} != {*range(first, last + 1)}:
        return node
    sizes = node.x.shape[first : last + 1]
    if any(e.constant is None for e in sizes) or not _without_gaps(node, gaps):
        return node
    shape = (*node.x.shape[:first], dims.product(list(sizes)), *node.x.shape[last + 1 :])
    index = [*map(axis, range(first)), *_places(axis(first), sizes), *map(axis, range(first + 1, len(shape)))]
    made = i.reduce(node.op, node.dtype, node.shape, i.view(node.x, shape, tuple(index)), (first,))
    assert isinstance(made, Reduce)
    return made


def _places(place: dims.Dim, sizes: tuple[dims.Dim, ...]) -> list[dims.Dim]:
    """Where an element of all is along each axis."""
    found: list[dims.Dim] = []
    for size in reversed(sizes[1:]):
        found.insert(0, place % size)
        place = place // size
    return [place, *found]


def _without_gaps(node: Reduce, gaps: Container[str]) -> bool:
    """Whether all that is reduced are arrays of this shape, and values that are the same along the axes."""
    along = {axis_symbol(k) for k in node.axes}
    stack, seen = [node.x], {node.x}
    while stack:
        x = stack.pop()
        match x:
            case Apply():
                stack += [a for a in x.args if a not in seen]
                seen |= {*x.args}
            case View() if not along & {s for d in x.index for s in d.symbols()}:
                pass
            case Input() if x.shape == node.x.shape and x.name not in gaps:
                pass
            case _:
                return False
    return True
