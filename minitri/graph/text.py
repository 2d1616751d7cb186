"""The graph as text: SSA, a type on every result, attributes in braces, stable numbering.

    graph main(x: f32[M, N]) {
      %0: f32[M] = reduce.max x {axes = [1]}
      %1: f32[M, N] = view %0 {index = [d0]}
      return %1
    }

Numbers count the nodes in the order they are printed; inputs and sizes keep their names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minitri.graph.ir import (
    Apply,
    Concat,
    Const,
    Contract,
    Gather,
    Graph,
    Index,
    Input,
    Node,
    Reduce,
    Scan,
    View,
)  # fmt: skip


def format_graph(graph: Graph) -> str:
    order = graph.nodes()
    names: dict[Node, str] = {i: i.name for i in graph.inputs}
    lines: list[str] = []
    for node in order:
        if isinstance(node, Input):
            continue
        names[node] = f"%{len(lines)}"
        lines.append(f"  {names[node]}: {node.type} = {format_node(node, names)}")
    params = ", ".join(f"{i.name}: {'float' if i.scalar else i.type}" for i in graph.inputs)
    results = ", ".join(names[o] for o in graph.outputs)
    checks = [f"  require {c.left} {c.relation} {c.right}" for c in graph.conditions]
    return "\n".join([f"graph {graph.name}({params}) {{", *checks, *lines, f"  return {results}", "}", ""])


def format_node(node: Node, names: dict[Node, str]) -> str:
    match node:
        case Input():
            return f"input {node.name}"
        case Const():
            return f"const {format_number(node.value)}"
        case Index():
            return f"index {{expr = {node.expr}}}"
        case Apply():
            return f"{node.op} {_list(names[a] for a in node.args)}"
        case View():
            return f"view {names[node.x]} {{index = [{_list(node.index)}]}}"
        case Gather():
            picks = _list(names[p] for p in (node.x, *node.picks))
            return f"gather {picks} {{index = [{_list(node.index)}]}}"
        case Concat():
            return f"concat {_list(names[p] for p in node.parts)} {{axis = {node.axis}}}"
        case Reduce():
            return f"reduce.{node.op} {names[node.x]} {{axes = [{_list(node.axes)}]}}"
        case Scan():
            return f"scan.{node.op} {names[node.x]} {{axis = {node.axis}}}"
        case Contract():
            return f"contract {names[node.a]}, {names[node.b]} {{precision = {node.precision}}}"


def format_number(value: int | float | bool) -> str:
    """A number that reads back the same: inf, -inf, nan, or Python's repr."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
