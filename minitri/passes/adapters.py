"""Passes as the table calls them: `run(value, context)`.

    def fuse(graph, context): ...        calls optimize/fusion with the layouts of the context

A pass itself takes only what it needs: a graph, a plan, a program. These functions take it out of the
context, call the pass for each kernel or program, and watch the time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from minitri.base.diagnostics import CompileError
from minitri.base.limits import check_time, current, exceeded
from minitri.graph.ir import Graph
from minitri.hardware.chips import chip_of
from minitri.hardware.targets import Target
from minitri.kernels.ir import Kernel, Plan
from minitri.optimize import pack_operands, program_order, split_reduction
from minitri.optimize.fusion import fuse as fusion
from minitri.optimize.online_reductions import kernels as online_reductions
from minitri.optimize.online_reductions.lower import OnlineLowering
from minitri.passes.context import Context
from minitri.passes.kernel_schedule import is_wide, schedule_of
from minitri.passes.pass_manager import PassManager
from minitri.tiles import lower as lowering
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import Options, check_axes, check_lanes
from minitri.triton import emit as emitter
from minitri.triton.emit import EmittedKernel

LONG, SHORT, BOTH = 1 << 22, 4, 1 << 11  # sizes for which axes are in parts
Compile = Callable[[Context], PassManager]
T = TypeVar("T")


def same(value: T, context: Context) -> T:
    """Stands in for a pass that is left out."""
    return value


# ---- graphs and kernels --------------------------------------------------------------------


def pack(graph: Graph, context: Context) -> Graph:
    """No copies for the interpreter, which has no tensor cores to feed."""
    return graph if context.target.kind == "interpreter" else pack_operands.pack(graph, context.layouts)


def split(graph: Graph, context: Context) -> Graph:
    """No parts for the interpreter, which runs one program after another."""
    if context.target.kind == "interpreter":
        return graph
    return split_reduction.split(graph, chip_of(context.target), context.layouts, context.without)


def fuse(graph: Graph, context: Context) -> Plan:
    return fusion.fuse(graph, dict(context.layouts), enabled=True)


def unfused(graph: Graph, context: Context) -> Plan:
    """One kernel for each operation."""
    return fusion.fuse(graph, dict(context.layouts), enabled=False)


def online(plan: Plan, context: Context) -> Plan:
    """Reductions share a loop where the schedule of their kernel loops over an axis."""

    def looped(kernel: Kernel) -> list[str]:
        chosen = schedule_of(kernel, context)
        return [] if chosen.near else chosen.looped

    return online_reductions.online(plan, looped)


# ---- tile programs -------------------------------------------------------------------------


def lower(plan: Plan, context: Context, compile: Compile) -> Programs:
    """One program for each kernel. `compile` runs all passes for another context; only errors need it."""
    check_axes(context.options, plan, lambda: _plans_of_other_sizes(context, compile))
    programs: list[Program] = []
    for kernel in plan.kernels:
        check_time()
        program = lowering.lower(kernel, schedule_of(kernel, context), OnlineLowering)
        check_lanes(program)
        programs.append(replace(program, wide=is_wide(kernel, context)))
    return Programs(plan, tuple(programs))


def each(change: Callable[[Program], Program]) -> Callable[[Programs, Context], Programs]:
    """A pass over every program."""

    def run(programs: Programs, context: Context) -> Programs:
        return programs.map(lambda p: change(_in_time(p)))

    return run


def order(programs: Programs, context: Context) -> Programs:
    chip = chip_of(context.target)
    return programs.map(lambda p: program_order.order(p, chip, context.options.group))


def emit(programs: Programs, context: Context) -> list[EmittedKernel]:
    """The source of each kernel; MT0401 if there is too much of it to compile."""
    kernels: list[EmittedKernel] = []
    described = context.options.descriptors is not False  # a text that was loaded may say so, too
    described = described and "descriptors" not in context.without
    early = context.target.has_early_starts and "early-start" not in context.without
    for program in map(_in_time, programs):
        registers = program.registers if context.target.kind == "cuda" else 0  # no other compiler can be told
        program = replace(program, descriptors=program.descriptors and described, registers=registers)
        kernels.append(emitter.emit(program, follows=bool(kernels) and early, without=context.without))
        if sum(len(k.source) for k in kernels) > (limit := current().code):
            raise exceeded("code", f"the generated source has more than {limit:,} characters")
    return kernels


def _in_time(item: T) -> T:
    """The item, as long as there is time."""
    check_time()
    return item


# ---- plans for other sizes -----------------------------------------------------------------


def _plans_of_other_sizes(context: Context, compile: Compile) -> list[Plan]:
    """Plans whose kernels have, together, every axis that the program has for some sizes.

    Two are for any sizes, before and after neighbouring axes are merged. The others are for a GPU where one
    size is long, or all are: reductions are in parts there.
    """
    compiled = compile(replace(context, sizes={}, layouts={}, options=Options()))
    plans = [compiled.value("kernels.fused"), compiled.value("kernels")]
    graph = compiled.value("graph") if context.start is None else None
    names = sorted({s.name for x in graph.inputs for d in x.shape for s in d.symbols()}) if graph else []
    for long in names:
        with suppress(CompileError):  # sizes that cannot be: they are made up
            sizes = {name: LONG if name == long else SHORT for name in names}
            plans.append(compile(_for_gpu(context, sizes)).value("kernels"))
    with suppress(CompileError):
        plans.append(compile(_for_gpu(context, dict.fromkeys(names, BOTH))).value("kernels"))
    return plans


def _for_gpu(context: Context, sizes: Mapping[str, int]) -> Context:
    return replace(context, sizes=sizes, layouts={}, target=Target("cuda", "90"), options=Options())
