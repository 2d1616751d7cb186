"""graph → graph: splits a long reduction with few results, or with columns, in two, so that it fills the GPU.

    %1: f32[] = reduce.sum x {axes = [0]}          x: f32[1048576]
becomes
    %0: f32[1024, 1024] = view x {index = [1024*d0 + d1]}
    %1: f32[1024] = reduce.sum %0 {axes = [1]}     one program a part
    %2: f32[] = reduce.sum %1 {axes = [0]}

A reduction that depends on another one of the same elements is split with it. minitri/optimize/split_parts.py says what
the parts are and how they are put together. minitri/optimize/split_kv.py decides for reductions that share a loop with
a product, and minitri/optimize/split_scan.py for scans.

Sizes alone fix the order of additions, so results are the same in every run (no atomics). Uneven parts are padded. Left
out: unknown sizes.
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

MOST_LOOKED_AT = 64  # nodes, to find what is reduced
SHORTEST, SHORTEST_COLUMN = 4096, 512  # reducing fewer elements is not worth a second kernel
ALIGNED, BLOCK = 16, 2048  # elements: the most that 16 bytes hold, and what a program reduces at a time
MOST_PARTS = 1024  # which the second kernel reduces at once
SHORTEST_PART, LEAST = 128, 1024  # of columns, and of rows: elements of a part, at least


def split(graph: Graph, chip: Chip, gaps: Container[str] = (), without: Container[str] = ()) -> Graph:
    """A graph whose `splits` list what is computed in parts, as many as fill the chip.

    `gaps`: the inputs whose elements do not lie one after the other. `without`: the kinds of splits that are left out.
    """
    splits: list[Split] = []
    cuts: dict[Node, Cut] = {}  # reductions in two, by their result
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
            return made  # what stays in one kernel keeps its axes
        fired(split, made, halves, interner.place)
        return halves

    return replace(rebuild(graph, make), splits=tuple(splits))


def _split(cut: Cut, cuts: dict[Node, Cut], splits: list[Split]) -> Node:
    """A reduction in two."""
    node = cut.node
    splits.append(Split(node, cut.parts, cut.length))
    if node.op in POSITIONS:
        return cut.position()
    terms = terms_of(node.x, node.axes, cuts)
    needs = [y for y in terms.needs() if y.y.node in cuts]
    result = _follow(terms, cut, cuts, needs) if needs and node.op == "sum" else None
    if result is None:  # a second pass, with what the first one came to
        result = cut.made()
    if not needs or cut.found is not None:
        cuts[result] = cut
    return result


def _follow(terms: GraphTerms, cut: Cut, cuts: Cuts, needs: list[Reduced[Element]]) -> Node | None:
    found = transported(terms, terms.root, needs)
    if found is None or any((cuts[y.y.node].k, cuts[y.y.node].length) != (cut.k, cut.length) for y in needs):
        return None
    following = Following(cut.i, terms, cuts)
    return following.rescaled(cut, found) if isinstance(found, Rescale) else following.shifted(cut, found)


def _cut(i: Interner, node: Reduce, chip: Chip, decided: Parts | None) -> Cut | None:
    """In how many parts a reduction is made, if that is worth it. `decided`: how many, of which length; one: it stays
    whole."""
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
    """How many parts each result is made of, where `wanted` programs fill the chip. `width`: of columns, bytes of an element, else 0. A program has a few rows of
    them on their way: the narrower they are, the more programs it takes to keep the memory busy."""
    programs = -(-results // LANES) if width else results
    if programs == 0 or count < (SHORTEST_COLUMN if width else SHORTEST):
        return 1
    parts = min(wanted // (max(2, width) * programs), count // SHORTEST_PART) if width else 1
    if count >= SHORTEST and programs * 4 <= wanted:
        parts = max(parts, min(wanted // programs, count // LEAST))
    return max(1, min(parts, MOST_PARTS))


def _length(extent: int, parts: int, any_start: bool) -> int:
    """The length of about `parts` parts that are even, or even except the last one.

    The parts of a row begin at multiples of 16 bytes, unless there are other axes to begin along (`any_start`).
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
    """Whether few elements of the blocks lie past the end: one power of two covers the length, or it has many blocks."""
    return length >= 8 * BLOCK or length * 4 >= 3 << (length - 1).bit_length()


def _column_width(node: Reduce) -> int:
    """Bytes of an element of the largest array or product that is reduced, if it lies in memory along an axis that is
    kept; else 0."""
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
