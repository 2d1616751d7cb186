"""Runs one stage of a compilation on this machine and returns its outputs.

The function `results` takes a compilation, the name of a stage, and a `Call` with its arrays on the CPU. It returns the
outputs as numpy arrays. The type of a stage's value (such as a graph) selects the evaluator, so a new stage needs no
change in this file.

A graph is run by minitri/graph/evaluate.py. A plan of kernels is run by minitri/kernels/evaluate.py. Tile programs are
run by minitri/tiles/evaluate.py. The evaluator uses the masks of loads and stores if the tile programs have masks.
Triton source is run by Triton's interpreter, even if its schedule is for a GPU.

This module does not run the stages inside Triton's compiler. The file minitri/runtime/variants.py runs programs on a
GPU.
"""

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
from minitri.runtime.call_binding import Call
from minitri.runtime.interpreter import Guarded
from minitri.runtime.launch import Executable, executable
from minitri.tiles.evaluate import evaluate as evaluate_tile
from minitri.triton.emit import EmittedKernel


def results(compiled: Compilation, stage: str, call: Call) -> tuple[Any, ...]:
    """Returns the outputs of a stage.

    An exception of the evaluator, such as AccessError, is not caught.
    """
    match compiled.value(stage):
        case ast.Module() as module:
            return evaluate_ast(module, compiled.context.entry, call.values, call.sizes)
        case Graph() as graph:
            return evaluate_graph(graph, call.inputs, call.sizes)
        case Plan() as plan:
            return evaluate_kernels(plan, call.inputs, call.numbers)
        case [EmittedKernel(), *_]:
            return _interpreted(compiled, call)
        case tiles:
            masked = any(op.mask is not None for p in tiles for op in p.ops() if isinstance(op, Store))
            return evaluate_tile(tiles.plan, tiles.programs, call.inputs, call.numbers, masked)


def programs(compiled: Compilation, call: Call) -> int:
    """Returns the total number of grid programs of all kernels."""
    return sum(math.prod(a.tiles.evaluate(call.sizes) for a in p.grid) for p in compiled.value("tile"))


def _interpreted(compiled: Compilation, call: Call) -> tuple[Any, ...]:
    """Runs the kernels in Triton's interpreter."""
    # Triton's interpreter does not check accesses, so each array is copied between guard bands (extra bytes). A kernel
    # that changes a guard band has stored outside of the array.
    memory = Guarded()
    outputs = launchable(compiled, INTERPRETER)(memory.call(call), memory.empty)
    memory.verify()
    return tuple(np.array(v.numpy()) for v in outputs)


def launchable(compiled: Compilation, target: Target) -> Executable:
    """Makes the Triton source of a compilation executable, in Triton's interpreter or on a GPU."""
    return executable(compiled.plan, compiled.value("triton"), compiled.module_text, target)
