"""Text → graph: the inverse of graph/text.py.

In: a text as `format_graph` writes it, perhaps edited. Out: a Graph whose spans point into that text.
Each node is made by the interner and held against the typing rules at its own line, so a mistake is
reported where it stands. `format_graph(parse_graph(s)) == s` for every s that `format_graph` wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base.diagnostics import CODES, suggest
from minitri.base.dims import Dim
from minitri.base.numpy_semantics import REDUCTIONS, SCANS
from minitri.base.operators import OPERATORS
from minitri.base.spans import Source, Span
from minitri.base.types import DType, f64
from minitri.graph import verify
from minitri.graph.ir import PRECISIONS, Condition, Graph, Input, Interner, Node, Shape, axis, pick
from minitri.graph.typer import reduce_type
from minitri.text_io.nodes import Block, Expr, Line, Mistake, Param, Require
from minitri.text_io.reader import read, reading
from minitri.text_io.vocabulary import (
    Names,
    read_attributes,
    read_dtype,
    read_identifier,
    read_list,
    read_number,
    read_text,
    read_word,
    wanted,
)


def parse_graph(text: str, name: str = "<graph>") -> Graph:
    """The graph that a text says; CompileError MT05xx with its place if it is none."""
    source = Source(name, text)
    with reading(source):
        return _Reader(source, read(source, "graph")).graph()


def read_conditions(requires: Sequence[Require], names: Names, source: Source) -> tuple[Condition, ...]:
    return tuple(_condition(r, names, source) for r in requires)


def _condition(r: Require, names: Names, source: Source) -> Condition:
    """Without a code of its own a condition is one about sizes (MT0304)."""
    more = read_attributes(r, ("label", "help"))
    code = r.code.name if r.code else "MT0304"
    if code not in CODES or r.relation == "<":
        message = "a condition is ==, != or >=" if r.relation == "<" else f"there is no error code {code[:20]}"
        raise Mistake(r.code or r, message)
    left, right = names.sized(r.left), names.sized(r.right)
    message = read_text(r.message) if r.message else "these sizes break a condition of the program"
    label, help = read_text(more.get("label")), read_text(more.get("help"))
    return Condition(left, r.relation, right, code, message, label, help, Span(source, r.start, r.end))


def read_input_type(p: Param, names: Names) -> tuple[DType, Shape, bool]:
    """(dtype, shape, whether it is a scalar); the names in the shape become dimensions."""
    if p.type.dims is None:
        if p.type.name.name != "float":
            raise Mistake(p.type, "a parameter is an array, as in f32[M, N], or a float")
        return f64, (), True
    for e in p.type.dims:
        names.declare(e)
    return read_dtype(p.type), names.shape(p.type.dims), False


class _Reader:
    def __init__(self, source: Source, block: Block) -> None:
        self.source, self.block = source, block
        self.names = Names()
        self.nodes = Interner()
        self.values: dict[str, Node] = {}
        self.spans: dict[Node, tuple[Span, ...]] = {}

    def graph(self) -> Graph:
        name = read_identifier(self.block.name)
        inputs = [self._input(p) for p in self.block.params]
        conditions = read_conditions(self.block.requires, self.names, self.source)
        for line in self.block.body:
            assert isinstance(line, Line)
            self._line(line)
        outputs = tuple(map(self._ref, self.block.returns))
        return Graph(name, tuple(inputs), outputs, conditions, self.spans).numbered()

    def _input(self, p: Param) -> Input:
        name = read_identifier(p.name, self.values)
        if p.strides is not None:
            raise Mistake(p, "the inputs of a graph have no strides")
        dtype, shape, scalar = read_input_type(p, self.names)
        node = self.values[name] = self.nodes.input(name, dtype, shape, scalar)
        self.spans[node] = (Span(self.source, p.start, p.end),)
        return node

    def _ref(self, e: Expr) -> Node:
        if e.kind != "name" or e.name not in self.values:
            shown = self.source.text[e.start : e.end][:40]
            raise Mistake(e, f"there is no value `{shown}` above", suggest(e.name, self.values))
        return self.values[e.name]

    def _line(self, line: Line) -> None:
        assert line.result is not None and line.type is not None
        if line.result.name in self.values:
            raise Mistake(line.result, f"`{line.result.name}` is there already")
        if line.type.dims is None:
            raise Mistake(line.type, "the type of a value is written as in f32[M, N], or f32[]")
        dtype, shape = read_dtype(line.type), self.names.shape(line.type.dims)
        try:
            node = self._node(line, dtype, shape)
            if (node.dtype, node.shape) != (dtype, shape):
                raise ValueError(f"the type of this is {node.type}")
            verify.check(node)
        except ValueError as error:
            raise Mistake(line, f"this line breaks a rule of graphs: {error}") from None
        self.values[line.result.name] = node
        here = Span(self.source, line.start, line.end)
        self.spans[node] = (*self.spans.get(node, ()), here)

    def _node(self, line: Line, dtype: DType, shape: Shape) -> Node:
        kind, _, op = line.op.name.partition(".")
        match kind:
            case "const" | "index" if not op:
                return self._leaf(line, dtype, shape)
            case "view" | "gather" if not op:
                return self._moved(line, shape)
            case "reduce" | "scan":
                return self._reduced(line, kind, op)
            case "concat" | "contract" if not op:
                return self._joined(line, dtype, shape)
        if line.op.name != "cast" and line.op.name not in OPERATORS:
            raise Mistake(line.op, f"there is no operator `{line.op.name[:40]}`", suggest(line.op.name, OPERATORS))
        read_attributes(line, ())
        return self.nodes.apply(line.op.name, dtype, shape, tuple(self._operands(line)))

    def _operands(self, line: Line, least: int = 1, most: int | None = None) -> list[Node]:
        count = len(line.operands)
        if count < least or (most is not None and count > most):
            raise Mistake(line.op, f"`{line.op.name}` has {count} operands")
        return [self._ref(e) for e in line.operands]

    def _leaf(self, line: Line, dtype: DType, shape: Shape) -> Node:
        if line.op.name == "index":
            read_attributes(line, ("expr",))
            self._operands(line, 0, 0)
            return self.nodes.index(dtype, shape, self._index(shape, 0).dim(wanted(line, "expr")))
        read_attributes(line, ())
        if len(line.operands) != 1:
            raise Mistake(line.op, "a constant is one number")
        return self.nodes.const(read_number(line.operands[0], dtype), dtype)

    def _moved(self, line: Line, shape: Shape) -> Node:
        read_attributes(line, ("index",))
        x, *picks = self._operands(line, 1, 1 if line.op.name == "view" else None)
        index = self._index(shape, len(picks)).dims(read_list(wanted(line, "index")))
        if line.op.name == "view":
            return self.nodes.view(x, shape, index)
        return self.nodes.gather(x, shape, index, tuple(picks))

    def _index(self, shape: Shape, picks: int) -> Names:
        known = {f"@{k}": pick(k) for k in range(picks)}
        return Names(self.names.sizes, _axes(len(shape)), lambda e: known.get(e.name))

    def _reduced(self, line: Line, kind: str, op: str) -> Node:
        known = REDUCTIONS if kind == "reduce" else SCANS
        if op not in known:
            raise Mistake(line.op, f"there is no {kind} `{op[:40]}`", suggest(op, known))
        read_attributes(line, ("axes",) if kind == "reduce" else ("axis",))
        (x,) = self._operands(line, 1, 1)
        if kind == "scan":
            return self.nodes.scan(op, x, self._number(wanted(line, "axis")))
        axes = tuple(self._number(e) for e in read_list(wanted(line, "axes")))
        return self.nodes.reduce(op, *reduce_type(op, x, axes), x, axes)

    def _joined(self, line: Line, dtype: DType, shape: Shape) -> Node:
        if line.op.name == "concat":
            read_attributes(line, ("axis",))
            return self.nodes.concat(shape, tuple(self._operands(line)), self._number(wanted(line, "axis")))
        more = read_attributes(line, ("precision",))
        a, b = self._operands(line, 2, 2)
        return self.nodes.contract(dtype, shape, a, b, read_word(more.get("precision"), PRECISIONS, "ieee"))

    def _number(self, e: Expr) -> int:
        if e.kind != "number" or not isinstance(e.parts[0], int):
            raise Mistake(e, "a number is wanted here")
        return e.parts[0]


def _axes(rank: int) -> dict[str, Dim]:
    return {f"d{k}": axis(k) for k in range(rank)}
