"""Whether 32-bit integers hold every offset and index of a graph.

In: a graph and its sizes. Out: yes or no. Kernels compute indices in 32 bits, unless told
otherwise: `arange(0, 2**33, 2**30)` has 8 elements, and the numbers in it need 64. Sizes that
are not known count as 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from minitri.base.dims import ZERO, Dim
from minitri.base.intervals import Ranges, bounds
from minitri.graph.ir import Condition, Graph, Index, Node, axis_symbol
from minitri.graph.literals import names_in

MOST = Dim.of(2**63 - 1)
LIMIT = 2**31 - 2**21  # a block may start inside and end past it


def numbers_fit(graph: Graph) -> tuple[Condition, ...]:
    """That numbers of the program which are made of sizes, such as N * N * N * N, have 64 bits."""
    numbers = [n for n in graph.nodes() if isinstance(n, Index) and not n.shape]
    large = [n for n in numbers if any(len(m) > 1 or abs(c) >= LIMIT for m, c in n.expr.terms)]
    below = [_fits(graph, n, MOST, n.expr) for n in large]
    return (*below, *(_fits(graph, n, n.expr, -MOST - 1) for n in large if any(c < 0 for _, c in n.expr.terms)))


def _fits(graph: Graph, node: Index, more: Dim, less: Dim) -> Condition:
    message, help = f"the dimension {node.expr} does not fit i64", "write a float: `1.0 * M * N`"
    span = next(iter(graph.spans.get(node, ())), None)
    return Condition(more, ">=", less, "MT0208", message, names_in(node.expr), help, span)


def needs_64_bits(graph: Graph, sizes: Mapping[str, int]) -> bool:
    known = defaultdict(lambda: 1, sizes)
    return any(_largest(node, known) >= LIMIT for node in graph.nodes())


def _largest(node: Node, sizes: Mapping[str, int]) -> int:
    """The largest number that indexing a node, or computing it as an index, can meet."""
    extents = [e.evaluate(sizes) for e in node.shape]
    elements = math.prod(extents)
    ranges: Ranges = {axis_symbol(k): (ZERO, Dim.of(max(0, n - 1))) for k, n in enumerate(extents)}
    return max(elements, reach(node.expr, ranges, sizes)) if isinstance(node, Index) else elements


def reach(expr: Dim, ranges: Ranges, sizes: Mapping[str, int]) -> int:
    """The farthest from 0 that an expression gets, or a term with an axis in it; what has no axis the host computes."""
    env = {s: Dim.of(sizes[s.name]) for s in expr.symbols() if s.kind == "size"}
    reach = 0
    for part in (expr, *(Dim({monomial: c}) for monomial, c in expr.terms)):
        part = part.substitute(env)
        ends = bounds(part, ranges) if part.constant is None else (ZERO, ZERO)
        reach = max(reach, *(abs(int(end)) for end in ends)) if ends else LIMIT
    return reach
