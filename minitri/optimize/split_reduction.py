"""graph → graph: splits a long reduction with few results into two steps, so that it fills the GPU ("split reduction").

    %1: f32[] = reduce.sum x {axes = [0]}          x: f32[1048576]
becomes
    %0: f32[1024, 1024] = view x {index = [1024*d0 + d1]}
    %1: f32[1024] = reduce.sum %0 {axes = [1]}     one program per part
    %2: f32[] = reduce.sum %1 {axes = [0]}

Reductions of columns are split even if they have more results. If a reduction depends on another one of the same
elements, both are split into the same parts. minitri/optimize/split_parts.py describes how parts are computed and
combined. minitri/optimize/split_kv.py decides for reductions that share a loop with a product, and
minitri/optimize/split_scan.py for scans.

The order of additions depends on the sizes alone and there are no atomics, so each run gives the same result. Uneven
parts are padded. Left out: unknown sizes.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import replace

from minitri.base import dims
from minitri.base.dims import Dim
from minitri.base.logs import fired
from minitri.base.operators import POSITIONS
from minitri.graph.ir import Apply, Contract, Graph, Input, Interner, Node, Reduce, Scan, Split, axis, axis_symbol
from minitri.graph.rewrite import copy, rebuild
from minitri.graph.scalar_form import Element, GraphTerms, element
from minitri.hardware.chips import Chip
from minitri.optimize.collapse_reduced_axes import joinable, joined
from minitri.optimize.online_reductions.transport import Reduced, Rescale
from minitri.optimize.split_k import split_product
from minitri.optimize.split_kv import Parts, loops, split_loop
from minitri.optimize.split_parts import LANES, WAVES, Cut, Cuts, Following, terms_of, transported
from minitri.optimize.split_scan import split_scan

MOST_LOOKED_AT = 64  # the most nodes that the search for the largest array visits
SHORTEST, SHORTEST_COLUMN = 4096, 512  # reducing fewer elements is not worth a second kernel
ALIGNED, BLOCK = 16, 2048  # elements: the most that 16 bytes hold, and what a program reduces at a time
MOST_PARTS = 1024  # the second kernel reduces this many at once
SHORTEST_PART, LEAST = 128, 1024  # the fewest elements of a part, for columns and for rows


def split(graph: Graph, chip: Chip, gaps: Container[str] = (), without: Container[str] = ()) -> Graph:
    """The graph, with long reductions, products and scans computed in parts. Its field `splits` lists them.

    gaps      the inputs that are not contiguous
    without   the names of the rooms to leave out, such as "split-k"
    """
    splits: list[Split] = []
    cuts: dict[Node, Cut] = {}  # split reductions, by their result
    decided = {} if "split-kv" in without else loops(graph, chip)
    several = set() if "collapse-reduced-axes" in without else joinable(graph, gaps)

    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = copy(interner, node, args)
        halves: Node | None = None
        if isinstance(made, Contract):
            halves = split_loop(interner, made, {y: c for y, c in cuts.items() if c.looped}, splits)
            if halves is None and "split-k" not in without:
                halves = split_product(interner, made, chip, splits)
        elif isinstance(made, Reduce) and (node in decided or "split-reduction" not in without):
            whole = joined(interner, made) if node in several and node not in decided else made
            cut = _cut(interner, whole, chip, decided.get(node))
            halves = None if cut is None else _split(cut, cuts, splits)
        elif isinstance(made, Scan) and "split-scan" not in without:
            halves = split_scan(interner, made, chip, splits)
        if halves is None:
            return made  # a reduction that stays in one kernel keeps its axes
        fired(split, made, halves, interner.place)
        return halves

    return replace(rebuild(graph, make), splits=tuple(splits))


def _split(cut: Cut, cuts: dict[Node, Cut], splits: list[Split]) -> Node:
    """The nodes of a reduction in two steps. If it depends on split reductions, it uses their parts if possible."""
    node = cut.node
    splits.append(Split(node, cut.parts, cut.length))
    if node.op in POSITIONS:
        return cut.position()
    terms = terms_of(node.x, node.axes, cuts)
    needs = [y for y in terms.needs() if y.y.node in cuts]
    result = _follow(terms, cut, cuts, needs) if needs and node.op == "sum" else None
    if result is None:  # reads the elements again, after the reductions that it depends on are complete
        result = cut.made()
    if not needs or cut.found is not None:
        cuts[result] = cut
    return result


def _follow(terms: GraphTerms, cut: Cut, cuts: Cuts, needs: list[Reduced[Element]]) -> Node | None:
    """A sum that uses the parts of the split reductions in `needs`. None if it has no transport or different parts."""
    found = transported(terms, terms.root, needs)
    if found is None or any((cuts[y.y.node].k, cuts[y.y.node].length) != (cut.k, cut.length) for y in needs):
        return None
    following = Following(cut.i, terms, cuts)
    return following.rescaled(cut, found) if isinstance(found, Rescale) else following.shifted(cut, found)


def _cut(i: Interner, node: Reduce, chip: Chip, decided: Parts | None) -> Cut | None:
    """How to split a reduction, or None if splitting does not pay.

    `decided` is the number and length of parts that split_kv.py has chosen. With one part the reduction stays whole.
    """
    if decided is not None:
        return Cut(i, node, node.axes[0], *decided, looped=True) if decided[0] > 1 else None
    if any(e.constant is None for e in node.x.shape):
        return None
    extents, results = [int(node.x.shape[k]) for k in node.axes], math.prod(map(int, node.shape))
    width = _column_width(node)
    parts = _parts(math.prod(extents), results, width, WAVES * chip.multiprocessors)
    place = extents.index(max(extents))
    long = extents[place]
    length = _length(long, min(parts, long), width > 0 or len(extents) > 1) if parts > 1 else long
    return Cut(i, node, node.axes[place], -(-long // length), Dim.of(length)) if 0 < length < long else None


def _parts(count: int, results: int, width: int, wanted: int) -> int:
    """The number of parts for each result, such that about `wanted` programs run.

    `width` is the size of an element in bytes if columns are reduced, else 0. A program loads a few rows of its columns
    at a time. The narrower these rows are, the more programs are needed to keep the memory busy.
    """
    programs = -(-results // LANES) if width else results
    if programs == 0 or count < (SHORTEST_COLUMN if width else SHORTEST):
        return 1
    parts = min(wanted // (max(2, width) * programs), count // SHORTEST_PART) if width else 1
    if count >= SHORTEST and programs * 4 <= wanted:
        parts = max(parts, min(wanted // programs, count // LEAST))
    return max(1, min(parts, MOST_PARTS))


def _length(extent: int, parts: int, any_start: bool) -> int:
    """The length of the parts of an axis, so that there are about `parts` of them. The last one may be shorter.

    The parts of a row begin at multiples of 16 bytes. With `any_start` they may begin anywhere.
    """
    least = parts - parts // 4 if any_start else parts // 2 + 1
    even = next((extent // n for n in range(parts, least - 1, -1) if extent % n == 0), 0)
    if even and (any_start or (even % ALIGNED == 0 and _fills(even))):
        return even
    length = -(-extent // parts)
    if any_start:
        return length
    if length >= 8 * BLOCK:
        return -(-length // BLOCK) * BLOCK
    less = 1 << (length.bit_length() - 1)
    return less if -(-extent // less) <= MOST_PARTS else 2 * less


def _fills(length: int) -> bool:
    """Whether few elements of the blocks of a part lie past its end."""
    return length >= 8 * BLOCK or length * 4 >= 3 << (length - 1).bit_length()


def _column_width(node: Reduce) -> int:
    """The element size in bytes if columns are reduced, else 0.

    The largest array or product in the operand decides. Columns are reduced if its contiguous axis is not reduced.
    """
    largest, width, kept = -1, 0, False
    stack = [element(node.x, tuple(map(axis, range(node.x.rank))))]
    for _ in range(MOST_LOOKED_AT):
        if not stack:
            break
        x, index = stack.pop()
        size = dims.product(list(x.shape)).constant or 0
        if isinstance(x, Apply):
            stack += [element(a, index) for a in x.args]
        elif isinstance(x, (Input, Contract)) and x.rank and size > largest:
            along = {k for k in range(node.x.rank) if axis_symbol(k) in index[-1].symbols()}
            largest, width, kept = size, x.dtype.bytes, bool(along) and not along & set(node.axes)
    if largest < 0:
        width, kept = node.x.dtype.bytes, node.axes[-1] != node.x.rank - 1
    return width if kept else 0
