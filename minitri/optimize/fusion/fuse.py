"""graph.simplified → kernels: computes several nodes in one kernel if that saves memory traffic ("fusion").

    max, exp, sum, divide over the same rows      become      one kernel: one read, one write

At first every reduction, scan and product is a part (a future kernel), with the elementwise nodes that only this part
uses. After that, parts are merged, beginning with the two parts that exchange the most bytes. A merge has two
conditions. First, no cycle of parts may arise, which networkx checks. Second, the merged part must still be one kernel
on named axes, which one_kernel.py checks. The reasons against a merge appear in the ledger. An elementwise value that
two parts need is computed in both parts if this is cheaper than storing and loading the value.

Left out: schedules. Fusion chooses neither block sizes nor loops.
"""

from collections.abc import Iterable
from dataclasses import replace

from minitri.base.diagnostics import Span
from minitri.graph.ir import Graph, Node
from minitri.kernels.demand import COMPUTE, NotOneKernel
from minitri.kernels.ir import Decision, Plan
from minitri.kernels.lower_graph import Layouts, decision, plan_of, with_copies, with_stored_outputs
from minitri.optimize.fusion.partition import Partition


def fuse(graph: Graph, layouts: Layouts = {}, kept: Iterable[Node] = ()) -> Plan:
    """Makes the plan of a graph: its kernels in launch order, with fusion.

    layouts   strides in elements of inputs that are not contiguous
    kept      values that must be stored in memory, even if this costs time
    """
    graph = with_stored_outputs(graph)
    stored: set[Node] = set(kept)
    while True:
        parts = Partition(graph, stored)
        try:
            return plan_of(graph, parts.run(), _ledger(parts), layouts)
        except NotOneKernel as refusal:
            new = set(refusal.nodes) - stored
            assert new, refusal.reason
            if all(isinstance(n, COMPUTE) for n in new):
                stored |= new
            else:
                graph, stored = with_copies(graph, new), set()


def _ledger(parts: Partition) -> tuple[Decision, ...]:
    """Returns the fusion decisions, one for each value that one compute node passes to another compute node."""
    graph = parts.quotient()
    number = {h: f"k{k}" for k, h in enumerate(parts.ordered_homes())}
    refusals: dict[tuple[int, int], str] = {}
    rows: dict[Decision, dict[Span, None]] = {}
    for node in parts.compute:
        for user, home in ((u, h) for u in parts.users[node] for h in parts.homes[u]):
            maker = parts.homes[node][0]
            fused = node in parts.parts[home]
            if not fused and (maker, home) not in refusals:
                refusals[maker, home] = parts.refusal(maker, home, graph) or "it saves nothing"
            rule = refusals[maker, home] if not fused else _rule(parts, node, user)
            row = decision(parts.graph, node, (number[home if fused else maker], number[home]), fused, rule)
            rows.setdefault(row, {}).update(dict.fromkeys(row.spans))
    return tuple(replace(row, spans=tuple(spans)) for row, spans in rows.items())


def _rule(parts: Partition, node: Node, user: Node) -> str:
    if len(parts.homes[node]) > 1:
        return "computed again: its operands are cheaper to read than the value is to store"
    return f"{_kind(node)} into {_kind(user)} over the same axes"


def _kind(node: Node) -> str:
    return {"Apply": "elementwise", "Reduce": "reduction", "Scan": "scan", "Contract": "product"}[type(node).__name__]
