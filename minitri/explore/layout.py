"""A drawing of a directed graph: layers from top to bottom, few crossings, short edges.

In: nodes with the size of their boxes, and edges. Out: a place for each box and points for each edge. The one idea is
Sugiyama's. The longest path to a node is its layer (networkx's topological generations). An edge over several layers
gets a bend in each. The order within a layer follows the mean place of the neighbours, up and down a few times.

Left out: groups, and edges with ports. No layout library is used: graphviz is not a Python package, and grandalf is not
maintained. A library in the page (dagre, elk) would be larger than the rest of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

GAP, SWEEPS = 18.0, 8
MANY = 20_000  # boxes and bends, for all sweeps together: of a larger drawing fewer are made


@dataclass(frozen=True, slots=True)
class Box:
    """The upper left corner and the size of a node."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Drawing:
    width: float
    height: float
    boxes: Mapping[Any, Box]
    edges: tuple[tuple[Any, Any, tuple[tuple[float, float], ...]], ...]


def layout(sizes: Mapping[Any, tuple[float, float]], edges: Iterable[tuple[Any, Any]], gap: float = 30.0) -> Drawing:
    """Boxes and edges of an acyclic graph; `sizes` is (width, height) of each node, `gap` the space between layers."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(dict.fromkeys(edges))
    given = list(graph.edges)
    bends = _with_bends(graph, _levels(graph))
    layers = [list(layer) for layer in nx.topological_generations(graph)] if graph else []
    _uncross(graph, layers)
    size = {n: sizes.get(n, (2.0, 0.0)) for n in graph}
    x = _across(graph, layers, {n: w for n, (w, _) in size.items()})
    boxes, bottom = _placed(layers, x, size, gap)
    lines = tuple((a, b, _line(a, bends[a, b], b, boxes)) for a, b in given)
    real = {n: boxes[n] for n in sizes}
    right = max((b.x + b.width for b in boxes.values()), default=0.0)
    return Drawing(right, bottom, real, lines)


def _levels(graph: nx.DiGraph[Any]) -> dict[Any, int]:
    """Layers by the longest path; what nothing feeds stands right above its first user."""
    level = {n: k for k, layer in enumerate(nx.topological_generations(graph)) for n in layer}
    for n in graph:
        if graph.in_degree(n) == 0 and graph.out_degree(n):
            level[n] = min(level[s] for s in graph.successors(n)) - 1
    return level


def _with_bends(graph: nx.DiGraph[Any], level: Mapping[Any, int]) -> dict[tuple[Any, Any], list[Hashable]]:
    """Puts a bend into each layer that an edge passes, and one above what would otherwise rise to the top."""
    bends: dict[tuple[Any, Any], list[Hashable]] = {}
    for a, b in list(graph.edges):
        between: list[Hashable] = [("bend", a, b, k) for k in range(level[a] + 1, level[b])]
        bends[a, b] = between
        if between:
            graph.remove_edge(a, b)
            nx.add_path(graph, [a, *between, b])
    for n in [n for n in level if graph.in_degree(n) == 0]:
        nx.add_path(graph, [*[("above", n, k) for k in range(level[n])], n])
    return bends


def _sweeps(graph: nx.DiGraph[Any], layers: list[list[Any]]) -> Iterator[tuple[list[list[Any]], Callable[[Any], Any]]]:
    """The layers downwards with what is above a node, then upwards with what is below it, a few times."""
    for sweep in range(max(1, min(SWEEPS, MANY // max(1, len(graph))))):
        yield (layers, graph.predecessors) if sweep % 2 == 0 else (layers[::-1], graph.successors)


def _uncross(graph: nx.DiGraph[Any], layers: list[list[Any]]) -> None:
    """Orders each layer by the mean place of its neighbours in the layer before it, downwards and upwards."""
    for order, near in _sweeps(graph, layers):
        for before, layer in zip(order, order[1:]):
            place = {n: k for k, n in enumerate(before)}
            now = {n: k for k, n in enumerate(layer)}
            layer.sort(key=lambda n: (_mean([place[m] for m in near(n) if m in place], now[n]), now[n]))


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _across(graph: nx.DiGraph[Any], layers: list[list[Any]], width: Mapping[Any, float]) -> dict[Any, float]:
    """The middle of each node: as near to its neighbours as the order of its layer allows."""
    middle: dict[Any, float] = {}
    for layer in layers:
        edge = 0.0
        for n in layer:
            middle[n] = edge + width[n] / 2
            edge += width[n] + GAP
    for order, near in _sweeps(graph, layers):
        for layer in order:
            wanted = [_mean([middle[m] for m in near(n)], middle[n]) for n in layer]
            middle |= zip(layer, _spaced(wanted, [width[n] for n in layer]))
    left = min((middle[n] - width[n] / 2 for n in middle), default=0.0)
    return {n: m - left for n, m in middle.items()}


def _spaced(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones (least squares) at which neighbours keep their distance."""
    offsets = [0.0]
    for a, b in zip(widths, widths[1:]):
        offsets.append(offsets[-1] + (a + b) / 2 + GAP)
    pools: list[tuple[float, int]] = []  # pool adjacent violators: (mean, count)
    for want, offset in zip(wanted, offsets):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            before, n = pools.pop()
            mean, count = (mean * count + before * n) / (count + n), count + n
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets)]


def _placed(
    layers: Sequence[Sequence[Any]], middle: Mapping[Any, float], size: Mapping[Any, tuple[float, float]], gap: float
) -> tuple[dict[Any, Box], float]:
    boxes: dict[Any, Box] = {}
    top = 0.0
    for layer in layers:
        tall = max(size[n][1] for n in layer)
        for n in layer:
            w, h = size[n]
            boxes[n] = Box(middle[n] - w / 2, top + (tall - h) / 2, w, h)
        top += tall + gap
    return boxes, max(0.0, top - gap)


def _line(a: Any, bends: Sequence[Any], b: Any, boxes: Mapping[Any, Box]) -> tuple[tuple[float, float], ...]:
    """From the lower edge of one box through the bends to the upper edge of the other."""
    start, end = boxes[a], boxes[b]
    inner = [(boxes[n].x + boxes[n].width / 2, boxes[n].y + boxes[n].height / 2) for n in bends]
    return ((start.x + start.width / 2, start.y + start.height), *inner, (end.x + end.width / 2, end.y))
