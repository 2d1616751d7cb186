"""Draws plans of kernels: the plan that fusion chose, and plans with less fusion.

A drawing shows the kernels, the arrays that kernels access, and how many bytes of each array a kernel reads or writes.
A `Trace` is a compilation with the graph nodes of each line (provenance.py). The function `plans` takes a `Trace`. The
result is plain data:

    {assumed, plans, decisions}
    plan      {title, kernels, bytes, view}      the chosen plan, the plan without fusion, plans without one fusion
    decision  {value, from, to, verdict, rule, bytes, marks, instead}    instead: index of the plan without this fusion

To undo one fusion, the module runs the fusion pass again, and requires that the fused value is stored in memory. The
byte counts assume 1024 for each unknown size. The field `bytes` is a lower bound for the memory traffic of the kernels
(kernels/memory_traffic.py). The data has no estimate of how long the kernels run.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minitri.base.spans import Span
from minitri.base.text_tables import byte_size
from minitri.explore.execution_trace import buffers
from minitri.explore.graph_drawing import box, drawing
from minitri.explore.provenance import Trace
from minitri.graph.ir import Graph
from minitri.kernels.demand import COMPUTE
from minitri.kernels.ir import Compute, Decision, Dot, Kernel, Load, Op, Plan, Reduce, Scan, Store
from minitri.kernels.lower_graph import one_kernel_each
from minitri.kernels.memory_traffic import traffic
from minitri.optimize.fusion.first_parts import TYPICAL
from minitri.optimize.fusion.fuse import fuse

Operation = Compute | Reduce | Scan | Dot
MAX_PLANS = 24  # values for which the fusion pass runs again
MAX_NODES = 2400  # nodes in the drawings of all plans together; a large graph gets fewer plans


def plans(trace: Trace) -> dict[str, Any] | None:
    """Returns the drawings of several plans of kernels as data. Returns None if the compilation lacks the stage
    `kernels` or the stage `graph.simplified`.

    For example, a program that was loaded from the text of its kernels lacks the stage `graph.simplified`.
    """
    return _Ledger(trace).data() if {"kernels", "graph.simplified"} <= {*trace.stages} else None


class _Ledger:
    """Draws the kernels that fusion chose for a program, and the kernels with less fusion."""

    def __init__(self, trace: Trace) -> None:
        compiled, context, self.trace = trace.compilation, trace.compilation.context, trace
        self.plan: Plan = compiled.value("kernels")
        self.graph: Graph = compiled.value("graph.simplified")
        self.enabled = not context.without & {"all", "fusion"}
        names = {s.name for b in buffers(self.plan) for d in (*b.shape, *b.strides) for s in d.symbols()}
        known, self.layouts = context.sizes, context.layouts
        self.sizes = {n: known.get(n, TYPICAL) for n in sorted(names)}
        self.assumed = [n for n in self.sizes if n not in known]

    def data(self) -> dict[str, Any]:
        plans = [self._plan("as it is", self.plan)]
        if self.enabled and len(self.plan.ledger):
            plans.append(self._plan("nothing fused", one_kernel_each(self.graph, self.layouts)))
        instead = self._instead(plans)
        assumed = self.assumed and f"{', '.join(self.assumed)} taken for {TYPICAL}"
        return {"assumed": assumed, "plans": plans, "decisions": [self._decision(d, instead) for d in self.plan.ledger]}

    def _instead(self, plans: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
        """Appends plans to the list `plans`, each with one fused value stored in memory instead, and returns the index
        of each value's plan.
        """
        found: dict[tuple[Any, ...], int] = {}
        fused = {_key(d.value, d.spans): d.value for d in self.plan.ledger if d.fused}
        outputs, nodes = set(self.graph.outputs), self.graph.nodes()
        most = min(MAX_PLANS, MAX_NODES // len(nodes))
        for node in nodes if self.enabled else ():
            value = f"{getattr(node, 'op', type(node).__name__.lower())}: {node.type}"
            key = _key(value, self.graph.spans.get(node, ()))
            if isinstance(node, COMPUTE) and node not in outputs and key in fused and len(found) < most:
                found[key] = len(plans)
                title = f"{fused[key].partition(':')[0]} kept in memory"
                plans.append(self._plan(title, fuse(self.graph, self.layouts, (node,))))
        return found

    def _decision(self, d: Decision, instead: Mapping[tuple[Any, ...], int]) -> dict[str, Any]:
        bytes = d.bytes.evaluate({s.name: self.sizes.get(s.name, TYPICAL) for s in d.bytes.symbols()})
        return {
            "value": d.value, "from": d.producer, "to": d.consumer, "verdict": d.verdict, "rule": d.rule, "bytes": bytes,
            "marks": sorted(self.trace.of(d.spans)), "instead": instead.get(_key(d.value, d.spans), 0) if d.fused else 0,
        }  # fmt: skip

    # ---- a plan, drawn ---------------------------------------------------------------

    def _plan(self, title: str, plan: Plan) -> dict[str, Any]:
        moved = traffic(plan, self.sizes)
        boxes: dict[str, dict[str, Any]] = {}
        edges: dict[tuple[str, str], list[str]] = {}
        for kernel, t in zip(plan.kernels, moved):
            here = f"kernel {kernel.name}"
            boxes[here] = self._kernel(kernel)
            edges |= {(f"array {name}", here): [byte_size(n)] for name, n in t.reads.items()}
            edges |= {(here, f"array {name}"): [byte_size(n)] for name, n in t.writes.items()}
        touched = {name for edge in edges for name in edge}
        ops = [op for k in plan.kernels for op in k.body]
        boxes |= {f"array {b.name}": self._array(b, ops) for b in buffers(plan) if f"array {b.name}" in touched}
        view = drawing(title, boxes, edges, 44.0)
        return {"title": title, "kernels": len(plan.kernels), "bytes": sum(t.total for t in moved), "view": view}

    def _kernel(self, kernel: Kernel) -> dict[str, Any]:
        steps = " ".join(name for name in map(operator, operations(kernel)) if name != "cast") or "copy"
        axes = ", ".join(f"{a.name}: {a.extent}" for a in kernel.axes)
        return box(f"{kernel.name}: {steps}", axes or "one element", "group", self._marks(kernel.body))

    def _array(self, b: Any, ops: list[Op]) -> dict[str, Any]:
        own = [op for op in ops if isinstance(op, (Load, Store)) and op.buffer.name == b.name]
        kind = "temporary" if b.role == "temporary" else "input"
        return box(b.name, f"{b.dtype}[{', '.join(map(str, b.shape))}]", kind, self._marks(own), b.role == "output")

    def _marks(self, ops: Iterable[Op]) -> list[int]:
        return sorted(self.trace.of(s for op in ops for s in op.spans))


def operations(kernel: Kernel) -> list[Operation]:
    """Returns the operations in the body of a kernel.

    The list contains casts only if the kernel computes nothing but casts.
    """
    ops = [op for op in kernel.body if isinstance(op, Operation)]
    return [op for op in ops if operator(op) != "cast"] or ops


def operator(op: Operation) -> str:
    return "product" if isinstance(op, Dot) else op.op


def _key(value: str, spans: Sequence[Span]) -> tuple[Any, ...]:
    """Returns a dict key that consists of a value's text and the places of the value in the source."""
    return value, *((id(s.source), s.start, s.end) for s in spans)
