"""Checks whether every offset and index of a graph fits 32-bit integers.

The function `needs_64_bits` takes a graph and its sizes. It returns whether kernels need 64-bit indices. By default,
kernels compute indices in 32 bits. Large arrays need 64-bit indices. A small array of index values can also need 64-bit
indices, if the values are large. Example: the 8 numbers of `arange(0, 2**33, 2**30)` go up to `7 * 2**30`, which is too
large for 32 bits. The function `needs_64_bits` assumes that an unknown size is 1.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

from minitri.base.dims import ZERO, Dim
from minitri.base.intervals import Ranges, bounds
from minitri.graph.ir import Condition, Graph, Index, Node, axis_symbol
from minitri.graph.literals import names_in

MOST = Dim.of(2**63 - 1)
LIMIT = 2**31 - 2**21  # below 2**31, because a block may start inside an array and end past it


def numbers_fit(graph: Graph) -> tuple[Condition, ...]:
    """Returns conditions on sizes. If the conditions hold, all numbers computed from sizes, such as `N * N * N * N`,
    fit i64.
    """
    numbers = [n for n in graph.nodes() if isinstance(n, Index) and not n.shape]
    large = [n for n in numbers if any(len(m) > 1 or abs(c) >= LIMIT for m, c in n.expr.terms)]
    below = [_fits(graph, n, MOST, n.expr) for n in large]
    return (*below, *(_fits(graph, n, n.expr, -MOST - 1) for n in large if any(c < 0 for _, c in n.expr.terms)))


def _fits(graph: Graph, node: Index, more: Dim, less: Dim) -> Condition:
    message, help = f"the dimension {node.expr} does not fit i64", "write a float: `1.0 * M * N`"
    span = next(iter(graph.spans.get(node, ())), None)
    return Condition(more, ">=", less, "MT0208", message, names_in(node.expr), help, span)


def needs_64_bits(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Checks whether some offset or index of the graph can be too large for 32 bits."""
    known = defaultdict(lambda: 1, sizes)
    return any(_largest(node, known) >= LIMIT for node in graph.nodes())


def _largest(node: Node, sizes: Mapping[str, int]) -> int:
    """Returns the larger of two numbers: how many elements a node has, and the largest index among the elements."""
    try:
        extents = [e.evaluate(sizes) for e in node.shape]
    except ZeroDivisionError:
        # as for N = 1 in `x.reshape(N // 2, 2, -1)`: each call checks its sizes, so a call that divides by 0 fails
        return 0
    elements = math.prod(extents)
    ranges: Ranges = {axis_symbol(k): (ZERO, Dim.of(max(0, n - 1))) for k, n in enumerate(extents)}
    return max(elements, reach(node.expr, ranges, sizes)) if isinstance(node, Index) else elements


def reach(expr: Dim, ranges: Ranges, sizes: Mapping[str, int]) -> int:
    """Returns the largest absolute value that an index expression or any of its terms can have.

    If the largest absolute value is unknown, returns `LIMIT`. Terms without an axis, such as 2*N, are ignored: the CPU
    computes these terms before the launch of the kernel.
    """
    env = {s: Dim.of(sizes[s.name]) for s in expr.symbols() if s.kind == "size"}
    reach = 0
    for part in (expr, *(Dim({monomial: c}) for monomial, c in expr.terms)):
        part = part.substitute(env)
        ends = bounds(part, ranges) if part.constant is None else (ZERO, ZERO)
        with suppress(ZeroDivisionError):  # as for N = 1 in 1 // (N // 2): a call with this size fails
            reach = max(reach, *(abs(end.evaluate({})) for end in ends)) if ends else LIMIT
    return reach
