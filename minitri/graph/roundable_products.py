"""Finds the matrix products whose results may be rounded to bf16. The function `is_discontinuous` recognises operations
whose result can jump, such as `floor`.

    p = x @ w              a product of bf16 arrays
    y = sum(p, axis=1)     p may be rounded, because a reduction (or a scan, or a concat) uses it
    z = floor(p)           floor is discontinuous: a rounding error of p can change z by 1

The function `roundable_products` takes a graph. It returns the set of matrix products that may be rounded to bf16. The
pass minitri/optimize/round_products.py then rounds the results of some of the returned products to bf16. If a product
may be rounded to bf16, its error bound includes this rounding (minitri/trust/error_bounds.py).
"""

from collections.abc import Callable

from minitri.base.nodes import children, postorder
from minitri.base.operators import JUMPS, reduction
from minitri.base.types import bf16
from minitri.graph.ir import Apply, Concat, Const, Contract, Graph, Node, Reduce, Scan, View


def roundable_products(graph: Graph) -> set[Node]:
    """Finds matrix products of bf16 arrays. Returns the products that a reduction, scan or concat uses directly or
    indirectly. Returns no products if an output of the graph is not bf16.
    """
    used = used_by(graph, lambda n: isinstance(n, (Concat, Reduce, Scan)))
    narrow = all(o.dtype == bf16 for o in graph.outputs)
    return {n for n in used if narrow and isinstance(n, Contract) and n.a.dtype == n.b.dtype == bf16}


def used_by(graph: Graph, user: Callable[[Node], bool]) -> set[Node]:
    """Returns the direct and indirect operands of all nodes for which `user` returns true."""
    return {*postorder((o for n in graph.nodes() if user(n) for o in children(n)), children)}


def is_discontinuous(node: Node) -> bool:
    """Checks whether the result of an operation can jump if an operand changes a little, as in `floor`.

    A power with a constant exponent counts as continuous if the exponent is a multiple of 1/2, such as 3 or 0.5. If a
    constant exponent is a multiple of 1/2, kernels compute the power from products and square roots.
    """
    match node:
        case Apply(op="power", args=(_, View(x=Const(value=n)) | Const(value=n))) if node.dtype.is_float:
            return not (2 * float(n)).is_integer()
        case Apply():
            return node.op in JUMPS or not node.dtype.is_float
    return isinstance(node, Reduce) and reduction(node.op).kind in ("position", "logical")
