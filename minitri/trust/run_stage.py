"""Runs a stage: what each IR of the pipeline computes on this machine.

In: a compilation, one of its stages, a checked call with its arrays on the CPU. Out: the outputs
as numpy arrays. The kind of value that a stage holds decides how it runs, so a new stage runs too:

    a graph             minitri/graph/evaluate.py
    a plan of kernels   minitri/kernels/evaluate.py
    tile programs       minitri/tiles/evaluate.py; once they are masked, masks bound the accesses
    Triton source       Triton's interpreter, for any target: the schedule of a GPU needs no GPU

Left out: the GPU itself (minitri/runtime/variants.py), and Triton's own stages.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitri.graph.evaluate import evaluate as evaluate_graph
from minitri.graph.ir import Graph
from minitri.hardware.targets import INTERPRETER, Target
from minitri.kernels.evaluate import evaluate as evaluate_kernels
from minitri.kernels.ir import Plan, Store
from minitri.language import ast
from minitri.language.reference_evaluator import evaluate as evaluate_ast
from minitri.pipeline import Compilation
from minitri.runtime.binding import Call
from minitri.runtime.interpreter import Guarded
from minitri.runtime.launch import Executable, executable
from minitri.tiles.evaluate import evaluate as evaluate_tile
from minitri.tiles.ir import Programs
from minitri.triton.emit import EmittedKernel


def reference(module: ast.Module, entry: str, call: Call) -> tuple[Any, ...]:
    """What a program means: its syntax tree, evaluated by numpy."""
    packs = {p: tuple(call.sizes[f"{p}{k}"] for k in range(n)) for p, n in call.instance.packs.items()}
    return evaluate_ast(module, entry, {**call.inputs, **call.instance.statics}, call.sizes, packs)


def results(compiled: Compilation, stage: str, call: Call) -> tuple[Any, ...]:
    """The outputs of a stage. Raises whatever its evaluator does, AccessError among others."""
    match compiled.value(stage):
        case ast.Module() as module:
            return reference(module, compiled.context.entry, call)
        case Graph() as graph:
            return evaluate_graph(graph, call.inputs, call.sizes)
        case Plan() as plan:
            return evaluate_kernels(plan, call.inputs, call.numbers)
        case [EmittedKernel(), *_]:
            return _interpreted(compiled, call)
        case Programs() as tiles:
            masked = any(op.mask is not None for p in tiles for op in p.ops() if isinstance(op, Store))
            return evaluate_tile(tiles.plan, tiles.programs, call.inputs, call.numbers, masked)
        case other:
            raise AssertionError(f"the stage {stage} is a {type(other).__name__}")


def programs(compiled: Compilation, call: Call) -> int:
    """How many programs of the grid run, all kernels together."""
    grids = [[a.tiles.evaluate(call.sizes) for a in p.grid] for p in compiled.value("tile")]
    return sum(math.prod(grid) for grid in grids)


def _interpreted(compiled: Compilation, call: Call) -> tuple[Any, ...]:
    """The kernels in Triton's interpreter, which checks no access: guard bands do."""
    memory = Guarded()
    outputs = launchable(compiled, INTERPRETER)(memory.call(call), memory.empty)
    memory.verify()
    return tuple(np.array(v.numpy()) for v in outputs)


def launchable(compiled: Compilation, target: Target) -> Executable:
    """The Triton source of a compilation, ready to run: in the interpreter, or jit-compiled for a GPU."""
    return executable(compiled.plan, compiled.value("triton"), compiled.module_text, target)
