"""The graph, drawn: boxes for nodes, folded into one box a call or line where there are many.

In: a graph and, for each node, the marks that light it up. Out: views, each a drawing as plain
data: one with everything; if there are more than `LARGE` nodes also one with every group folded, and
one for each group with that one alone unfolded. What has more than `MOST` nodes stays folded. The page changes
views and computes no layout.

A constant, and a view of one, is written into the box that uses it. Left out: where boxes go
(layout.py), and what the page makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from itertools import takewhile
from typing import Any

import networkx as nx

from minitri.base.diagnostics import Span
from minitri.explore.layout import Drawing, layout
from minitri.graph.ir import Const, Graph, Input, Node, View, operands
from minitri.graph.text import format_node, format_number

LARGE = 24  # nodes that are drawn at once without folding
MOST = 400  # nodes that are drawn at all: nobody sees through more
LETTER, HEIGHT, PADDING, LONGEST = 6.7, 34.0, 18.0, 34

Marks = Callable[[Node], Sequence[int]]


def views(graph: Graph, marks: Marks) -> list[dict[str, Any]]:
    """The drawings."""
    picture = _Picture(graph, marks)
    groups, count = picture.groups(), len(picture.nodes)
    if count <= LARGE or not groups:
        return [picture.drawn("everything", {})]
    folded = {n: title for title, members in groups.items() for n in members}
    opened = [title for title, members in groups.items() if len(members) <= MOST]
    everything = [picture.drawn("everything", {})] if count <= MOST else []
    titles = {title: k + 1 + len(everything) for k, title in enumerate(opened)}
    each = [picture.drawn(t, {n: g for n, g in folded.items() if g != t}, titles) for t in opened]
    return [picture.drawn("folded", folded, titles), *everything, *each]


class _Picture:
    """The nodes that get boxes of their own, and what is known of each."""

    def __init__(self, graph: Graph, marks: Marks) -> None:
        self.graph, self.marks = graph, marks
        order = graph.nodes()
        outputs = set(graph.outputs)
        self.literals = {n: _literal(n) for n in order if _literal(n) and n not in outputs}
        self.nodes = [n for n in order if n not in self.literals]
        self.edges = [(o, n) for n in self.nodes for o in operands(n) if o not in self.literals]

    def groups(self) -> dict[str, list[Node]]:
        """Nodes of one library function or of one line, as long as they can be folded without a cycle."""
        found: dict[str, list[Node]] = {}
        for n in self.nodes:
            if not isinstance(n, Input) and (title := self._title(n)):
                found.setdefault(title, []).append(n)
        kept: dict[str, list[Node]] = {}
        for title, members in found.items():
            trial = {n: t for t, ms in {**kept, title: members}.items() for n in ms}
            if len(members) > 2 and nx.is_directed_acyclic_graph(self._quotient(trial)):
                kept[title] = members
        return kept

    def _title(self, node: Node) -> str:
        """`softmax, line 3` for what a library function makes, `line 3` for the rest."""
        spans = self.graph.spans.get(node, ())
        calls = list(takewhile(_of_library, spans))  # from the innermost to the one that the program calls
        own = spans[len(calls)] if len(calls) < len(spans) else None
        line = f"line {own.source.line_column(own.start)[0]}" if own else ""
        return ", ".join(filter(None, [_function(calls[-1]) if calls else "", line]))

    def _quotient(self, folded: Mapping[Node, str]) -> nx.DiGraph[Any]:
        graph: nx.DiGraph[Any] = nx.DiGraph()
        graph.add_nodes_from(folded.get(n, n) for n in self.nodes)
        pairs = ((folded.get(a, a), folded.get(b, b)) for a, b in self.edges)
        graph.add_edges_from((a, b) for a, b in pairs if a is not b and a != b)
        return graph

    def drawn(self, title: str, folded: Mapping[Node, str], opens: Mapping[str, int] = {}) -> dict[str, Any]:
        """One view: nodes in `folded` are one box a group; `opens` is the view that shows a group."""
        quotient = self._quotient(folded)
        boxes = {n: self._group(n, folded, opens) if isinstance(n, str) else self._box(n) for n in quotient}
        drawing = layout({n: _size(box) for n, box in boxes.items()}, quotient.edges)
        return _as_data(title, boxes, drawing)

    def _box(self, node: Node) -> dict[str, Any]:
        names = {o: self.literals.get(o, "") for o in operands(node)}
        text = node.name if isinstance(node, Input) else format_node(node, names).split(" {")[0]
        label = " ".join(text.replace(",", " ").split())
        detail = f"[{', '.join(map(str, node.index))}]" if isinstance(node, View) else ""
        kind = "input" if isinstance(node, Input) else type(node).__name__.lower()
        return {
            "label": _short(f"{label} {detail}".strip()), "type": _short(str(node.type)), "kind": kind,
            "marks": list(self.marks(node)), "output": node in self.graph.outputs,
        }  # fmt: skip

    def _group(self, title: str, folded: Mapping[Node, str], opens: Mapping[str, int]) -> dict[str, Any]:
        members = [n for n, t in folded.items() if t == title]
        marks = dict.fromkeys(m for n in members for m in self.marks(n))
        return {
            "label": title, "type": f"{len(members)} nodes", "kind": "group", "marks": list(marks),
            "opens": opens.get(title, 0), "output": False,
        }  # fmt: skip


def _of_library(span: Span) -> bool:
    return span.source.name.startswith("minitri/language/library")


def _function(span: Span) -> str:
    """The function that a span stands in."""
    before = span.source.text[: span.start].split("\n")
    return [text[4:].partition("(")[0].strip() for text in before if text.startswith("def ")][-1]


def _literal(node: Node) -> str:
    """A constant as it is written, also if a view repeats it."""
    if isinstance(node, View):
        return _literal(node.x) if isinstance(node.x, Const) else ""
    return format_number(node.value) if isinstance(node, Const) else ""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _size(box: Mapping[str, Any]) -> tuple[float, float]:
    if box["kind"] == "view":
        return len(box["label"]) * LETTER * 0.87 + PADDING, HEIGHT - 14
    longest = max(len(box["label"]), len(box["type"]) * 0.9)
    return max(44.0, longest * LETTER + PADDING), HEIGHT


def plain(title: str, boxes: Mapping[Any, dict[str, Any]], edges: Mapping[tuple[Any, Any], str]) -> dict[str, Any]:
    """A drawing of boxes that are given as they are, with labels on the edges."""
    drawing = layout({n: _size(box) for n, box in boxes.items()}, edges, gap=44.0)
    data = _as_data(title, boxes, drawing)
    for edge, (a, b, _) in zip(data["edges"], drawing.edges):
        edge.append(edges[a, b])
    return data


def _as_data(title: str, boxes: Mapping[Any, dict[str, Any]], drawing: Drawing) -> dict[str, Any]:
    number = {n: k for k, n in enumerate(boxes)}
    return {
        "title": title, "width": round(drawing.width), "height": round(drawing.height),
        "boxes": [{**box, "at": list(map(round, astuple(drawing.boxes[n])))} for n, box in boxes.items()],
        "edges": [[number[a], number[b], [[round(x), round(y)] for x, y in line]] for a, b, line in drawing.edges],
    }  # fmt: skip
