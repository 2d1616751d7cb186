"""Checks a graph: acyclic by construction, so what is left is that every node is well typed
and every input is declared. Run by the pipeline before the first pass and after each one."""

from __future__ import annotations

from minitri.graph import typing_rules
from minitri.graph.ir import Graph, Input


def verify(graph: Graph) -> None:
    """Raises ValueError naming the first node that breaks a typing rule."""
    declared = set(graph.inputs)
    for position, node in enumerate(graph.nodes()):
        try:
            typing_rules.check(node)
        except ValueError as error:
            raise ValueError(f"node {position} ({type(node).__name__} {node.type}): {error}") from None
        if isinstance(node, Input) and node not in declared:
            raise ValueError(f"input {node.name} is not declared")
