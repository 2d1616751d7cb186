"""Whether a part of the graph can be one kernel: its demands, or the reason why not.

    softmax(x)                     every reduction has the axis i of all results: one kernel
    sum(x, axis=0)[None, :] * x    the sum lacks i: each of M rows would compute it again, so it is refused

In: the nodes of a part and its roots. Out: a `FusedIndexing` that keeps these rules, or NotOneKernel with
the values to store so that the rest can be one kernel.

    every reduction has all parallel axes, each once and plainly
    every result has all parallel axes, so that each element is stored once
    a scan runs along an axis with no other loop around it or inside

The one idea: a value that lacks an axis would be computed again for each index along that axis. The only
exception is the loop that reductions share with products (minitri/optimize/fusion/shared_loop.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base.piecewise import Allows
from minitri.graph.ir import Contract, Node, Reduce, Scan
from minitri.kernels.demand import Demand, NotOneKernel, plain_axis
from minitri.optimize.fusion.fused_indexing import FusedIndexing
from minitri.optimize.fusion.shared_loop import find_loop, runs_in_each_iteration, runs_over_the_loop


def one_kernel(
    inside: frozenset[Node], roots: Sequence[Node], allows: Allows = lambda symbol, n: True
) -> FusedIndexing:
    """The demands of a part that can be one kernel. NotOneKernel if it cannot.

    inside    the compute nodes that the kernel computes; it reads any others from memory
    roots     the nodes that it stores
    allows    which numbers the sizes can be
    """
    part = FusedIndexing(inside, roots, allows)
    _check(part)
    return part


def _check(part: FusedIndexing) -> None:
    contracts = [n for n in part.demands if isinstance(n, Contract) and not part.is_leaf(n)]
    reductions = [n for n in part.demands if isinstance(n, (Reduce, Scan, Contract)) and not part.is_leaf(n)]
    find_loop(part, contracts, len(contracts) < len(reductions))
    for node in reductions:
        for demand in part.demands[node]:
            _check_reduction(part, node, demand, bool(contracts))
    for node, demand in part.stores:
        _check_store(part, node, demand)
    for node in part.demands:
        if isinstance(node, Scan) and not part.is_leaf(node):
            _check_scan(part, node)


def _check_reduction(part: FusedIndexing, node: Reduce | Scan | Contract, demand: Demand, contracts: bool) -> None:
    if runs_in_each_iteration(part, node, demand):
        return
    index = list(demand.index)
    if isinstance(node, Scan):
        index.pop(node.axis)
    names = [plain_axis(d) for d in index if d != 0]
    if demand.guards or None in names or len(set(names)) != len(names):
        raise NotOneKernel("a reduction is needed at permuted or partial places", node)
    if isinstance(node, Contract) and None in [plain_axis(d) for d in demand.index[-2:]]:
        raise NotOneKernel("a single row or column of a matrix product is needed", node)
    if part.loop is not None and runs_over_the_loop(part, node, demand):
        return
    if part.loop is not None:
        raise NotOneKernel("a reduction and a matrix product share no iteration space", node)
    if set(names) != set(part.parallel):
        missing = set(part.parallel) - set(names)
        raise NotOneKernel(
            "a reduction would be repeated for every element of another axis", _stranger(part, missing, node)
        )
    if contracts and not isinstance(node, Contract):
        raise NotOneKernel("a reduction and a matrix product share no iteration space", node)


def _check_store(part: FusedIndexing, node: Node, demand: Demand) -> None:
    """Each result is stored once: it has all parallel axes except the axes that one program keeps complete."""
    names = {s.name for d in demand.index for s in d.symbols()}
    held = part.held if part.loop is not None else set[str]()
    if not set(part.parallel) - held <= names:
        stranger = _stranger(part, set(part.parallel) - names, node)
        raise NotOneKernel("a result would be written once for every element of another axis", stranger)


def _check_scan(part: FusedIndexing, node: Scan) -> None:
    """A running sum goes along its axis once: nothing may need that axis with another loop around or inside."""
    for demand in part.demands[node]:
        along = plain_axis(demand.index[node.axis])
        for other in (d for demands in part.demands.values() for d in demands):
            names = {s.name for d in other.index for s in d.symbols() if s.kind == "axis"}
            if along in names and len(names & part.reduced) > 1:
                raise NotOneKernel("a running sum is needed along two loops", node)


def _stranger(part: FusedIndexing, missing: set[str], node: Node) -> Node:
    """The value to store: the further result that brought in the axes that `node` lacks, else the node."""
    for other, demand in part.stores[1:]:
        if other is not node and missing & {s.name for d in demand.index for s in d.symbols()}:
            return other
    return node
