"""Prints a graph as text: in SSA form, with a type for every result and attributes in braces.

    graph main(x: f32[M, N]) {
      %0: f32[M] = reduce.max x {axes = [1]}
      %1: f32[M, N] = view %0 {index = [d0]}
      return %1
    }

Nodes are numbered in the order in which they are printed. Inputs and sizes keep their names. If a size has the name of
an axis, such as d0, an index map writes the size as `$d0`. The line of a condition on sizes also has the error that a
call raises if the condition does not hold:

    require N >= 1 else MT0209 "max over an axis that may be empty"

graph/parse.py reads the text. The text has everything that later passes need, except source spans. Strings are written
as in JSON.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minitri.base import dims
from minitri.base.dims import Dim, Symbol
from minitri.base.toml_tables import table_beside
from minitri.graph import ir
from minitri.graph.ir import Condition, Graph, Input, Node
from minitri.text_io.templates import fields_of, templates

AXIS = re.compile(r"d\d+")
LINES = templates(ir, table_beside(__file__, "lines.toml"))


def format_graph(graph: Graph) -> str:
    return "".join(f"{text}\n" for text, _ in graph_lines(graph))


def graph_lines(graph: Graph) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Yields the lines of a graph's text.

    Each line comes with the nodes that the line shows: one node, the inputs, or the outputs.
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
    if isinstance(node, Input):
        return f"input {node.name}"
    return LINES[type(node)].write(fields_of(node), Writer(names, AXIS))


class Writer:
    """Writes the fields of nodes and operations. The class has a method for each kind of field (text_io/templates.py).

    names   the names of the values on the lines above
    axis    the pattern of the names of axes
    values  replacements for symbols in index expressions, such as the symbol of a gathered index
    """

    def __init__(self, names: Mapping[Any, str], axis: re.Pattern[str], values: Mapping[Symbol, Dim] = {}) -> None:
        self.names, self.axis_name, self.values = names, axis, values

    def ref(self, value: Any) -> str:
        return self.names[value]

    def number(self, value: int | float | bool) -> str:
        return format_number(value)

    flag = number

    def text(self, text: str) -> str:
        return quoted(text)

    def named(self, d: Dim) -> Dim:
        """Returns an index expression whose symbols have the names that the text uses."""
        return marked(d, self.axis_name).substitute(self.values)

    def dim(self, d: Dim) -> str:
        return str(self.named(d))


def format_number(value: int | float | bool) -> str:
    """Returns a number as text that reads back as the same number: inf, -inf, nan, true, false or Python's repr."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def quoted(text: str) -> str:
    """Returns a text as a JSON string: on one line, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def marked(d: Dim, axis: re.Pattern[str]) -> Dim:
    """Returns an expression with `$` before the names of sizes that look like the name of an axis."""
    ambiguous = [s for s in d.symbols() if s.kind == "size" and axis.fullmatch(s.name)]
    return d.substitute({s: dims.size(f"${s.name}") for s in ambiguous})


def join(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
