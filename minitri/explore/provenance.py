"""For each line of each stage, finds the graph nodes from which the compiler made this line.

A `Trace` is made from a compilation. The `Trace` has the nodes of the graph, and the place of each node in the source
text. For each line of each stage, the `Trace` has the text, and the numbers of the nodes from which the line comes.

    source     relu(x @ w + b)            nodes[3] is `x @ w`, source[5:10]
    triton     v5 = rt.dot(v1, v2, v4)    {0, 1, 3}
    sass       HMMA.16816.F32 R4, …       {0, 1, 3}

Each operation has spans: places in the source, each with the number of the graph node that was made for this place. A
line with an operation comes from the graph nodes whose numbers are in the spans of this operation. A line that declares
an axis or a buffer comes from the graph nodes of the operations that use the axis or the buffer. The line that opens a
loop comes from the graph nodes of the loop's results. A kernel's header line comes from the graph nodes whose values
the kernel stores.

The number of a node is its index in the stage `graph`. If a program was loaded from the text of a kernels or tile
stage, the trace numbers the ops of this stage, not graph nodes. A `Trace` assigns nodes to whole lines, not to parts of
a line.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from minitri.base.nodes import grouped
from minitri.base.spans import Span
from minitri.explore.machine_code import MachineCode
from minitri.explore.triton_provenance import NONE, OWN, Nodes, Origin, generated_lines, machine_lines
from minitri.graph.ir import Graph, Input
from minitri.graph.text import format_input, graph_lines
from minitri.kernels.ir import Buffer, Decision, Kernel, Load, Op, Plan, Scan, Store, reduced_by
from minitri.kernels.text import head_lines, plan_lines
from minitri.language import ast
from minitri.language.ast_dump import module_lines
from minitri.pipeline import OUR_STAGES, Compilation
from minitri.tiles.ir import Loop, Program, TileAxis
from minitri.tiles.text import program_lines, programs_lines


class NodeInfo(NamedTuple):
    """A node of the graph, with its places in the source.

    `op`: the operation of the node, such as `reduce.max`.
    `text`: the line of the node in the printed stage `graph`.
    `spans`: places in the source text. The first span is the place of the node itself. If the node comes from the body
        of a called function, the other spans are the places of the calls.
    """

    op: str
    text: str
    spans: tuple[Span, ...]


class StageTrace(NamedTuple):
    """A stage as text, with the nodes that each line comes from.

    `lines[k]` has the numbers of the nodes of line k. `how[k]` is the role of line k, such as "own" or "serves" (the
    field `how` of the class `Origin`).
    """

    text: str
    lines: tuple[Nodes, ...]
    how: tuple[str, ...]


class Trace:
    """The graph nodes of a compilation. For each line of each stage, a `Trace` says which graph nodes the line comes
    from. For example, `trace["ptx"]` is the `StageTrace` of the stage `ptx`.

    A stage is made when it is first requested. Raises StageUnavailable (MT0402) for a stage that the compilation does
    not have.
    """

    def __init__(self, compilation: Compilation) -> None:
        self.compilation, self.stages, self.machine = compilation, compilation.stages, MachineCode(compilation)
        self.source = compilation.context.module.source  # the text of the program itself
        self.nodes = tuple(_nodes(self.compilation))
        self._at = grouped(((id(s.source), s.start, s.end), k) for k, n in enumerate(self.nodes) for s in n.spans)
        self._stages: dict[str, StageTrace] = {}

    def __getitem__(self, stage: str) -> StageTrace:
        if stage not in self._stages:
            ours = stage not in self.compilation.context.target.stages
            text = self.compilation[stage] if ours else self.machine.text(stage)  # the lines of each distinct kernel
            origins = self._origins(stage)[: len(text.removesuffix("\n").split("\n"))]
            self._stages[stage] = StageTrace(text, tuple(o.nodes for o in origins), tuple(o.how for o in origins))
        return self._stages[stage]

    def of(self, spans: Iterable[Span]) -> Nodes:
        """Returns the numbers of the graph nodes that belong to the given spans (places in the source).

        If a span has no node number, the function takes all nodes with the same place in the source.
        """
        return frozenset().union(*({s.node} if s.node is not None else self._there(s) for s in spans))

    def _there(self, span: Span) -> Sequence[int]:
        return self._at.get((id(span.source), span.start, span.end), ())

    # ---- lines -----------------------------------------------------------------------

    def _origins(self, stage: str) -> list[Origin]:
        if stage in OUR_STAGES and stage != "triton":
            return [Origin(nodes, OWN if nodes else "") for nodes in self._our_lines(stage)]
        kernels = self.compilation.value("triton")
        source = generated_lines(self.compilation.module_text, kernels, lambda op: self.of(op.spans))
        return source if stage == "triton" else machine_lines(self.machine, stage, source)

    def _our_lines(self, stage: str) -> list[Nodes]:
        match self.compilation.value(stage):
            case ast.Module() as module:
                return [self._within(about) for _, about in module_lines(module)]
            case Graph() as graph:
                return [self.of(s for n in about for s in graph.spans.get(n, ())) for _, about in graph_lines(graph)]
            case Plan() as plan:
                return self._about(plan_lines(plan), [op for k in plan.kernels for op in k.body])
            case programs:
                head = self._about(head_lines(programs.plan), [op for p in programs for op in p.ops()])
                return [*head, *(nodes for p in programs for nodes in (NONE, *self.of_program(p)))]

    def of_program(self, program: Program) -> list[Nodes]:
        """Returns the graph nodes that each line of one tile program comes from."""
        return self._about(program_lines(program), list(program.ops()))

    def _within(self, node: ast.Node | None) -> Nodes:
        """Returns the graph nodes whose source range is exactly the range of an expression."""
        match node:
            case None:
                return NONE
            case ast.Assign() | ast.Return():
                return self._within(node.value)
            case ast.Function():
                return frozenset().union(*map(self._within, node.params))
        return frozenset(self._there(node.span))

    def _about(self, lines: Iterable[tuple[str, Any]], ops: Sequence[Op]) -> list[Nodes]:
        """Returns the graph nodes for each line of a printed kernel or tile program."""
        # A line that declares a buffer gets the graph nodes of all ops that access the buffer.
        return [self.of(s for one in _served(item, ops) for s in one.spans) for _, item in lines]


def _served(item: Any, ops: Sequence[Op]) -> Iterable[Op | Decision]:
    """Returns the ops or the fusion decisions that one line of a printed program describes."""
    # For a line that declares something, such as an axis or a buffer: the ops that depend on the declaration.
    match item:
        case Program() | Kernel():
            body = item.ops() if isinstance(item, Program) else item.body
            return [op for op in body if isinstance(op, Store)]
        case Buffer():
            return [op for op in ops if isinstance(op, (Load, Store)) and op.buffer.name == item.name]
        case TileAxis():
            return [op for op in ops if item.name in _axes(op)]
        case Loop():
            return [c for c, _ in item.carries] or [op for op in item.body if isinstance(op, Store)]
        case None:
            return []
    return [item]


def _axes(op: Op) -> Container[str]:
    """Returns the axes along which an op accesses memory, reduces or scans."""
    if isinstance(op, (Load, Store)):
        return op.indexed_by
    return (op.along,) if isinstance(op, Scan) else reduced_by(op)


# ---- nodes ---------------------------------------------------------------------------------


def _nodes(compiled: Compilation) -> Iterator[NodeInfo]:
    """Yields the nodes of the graph in the order of their numbers."""
    start = compiled.context.start
    match compiled.value("graph" if start is None else start.stage):
        case Graph() as graph:
            texts = {about[0]: text.strip() for text, about in graph_lines(graph) if text.startswith("  %")}
            for node in dict.fromkeys((*graph.nodes(), *graph.inputs)):
                text = format_input(node) if isinstance(node, Input) else texts[node]
                yield NodeInfo("input" if isinstance(node, Input) else _op(text), text, graph.spans.get(node, ()))
        # The program was loaded from the text of its kernels or tile programs.
        case first:
            lines = plan_lines(first) if isinstance(first, Plan) else programs_lines(first)
            ops = ((text.strip(), about) for text, about in lines if isinstance(about, Op))
            yield from (NodeInfo(_op(text), text, op.spans) for text, op in ops)


def _op(text: str) -> str:
    """Returns the operation in a line, such as `reduce.max` in `%3: f32[M] = reduce.max %2`."""
    return (text.partition(" = ")[2] or text.strip()).partition(" ")[0]
