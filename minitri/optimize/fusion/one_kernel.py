"""Checks whether a group of graph nodes, called a part, can be one kernel. If a part cannot be one kernel, the check
raises the exception NotOneKernel with the reason.

    softmax(x)                     every reduction has the axis i of all results: one kernel
    sum(x, axis=0)[None, :] * x    the sum lacks i: each of M rows would compute it again, so it is refused

The function `one_kernel` takes the nodes of a part, and the roots: the nodes of the part that must be stored. It
returns a `FusedIndexing`, which contains the axes and indices of the kernel. If one kernel cannot compute the part, the
exception NotOneKernel names some of the values in the part. If other kernels compute and store these values, one
kernel can compute the remaining nodes of the part. A group of nodes can be one kernel if its axes and indices obey four
rules:

    every reduction is indexed by all parallel axes, each once, without offsets
    every result is indexed by all parallel axes, so that each element is stored once
    all products have their rows along one axis, and their columns along one axis
    a scan runs along an axis with no other loop around it or inside it

A reduction without one of the kernel's parallel axes would be computed once for each index of this axis. In a loop with
matrix products, however, a reduction may lack a parallel axis of which each grid program has all indices.

    p = exp(s[i, r] - m[i])         loop r: the product and the sum run over it
    o[i, l] = sum(r) p * v[r, l]    held l: one program has all columns
    n[i] = sum(r) p                 n lacks l, but it is computed and stored once

For example, the sum `n[i]` lacks the axis `l`. One grid program has all indices of `l`, so it computes `n[i]` only
once. The file minitri/optimize/online_reductions/merge_loops.py decides whether one loop is enough for all reductions
and products of a kernel.
"""

from collections.abc import Sequence

from minitri.base.dims import axis_names
from minitri.base.symbolic_minmax import Allows
from minitri.base.types import f32
from minitri.graph.ir import Contract, Node, Reduce, Scan
from minitri.kernels.demand import Demand, NotOneKernel, about, plain_axis
from minitri.optimize.fusion.shared_axes import FusedIndexing
from minitri.optimize.split_kv import MAX_HELD


def one_kernel(inside: frozenset[Node], roots: Sequence[Node], allows: Allows) -> FusedIndexing:
    """Returns a `FusedIndexing` (the axes and indices of a kernel) if one kernel can compute the nodes in the argument
    `inside`.

    `inside`: the nodes that the kernel computes. Operands that are not in `inside` are read from memory.
    `roots`: the nodes whose values the kernel stores.
    `allows`: a function that says whether a symbolic size can be a given number.

    Raises NotOneKernel if the nodes cannot be one kernel.
    """
    part = FusedIndexing(inside, roots, allows)
    reductions = [n for n in part.demands if isinstance(n, (Reduce, Scan, Contract)) and not part.is_leaf(n)]
    contracts = [n for n in reductions if isinstance(n, Contract)]
    if len(contracts) > 1 and any(n.precision == "tf32x3" for n in contracts):
        raise NotOneKernel("a product of TF32 parts takes all registers", contracts[-1])
    if sum(n in roots and n.a.dtype.bits == 16 for n in contracts) > 1:
        raise NotOneKernel("each product in parts fills the chip", contracts[-1])
    _find_loop(part, contracts, len(contracts) < len(reductions))
    for node in reductions:
        for demand in part.demands[node]:
            _check_reduction(part, node, demand, bool(contracts))
    _check_tiles(part, contracts)
    for node, demand in part.stores:
        _check_store(part, node, demand)
    for node in reductions:
        if isinstance(node, Scan):
            _check_scan(part, node)
    return part


def _check_reduction(part: FusedIndexing, node: Reduce | Scan | Contract, demand: Demand, contracts: bool) -> None:
    if _runs_in_each_iteration(part, node, demand):
        return
    index = list(demand.index)
    if isinstance(node, Scan):
        index.pop(node.axis)
    names = [plain_axis(d) for d in index if d != 0]
    guarded = demand.guards and not isinstance(node, Scan)
    if guarded or None in names or len(set(names)) != len(names):
        raise NotOneKernel("a reduction is needed at permuted or partial places", node)
    if isinstance(node, Contract) and None in map(plain_axis, demand.index[-2:]):
        raise NotOneKernel("a single row or column of a matrix product is needed", node)
    if part.loop is not None and _runs_over_the_loop(part, node, demand):
        return
    if part.loop is None and {*names} != {*part.parallel}:
        refused = _value_to_store(part, {*part.parallel}.difference(names), node)
        raise NotOneKernel("a reduction would be repeated for every element of another axis", refused)
    if part.loop is not None or contracts and not isinstance(node, Contract):
        raise NotOneKernel("a reduction and a matrix product share no iteration space", node)


def _check_tiles(part: FusedIndexing, contracts: Sequence[Contract]) -> None:
    """Checks that all products have rows and columns along the same two axes."""
    # products that share a loop with reductions can have their columns along different axes
    sides = slice(-2, None if part.loop is None else -1)
    tiles = {frozenset(map(plain_axis, d.index[sides])) for n in contracts for d in part.demands[n]}
    # a program has only one index of each axis that is neither the row axis nor the column axis
    if len(tiles) > 1:
        raise NotOneKernel("products have rows along different axes", contracts[-1])


def _check_store(part: FusedIndexing, node: Node, demand: Demand) -> None:
    """Checks that each element of a result is stored once."""
    missing = {*part.parallel} - axis_names(demand.index)
    # a result may lack an axis only if one grid program has all indices of this axis
    if missing - part.held:
        stranger = _value_to_store(part, missing, node)
        raise NotOneKernel("a result would be written once for every element of another axis", stranger)


def _check_scan(part: FusedIndexing, node: Scan) -> None:
    """Checks that no other loop runs around or inside the loop of a scan."""
    for demand in part.demands[node]:
        along, _ = part.scan_axis(node, demand)
        for other in (d for demands in part.demands.values() for d in demands):
            names = axis_names(other.index)
            if along in names and len(names & part.reduced) > 1:
                raise NotOneKernel("a running sum is needed along two loops", node)


def _value_to_store(part: FusedIndexing, missing: set[str], node: Node) -> Node:
    """Chooses the value that must be stored in memory if one kernel cannot compute all nodes."""
    # `node` does not vary along the axes in `missing`: a result that does is stored instead
    for other, demand in part.stores[1:]:
        if other is not node and missing & axis_names(demand.index):
            return other
    return node


# ---- a loop that reductions share with products --------------------------------------------------


def _find_loop(part: FusedIndexing, contracts: Sequence[Contract], mixed: bool) -> None:
    """Finds the loop that reductions and matrix products share, and sets `part.loop` and `part.held`."""
    demands = [(n, d) for n in contracts for d in part.demands[n]]
    inside = [(n, d) for n, d in demands if axis_names(d.index) & part.reduced]
    inner = {a for key in inside for a in part.over[key]}
    columns = {plain_axis(d.index[-1]) for n, d in demands if (n, d) not in inside}
    held = {a for a in columns if a is not None and a not in part.reduced}
    loops = part.reduced - inner
    short = all((n := part.axes[a].constant) is not None and 1 <= n <= MAX_HELD for a in held | inner)
    known = all(n.dtype == f32 and n.precision != "tf32x3" for n in contracts)
    # `mixed`: there are reductions besides matrix products
    if mixed and contracts and len(loops) == 1 and short and known:
        # the axis that all reductions loop over, and the column axes that each program covers completely
        (part.loop,), part.held = loops, held


def _runs_in_each_iteration(part: FusedIndexing, node: Reduce | Scan | Contract, demand: Demand) -> bool:
    """Checks whether a matrix product is computed in each iteration of the loop that all reductions share."""
    if part.loop is None or not isinstance(node, Contract) or not axis_names(demand.index) & part.reduced:
        return False
    # The column index must be the loop's axis `r`, or `r` plus an offset such as `r + 1`; the row and batch indices
    # must be plain axes such as `i`.
    *rest, column = demand.index
    if plain_axis(rest[-1]) is None:
        return False
    names = [plain_axis(d) for d in rest if d != 0]  # a batch index can be 0
    # a guard (a condition of a load) cannot depend on both rows and columns, because no factor has both axes
    apart = set(about(demand.guards, rest)).isdisjoint(about(demand.guards, [column]))
    whole = {*axis_names([column]), *names} - {part.loop} == {*part.parallel} - part.held
    plain = apart and whole and len({*names}) == len(names)
    return plain and part.loop not in names and part.column_axis(column) == part.loop  # not a diagonal


def _runs_over_the_loop(part: FusedIndexing, node: Reduce | Scan | Contract, demand: Demand) -> bool:
    """Checks whether a reduction runs over the axis of the shared loop."""
    names = axis_names(demand.index)
    lacks = {*part.parallel} - names
    # if so, the result is complete after the last iteration
    return part.over.get((node, demand)) == (part.loop,) and lacks <= part.held and not names & part.reduced
