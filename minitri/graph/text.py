"""The graph as text: SSA, a type on every result, attributes in braces, stable numbering.

    graph main(x: f32[M, N]) {
      %0: f32[M] = reduce.max x {axes = [1]}
      %1: f32[M, N] = view %0 {index = [d0]}
      return %1
    }

Nodes are numbered in the order in which they are printed; inputs and sizes keep their names. In an index map, a size
with the name of an axis is written `$d0`. A condition of the call names the error that it causes:

    require N >= 1 else MT0209 "max over an axis that may be empty"

`graph/parse.py` reads it back. The text has everything that later passes need, except source positions. Strings are
JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator

from minitri.base import dims
from minitri.base.dims import Dim
from minitri.graph import ir
from minitri.graph.ir import Condition, Graph, Input, Node

AXIS = re.compile(r"d\d+")


def format_graph(graph: Graph) -> str:
    return "".join(f"{text}\n" for text, _ in graph_lines(graph))


def graph_lines(graph: Graph) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """The lines of `format_graph`, each with the nodes it is about: one, or the inputs, or the outputs."""
    names: dict[Node, str] = {i: i.name for i in graph.inputs}
    yield f"graph {graph.name}({_list(map(format_input, graph.inputs))}) {{", graph.inputs
    for c in graph.conditions:
        yield f"  {format_condition(c)}", ()
    for node in graph.nodes():
        if not isinstance(node, Input):
            names[node] = f"%{len(names) - len(graph.inputs)}"
            yield f"  {names[node]}: {node.type} = {format_node(node, names)}", (node,)
    yield f"  return {_list(names[o] for o in graph.outputs)}", graph.outputs
    yield "}", ()


def format_input(i: Input) -> str:
    return f"{i.name}: {'float' if i.scalar else i.type}"


def format_condition(c: Condition) -> str:
    more = [f"{name} = {quoted(text)}" for name, text in (("label", c.label), ("help", c.help)) if text]
    attributes = f" {{{_list(more)}}}" if more else ""
    return f"require {c.left} {c.relation} {c.right} else {c.code} {quoted(c.message)}{attributes}"


def format_node(node: Node, names: dict[Node, str]) -> str:
    match node:
        case Input():
            return f"input {node.name}"
        case ir.Const():
            return f"const {format_number(node.value)}"
        case ir.Index():
            return f"index {{expr = {_index([node.expr])}}}"
        case ir.Apply():
            return f"{node.op} {_list(names[a] for a in node.args)}"
        case ir.View():
            return f"view {names[node.x]} {{index = [{_index(node.index)}]}}"
        case ir.Gather():
            picks = _list(names[p] for p in (node.x, *node.picks))
            return f"gather {picks} {{index = [{_index(node.index)}]}}"
        case ir.Concat():
            return f"concat {_list(names[p] for p in node.parts)} {{axis = {node.axis}}}"
        case ir.Reduce():
            return f"reduce.{node.op} {names[node.x]} {{axes = [{_list(node.axes)}]}}"
        case ir.Scan():
            return f"scan.{node.op} {names[node.x]} {{axis = {node.axis}}}"
        case ir.Contract():
            return f"contract {names[node.a]}, {names[node.b]} {{precision = {node.precision}}}"


def format_number(value: int | float | bool) -> str:
    """A number that reads back the same: inf, -inf, nan, or Python's repr."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def quoted(text: str) -> str:
    """A text on one line, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def marked(d: Dim, axis: re.Pattern[str]) -> Dim:
    """An expression over axes and sizes, with `$` before the name of a size that could be an axis."""
    alike = [s for s in d.symbols() if s.kind == "size" and axis.fullmatch(s.name)]
    return d.substitute({s: dims.size(f"${s.name}") for s in alike})


def _index(exprs: Iterable[Dim]) -> str:
    return _list(marked(d, AXIS) for d in exprs)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
