"""graph → graph: what a graph goes through before it becomes kernels, optimised or not.

    %0: f32[M, N] = …                         with M = 1000: f32[1000, N]
    %1: f32[N] = scan.sum x {axis = 0}        x: f32[1]: the scan is x
    %1: f32[M, 1] = contract x, w             a column of a product: multiply and sum

`specialise` replaces the symbols of known sizes by numbers. A size of 1 that was a symbol may have been broadcast
against as if it were not 1: index maps stay right, since an axis of extent 1 only takes the value 0.

`legalise` rewrites what kernels cannot compute. A kernel has no axis of extent 1, so nothing reduces or scans such an axis. A product needs at least two
rows, two columns and two terms. minitri/optimize/simplify.py applies these rules too, among its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minitri.base import dims
from minitri.base.dims import ONE, Dim, Symbol
from minitri.base.numpy_semantics import POSITIONS
from minitri.base.types import DType, i64
from minitri.graph.ir import Contract, Graph, Interner, Node, Reduce, Scan, Shape, axis
from minitri.graph.rewrite import apply_rules, copy, rebuild

MakeView = Callable[[Interner, Node, Shape, tuple[Dim, ...]], Node]


def specialise(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Replaces the dimensions named in `sizes` (elements along an axis) by integers.

    Raises the CompileError of the first condition that these sizes break.
    """
    if not sizes:
        return graph
    env: dict[Symbol, Dim] = {Symbol(name): Dim.of(n) for name, n in sizes.items()}
    conditions = [c.substitute(env) for c in graph.conditions]
    for c in conditions:
        if c.decided() is False:
            raise c.error()
    still_open = tuple(c for c in conditions if c.decided() is None)
    return rebuild(graph, lambda i, node, args: copy(i, node, args, env), still_open)


def legalise(graph: Graph) -> Graph:
    """The graph with no axis of extent 1 in reductions and scans, and no side of 1 in products."""
    return rebuild(graph, lambda i, node, args: apply_rules(i, copy(i, node, args), RULES))


def trivial_reduction(i: Interner, node: Node, view: MakeView = Interner.view) -> Node | None:
    """Reducing or scanning an axis of extent 1 only drops or keeps it."""
    if isinstance(node, Scan) and node.shape[node.axis] == 1:
        return node.x
    if not isinstance(node, Reduce) or not any(node.x.shape[k] == 1 for k in node.axes):
        return None
    if node.op in POSITIONS:
        return spread(i, i.const(0, i64), node.shape)
    gone = [k for k in node.axes if node.x.shape[k] == 1]
    kept = [k for k in range(node.x.rank) if k not in gone]
    index = tuple(dims.ZERO if k in gone else axis(kept.index(k)) for k in range(node.x.rank))
    x = view(i, node.x, tuple(node.x.shape[k] for k in kept), index)
    axes = tuple(kept.index(k) for k in node.axes if k not in gone)
    return i.reduce(node.op, node.dtype, node.shape, x, axes) if axes else x


def thin_contract(i: Interner, node: Node, view: MakeView = Interner.view) -> Node | None:
    """A matrix product with a side of 1 reads more than it computes: multiply and sum."""
    if not (isinstance(node, Contract) and ONE in (node.a.shape[-2], node.b.shape[-1], node.a.shape[-1])):
        return None
    rank = node.rank
    batch = tuple(axis(k) for k in range(rank - 2))
    m, n, k = axis(rank - 2), axis(rank - 1), axis(rank)
    shape = (*node.shape, node.a.shape[-1])
    a = view(i, converted(i, node.a, node.dtype), shape, (*batch, m, k))
    b = view(i, converted(i, node.b, node.dtype), shape, (*batch, k, n))
    product = i.apply("multiply", node.dtype, shape, (a, b))
    return i.reduce("sum", node.dtype, node.shape, product, (rank,))


def converted(i: Interner, x: Node, dtype: DType) -> Node:
    """x in another dtype; x itself if it has this one."""
    return x if x.dtype == dtype else i.apply("cast", dtype, x.shape, (x,))


def spread(i: Interner, constant: Node, shape: Shape) -> Node:
    """The constant as an array of this shape."""
    return constant if shape == () else i.view(constant, shape, ())


RULES = (trivial_reduction, thin_contract)
