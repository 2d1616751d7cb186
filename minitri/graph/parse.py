"""Reads the text of a graph. This file is the inverse of graph/text.py.

In: a text that `format_graph` wrote, and that a user may have edited. Out: a Graph whose spans point into the text.
Each line is checked by the typing rules when it is read, so an error points at its line. `format_graph(parse_graph(s))
== s` for every text s that `format_graph` wrote.
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
from minitri.text_io.read_expressions import Names, check_attributes, read_dtype, read_identifier, read_text
from minitri.text_io.reader import Line, Mistake, Param, read, reading
from minitri.text_io.reader import Node as Syntax
from minitri.text_io.templates import LineReader


def parse_graph(text: str, name: str = "<graph>") -> Graph:
    """Returns the graph of a text. Raises CompileError MT05xx with a span if the text is not a valid graph."""
    source = Source(name, text)
    with reading(source):
        return _Reader(source).graph(read(source, "graph"))


def read_conditions(requires: Sequence[Syntax], names: Names, source: Source) -> tuple[Condition, ...]:
    return tuple(_condition(r, names, source) for r in requires)


def _condition(r: Syntax, names: Names, source: Source) -> Condition:
    """Returns the condition of a `require` line. The default error code is MT0304."""
    left, relation, right, code, message, attributes = r.parts
    check_attributes(attributes, ("label", "help"))
    name = code.name if code else "MT0304"
    if name not in CODES or relation.name == "<":
        fault = "a condition is ==, != or >=" if relation.name == "<" else f"there is no error code {name[:20]}"
        raise Mistake(code or r, fault)
    said = read_text(message) if message else "these sizes break a condition of the program"
    more = {word: read_text(text) for word, text in attributes.items()}
    sides, span = names.of_sizes.dims((left, right)), Span(source, left.start, right.end)
    return Condition(sides[0], relation.name, sides[1], name, said, **more, span=span)


def read_input_type(p: Param, names: Names) -> tuple[DType, Shape, bool]:
    """Returns the dtype and shape of an input, and whether the input is a scalar.

    Declares the names in the shape as dimensions.
    """
    if p.dims is None:
        if p.type.parts[0].name != "float":
            raise Mistake(p.type, "a parameter is an array, as in f32[M, N], or a float")
        return f64, (), True
    for e in p.dims:
        names.declare(e)
    return read_dtype(p.type), names.shape(p.dims), False


class _Reader(LineReader[Node]):
    templates, example = LINES, "f32[M, N]"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.nodes, self.sizes = Interner(), Names()
        self.spans: dict[Node, tuple[Span, ...]] = {}

    def graph(self, whole: Syntax) -> Graph:
        name, params, requires, *lines, results = whole.parts
        inputs = tuple(self._input(p) for p in params)
        conditions = read_conditions(requires, self.sizes, self.source)
        for line in lines:
            self._line(line)
        outputs = tuple(map(self.ref, results))
        return Graph(read_identifier(name), inputs, outputs, conditions, self.spans).numbered()

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
        shape = self.sizes.shape(self.read_result(line.result, line.type))
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
        """Returns the node of a line. The node's type comes from its operands where possible, else from the line."""
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
