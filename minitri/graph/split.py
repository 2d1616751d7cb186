"""graph → graph: a long reduction with few results becomes two, so that it fills the GPU.

    %1: f32[] = reduce.sum x {axes = [0]}          x: f32[1048576]
becomes
    %0: f32[1024, 1024] = view x {index = [1024*d0 + d1]}
    %1: f32[1024] = reduce.sum %0 {axes = [1]}     one program a part
    %2: f32[] = reduce.sum %1 {axes = [0]}

The order of additions is fixed by the sizes alone, so results are the same from run to run
(no atomics). Where the parts do not come out even the axis is padded with the reduction's
neutral element. Left out: argmax (it would need pairs), and sizes that are not known.
"""

from __future__ import annotations

import math

from minitri import arrays, dims
from minitri.dims import Dim
from minitri.firing import fired
from minitri.graph.ir import Graph, Interner, Node, Reduce, axis
from minitri.graph.rewrite import copy, rebuild

PROGRAMS = 1024  # about eight for each multiprocessor of a large GPU
LANES = 64  # results that one program makes side by side, at least
SHORTEST = 4096  # reducing fewer elements is not worth a second kernel


def split(graph: Graph) -> Graph:
    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = copy(interner, node, args)
        return _split(interner, made) if isinstance(made, Reduce) else made

    return rebuild(graph, make)


def _split(i: Interner, node: Reduce) -> Node:
    extents = [node.x.shape[k].constant for k in node.axes]
    results = dims.product(list(node.shape)).constant
    if node.op in ("argmax", "argmin") or results is None or any(e is None for e in extents):
        return node
    count = math.prod(e for e in extents if e is not None)
    parts = _parts(count, results, strided=node.axes[-1] != node.x.rank - 1)
    place = max(range(len(extents)), key=lambda k: (extents[k] or 0, -k))
    long = extents[place] or 0
    parts = min(parts, long)
    if parts < 2:
        return node
    halves = _in_two(i, node, node.axes[place], long, parts)
    fired(split, node, halves)
    return halves


def _parts(count: int, results: int, strided: bool) -> int:
    """How many parts each result is made of."""
    programs = -(-results // LANES) if strided else results
    if count < SHORTEST or programs * 4 > PROGRAMS or programs == 0:
        return 1
    wanted = min(PROGRAMS // programs, count // 1024)
    return 1 << max(0, wanted.bit_length() - 1)


def _in_two(i: Interner, node: Reduce, k: int, extent: int, parts: int) -> Node:
    """Axis k of x becomes (part, place in it); the places are reduced first, the parts after."""
    length = -(-extent // parts)
    x = _padded(i, node, k, parts * length - extent)
    shape = (*x.shape[:k], Dim.of(parts), Dim.of(length), *x.shape[k + 1 :])
    index = tuple(
        axis(j) if j < k else axis(k) * length + axis(k + 1) if j == k else axis(j + 1) for j in range(x.rank)
    )
    seen = i.view(x, shape, index)
    inner = tuple(a if a < k else a + 1 for a in node.axes)
    partial_shape = tuple(e for j, e in enumerate(shape) if j not in inner)
    partial = i.reduce(node.op, node.dtype, partial_shape, seen, inner)
    place = k - sum(1 for a in node.axes if a < k)
    return i.reduce(node.op, node.dtype, node.shape, partial, (place,))


def _padded(i: Interner, node: Reduce, k: int, missing: int) -> Node:
    x = node.x
    if not missing:
        return x
    neutral = i.const(arrays.neutral(node.op, node.dtype), node.dtype)
    tail = i.view(neutral, (*x.shape[:k], Dim.of(missing), *x.shape[k + 1 :]), ())
    shape = (*x.shape[:k], x.shape[k] + missing, *x.shape[k + 1 :])
    return i.concat(shape, (x, tail), k)
