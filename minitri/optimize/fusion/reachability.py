"""Whether one part of a graph depends on another, over any number of parts in between.

In: a directed graph, where paths may start and where they may end. Out: yes or no. The one idea: the search goes
from both sides at once and always extends the smaller side. A part that a thousand others read costs nothing then,
if the part it is asked about reads only a few.
"""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx


def connected(graph: nx.DiGraph[int], starts: Iterable[int], ends: Iterable[int]) -> bool:
    """Whether a path leads from one of `starts` to one of `ends`. A start that is an end counts."""
    after, before = set(starts), set(ends)
    forward, backward = after, before
    while forward and backward:
        if not after.isdisjoint(before):
            return True
        if len(forward) <= len(backward):
            forward = {s for n in forward for s in graph.successors(n)} - after
            after = after | forward
        else:
            backward = {p for n in backward for p in graph.predecessors(n)} - before
            before = before | backward
    return False


def detour(graph: nx.DiGraph[int], a: int, b: int) -> bool:
    """Whether a path leads from a to b that is not the edge between them."""
    if graph.out_degree(a) < 2 or graph.in_degree(b) < 2:  # then there is no other edge to begin or to end with
        return False
    starts = (s for s in graph.successors(a) if s != b)
    return connected(graph, starts, (p for p in graph.predecessors(b) if p != a))
