"""Runs a program on small arrays step by step, and records what each grid program does to each element.

The function `player` takes a compilation and returns plain data. The data contains the arrays. For each kernel, the
data contains the kernel's text, the steps of each grid program, and the numbers of the graph nodes of each line
("marks"). A step lists the elements of a tile that are read or written, the elements that a mask excludes, and the
values of all elements. The data also shows what a masked access would read or write without its mask.

    x[7] in blocks of 3     program (2): element 0 reads x[6], elements 1 to 3 are masked
                            without the mask element 1 reads x[7], out of bounds

    step  = {line, of, first, shape, values, real}
            of      the lines of its operands
            first   the index at which the block of each axis begins
            real    how many elements of the block are inside each axis
    an access also has {array, extents, index, state}
            state   a letter for each element: a(ccessed), m(asked), x (out of bounds)

The evaluator of tile programs (tiles/evaluate.py) computes all values. The sanitizer (trust/sanitizer.py) reports every
access. The module execution_trace.py records the values and accesses.

The program runs with small sizes, so that a screen can show the arrays. Most sizes are no multiples of a block size, so
masks have an effect. The recording tries several combinations of sizes, until the sizes fulfil the program's
conditions. Programs with matrix products get larger sizes than other programs, because each axis of their tiles has at
least 16 elements. When the recorded steps have about `MAX_CELLS` elements in total, the recording stops, and the steps
of the remaining grid programs are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.dims import Symbol
from minitri.explore.provenance import Trace
from minitri.graph.ir import Contract, Graph, check_conditions
from minitri.graph.parameter_binding import sizes_of
from minitri.graph.text import format_number
from minitri.kernels.evaluate import Memory, allocate, result
from minitri.kernels.ir import Buffer, Load, Mask, Op, Plan, Store, children
from minitri.language import ast
from minitri.pipeline import Compilation, Context
from minitri.runtime.call_binding import float_default
from minitri.tiles.evaluate import places, run
from minitri.tiles.ir import Program
from minitri.tiles.rewrite import exchange
from minitri.tiles.schedule import Options
from minitri.tiles.text import program_lines
from minitri.trust.sanitizer import AccessError, Watch

MAX_CELLS = 400_000  # elements of all steps that are kept
Runs = list[dict[str, Any] | None]  # the steps of each grid program


def player(compiled: Compilation) -> dict[str, Any] | None:
    """Runs the compiled program on small arrays, and returns the data that the explorer shows about the run.

    Returns None if a constant size in the program, as in `f32[100000]`, is too large or 0.
    """
    if (instance := small(compiled)) is None:
        return None
    data = _Player(instance).data()
    return data if data["kernels"] else None


class _Player:
    """Runs each tile program on small arrays: once with all masks, and then once for each mask, without this mask."""

    def __init__(self, instance: Compilation) -> None:
        self.plan: Plan = instance.plan
        stage = "tile.masked" if "tile.masked" in instance.stages else "tile.target"
        self.programs: list[Program] = list(instance.value(stage))
        self.sizes, self.trace = dict(instance.context.sizes), Trace(instance)
        memory = allocate(self.plan, inputs(instance), self.sizes)
        self.watch = _Recorder(self.plan, self.programs, memory, self.sizes)
        graph: Graph = instance.value("graph")
        results = zip((b.name for b in self.plan.outputs), graph.outputs)
        self.declared = {name: node.shape for name, node in (*((i.name, i) for i in graph.inputs), *results)}

    def data(self) -> dict[str, Any]:
        # a kernel over no elements has no grid programs
        kernels = [k for k in map(self._kernel, self.programs) if k["count"]]
        arrays = [self._array(b, self.watch.memory[b.name]) for b in buffers(self.plan)]
        return {"sizes": self.sizes, "arrays": arrays, "kernels": kernels}

    def _array(self, b: Buffer, memory: Memory) -> dict[str, Any]:
        shape, values = b.layout(self.sizes)[0], _numbers(result(memory, b, self.sizes))
        declared = [e.evaluate(self.sizes) for e in self.declared.get(b.name, b.shape)]
        drawn = declared if math.prod(declared) == len(values) else shape
        return {"name": b.name, "role": b.role, "type": b.dtype.name, "shape": shape, "drawn": drawn, "values": values}

    def _kernel(self, program: Program) -> dict[str, Any]:
        lines = list(program_lines(program))
        line = {id(about): k for k, (_, about) in reversed(list(enumerate(lines))) if about is not None}  # first lines
        before = self.watch.copy()
        grid = [list(map(int, place)) for place in places(program, self.sizes)]
        runs = self.watch.play(program, line, grid, MAX_CELLS // len(self.programs))
        kept = [{"place": place, **run} for place, run in zip(grid, runs) if run is not None]
        return {
            "name": program.name, "lines": [text for text, _ in lines], "programs": kept, "count": len(runs),
            "links": [sorted(nodes) for nodes in self.trace.of_program(program)],
            "grid": [a.tiles.evaluate(self.sizes) for a in program.grid],
            "axes": [{"name": a.name, "role": a.role, "extent": a.extent.evaluate(self.sizes), "block": a.block,
                      "lanes": a.lanes} for a in program.axes],
            "dropped": dict(_dropped(program, before, line, grid[: len(kept)])),
        }  # fmt: skip


def _dropped(
    program: Program, before: _Recorder, line: Mapping[int, int], grid: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Runs]]:
    """For each masked access, runs the program without the mask of this access, and yields the access's line and the
    steps.
    """
    for k, op in enumerate(program.ops()):
        if isinstance(op, (Load, Store)) and op.mask is not None and op.mask.conditions:
            bare = exchange(program, op, replace(op, mask=Mask(())))
            own = {id(list(bare.ops())[k]): line[id(op)]}
            yield line[id(op)], before.copy().play(bare, own, grid, MAX_CELLS)


class _Recorder(Watch):
    """Checks each memory access of a tile program, and records each step."""

    steps: list[dict[str, Any]]
    line: Mapping[int, int]

    def copy(self) -> _Recorder:
        """Returns an independent copy of the recorder. The copy has its own memory."""
        made = _Recorder(self.plan, self.programs, deepcopy(self.memory), self.sizes)
        made.writers, made.runs = deepcopy(self.writers), [*self.runs]
        return made

    def play(self, program: Program, line: Mapping[int, int], grid: Sequence[Sequence[int]], cells: int) -> Runs:
        """Runs a tile program for each given point of the grid, and returns the steps of each run.

        After the runs have recorded `cells` elements or more, each further run has the result None. The dict `line`
        maps the `id` of an op to the number of the op's line. The method records only ops that the dict `line`
        contains.
        """
        runs: Runs = []
        for place in grid:
            self.steps, self.line, error = [], line, ""
            try:
                run(program, tuple(place), True, self)
            except AccessError as found:
                error = found.problem
            runs.append({"steps": self.steps, "error": error} if cells > 0 else None)
            cells -= sum(len(s["values"]) for s in self.steps)
        return runs

    def bounds(self, op: Load | Store, index: Sequence[Any], inside: Any) -> None:
        """Records the index of each element of a loaded or stored tile. Also records whether the element is accessed,
        masked or out of bounds.
        """
        allowed, *at = np.broadcast_arrays(inside, *index)
        out = np.any([(i < 0) | (i >= extent) for i, extent in zip(at, self._shape(op))], axis=0)
        state = np.where(allowed, np.where(out, "x", "a"), "m")
        self._begin(op, {
            "array": op.buffer.name, "extents": list(self._shape(op)), "index": [i.reshape(-1).tolist() for i in at],
            "state": "".join(state.reshape(-1).tolist()), "shape": list(allowed.shape),
        })  # fmt: skip
        super().bounds(op, index, inside)

    def _begin(self, op: Op, step: dict[str, Any]) -> None:
        """Records a step: one execution of an operation on a tile."""
        if id(op) in self.line:
            # `done` adds the values later; they stay empty if the sanitizer rejects the access.
            missing = {"values": [""] * math.prod(step["shape"]), "first": {}, "real": []}
            self.steps.append({"line": self.line[id(op)], **step, **missing})

    def done(self, op: Op, values: Mapping[Op, Any], env: Mapping[Symbol, Any], real: Mapping[str, int]) -> None:
        """Records the values of the tile that an op computed, loaded or stored."""
        if id(op) in self.line:
            held = values[op.value if isinstance(op, Store) else op]
            if not isinstance(op, (Load, Store)):
                self._begin(op, {"shape": list(held.shape)})
            starts = {n: env[Symbol(n, "axis")].reshape(-1) for n in real}
            self.steps[-1] |= {
                "of": [self.line[id(o)] for o in children(op) if id(o) in self.line],
                "first": {n: int(s[0]) if s.size else 0 for n, s in starts.items()},
                "real": list(real.values()), "values": _numbers(np.broadcast_to(held, self.steps[-1]["shape"])),
            }  # fmt: skip


def _numbers(values: Any) -> list[str]:
    """Returns each number of an array or scalar as a short text."""
    numbers = np.asarray(values).reshape(-1).tolist()
    return [f"{n:.3g}" if isinstance(n, float) and np.isfinite(n) else format_number(n) for n in numbers]


# ---- a small instance ---------------------------------------------------------------------------


MAX_ELEMENTS = 4096  # the most elements of one array
FEW = ((7, 5, 6, 4), (8, 8, 8), (6, 6), (4, 4), (12, 12), (2, 2), (1, 1))
MORE = ((20, 18, 17, 19), (16, 16), (32, 32))  # sizes for programs with matrix products


def small(compiled: Compilation) -> Compilation | None:
    """Compiles the program for small sizes. The function tries the rows of sizes in `MORE` and `FEW`, until the program
    accepts the sizes of a row.

    Returns None if a constant size in the program, as in `f32[100000]`, is too large.
    """
    context = replace(compiled.context, layouts={}, options=Options(), wide=False)
    if context.start is not None:
        return compiled if _fits(compiled) else None
    graph = Compilation(replace(context, sizes={})).value("graph")
    found = dict.fromkeys(s.name for i in graph.inputs for d in i.shape for s in sorted(d.symbols(), key=str))
    declared = sizes_of(function_of(context), context.instance.packs).values()
    packs = {str(axis) for axes in declared if isinstance(axes, tuple) for axis in axes} & found.keys()
    names = sorted(found, key=packs.__contains__)
    product = any(isinstance(n, Contract) for n in graph.nodes())
    for row in (*MORE, *FEW) if product else FEW:
        sizes = {n: row[k % len(row)] for k, n in enumerate(names)}
        sizes |= {n: 2 for n in packs if row in MORE}
        with suppress(CompileError, ValueError):  # the program may not be for these sizes
            if _fits(instance := _blocked(replace(context, sizes=sizes))):
                return instance
    return None


def function_of(context: Context) -> ast.Function:
    return next(f for f in context.module.functions if f.name == context.entry)


def _blocked(context: Context) -> Compilation:
    """Compiles a program with small block sizes."""
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
    """Checks whether the sizes meet all conditions of a program and every array is small."""
    sizes, plan = compiled.context.sizes, compiled.plan
    try:
        check_conditions(plan.conditions, sizes)
        return all(math.prod(b.layout(sizes)[0]) <= MAX_ELEMENTS for b in buffers(plan))
    except (CompileError, KeyError, ZeroDivisionError):
        return False


def buffers(plan: Plan) -> list[Buffer]:
    """Returns all arrays of a plan of kernels: the inputs, temporaries and outputs. Scalars are left out."""
    return [b for b in (*plan.inputs, *plan.temporaries, *plan.outputs) if b.role != "scalar"]


def inputs(compiled: Compilation) -> dict[str, Any]:
    """Returns inputs whose elements count 0, 1, 2, … so that a reader sees which element a value comes from.

    In an integer input, the count restarts at 0 before it reaches the length of the shortest axis of all inputs. Every
    element of an integer input is therefore a valid index along every axis.
    """
    context, inputs = compiled.context, compiled.plan.inputs
    least = min((n for b in inputs for n in b.layout(context.sizes)[0]), default=1)
    return {b.name: _array(b, context, max(1, least)) for b in inputs}


def _array(b: Buffer, context: Context, least: int) -> Any:
    if b.role == "scalar":
        function = function_of(context)
        param = next(p for p in function.params if p.name == b.name)
        return 1.0 if param.default is None else float_default(function, param)
    shape, _ = b.layout(context.sizes)
    count = np.arange(math.prod(shape)).reshape(shape)
    period = {"f": 10, "b": 2}.get(b.dtype.kind, min(least, 8))
    return np.asarray(count % period).astype(b.dtype.numpy)
