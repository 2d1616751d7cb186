"""graph → graph: if an array has no gaps in memory, a reduction over neighbouring axes becomes a reduction over one
axis.

    sum(x), x: f32[86369, 777]         sum of x[d0 // 777, d0 % 777] over d0: f32[67108713]

A reduction over one axis is easier to split (split_reduction.py), because its parts may end in the middle of a row. If
a reduction over one axis is split, the length of each part is a multiple of the block size, so tiles need no padding.
Later, minitri/optimize/collapse_axes.py replaces the two indices in `x[d0 // 777, d0 % 777]` by the single index d0.

A matrix with gaps between its rows keeps two axes, because the address of an element needs both the row index and the
column index. An operand that is broadcast along one of two reduced axes is indexed only by the other axis. To load such
an operand, a kernel would have to compute the index of the other axis from the index of the merged axis. If an array
has gaps in memory, its contiguous axis is not merged with other axes. If two sums read the same array, either both or
neither count as sums without gaps, because the two sums will share a kernel. A merged axis is longer than each of the
original axes, so it can be split into more parts. Neighbouring axes that are not contiguous in memory are merged only
if the reduction can then have over 1.5 times as many parts as before. For example, the axes of lengths 96 and 16 in
`sum(x / m)` become one axis of length 96*16:

    sum(x / m), x: f32[96, 16, 1023], m: f32[16, 1023]         96*16 rows, of which each part has a few
"""

import math
from collections.abc import Container
from itertools import groupby

import networkx as nx

from minitri.base import dims
from minitri.base.operators import POSITIONS
from minitri.graph import ir
from minitri.graph.ir import Apply, Graph, Input, Interner, Layouts, Node, Reduce, View, axis, axis_symbol
from minitri.graph.rewrite import rewritten
from minitri.hardware.chips import Chip
from minitri.optimize.split_reduction import choose, contiguous_axes, rows_first
from minitri.optimize.two_step_reductions import made_of


def collapse(graph: Graph, chip: Chip, gaps: Layouts = {}) -> Graph:
    """Merges neighbouring reduced axes of the reductions that a later pass splits into parts.

    The argument `gaps` has the strides of each input that is not contiguous in memory.
    """
    if not any(isinstance(n, Reduce) for n in graph.nodes()):
        return graph
    several, by_rows = joinable(graph, gaps), rows_first(graph, chip, gaps)

    def parts(node: Reduce) -> int:
        return choose(node, chip, gaps)[1]

    def one_axis(i: Interner, node: Node, made: Node) -> Node | None:
        if not isinstance(node, Reduce) or not isinstance(made, Reduce) or node.op in POSITIONS or node in by_rows:
            return None
        if node in several:
            whole = joined(i, made, min(made.axes), max(made.axes))
            return whole if parts(whole) > 1 else None
        rows = _longest_run(made, gaps)
        fewer = joined(i, made, rows[0], rows[-1]) if len(rows) > 1 else made
        return fewer if 2 * parts(fewer) > 3 * parts(made) else None

    return rewritten(graph, collapse, one_axis)


def _longest_run(node: Reduce, gaps: Layouts) -> list[int]:
    """Finds groups of adjacent reduced axes that are not contiguous in memory, and returns the group with the most
    elements.
    """
    _, inner = contiguous_axes(node, gaps)
    # reduced axes of known sizes along which memory is not contiguous
    suitable = [k in node.axes and k not in inner and e.constant is not None for k, e in enumerate(node.x.shape)]
    runs = [[*run] for fits, run in groupby(range(node.x.rank), suitable.__getitem__) if fits]
    return max(runs, key=lambda run: math.prod(int(node.x.shape[k]) for k in run), default=[])


def joinable(graph: Graph, gaps: Container[str]) -> set[Reduce]:
    """Returns the reductions whose reduced axes can all become one axis. The argument `gaps` names the inputs that are
    not contiguous in memory.
    """
    over_several = {n for n in graph.nodes() if isinstance(n, Reduce) and _neighbours(n)}
    arrays = {n: [x for x in made_of(n.x) if isinstance(x, Input) and not x.scalar] for n in over_several}
    reads = nx.Graph((n, x) for n, inputs in arrays.items() for x in (n, *inputs))
    alike = [over_several & part for part in nx.connected_components(reads)]
    return {n for part in alike if all(_without_gaps(n, gaps) for n in part) for n in part}


def joined(i: Interner, node: Reduce, first: int, last: int) -> Reduce:
    """Returns the reduction `node` with one axis in place of the axes `first` to `last` of the operand."""
    sizes, gone = node.x.shape[first : last + 1], last - first
    shape = (*node.x.shape[:first], dims.product(list(sizes)), *node.x.shape[last + 1 :])
    index = [*map(axis, range(first)), *places(axis(first), sizes), *map(axis, range(first + 1, len(shape)))]
    axes = tuple(dict.fromkeys(k if k < first else max(first, k - gone) for k in sorted(node.axes)))
    return i.reduce(node.op, i.view(node.x, shape, tuple(index)), axes)


def _neighbours(node: Reduce) -> bool:
    """Checks whether a reduction runs over several neighbouring axes of known sizes."""
    first, last = min(node.axes, default=0), max(node.axes, default=0)
    sizes = node.x.shape[first : last + 1]
    known = all(e.constant is not None for e in sizes)
    return known and 1 < len(node.axes) == last - first + 1 and node.op not in POSITIONS


def places(place: dims.Dim, sizes: tuple[dims.Dim, ...]) -> list[dims.Dim]:
    """Splits the flat index `place` into one index for each axis of an array with the shape `sizes`. For example, the
    flat index 5 into an array of shape (2, 3) becomes the indices 1 and 2.
    """
    first, *others = ir.contiguous(sizes)
    return [place // first, *(place // stride % size for stride, size in zip(others, sizes[1:]))]


def _without_gaps(node: Reduce, gaps: Container[str]) -> bool:
    """Checks whether a reduction's operand is computed only from contiguous arrays of the operand's shape."""
    along = {axis_symbol(k) for k in node.axes}

    def fits(x: Node) -> bool:
        if isinstance(x, View):
            # an array that is constant along the reduced axes may have any layout in memory
            return not along & {s for d in x.index for s in d.symbols()}
        return isinstance(x, Apply) or isinstance(x, Input) and x.shape == node.x.shape and x.name not in gaps

    return all(map(fits, ir.postorder([node.x], lambda x: x.args if isinstance(x, Apply) else ())))
