"""Reductions over neighbouring axes of arrays without gaps become reductions over one axis.

    sum(x), x: f32[86369, 777]         sum of x[d0 // 777, d0 % 777] over d0: f32[67108713]

One axis is better to split (split_reduction.py): parts end where it suits the memory, not where rows end, and no
element of a tile lies past the end of a row. minitri/optimize/collapse_axes.py turns the quotient and the remainder
back into one axis of x. Left out: arrays with gaps, and arrays without one of the axes; their addresses would need the
quotient. A sum over such an array keeps its axes, and so does any sum that reads it: the two share a kernel.
"""

from __future__ import annotations

from collections.abc import Container

from minitri.base import dims
from minitri.base.operators import POSITIONS
from minitri.graph.ir import Apply, Graph, Input, Interner, Node, Reduce, View, axis, axis_symbol
from minitri.optimize.split_parts import made_of


def joinable(graph: Graph, gaps: Container[str]) -> set[Reduce]:
    """The reductions that may be over one axis. `gaps`: the inputs whose elements do not lie one after the other."""
    over_several = [n for n in graph.nodes() if isinstance(n, Reduce) and _neighbours(n)]
    found = {n for n in over_several if _without_gaps(n, gaps)}
    while apart := {i for n in over_several if n not in found for i in _inputs(n)}:
        left = {n for n in found if not apart & _inputs(n)}
        if left == found:
            break
        found = left
    return found


def joined(i: Interner, node: Reduce) -> Reduce:
    """The same reduction over one axis."""
    first, last = min(node.axes), max(node.axes)
    sizes = node.x.shape[first : last + 1]
    shape = (*node.x.shape[:first], dims.product(list(sizes)), *node.x.shape[last + 1 :])
    index = [*map(axis, range(first)), *_places(axis(first), sizes), *map(axis, range(first + 1, len(shape)))]
    made = i.reduce(node.op, node.dtype, node.shape, i.view(node.x, shape, tuple(index)), (first,))
    assert isinstance(made, Reduce)
    return made


def _neighbours(node: Reduce) -> bool:
    """Whether it is over several axes that lie side by side, of known sizes."""
    first, last = min(node.axes, default=0), max(node.axes, default=0)
    sizes = node.x.shape[first : last + 1]
    known = all(e.constant is not None for e in sizes)
    return known and 1 < len(node.axes) == last - first + 1 and node.op not in POSITIONS


def _inputs(node: Reduce) -> set[Node]:
    """The arrays that a reduction reads."""
    return {x for x in made_of(node.x) if isinstance(x, Input) and not x.scalar}


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
