"""A program at sizes that fit on a screen, in blocks that do not divide them.

In: a compilation. Out: the same program compiled for small sizes, and arrays to run it on. Sizes are tried one after
another until the program's own conditions hold. A product gets larger ones, because its tiles have at least 16
elements along an axis. Left out: running it (player.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.graph.ir import Contract, Graph
from minitri.kernels.ir import Buffer, Plan
from minitri.language import ast
from minitri.pipeline import Compilation, Context
from minitri.runtime.binding import check_conditions, constant
from minitri.tiles.schedule import Options

MAX_ELEMENTS = 4096  # of one array
FEW = ((7, 5, 6, 4), (8, 8, 8), (6, 6), (4, 4), (12, 12), (2, 2), (1, 1))
MORE = ((20, 18, 17, 19), (16, 16), (32, 32))  # for products
Sizes = Mapping[str, int]


def small(compiled: Compilation) -> Compilation | None:
    """The program at the first sizes that it allows; None if what it fixes itself is too large."""
    context = replace(compiled.context, layouts={}, options=Options(), wide=False)
    if context.start is not None:
        return compiled if _fits(compiled) else None
    graph = Compilation(replace(context, sizes={})).value("graph")
    found = dict.fromkeys(s.name for i in graph.inputs for d in i.shape for s in sorted(d.symbols(), key=str))
    packs = _packs(context) & found.keys()
    names = sorted(found, key=packs.__contains__)
    for row in _rows(graph):
        sizes = {n: row[k % len(row)] for k, n in enumerate(names)}
        sizes |= {n: 2 for n in packs if row in MORE}
        try:
            found = _blocked(replace(context, sizes=sizes))
        except (CompileError, ValueError):
            continue  # the program is not for these sizes
        if _fits(found):
            return found
    return None


def _packs(context: Context) -> set[str]:
    """The names of the axes of `*B`: B0, B1, …"""
    types = [p.annotation for p in function_of(context).params if isinstance(p.annotation, ast.ArrayType)]
    packs = {d.id for t in types for d in t.dims if isinstance(d, ast.Pack)}
    return {f"{p}{k}" for p in packs for k in range(context.instance.packs.get(p, 1))}


def function_of(context: Context) -> ast.Function:
    return next(f for f in context.module.functions if f.name == context.entry)


def _rows(graph: Graph) -> tuple[tuple[int, ...], ...]:
    return (*MORE, *FEW) if any(isinstance(n, Contract) for n in graph.nodes()) else FEW


def _blocked(context: Context) -> Compilation:
    """With blocks of 2 and 3 along the grid and of 4 in loops, if the usual ones are larger."""
    usual = Compilation(context)
    blocks: dict[str, int] = {}
    for program in usual.value("tile"):
        last = program.grid[-1] if program.grid else None
        for axis in program.axes:
            wanted = 4 if axis.role == "loop" else 3 if axis is last else 2
            if axis.role != "whole" and axis.block > wanted and axis.extent.evaluate(context.sizes) > 1:
                blocks.setdefault(axis.name, wanted)
    return Compilation(replace(context, options=Options(blocks=blocks))) if blocks else usual


def _fits(compiled: Compilation) -> bool:
    """Whether all conditions hold and every array is small."""
    sizes, plan = compiled.context.sizes, compiled.plan
    try:
        check_conditions(plan.conditions, sizes)
        return all(math.prod(e.evaluate(sizes) for e in b.shape) <= MAX_ELEMENTS for b in buffers(plan))
    except (CompileError, KeyError, ZeroDivisionError):
        return False


def buffers(plan: Plan) -> tuple[Buffer, ...]:
    return (*plan.inputs, *plan.temporaries, *plan.outputs)


def inputs(compiled: Compilation) -> dict[str, Any]:
    """Arrays whose elements tell where they come from: 0, 1, 2, …; an index is one that every array has."""
    context, plan = compiled.context, compiled.plan
    least = min((e.evaluate(context.sizes) for b in plan.inputs for e in b.shape), default=1)
    return {b.name: _array(b, context.sizes, max(1, least), function_of(context)) for b in plan.inputs}


def _array(b: Buffer, sizes: Sizes, least: int, function: ast.Function) -> Any:
    if b.role == "scalar":
        default = next((p.default for p in function.params if p.name == b.name), None)
        return 1.0 if default is None else constant(default)
    shape = [e.evaluate(sizes) for e in b.shape]
    count = np.arange(math.prod(shape)).reshape(shape)
    period = {"f": 10, "b": 2}.get(b.dtype.kind, min(least, 8))
    return np.asarray(count % period).astype(b.dtype.numpy)
