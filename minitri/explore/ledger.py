"""The fusion ledger as data: kernels, the bytes between them, and what if it were otherwise.

In: a compilation. Out: a `Ledger`: the kernels with the bytes that each reads and writes, the edges
between them and memory, each decision with its reason, and for every value that stays inside of a
kernel a counterfactual: the plan in which it is stored, as `fuse` makes it when told to, and what that
one moves.

    softmax    k0 reads x, writes out                    8.0 MB
    if the sum were stored: k0 reads x, writes t0; k1 reads x, t0, writes out       12.0 MB

Sizes that are not known are taken to be `TYPICAL`; `Ledger.assumed` names them. Left out: time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minitri.explore.served import Nodes
from minitri.explore.trace import Trace
from minitri.graph.ir import Graph, Node
from minitri.kernel import fuse
from minitri.kernel.index import COMPUTE
from minitri.kernel.ir import Decision, Load, Plan, Store
from minitri.kernel.partition import TYPICAL
from minitri.kernel.traffic import traffic
from minitri.pipeline import Compilation
from minitri.quota import check_time, timed, using

MOST = 64  # counterfactuals of one program

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Edge:
    """Bytes of one array that move: from memory ("" where it is an input) or the kernel that wrote it, to
    the kernel that reads it (or "" where it is an output)."""

    buffer: str
    producer: str
    consumer: str
    bytes: int


@dataclass(frozen=True, slots=True)
class KernelUse:
    name: str
    read: int
    written: int
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class Verdict:
    """A line of the ledger: whether a value stayed in a kernel, why, and the bytes that this saves (or costs)."""

    value: str
    producer: str
    consumer: str
    verdict: str  # "fused" "again" "apart"
    rule: str
    bytes: int
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """The plan if one value were stored: its edges, how many bytes more it moves, how many kernels it has."""

    value: str
    nodes: Nodes
    kernels: int
    bytes: int
    more: int
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """`unfused`: bytes that one kernel for each operation would move."""

    kernels: tuple[KernelUse, ...]
    edges: tuple[Edge, ...]
    verdicts: tuple[Verdict, ...]
    counterfactuals: tuple[Counterfactual, ...]
    bytes: int
    unfused: int
    assumed: Sizes


def ledger(compiled: Compilation) -> Ledger | None:
    """None for a program that begins at tiles: it has no ledger."""
    plan: Plan = compiled.plan
    if not plan.kernels:
        return None
    with using(compiled.context.limits), timed():
        return _Reader(compiled, plan).ledger()


class _Reader:
    def __init__(self, compiled: Compilation, plan: Plan) -> None:
        self.compiled, self.plan, self.trace = compiled, plan, Trace(compiled)
        start = compiled.context.start
        graph = start is None or start.stage.startswith("graph")
        self.graph: Graph | None = compiled.value("graph.simplified") if graph else None
        self.assumed = {name: TYPICAL for name in _unknown(plan, compiled.context.sizes)}
        self.sizes = {**self.assumed, **compiled.context.sizes}

    def ledger(self) -> Ledger:
        total = _moved(self.plan, self.sizes)
        other = tuple(self._counterfactuals(total)) if self.graph is not None else ()
        unfused = _moved(self._fused(enabled=False), self.sizes) if self.graph is not None else total
        return Ledger(
            tuple(self._kernels()), _edges(self.plan, self.sizes), tuple(map(self._verdict, self.plan.ledger)),
            other, total, unfused, self.assumed,
        )  # fmt: skip

    def _kernels(self) -> Iterator[KernelUse]:
        for kernel, t in zip(self.plan.kernels, traffic(self.plan, self.sizes)):
            yield KernelUse(kernel.name, t.read, t.written, self.trace.of(s for op in kernel.body for s in op.spans))

    def _verdict(self, d: Decision) -> Verdict:
        return Verdict(d.value, d.producer, d.consumer, d.verdict, d.rule, d.bytes.evaluate(self.sizes),
                       self.trace.of(d.spans))  # fmt: skip

    def _fused(self, enabled: bool = True, keep: frozenset[Node] = frozenset()) -> Plan:
        """What `fuse` makes of the graph, neighbouring axes still apart."""
        assert self.graph is not None
        return fuse.fuse(self.graph, dict(self.compiled.context.layouts), enabled, keep)

    def _counterfactuals(self, total: int) -> Iterator[Counterfactual]:
        """One for each value that no kernel stores: of one that is stored the plan stays as it is."""
        assert self.graph is not None
        inner = [n for n in self.graph.nodes() if isinstance(n, COMPUTE) and n not in self.graph.outputs]
        actual = _edges(self.plan, self.sizes)
        for node in inner[:MOST]:
            check_time()
            plan = self._fused("fuse" not in self.compiled.context.without, frozenset({node}))
            edges, moved = _edges(plan, self.sizes), _moved(plan, self.sizes)
            if edges != actual:
                label = f"{getattr(node, 'op', type(node).__name__.lower())}: {node.type}"
                nodes = self.trace.of(self.graph.spans.get(node, ()))
                yield Counterfactual(label, nodes, len(plan.kernels), moved, moved - total, edges)


def _unknown(plan: Plan, sizes: Sizes) -> list[str]:
    """Dimensions in the plan that have no size, in order."""
    shapes = [b.shape for b in (*plan.inputs, *plan.outputs, *plan.temporaries)]
    extents = [a.extent for k in plan.kernels for a in k.axes]
    strides = [d for b in plan.inputs for d in b.strides]
    every = (*(d for shape in shapes for d in shape), *extents, *strides)
    return sorted({s.name for d in every for s in d.symbols()} - set(sizes))


def _moved(plan: Plan, sizes: Sizes) -> int:
    return sum(t.total for t in traffic(plan, sizes))


def _edges(plan: Plan, sizes: Sizes) -> tuple[Edge, ...]:
    """Reads come from memory or from the kernel that wrote them; what an output is written to is memory."""
    moved = {t.kernel: t for t in traffic(plan, sizes)}
    writer = {op.buffer.name: k.name for k in plan.kernels for op in k.body if isinstance(op, Store)}
    edges: list[Edge] = []
    for k in plan.kernels:
        t = moved[k.name]
        edges += [Edge(b, writer.get(b, ""), k.name, t.reads.get(b, 0)) for b in _names(k.body, Load)]
    outputs = {b.name for b in plan.outputs}
    for k in plan.kernels:
        edges += [Edge(b, k.name, "", moved[k.name].writes.get(b, 0)) for b in _names(k.body, Store) if b in outputs]
    return tuple(edges)


def _names(body: Sequence[object], kind: type[Load] | type[Store]) -> Iterable[str]:
    return dict.fromkeys(op.buffer.name for op in body if isinstance(op, kind))
