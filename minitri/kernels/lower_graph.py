"""graph.simplified → kernels: one kernel for each node that computes.

    exp(x) + 1      becomes      k0: t0 = exp(x)      k1: out = t0 + 1

Views, constants and index values get no kernel of their own. Each kernel that needs a view, a constant or an index
value computes it. An output that is only a view of another value becomes a copy in memory. A view that is needed at too
many indices is copied to memory too.

With optimisations, minitri/optimize/fusion/ decides which nodes run in one kernel. `plan_of` makes the plan with and
without fusion.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from minitri.base.dims import Dim, product
from minitri.graph import rewrite
from minitri.graph.ir import Apply, Graph, Interner, Layouts, Node, allows, contiguous
from minitri.kernels.demand import COMPUTE, Indexing, NotOneKernel
from minitri.kernels.ir import Buffer, Decision, Plan
from minitri.kernels.kernel_from_demands import build


def one_kernel_each(graph: Graph, layouts: Layouts = {}) -> Plan:
    """Makes the plan (list of kernels) with one kernel for each node that computes something, in the order of the
    graph.

    layouts   the strides of each input that is not contiguous, in elements, by name
    """
    graph = with_stored_outputs(graph)
    while True:
        parts, moved = _parts(graph)
        if not moved:
            return plan_of(graph, parts, _ledger(graph, parts), layouts)
        graph = with_copies(graph, moved)


def _parts(graph: Graph) -> tuple[list[Indexing], set[Node]]:
    """Returns the demands (needed elements) of each kernel. Also returns the views that must be stored in memory before
    the kernels can be made.
    """
    parts: list[Indexing] = []
    moved: set[Node] = set()
    allowed = allows(graph.conditions)
    for node in graph.nodes():
        if isinstance(node, COMPUTE):
            try:
                parts.append(Indexing(frozenset({node}), [node], allowed))
            except NotOneKernel as refusal:
                moved |= set(refusal.nodes)
    return parts, moved


def _ledger(graph: Graph, parts: Sequence[Indexing]) -> list[Decision]:
    """Returns the ledger (list of fusion decisions). The ledger has one line for each value that one kernel stores and
    another kernel loads.
    """
    number = {part.roots[0]: f"k{k}" for k, part in enumerate(parts)}
    written, rows = set(graph.outputs), []
    for part in parts:
        for node in (n for n in part.order if n in number and n is not part.roots[0]):
            ends = number[node], number[part.roots[0]]
            rows.append(decision(graph, node, ends, False, "fusion is off", 1 + (node not in written)))
            written.add(node)
    return rows


def decision(graph: Graph, node: Node, ends: tuple[str, str], fused: bool, rule: str, times: int) -> Decision:
    """A line of the ledger about `node`.

    ends    the names of the kernels that produce and consume the node
    times   how often the value passes through memory: once for each read, and once for the write
    """
    traffic = product(list(node.shape)) * (times * node.dtype.bytes)
    return Decision(f"{label(node)}: {node.type}", *ends, fused, rule, traffic, spans=graph.spans.get(node, ()))


def label(node: Node) -> str:
    """Returns the name of a node in the ledger of fusion decisions: the operator of the node, or its kind."""
    return getattr(node, "op", type(node).__name__.lower())


# ---- values that must be stored -------------------------------------------------------------------


def with_stored_outputs(graph: Graph) -> Graph:
    """Returns the graph with a copy for each output that only rearranges elements, such as a view, so that a kernel
    stores it.
    """
    copies: dict[Node, Node] = {}
    spans = dict(graph.spans)
    for node in graph.outputs:
        copies[node] = node if isinstance(node, COMPUTE) else Apply(node.dtype, node.shape, "cast", (node,))
        spans[copies[node]] = graph.spans.get(node, ())
    return replace(graph, outputs=tuple(copies[n] for n in graph.outputs), spans=spans)


def with_copies(graph: Graph, values: Collection[Node]) -> Graph:
    """Returns the graph in which each view, gather or concat in `values` is copied, so that a kernel stores it."""

    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = rewrite.copy(interner, node, args)
        moved = node in values and not isinstance(node, COMPUTE)
        return interner.apply("cast", made.dtype, made.shape, (made,)) if moved else made

    return rewrite.rebuild(graph, make)


# ---- the plan ------------------------------------------------------------------------------


def plan_of(graph: Graph, parts: Sequence[Indexing], ledger: Iterable[Decision], layouts: Layouts) -> Plan:
    """Makes the plan with one kernel for each item of `parts`, in the order of `parts`."""
    role = {i: "scalar" if i.scalar else "input" for i in graph.inputs}
    inputs = {i: _buffer(i.name, i, role[i], layouts.get(i.name)) for i in graph.inputs}
    taken = {i.name for i in graph.inputs}
    names = ["out"] if len(graph.outputs) == 1 else [f"out{k}" for k in range(len(graph.outputs))]
    outputs = [_buffer(_unused_name(taken, name), n, "output") for name, n in zip(names, graph.outputs)]
    stored: dict[Node, list[Buffer]] = defaultdict(list)
    for node, buffer in zip(graph.outputs, outputs):
        stored[node].append(buffer)
    temporaries: list[Buffer] = []
    for node in (n for part in parts for n in reversed(part.roots) if n not in stored):
        temporaries.append(_buffer(_unused_name(taken, f"t{len(temporaries)}"), node, "temporary"))
        stored[node].append(temporaries[-1])
    buffers = {**stored, **{i: [buffer] for i, buffer in inputs.items()}}
    kernels = [build(f"k{k}", part, buffers.__getitem__, graph.spans) for k, part in enumerate(parts)]
    memory = tuple(inputs.values()), tuple(outputs), tuple(temporaries)
    return Plan(graph.name, *memory, tuple(kernels), tuple(ledger), graph.conditions)


def _unused_name(taken: set[str], name: str) -> str:
    """Returns a name for a buffer that no other buffer has. The user may have called a parameter `out` or `t0`."""
    return name if name not in taken else _unused_name(taken, f"{name}_")


def _buffer(name: str, node: Node, role: str, strides: tuple[Dim, ...] | None = None) -> Buffer:
    return Buffer(name, node.dtype, node.shape, strides or contiguous(node.shape), role)
