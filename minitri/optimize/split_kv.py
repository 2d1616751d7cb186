"""graph → graph: splits the loop over keys in attention into parts that run in parallel ("split-KV", flash-decoding).

    softmax(q @ k.mT) @ v                 8 rows a head, 32768 keys, 8 heads: only 8 programs
      becomes, for each of 32 parts of 1024 keys, in one kernel
    m = max s,   l = sum exp(s - m),   o = exp(s - m) @ v
      and in a second kernel
    o = sum over parts of o * exp(m - max m),   divided by sum over parts of l * exp(m - max m)

If the loop over keys is not split, attention with few rows starts few grid programs and leaves most of the chip idle.
This optimisation works for every product whose first factor depends on a maximum along the summed axis, not only for
attention. A partial product uses the maximum of its own part, so the partial product must be corrected for the maximum
of all parts. The file minitri/graph/partial_sum_correction.py decides whether the correction is possible.

All products in a loop are split into the same number of parts. In attention, the maximum, the sum of the exponentials,
and the product with v are all split into the same parts. The first factor of a product can be a quotient whose divisor
is a sum, as in a softmax. Instead of the first factor, the pass then divides the result of the product by the sum.

A loop of unknown length gets at most 32 parts, and some of these parts can be empty. A loop is not split if a size
other than its length is unknown. A loop is also not split if its products have too many columns for one grid program.
If equal parts are impossible, the pass pads the last part of the loop with elements that add 0 to the product. The loop
can be padded only if the maximum's operand is the only array in the first factor that varies along the summed axis. For
example, exp(s - max s) @ v can be padded, because exp(-inf) is 0. The product (w * exp(s - max s)) @ v cannot be padded
if w is an array with the same shape as s. If equal parts are impossible and the loop cannot be padded, the loop is not
split.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minitri.base.dims import ONE, Dim
from minitri.base.nodes import grouped
from minitri.base.types import f32
from minitri.graph.ir import Contract, Graph, Interner, Node, Reduce, axis, axis_symbol
from minitri.graph.partial_sum_correction import Rescale
from minitri.graph.rewrite import compute
from minitri.graph.scalar_form import Element, GraphTerms, build
from minitri.hardware.chips import Chip
from minitri.optimize import two_step_reductions
from minitri.optimize.two_step_reductions import Cut, Cuts, Following, Halves, made_of, terms_of

MAX_HELD = 256  # the longest axis of a product that a program keeps complete while it loops over another axis
ROWS = 64  # rows of the product in one program, if there are few programs
SHORTEST = 2048  # a shorter loop is not worth a second kernel
PART = 256  # the fewest elements of a part
UNKNOWN = 32  # the most parts of a loop of unknown length
STEP = 64  # the length of a part is a multiple of this, so that parts consist of complete blocks


Parts = tuple[int, Dim]  # the number of parts, and the length of each


def split_loops(graph: Graph, chip: Chip) -> Graph:
    """Returns the graph in which attention's loops over keys are split into parts. The field `splits` of the graph
    lists the nodes that were split.
    """
    groups = loops(graph)
    decided = {y: min((g.parts(chip) for g in groups[y]), key=lambda p: p[0]) for y in groups}
    cuts: dict[Node, Cut] = {}  # split maxima and sums, by their result

    def halves(i: Interner, node: Node, made: Contract | Reduce) -> Halves | None:
        if isinstance(made, Contract):
            return _product(i, made, cuts) if cuts else None
        parts = decided.get(node, (1, ONE))
        return Cut(i, made, made.axes[0], *parts).made(cuts) if parts[0] > 1 else None

    return two_step_reductions.split(graph, split_loops, halves, Contract, Reduce) if decided else graph


def loops(graph: Graph) -> dict[Node, list[_Group]]:
    """Returns the maxima and sums that are computed in one loop with matrix products. In the returned dict, each
    maximum or sum is a key. The value of a key lists the products in the same loop.
    """
    nodes = graph.nodes()
    products = [n for n in nodes if isinstance(n, Contract) and _is_known(n) and _may_be_held(n)]
    groups = (_Group.of(n, GraphTerms(n.a, (n.rank - 1,), permuted=True), _follows) for n in products)
    found = grouped((group.found.y.y.node, group) for group in groups if group is not None)  # by the maxima
    sums = [n for n in nodes if found and isinstance(n, Reduce) and n.op == "sum"]
    needs = [(s, y.y.node) for s in sums for y in GraphTerms(s.x, s.axes).needs()]
    return {**found, **{s: found[y] for s, y in needs if y in found}}


def _product(i: Interner, node: Contract, cuts: Cuts) -> Halves | None:
    """Splits a product such as `exp(s - max s) @ v` into the same parts as `max s`."""
    terms = terms_of(node.a, (node.rank - 1,), cuts, permuted=True)
    group = _Group.of(node, terms, lambda e: e.node in cuts and cuts[e.node].found is not None)
    if group is None or group.found.y.y.node not in cuts:
        return None
    cut = cuts[group.found.y.y.node]
    return group.in_parts(Following(i, terms, cuts), cut), cut.parts, cut.length


class _Group:
    """A matrix product whose first factor depends on a maximum, such as `softmax(s) @ v`."""

    def __init__(
        self, node: Contract, terms: GraphTerms, found: Rescale[Element], over: Element, parts: tuple[Element, ...]
    ) -> None:
        # `over`: the first factor without its conversions to other dtypes
        self.node, self.terms, self.found, self.over = node, terms, found, over
        # the operands of a quotient by a sum, as in a softmax; otherwise `over` and None
        self.numerator, self.divisor = parts if len(parts) == 2 else (over, None)

    @staticmethod
    def of(node: Contract, terms: GraphTerms, is_sum: Callable[[Element], bool]) -> _Group | None:
        """Returns the `_Group` of a product. Returns None if the product's first factor does not depend on a maximum.

        The function `is_sum` tells whether a divisor is a sum that is split into the same parts as the product.
        """
        over = terms.root
        while terms.look(over)[0] == "cast":
            (over,) = terms.look(over)[1]
        name, parts = terms.look(over)
        quotient = name == "divide" and terms.places(parts[1]) is not None and is_sum(parts[1])
        numerator = parts[0] if quotient else over
        needs = terms.needs(numerator)
        if quotient and any((y.y.at, y.y.node.shape) != (parts[1].at, parts[1].node.shape) for y in needs):
            return None
        if over != terms.root and quotient and terms.look(numerator)[0] != "exp":
            return None  # the numerator may be greater than 1, so its conversion could overflow
        found = terms.transport(numerator, needs)
        return _Group(node, terms, found, over, parts if quotient else ()) if isinstance(found, Rescale) else None

    def in_parts(self, following: Following, cut: Cut) -> Node:
        """Returns a node that computes the product in parts. The argument `cut` describes how the maximum in the first
        factor is split into parts. The product is split at the same places as the maximum.
        """
        i, node, lead = following.i, self.node, self.node.rank - 2
        a = following.with_own(self.numerator, self.found, cut)
        a = build(i, self.terms, self.terms.root, a.shape, {}, {self.over: a})
        places = [d.substitute({axis_symbol(lead): axis(lead + 1)}) for d in self.terms.places(self.found.y.y) or ()]
        index = (*places[: cut.k], axis(lead), axis(lead + 2), *places[cut.k + 1 :])
        rows = i.view(a, (*node.shape[:lead], Dim.of(cut.parts), node.shape[lead], cut.length), index)
        partial = two_step_reductions.contract_in_parts(i, node, rows, cut.parts, cut.length)

        def for_each_column(of_parts: Node) -> Node:
            """Adds a column axis to `of_parts`, an array with one value for each part and row. The result has the shape
            [*B, part, M, N]: M rows and N columns for each batch index and each part.
            """
            kept = [d for k, d in enumerate(places) if k not in cut.node.axes]
            return i.view(of_parts, partial.shape, (*kept[: cut.place], axis(lead), *kept[cut.place :]))

        maxima = for_each_column(cut.first)
        result = following.merged(self.found, partial, maxima, lead)
        if self.divisor is None:
            return result
        sums = following.cuts[self.divisor.node]
        assert sums.found is not None
        total = following.merged(sums.found, for_each_column(sums.first), maxima, lead)
        return compute(i, "divide", result, total)

    def parts(self, chip: Chip) -> Parts:
        """Returns the number and the length of the parts into which the loop is split. If the loop is not split,
        returns one part.
        """
        *sizes, depth = self.node.a.shape
        *batch, rows = map(int, sizes)
        wanted = _wanted(chip.multiprocessors, math.prod(batch) * -(-rows // ROWS), depth.constant)
        for parts in range(wanted, max(1, wanted // 2), -1):
            if depth.constant is not None and depth.constant % (parts * STEP) == 0:
                return parts, depth // parts
        pure = two_step_reductions.only_exponentials(self.terms, self.numerator, self.found.y)
        return two_step_reductions.parts_of(depth, wanted, STEP) if pure and wanted > 1 else (1, depth)


def _wanted(multiprocessors: int, programs: int, depth: int | None) -> int:
    """Returns how many parts a loop needs, so that each multiprocessor runs two programs."""
    if not 0 < programs <= multiprocessors // 2 or depth is not None and depth < SHORTEST:
        return 1
    # UNKNOWN is the limit for a loop of unknown length
    return min(2 * multiprocessors // programs, UNKNOWN if depth is None else depth // PART)


def _is_known(node: Contract) -> bool:
    """Checks whether a product has dtype f32 and a result of known size."""
    known = all(e.constant is not None for e in node.shape)  # the size of the summed axis can be unknown
    return known and node.dtype == f32 and node.precision != "tf32x3"


def _may_be_held(node: Contract) -> bool:
    """Checks whether one grid program can compute all columns of a product."""
    # such as q @ k.mT; its summed axis must be short too
    inner = [n for n in made_of(node.a) if isinstance(n, Contract)]
    return int(node.shape[-1]) <= MAX_HELD and all((n.a.shape[-1].constant or MAX_HELD + 1) <= MAX_HELD for n in inner)


def _follows(e: Element) -> bool:
    """Checks whether a value is a sum of exponentials `exp(x - max x)`."""
    if not isinstance(e.node, Reduce) or e.node.op != "sum":
        return False
    terms = GraphTerms(e.node.x, e.node.axes)
    # such a sum is at least 1, or nan
    return terms.look(terms.root)[0] == "exp" and isinstance(terms.transport(terms.root, terms.needs()), Rescale)
