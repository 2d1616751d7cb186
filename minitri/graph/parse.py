"""Reads the text of a graph. It is the inverse of graph/text.py.

In: a text that `format_graph` wrote, and that a user may have edited. Out: a Graph whose spans point into that text.
Each line is checked by the typing rules when it is read, so an error points at its line.
`format_graph(parse_graph(s)) == s` for every text s that `format_graph` wrote.
"""

from collections.abc import Sequence
from typing import Any

from minitri.base.diagnostics import CODES
from minitri.base.spans import Source, Span
from minitri.base.types import DType, f64
from minitri.graph import verify
from minitri.graph.ir import Condition, Graph, Input, Interner, Node, Shape, axis, pick
from minitri.graph.text import LINES
from minitri.graph.typing_rules import reduce_type
from minitri.text_io.name_resolution import Names, read_attributes, read_dtype, read_identifier, read_list, read_text
from minitri.text_io.nodes import Block, Expr, Line, Mistake, Param, Require
from minitri.text_io.reader import read, reading
from minitri.text_io.templates import LineReader


def parse_graph(text: str, name: str = "<graph>") -> Graph:
    """The graph of a text. Raises CompileError MT05xx with a span if the text is not a valid graph."""
    source = Source(name, text)
    with reading(source):
        return _Reader(source, read(source, "graph")).graph()


def read_conditions(requires: Sequence[Require], names: Names, source: Source) -> tuple[Condition, ...]:
    return tuple(_condition(r, names, source) for r in requires)


def _condition(r: Require, names: Names, source: Source) -> Condition:
    """The condition of a `require` line. The default error code is MT0304."""
    more = read_attributes(r, ("label", "help"))
    code = r.code.name if r.code else "MT0304"
    if code not in CODES or r.relation == "<":
        message = "a condition is ==, != or >=" if r.relation == "<" else f"there is no error code {code[:20]}"
        raise Mistake(r.code or r, message)
    left, right = names.of_sizes.dims((r.left, r.right))
    message = read_text(r.message) if r.message else "these sizes break a condition of the program"
    label, help = read_text(more.get("label")), read_text(more.get("help"))
    return Condition(left, r.relation, right, code, message, label, help, Span(source, r.start, r.end))


def read_input_type(p: Param, names: Names) -> tuple[DType, Shape, bool]:
    """The dtype and shape of an input, and whether it is a scalar. Declares the names in the shape as dimensions."""
    if p.type.dims is None:
        if p.type.name.name != "float":
            raise Mistake(p.type, "a parameter is an array, as in f32[M, N], or a float")
        return f64, (), True
    for e in p.type.dims:
        names.declare(e)
    return read_dtype(p.type), names.shape(p.type.dims), False


class _Reader(LineReader[Node]):
    templates = LINES
    one_operand = {"const": "a constant is one number"}

    def __init__(self, source: Source, block: Block) -> None:
        super().__init__(source)
        self.block, self.sizes = block, Names()
        self.nodes = Interner()
        self.spans: dict[Node, tuple[Span, ...]] = {}

    def graph(self) -> Graph:
        name = read_identifier(self.block.name)
        inputs = [self._input(p) for p in self.block.params]
        conditions = read_conditions(self.block.requires, self.sizes, self.source)
        for line in self.block.body:
            assert isinstance(line, Line)
            self._line(line)
        outputs = tuple(map(self.ref, self.block.returns))
        return Graph(name, tuple(inputs), outputs, conditions, self.spans).numbered()

    def _input(self, p: Param) -> Input:
        name = read_identifier(p.name, self.values)
        if p.strides is not None:
            raise Mistake(p, "the inputs of a graph have no strides")
        dtype, shape, scalar = read_input_type(p, self.sizes)
        node = self.values[name] = self.nodes.input(name, dtype, shape, scalar)
        self.spans[node] = (Span(self.source, p.start, p.end),)
        return node

    def _line(self, line: Line) -> None:
        assert line.result is not None and line.type is not None
        self.take(line.result)
        if line.type.dims is None:
            raise Mistake(line.type, "the type of a value is written as in f32[M, N], or f32[]")
        self.dtype, shape = read_dtype(line.type), self.sizes.shape(line.type.dims)
        picks = {f"@{k}": pick(k) for k in range(len(line.operands) - 1)}
        axes = {f"d{k}": axis(k) for k in range(len(shape))}
        self.names = Names(self.sizes.sizes, axes, lambda e: picks.get(e.name))
        try:
            node = self._node(*self.fields(line), self.dtype, shape)
            if (node.dtype, node.shape) != (self.dtype, shape):
                raise ValueError(f"the type of this is {node.type}")
            verify.check(node)
        except ValueError as error:
            raise Mistake(line, f"this line breaks a rule of graphs: {error}") from None
        self.values[line.result.name] = node
        self.spans[node] = (*self.spans.get(node, ()), *self.span(line))

    def _node(self, cls: type[Node], found: dict[str, Any], dtype: DType, shape: Shape) -> Node:
        """The node of a line. Its type comes from its operands where possible, else from the line."""
        match cls.__name__.lower():
            case "const":
                return self.nodes.const(found["value"], dtype)
            case "scan":
                return self.nodes.scan(**found)
            case "view" | "gather" | "concat" as kind:
                return getattr(self.nodes, kind)(shape=shape, **found)
            case kind:
                dtype, shape = reduce_type(**found) if kind == "reduce" else (dtype, shape)
                return getattr(self.nodes, kind)(dtype=dtype, shape=shape, **found)

    # ---- kinds of fields ---------------------------------------------------------------

    def integer(self, e: Expr) -> int:
        if e.kind != "number" or not isinstance(e.parts[0], int):
            raise Mistake(e, "a number is wanted here")
        return e.parts[0]

    def integers(self, e: Expr) -> tuple[int, ...]:
        return tuple(map(self.integer, read_list(e)))
