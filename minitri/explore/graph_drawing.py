"""Draws the graph with a box for each node. In the drawing of a large graph, one box shows all nodes that come from one
library call or source line.

The function `views` takes a graph, and a function from nodes to their marks (numbers). The page highlights a box
together with the lines of text that share a mark with the box (document.py). `views` returns a list of views. A view is
a drawing of the graph, as plain data.

In a graph of more than `LARGE` nodes, nodes are grouped by the library call or the source line that they come from. In
the first view of a large graph, all groups are folded: each group is drawn as one box. If the graph has at most `MOST`
nodes, a second view shows all nodes. For each group of at most `MOST` nodes, another view shows the nodes of this
group. In this view, each other group is drawn as one box. For a small graph, the only view (drawing) shows all nodes.
The page switches between the views, and computes no layout.

A constant has no box: the value of the constant is part of the label of each box that uses the constant.

The layout method is Sugiyama's, which arranges the nodes of the graph in layers. The number of a node's layer is the
length of the longest path to the node (networkx's topological generations). An input of the graph lies one layer above
the first node that reads the input. A long edge has a bend in each layer that lies between its two nodes. The algorithm
goes down and up the layers a few times. At each layer, it sorts the nodes by the mean position of their neighbours. No
layout library fits: graphviz is not a Python package, and grandalf is not maintained. The JavaScript libraries dagre
and elk would more than double the size of the page.

All edges that begin at a box begin at the same point. The file page/drawing.js draws the views on the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise, takewhile
from statistics import fmean
from textwrap import wrap
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from minitri.base.nodes import grouped
from minitri.base.spans import Span
from minitri.graph.ir import Const, Graph, Input, Node, View, children, viewed
from minitri.graph.text import format_node, format_number

LARGE = 24  # the most nodes of a graph that is drawn without folded groups
MOST = 400  # the most nodes of one view; a drawing of more nodes is too hard to read
LETTER, LINE, PADDING = 6.7, 13.0, 18.0  # pixels
LONGEST = 34  # letters in a line of a box

Marks = Callable[[Node], Sequence[int]]


def views(graph: Graph, marks: Marks) -> list[dict[str, Any]]:
    """Returns drawings of a graph as plain data. For a large graph, some drawings show groups of nodes as single
    boxes.
    """
    picture = _Picture(graph, marks)
    folded, count = picture.folded(), len(picture.nodes)
    if count <= LARGE or not folded:
        return [picture.drawn("everything", {})]
    opened = [title for title, size in Counter(folded.values()).items() if size <= MOST]
    everything = [picture.drawn("everything", {})] if count <= MOST else []
    titles = {title: k + 1 + len(everything) for k, title in enumerate(opened)}
    each = [picture.drawn(t, {n: g for n, g in folded.items() if g != t}, titles) for t in opened]
    return [picture.drawn("folded", folded, titles), *everything, *each]


class _Picture:
    """The parts of a graph that are drawn: the nodes that are not constants, and the edges between these nodes."""

    def __init__(self, graph: Graph, marks: Marks) -> None:
        self.graph, self.marks = graph, marks
        order = graph.nodes()
        self.parameters = {(s.start, s.end) for i in graph.inputs for s in graph.spans.get(i, ())[:1]}
        self.literals = {n: text for n in order if (text := _literal(n)) and n not in graph.outputs}
        self.nodes = [n for n in order if n not in self.literals]
        self.edges = [(o, n) for n in self.nodes for o in children(n) if o not in self.literals]

    def folded(self) -> dict[Node, str]:
        """Maps each node in a group to the title of the group. A group has the nodes of one library call or of one
        source line.

        A group has at least three nodes. Nodes form no group if drawing them as one box would make a cycle of edges.
        """
        titled = ((self._title(n), n) for n in self.nodes if not isinstance(n, Input))
        folded: dict[Node, str] = {}
        for title, members in grouped(titled).items():
            trial = folded | dict.fromkeys(members, title)
            if title and len(members) > 2 and nx.is_directed_acyclic_graph(self._quotient(trial)):
                folded = trial
        return folded

    def _title(self, node: Node) -> str:
        """Returns the title of a node's group, such as `softmax, line 3` or `line 3`."""
        spans = [s for s in self.graph.spans.get(node, ()) if (s.start, s.end) not in self.parameters]
        called = lambda s: _of_library(s) or _function(s) not in ("", self.graph.name)  # noqa: E731
        calls = list(takewhile(called, spans))  # places in called functions: the innermost function first
        own = spans[len(calls)] if len(calls) < len(spans) else None
        line = f"line {own.source.line_column(own.start)[0]}" if own else ""
        named = [s for s in calls if not _of_library(s)] or calls
        # `softmax, line 3` if line 3 calls the function softmax, and `line 3` if it computes the node without a call
        return ", ".join(filter(None, [_function(named[-1]) if named else "", line]))

    def _quotient(self, folded: Mapping[Node, str]) -> nx.DiGraph[Any]:
        graph: nx.DiGraph[Any] = nx.empty_graph((folded.get(n, n) for n in self.nodes), nx.DiGraph)
        pairs = ((folded.get(a, a), folded.get(b, b)) for a, b in self.edges)
        graph.add_edges_from((a, b) for a, b in pairs if a is not b and a != b)
        return graph

    def drawn(self, title: str, folded: Mapping[Node, str], opens: Mapping[str, int] = {}) -> dict[str, Any]:
        """Returns one view of the graph: a drawing with a box for each group and for each node outside of groups.

        `folded`: a dict from each node in a group to the title of the group.
        `opens`: a dict from the title of a group to the number of the view that shows the group's nodes.
        """
        quotient = self._quotient(folded)
        boxes = {n: self._group(n, folded, opens) if isinstance(n, str) else self._box(n) for n in quotient}
        return drawing(title, boxes, dict.fromkeys(quotient.edges, []), 30.0)

    def _box(self, node: Node) -> dict[str, Any]:
        names = {o: self.literals.get(o, "") for o in children(node)}
        text = node.name if isinstance(node, Input) else format_node(node, names).split(" {")[0]
        label = " ".join(text.replace(",", " ").split())
        detail = f"[{', '.join(map(str, node.index))}]" if isinstance(node, View) else ""
        kind = "input" if isinstance(node, Input) else type(node).__name__.lower()
        return box(f"{label} {detail}".strip(), str(node.type), kind, self.marks(node), node in self.graph.outputs)

    def _group(self, title: str, folded: Mapping[Node, str], opens: Mapping[str, int]) -> dict[str, Any]:
        members = [n for n, t in folded.items() if t == title]
        marks = dict.fromkeys(m for n in members for m in self.marks(n))
        return {**box(title, f"{len(members)} nodes", "group", marks), "opens": opens.get(title, 0)}


def box(label: str, type: str, kind: str, marks: Iterable[int], output: bool = False) -> dict[str, Any]:
    """Returns the data of a box in the drawing, such as its label and marks, but not its position. A long text in a box
    is broken into several lines.
    """
    label, type = ("\n".join(wrap(text, LONGEST)) for text in (label, type))
    return {"label": label, "type": type, "kind": kind, "marks": list(marks), "output": output}


def _of_library(span: Span) -> bool:
    return span.source.name.startswith("minitri/language/library")


def _function(span: Span) -> str:
    """Returns the name of the function that contains a part of the source text."""
    before = span.source.text[: span.start].split("\n")
    # "" for the text of an expression, which has no `def`
    return next((text[4:].partition("(")[0].strip() for text in reversed(before) if text.startswith("def ")), "")


def _literal(node: Node) -> str:
    """Returns the value of a constant as text, also for a view of a constant, such as a broadcast constant."""
    constant = viewed(node)
    return format_number(constant.value) if isinstance(constant, Const) else ""  # "" for a node of another kind


def _size(box: Mapping[str, Any]) -> tuple[float, float]:
    label, is_view = box["label"].split("\n"), box["kind"] == "view"
    type = [] if is_view else box["type"].split("\n")
    longest = max(*map(len, label), *(0.9 * len(line) for line in type), 0)
    return max(44.0, longest * LETTER + PADDING), LINE * (len(label) + len(type)) + 8 - is_view


def drawing(title: str, boxes: Mapping[Any, Any], edges: Mapping[Any, list[str]], gap: float) -> dict[str, Any]:
    """Returns a drawing of boxes and edges as plain data.

    `edges` maps each edge, a pair of boxes, to the list of its labels. The boxes lie in horizontal layers. The space
    between two layers is `gap` pixels high.
    """
    places, lines = layout({n: _size(box) for n, box in boxes.items()}, edges, gap)
    number = {n: k for k, n in enumerate(boxes)}
    ends = [(b.x + b.width, b.y + b.height) for b in places.values()] + [at for line in lines.values() for at in line]
    width, height = (round(max(along)) for along in zip(*ends)) if ends else (0, 0)
    return {
        "title": title, "width": width, "height": height,
        "boxes": [{**box, "at": list(map(round, places[n]))} for n, box in boxes.items()],
        "edges": [[number[a], number[b], np.rint(line).astype(int).tolist(), *edges[a, b]] for (a, b), line in lines.items()],
    }  # fmt: skip


# ---- where boxes go -----------------------------------------------------------------------------


GAP, SWEEPS = 18.0, 8
MANY = 20_000  # boxes and bends that all sweeps together visit; a larger drawing gets fewer sweeps


class Box(NamedTuple):
    """The upper left corner and the size of the box of a node, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


Line = Sequence[tuple[float, float]]  # the points of an edge


def layout(
    sizes: Mapping[Any, tuple[float, float]], edges: Iterable[tuple[Any, Any]], gap: float = 30.0
) -> tuple[dict[Any, Box], dict[tuple[Any, Any], Line]]:
    """Computes the layout of an acyclic graph: a box for each node, and the points of each edge.

    `sizes` has the (width, height) of each node, in pixels. The nodes are arranged in horizontal layers, which are
    `gap` pixels apart.
    """
    graph: nx.DiGraph[Any] = nx.empty_graph(sizes, nx.DiGraph)
    graph.add_edges_from(edges)
    level = {n: k for k, layer in enumerate(nx.topological_generations(graph)) for n in layer}
    inputs = [n for n in graph if graph.in_degree(n) == 0 and graph.out_degree(n)]
    level |= {n: min(level[s] for s in graph.successors(n)) - 1 for n in inputs}  # one layer above the first user
    bends = _with_bends(graph, level)
    order = sorted(nx.topological_sort(graph), key=level.__getitem__)
    layers = [list(layer) for _, layer in groupby(order, level.__getitem__)]
    size = {n: sizes.get(n, (2.0, 0.0)) for n in graph}
    x = _arrange(graph, layers, {n: width for n, (width, _) in size.items()})
    boxes: dict[Any, Box] = {}
    top = 0.0
    for layer in layers:
        tall = max(size[n][1] for n in layer)
        boxes |= {n: Box(x[n] - size[n][0] / 2, top + (tall - size[n][1]) / 2, *size[n]) for n in layer}
        top += tall + gap
    lines = {(a, b): _line(*(boxes[n] for n in (a, *between, b))) for (a, b), between in bends.items()}
    return {n: boxes[n] for n in sizes}, lines


def _line(start: Box, *rest: Box) -> Line:
    """Returns the points of an edge from one box through its bends to another box."""
    *bends, end = rest
    return ((start.middle, start.y + start.height), *((b.middle, b.y) for b in bends), (end.middle, end.y))


def _with_bends(graph: nx.DiGraph[Any], level: dict[Any, int]) -> dict[tuple[Any, Any], list[Hashable]]:
    """Splits each edge by a new node (a bend) in each layer that the edge crosses."""
    bends: dict[tuple[Any, Any], list[Hashable]] = {}
    for a, b in list(graph.edges):
        between = {("bend", a, b, k): k for k in range(level[a] + 1, level[b])}
        level |= between  # `level` maps each node to the number of its layer
        graph.remove_edge(a, b)
        nx.add_path(graph, [a, *between, b])
        bends[a, b] = list(between)
    return bends


def _arrange(graph: nx.DiGraph[Any], layers: list[list[Any]], width: Mapping[Any, float]) -> dict[Any, float]:
    """Orders the nodes of each layer, and returns the x of each node's middle."""
    middle = {n: x for layer in layers for n, x in _spaced([0.0] * len(layer), layer, width).items()}
    for sweep in range(max(1, min(SWEEPS, MANY // max(1, len(graph))))):
        # a sweep down moves nodes towards their predecessors, and a sweep up towards their successors
        order, near = (layers, graph.predecessors) if sweep % 2 == 0 else (layers[::-1], graph.successors)
        for layer in order:
            wanted = {n: fmean([middle[m] for m in near(n)] or [middle[n]]) for n in layer}
            layer.sort(key=wanted.__getitem__)  # by the mean x of their neighbours
            middle |= _spaced([wanted[n] for n in layer], layer, width)
    left = min((middle[n] - width[n] / 2 for n in middle), default=0.0)
    return {n: m - left for n, m in middle.items()}


def _spaced(wanted: Sequence[float], layer: Sequence[Any], width: Mapping[Any, float]) -> dict[Any, float]:
    """Returns an x coordinate for each node of a layer, near the wanted x, so that the boxes do not overlap."""
    apart = np.cumsum([0.0, *((width[a] + width[b]) / 2 + GAP for a, b in pairwise(layer))])
    free = np.asarray(wanted) - apart
    # two layouts, of which the mean is taken: overlapping boxes are pushed to the right, or to the left
    right, left = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
    return dict(zip(layer, (apart + (right + left) / 2).tolist()))
