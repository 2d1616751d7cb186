"""Prints a graph as text, and reads this text back. The text is in SSA form, with a type for every result, and
attributes in braces.

    graph main(x: f32[M, N]) {
      %0: f32[M] = reduce.max x {axes = [1]}
      %1: f32[M, N] = view %0 {index = [d0]}
      return %1
    }

Nodes are numbered in the order in which they are printed. Inputs and sizes keep their names. If a size has the name of
an axis, such as d0, an index map writes the size as `$d0`. A condition on sizes is a line that begins with `require`
and ends with an error. A call raises the error if its sizes break the condition.

    require N >= 1 else MT0209 "max over an axis that may be empty"

The text of a graph has everything that later passes need, except the positions of the nodes in the program text (source
spans). Strings are written as in JSON, in double quotes.

`parse_graph` reads a text that `format_graph` wrote, even if a user has edited the text. The spans of a graph that
`parse_graph` returns point into the text that was read. Each line is checked by the typing rules when it is read, so an
error points at the line that breaks a rule. `format_graph(parse_graph(s)) == s` for every text s that `format_graph`
wrote.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from minitri.base.diagnostics import CODES
from minitri.base.dims import Dim, Symbol, size
from minitri.base.spans import Source, Span
from minitri.base.toml_tables import table_beside
from minitri.base.types import DType, f64
from minitri.graph import ir, verify
from minitri.graph.ir import Condition, Graph, Input, Interner, Node, Shape, axis, pick
from minitri.graph.typing_rules import require
from minitri.text_io.read_expressions import Names, check_attributes, read_dtype, read_identifier, read_text
from minitri.text_io.stage_parser import Line, Mistake, Node as Syntax, Param, expect, read, reading
from minitri.text_io.templates import LineReader, fields_of, templates

AXIS = re.compile(r"d\d+")
LINES = templates(ir, table_beside(__file__, "lines.toml"))


def format_graph(graph: Graph) -> str:
    return "".join(f"{text}\n" for text, _ in graph_lines(graph))


def graph_lines(graph: Graph) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Yields the lines of a graph's text.

    Each item is a pair: a line of text, and the nodes that the line shows.
    """
    names: dict[Node, str] = {i: i.name for i in graph.inputs}
    yield f"graph {graph.name}({join(map(format_input, graph.inputs))}) {{", graph.inputs
    for c in graph.conditions:
        yield f"  {format_condition(c)}", ()
    for node in graph.nodes():
        if not isinstance(node, Input):
            names[node] = f"%{len(names) - len(graph.inputs)}"
            yield f"  {names[node]}: {node.type} = {format_node(node, names)}", (node,)
    yield f"  return {join(names[o] for o in graph.outputs)}", graph.outputs
    yield "}", ()


def format_input(i: Input) -> str:
    return f"{i.name}: {'float' if i.scalar else i.type}"


def format_condition(c: Condition) -> str:
    more = [f"{name} = {quoted(text)}" for name, text in (("label", c.label), ("help", c.help)) if text]
    attributes = f" {{{join(more)}}}" if more else ""
    return f"require {c.left} {c.relation} {c.right} else {c.code} {quoted(c.message)}{attributes}"


def format_node(node: Node, names: Mapping[Node, str]) -> str:
    return LINES[type(node)].write(fields_of(node), Writer(names, AXIS))


def format_number(value: int | float | bool) -> str:
    """Returns a number as text that reads back as the same number: inf, -inf, nan, true, false or Python's repr."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def quoted(text: str) -> str:
    """Returns a text as a JSON string: on one line, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


class Writer:
    """Writes the fields of nodes and operations as text.

    Each method writes one kind of field, such as a number or an index expression (text_io/templates.py).

    `names`: for each value that an earlier line defines, the value's name in the text.
    `axis`: a regular expression that matches the names of axes.
    `values`: for each symbol such as `@0`, the expression that replaces the symbol in the text.
    """

    number = flag = staticmethod(format_number)
    text = staticmethod(quoted)

    def __init__(self, names: Mapping[Any, str], axis: re.Pattern[str], values: Mapping[Symbol, Dim] = {}) -> None:
        self.names, self.axis_name, self.values = names, axis, values

    def ref(self, value: Any) -> str:
        return self.names[value]

    def named(self, d: Dim) -> Dim:
        """Returns the index expression `d` with the names that the printed text uses. Example: a size named d0 becomes
        `$d0`, because d0 is also the name of an axis.
        """
        ambiguous = [s for s in d.symbols() if s.kind == "size" and self.axis_name.fullmatch(s.name)]
        return d.substitute({**self.values, **{s: size(f"${s.name}") for s in ambiguous}})

    def dim(self, d: Dim) -> str:
        return str(self.named(d))


def join(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


# ---- reading ------------------------------------------------------------------------------


def parse_graph(text: str, name: str = "<graph>") -> Graph:
    """Parses the text of a graph, and returns the graph.

    If the text is not a valid graph, raises a CompileError MT05xx that points at the mistake.
    """
    source = Source(name, text)
    with reading(source):
        return _Reader(source).graph(read(source, "graph"))


def read_condition(r: Syntax, names: Names, source: Source) -> Condition:
    """Returns the condition of a `require` line. If the line has no error code, the condition has the error code
    MT0304.
    """
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

    Declares every dimension that the shape names, such as M and N.
    """
    if p.dims is None:
        expect(p.type.parts[0].name == "float", p.type, "a parameter is an array, as in f32[M, N], or a float")
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
        conditions = tuple(read_condition(r, self.sizes, self.source) for r in requires)
        for line in lines:
            self._line(line)
        outputs = tuple(map(self.ref, results))
        return Graph(read_identifier(name), inputs, outputs, conditions, self.spans).numbered()

    def _input(self, p: Param) -> Input:
        name = read_identifier(p.name, self.values)
        expect(p.strides is None, p, "the inputs of a graph have no strides")
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
            node = self._node(*self.fields(line), shape)
            verify.check(node)
        except ValueError as error:
            raise Mistake(line, f"this line breaks a rule of graphs: {error}") from None
        self.values[line.result.name] = node
        self.spans[node] = (*self.spans.get(node, ()), *self.span(line))

    def _node(self, cls: type[Node], found: dict[str, Any], shape: Shape) -> Node:
        """Returns the node that a line of text describes."""
        if cls is ir.Const:
            require(shape == (), "a constant has no axes")
            return self.nodes.const(found["value"], self.dtype)
        _, _, *own = fields(cls)  # the fields after the dtype and the shape
        return self.nodes.node(cls, self.dtype, shape, *(found.get(f.name, f.default) for f in own))
