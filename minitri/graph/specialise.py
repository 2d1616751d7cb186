"""graph → graph: known sizes take the place of dimension symbols.

    %0: f32[M, N] = …      with M = 1000 becomes      %0: f32[1000, N] = …

A size of 1 that was a symbol may have been broadcast against as if it were not 1: index maps
stay right, since an axis of extent 1 only takes the value 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from minitri.base.dims import Dim, Symbol
from minitri.graph.ir import Graph
from minitri.graph.rewrite import copy, rebuild


def specialise(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Replaces the dimensions named in `sizes` (elements along an axis) by integers.

    Raises the CompileError of the first condition that these sizes break.
    """
    if not sizes:
        return graph
    env: dict[Symbol, Dim] = {Symbol(name): Dim.of(n) for name, n in sizes.items()}
    conditions = [c.substitute(env) for c in graph.conditions]
    for c in conditions:
        if c.decided() is False:
            raise c.error()
    still_open = tuple(c for c in conditions if c.decided() is None)
    return rebuild(graph, lambda i, node, args: copy(i, node, args, env), still_open)
