"""graph.simplified → kernels: computes several nodes in one kernel if that saves memory traffic ("fusion").

    max, exp, sum, divide over the same rows      become      one kernel: one read, one write

At first, there is one part (a future kernel) for each reduction, scan and product. Each part also contains the
elementwise nodes that its operation reads. Two parts that read the same elementwise value both compute the value if
this is cheaper than storing and loading the value. Then parts are merged, beginning with the two parts that exchange
the most bytes. A merge must not create a cycle of parts that depend on each other (partition.py). One kernel must be
able to compute all nodes of the merged part (one_kernel.py). The reasons against a merge appear in the ledger, the list
of fusion decisions.

The schedule rules choose block sizes and loops after fusion.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from minitri.base.dims import Dim
from minitri.graph.ir import Graph, Layouts, Node
from minitri.kernels.demand import COMPUTE, NotOneKernel
from minitri.kernels.ir import Decision, Plan
from minitri.kernels.lower_graph import decision, plan_of, with_copies, with_stored_outputs
from minitri.optimize.fusion.partition import Partition
from minitri.optimize.output_slices import with_slices


def fuse(graph: Graph, layouts: Layouts = {}, kept: Iterable[Node] = (), slices: bool = False) -> Plan:
    """Decides which nodes of a graph share a kernel, and returns the plan: the kernels in launch order.

    `layouts`: the strides, in elements, of the inputs that are not contiguous in memory.
    `kept`: nodes whose values must be stored in memory, even if this costs time.
    `slices`: whether the operands of a concatenated result may be stored into the result one by one (output_slices.py).
    """
    plan = _fused(graph, layouts, kept)
    return with_slices(graph, plan, lambda sliced: _fused(sliced, layouts, (), True)) if slices else plan


def _fused(graph: Graph, layouts: Layouts, kept: Iterable[Node], sliced: bool = False) -> Plan:
    graph = with_stored_outputs(graph)
    stored: set[Node] = set(kept)
    while True:
        parts = Partition(graph, stored, graph.outputs if sliced else ())
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
    """Returns a fusion decision for each value that one operation computes and another operation reads."""
    graph = parts.quotient()
    number = {h: f"k{k}" for k, h in enumerate(parts.ordered_homes())}
    alike = defaultdict[tuple[str, str, str, str], list[Decision]](list)
    refusal = cache(lambda maker, home: parts.refusal(maker, home, graph) or "it saves nothing")
    for node in parts.compute:
        for user, home, fused, times in _readers(parts, node):
            maker = parts.homes[node][0]
            rule = _rule(parts, node, user) if fused else refusal(maker, home)
            row = decision(parts.graph, node, (number[home if fused else maker], number[home]), fused, rule, times)
            alike[row.value, row.producer, row.consumer, rule].append(row)
    # decisions that differ only in their number of bytes become one decision with the sum of the bytes
    return tuple(map(_as_one, alike.values()))


def _as_one(rows: Sequence[Decision]) -> Decision:
    spans = tuple(dict.fromkeys(s for row in rows for s in row.spans))
    return replace(rows[0], bytes=sum((row.bytes for row in rows), Dim.of(0)), spans=spans)


def _readers(parts: Partition, node: Node) -> Iterator[tuple[Node, int, bool, int]]:
    """Yields (reader, part, is fused, number of accesses) for each node that reads the value of `node`."""
    readers = [(u, h) for u in parts.users[node] for h in parts.homes[u]]  # nodes and numbers of parts (future kernels)
    # a value is stored in memory only if a node that reads it is not fused, or if it is an output of the program
    apart = any(node not in parts.parts[h] for _, h in readers)
    written, loaded = node in parts.graph.outputs, set[int]()
    for user, home in readers:
        fused = node in parts.parts[home]  # the part of the reader computes the value, or else loads the value
        # A fused reader saves one load. In a part that does not compute the value, one load serves all readers. The
        # store of the value is counted only once, not for each reader.
        reads, writes = fused or home not in loaded, not written and fused != apart
        written |= writes
        loaded |= set() if fused else {home}
        yield user, home, fused, reads + writes  # the accesses that a fused reader saves, or another reader causes


def _rule(parts: Partition, node: Node, user: Node) -> str:
    if len(parts.homes[node]) > 1:
        return "computed again: its operands are cheaper to read than the value is to store"
    return f"{_kind(node)} into {_kind(user)} over the same axes"


def _kind(node: Node) -> str:
    return {"Apply": "elementwise", "Reduce": "reduction", "Scan": "scan", "Contract": "product"}[type(node).__name__]
