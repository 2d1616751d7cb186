"""Splits reductions that share a loop with a product into parts, if few programs would run ("split-KV").

    softmax(q @ k.mT) @ v                 8 rows a head, 32768 keys, 8 heads: 8 programs
becomes for each of 32 parts of 1024 keys, in one kernel
    m = max s,   l = sum exp(s - m),   o = exp(s - m) @ v
and in a second one
    o = sum over parts of o * exp(m - max m),   divided by the same of l

In: a graph, before anything is split. Out: how many parts, and how long, each maximum has that a product follows
along the same axis, and the sums that follow it; one where they stay whole, because enough programs run.
Then the product itself, once they are made. A quotient by such a sum is taken of the product instead of
its factor. Nothing here knows the word attention: what follows what is minitri/optimize/online_reductions/transport.py's question.

Of a loop whose length is not known there are at most 32 parts, which may be empty. Left out: other sizes that are not
known; products that no program could hold the columns of (kernels/demand.py
would store their factor anyway); where parts do not come out even, factors of something besides exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minitri.base.dims import Dim
from minitri.base.types import f32
from minitri.graph.ir import Contract, Graph, Interner, Node, Reduce, Split
from minitri.graph.scalar_form import Element, GraphTerms
from minitri.hardware.chips import Chip
from minitri.optimize.online_reductions.transport import Rescale
from minitri.optimize.split_parts import Cuts, FollowingProduct, made_of, only_exponentials, terms_of, transported

MAX_HELD = 256  # the longest axis of a product that a program holds whole, to loop over another
ROWS = 64  # of a product that one program makes, where few run
SHORTEST = 2048  # a shorter loop is not worth a second kernel
PART = 256  # elements of a part, at least
UNKNOWN = 32  # parts of a loop of unknown length, at most
STEP = 64  # parts are so many elements, or a multiple: blocks of a loop

IsSum = Callable[[Element], bool]
Parts = tuple[int, Dim]  # how many, and the length of each


def loops(graph: Graph, chip: Chip) -> dict[Node, Parts]:
    """The parts of the maxima and sums that share a loop with a product."""
    nodes = graph.nodes()
    found: dict[Node, Parts] = {}  # by the maxima
    for node in (n for n in nodes if isinstance(n, Contract) and _is_known(n)):
        group = _Group.of(node, GraphTerms(node.a, (node.rank - 1,), permuted=True), _follows)
        if group is not None and _may_be_held(node):
            y = group.found.y.y.node
            parts = group.parts(chip)
            found[y] = min(parts, found.get(y, parts), key=lambda p: p[0])
    sums = [n for n in nodes if found and isinstance(n, Reduce) and n.op == "sum"]
    needs = [(s, y.y.node) for s in sums for y in GraphTerms(s.x, s.axes).needs()]
    return {**found, **{s: found[y] for s, y in needs if y in found}}


def split_loop(i: Interner, node: Contract, cuts: Cuts, splits: list[Split]) -> Node | None:
    """A product by parts, if it follows a maximum that is."""
    terms = terms_of(node.a, (node.rank - 1,), cuts, permuted=True)
    group = _Group.of(node, terms, lambda e: e.node in cuts and cuts[e.node].found is not None) if cuts else None
    if group is None or group.found.y.y.node not in cuts:
        return None
    cut = cuts[group.found.y.y.node]
    splits.append(Split(node, cut.parts, cut.length))
    return FollowingProduct(i, terms, cuts).product(node, group.found, group.numerator, group.divisor, group.over)


class _Group:
    """A product whose first factor is, perhaps converted, `numerator / divisor`, and follows a maximum."""

    def __init__(
        self, node: Contract, terms: GraphTerms, found: Rescale[Element], over: Element, parts: tuple[Element, ...]
    ) -> None:
        self.node, self.terms, self.found, self.over = node, terms, found, over
        self.numerator, self.divisor = parts if len(parts) == 2 else (over, None)

    @staticmethod
    def of(node: Contract, terms: GraphTerms, is_sum: IsSum) -> _Group | None:
        over = terms.root
        while terms.look(over)[0] == "cast":
            (over,) = terms.look(over)[1]
        name, parts = terms.look(over)
        quotient = name == "divide" and terms.same_elements(parts[1]) and is_sum(parts[1])
        numerator = parts[0] if quotient else over
        needs = terms.needs(numerator)
        if quotient and any((y.y.at, y.y.node.shape) != (parts[1].at, parts[1].node.shape) for y in needs):
            return None
        if over != terms.root and quotient and terms.look(numerator)[0] != "exp":
            return None  # a conversion of what may be more than 1
        found = transported(terms, numerator, needs)
        return _Group(node, terms, found, over, parts if quotient else ()) if isinstance(found, Rescale) else None

    def parts(self, chip: Chip) -> Parts:
        """How many, and how long they are; one if the loop stays whole."""
        *sizes, depth = self.node.a.shape
        *batch, rows = map(int, sizes)
        wanted = _wanted(chip.multiprocessors, math.prod(batch) * -(-rows // ROWS), depth.constant)
        for parts in range(wanted, max(1, wanted // 2), -1):
            if depth.constant is not None and depth.constant % (parts * STEP) == 0:
                return parts, depth // parts
        pure = only_exponentials(self.terms, self.numerator, self.found.y)
        if wanted < 2 or not pure:
            return 1, depth
        length = (depth + (wanted * STEP - 1)) // (wanted * STEP) * STEP
        return wanted if depth.constant is None else -(-depth.constant // int(length)), length


def _wanted(multiprocessors: int, programs: int, depth: int | None) -> int:
    """How many parts would give each multiprocessor two programs; of a loop of unknown length not as many."""
    if not 0 < programs <= multiprocessors // 2 or depth is not None and depth < SHORTEST:
        return 1
    return min(2 * multiprocessors // programs, UNKNOWN if depth is None else depth // PART)


def _is_known(node: Contract) -> bool:
    """Whether all sizes are known, except the length of the loop."""
    return node.dtype == f32 and all(e.constant is not None for e in node.shape)


def _may_be_held(node: Contract) -> bool:
    """Whether a program can keep the other axes of this product, and of the products in its factor."""
    inner = [n for n in made_of(node.a) if isinstance(n, Contract)]
    return int(node.shape[-1]) <= MAX_HELD and all((n.a.shape[-1].constant or MAX_HELD + 1) <= MAX_HELD for n in inner)


def _follows(e: Element) -> bool:
    """Whether a sum is one of exponentials that follow a maximum: at least 1, or nan."""
    if not isinstance(e.node, Reduce) or e.node.op != "sum":
        return False
    terms = GraphTerms(e.node.x, e.node.axes)
    return terms.look(terms.root)[0] == "exp" and isinstance(transported(terms, terms.root, terms.needs()), Rescale)
