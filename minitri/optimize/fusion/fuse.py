"""graph.simplified → kernels: which nodes are computed together.

    max, exp, sum, divide over the same rows      become      one kernel: one read, one write

The one idea: parts merge while it saves traffic and stays one kernel. At first every reduction, scan and product is a
part, with the elementwise nodes that only it uses. The edge with the most bytes is merged first, under two conditions.
The partition stays acyclic, which networkx checks. The merged part is still one kernel on named axes, which
one_kernel.py checks; its refusals are the reasons in the ledger. If two parts need an elementwise value, both compute
it, provided that reading its operands is cheaper than storing the value and reading it back.

Left out: schedules. How a kernel runs (blocks, loops) is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from minitri.base.diagnostics import Span
from minitri.base.dims import Dim, product
from minitri.graph import rewrite
from minitri.graph.ir import Apply, Graph, Input, Interner, Node, contiguous
from minitri.kernels.builder import build
from minitri.kernels.demand import COMPUTE, Indexing, NotOneKernel
from minitri.kernels.ir import Buffer, Decision, Plan
from minitri.optimize.fusion.partition import Partition


def fuse(graph: Graph, layouts: dict[str, tuple[Dim, ...]], enabled: bool, kept: Iterable[Node] = ()) -> Plan:
    """The plan of a graph. `layouts`: strides (elements) of inputs that are not contiguous; `kept`: values that
    go through memory whatever that costs."""
    graph = _stored_outputs(graph)
    stored: set[Node] = set(kept)
    while True:
        partition = Partition(graph, stored, enabled)
        try:
            parts = partition.run()
            break
        except NotOneKernel as refusal:
            new = set(refusal.nodes) - stored
            assert new, refusal.reason
            if all(isinstance(n, COMPUTE) for n in new):
                stored |= new
            else:
                graph, stored = _with_copies(graph, new), set()
    return _plan(graph, partition, parts, layouts)


def _plan(graph: Graph, partition: Partition, parts: Sequence[Indexing], layouts: dict[str, tuple[Dim, ...]]) -> Plan:
    buffers = {i: _input_buffer(i, layouts) for i in graph.inputs}
    taken = {i.name for i in graph.inputs}
    names = ["out"] if len(graph.outputs) == 1 else [f"out{k}" for k in range(len(graph.outputs))]
    outputs = [_buffer(_unlike(taken, name), n, "output") for name, n in zip(names, graph.outputs)]
    stored: dict[Node, list[Buffer]] = defaultdict(list)
    for node, buffer in zip(graph.outputs, outputs):
        stored[node].append(buffer)
    temporaries: list[Buffer] = []
    for node in (n for part in parts for n in reversed(part.roots) if n not in stored):
        temporaries.append(_buffer(_unlike(taken, f"t{len(temporaries)}"), node, "temporary"))
        stored[node].append(temporaries[-1])

    def buffer_of(node: Node) -> Buffer:
        return buffers[node] if isinstance(node, Input) else stored[node][0]

    kernels = [build(f"k{k}", part, buffer_of, stored.__getitem__, graph.spans) for k, part in enumerate(parts)]
    ledger = _ledger(partition)
    return Plan(
        graph.name,
        tuple(buffers.values()),
        tuple(outputs),
        tuple(temporaries),
        tuple(kernels),
        ledger,
        graph.conditions,
    )


def _unlike(taken: set[str], name: str) -> str:
    """A parameter may be called `out` or `t0` too."""
    return name if name not in taken else _unlike(taken, f"{name}_")


def _stored_outputs(graph: Graph) -> Graph:
    """Every output is made by a compute node: a view that is an output becomes a copy."""
    copies: dict[Node, Node] = {}
    spans = dict(graph.spans)
    for node in graph.outputs:
        copies[node] = node if isinstance(node, COMPUTE) else Apply(node.dtype, node.shape, "cast", (node,))
        spans[copies[node]] = graph.spans.get(node, ())
    return replace(graph, outputs=tuple(copies[n] for n in graph.outputs), spans=spans)


def _with_copies(graph: Graph, values: set[Node]) -> Graph:
    """The graph with a compute node behind values that are only moved, so that they can be stored."""

    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = rewrite.copy(interner, node, args)
        moved = node in values and not isinstance(node, COMPUTE)
        return interner.apply("cast", made.dtype, made.shape, (made,)) if moved else made

    return rewrite.rebuild(graph, make)


def _input_buffer(node: Input, layouts: dict[str, tuple[Dim, ...]]) -> Buffer:
    role = "scalar" if node.scalar else "input"
    return Buffer(node.name, node.dtype, node.shape, layouts.get(node.name, contiguous(node.shape)), role)


def _buffer(name: str, node: Node, role: str) -> Buffer:
    return Buffer(name, node.dtype, node.shape, contiguous(node.shape), role)


def _ledger(partition: Partition) -> tuple[Decision, ...]:
    """One line for each value that one compute node hands to another."""
    graph = partition.quotient()
    number = {h: k for k, h in enumerate(partition.ordered_homes())}
    refusals: dict[tuple[int, int], str] = {}
    rows: dict[Decision, dict[Span, None]] = {}
    for node in partition.compute:
        for user, home in ((u, h) for u in partition.users[node] for h in partition.homes[u]):
            maker = partition.homes[node][0]
            fused = node in partition.parts[home]
            if not fused and (maker, home) not in refusals:
                refusals[maker, home] = partition.refusal(maker, home, graph) or "it saves nothing"
            rule = refusals[maker, home] if not fused else _rule(partition, node, user)
            traffic = product(list(node.shape)) * (2 * node.dtype.bytes)
            ends = f"k{number[home if fused else maker]}", f"k{number[home]}"
            row = Decision(f"{label(node)}: {node.type}", *ends, fused, rule, traffic)
            rows.setdefault(row, {}).update(dict.fromkeys(partition.graph.spans.get(node, ())))
    return tuple(replace(row, spans=tuple(spans)) for row, spans in rows.items())


def _rule(partition: Partition, node: Node, user: Node) -> str:
    if len(partition.homes[node]) > 1:
        return "computed again: its operands are cheaper to read than the value is to store"
    return f"{_kind(node)} into {_kind(user)} over the same axes"


def _kind(node: Node) -> str:
    return {"Apply": "elementwise", "Reduce": "reduction", "Scan": "scan", "Contract": "product"}[type(node).__name__]


def label(node: Node) -> str:
    """What a line of the ledger calls a node."""
    return getattr(node, "op", type(node).__name__.lower())
