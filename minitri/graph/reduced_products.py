"""Finds the products of a graph whose results reductions, scans or concats use, and the operations whose results can jump.

    p = x @ w          a product of bf16 arrays
    y = sum(p, axis=1)                     p is a reduced product
    y = stack((p, x), axis=0)              so it is here
    z = floor(p)                           floor is discontinuous

In: a graph. Out: sets of nodes. minitri/optimize/round_products.py rounds some of the reduced products to bf16.
minitri/trust/error_bounds.py allows this rounding error for all of them.
"""

from collections.abc import Callable

from minitri.base.nodes import children
from minitri.base.operators import JUMPS, reduction
from minitri.base.types import bf16
from minitri.graph.ir import Apply, Concat, Const, Contract, Graph, Node, Reduce, Scan, View


def reduced_products(graph: Graph) -> set[Node]:
    """Returns the products of bf16 arrays that a reduction, scan or concat uses, if all results of the graph are bf16."""
    reduced = used_by(graph, lambda n: isinstance(n, (Concat, Reduce, Scan)))
    narrow = all(o.dtype == bf16 for o in graph.outputs)
    return {n for n in reduced if narrow and isinstance(n, Contract) and n.a.dtype == n.b.dtype == bf16}


def used_by(graph: Graph, user: Callable[[Node], bool]) -> set[Node]:
    """Returns the nodes that nodes for which `user` returns True depend on."""
    used: set[Node] = set()
    for node in reversed(graph.nodes()):
        if node in used or user(node):
            used |= {*children(node)}
    return used


def is_discontinuous(node: Node) -> bool:
    """Checks whether the result of an operation can jump if an operand changes a little, as in `floor`. A power with a
    constant exponent of n or n + 1/2 cannot, because kernels compute such a power from products and square roots.
    """
    match node:
        case Apply(op="power", args=(_, View(x=Const(value=n)) | Const(value=n))) if node.dtype.is_float:
            return not (2 * float(n)).is_integer()
        case Apply():
            return node.op in JUMPS or not node.dtype.is_float
    return isinstance(node, Reduce) and reduction(node.op).kind in ("position", "logical")
