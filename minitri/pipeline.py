"""The ordered table of passes: `CORE`. Each row makes one stage out of the stage before it.

    ast → graph → graph.simplified → kernels → tile → tile.masked → tile.target → triton → …

In: a parsed module, an entry, what its parameters are, known sizes, a target (a `Context`). Out: a
`Compilation`, which has every stage as a value or as text and makes it when it is first asked for.

The core compiles every program: one kernel for each node that computes, with a simple schedule. It imports no
optimisation. minitri/optimize/rooms.py has the table in which the optimisations stand between the rows of the
core; it is imported by name, and only where something is optimised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from minitri.base import logs
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.limits import check_time, current, exceeded
from minitri.graph import builder, rewrite
from minitri.graph.text import format_graph
from minitri.graph.verify import verify as verify_graph
from minitri.hardware import targets
from minitri.hardware.targets import StageUnavailable
from minitri.kernels import partition
from minitri.kernels.ir import Kernel, Plan
from minitri.kernels.text import format_plan
from minitri.kernels.verify import verify as verify_plan
from minitri.language.ast_text import format_module
from minitri.language.parser import parse_module
from minitri.pass_manager import Context, Pass, PassManager
from minitri.tiles import lower, mask
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import INTERPRETER, Options, Schedule, check_axes, check_lanes, plain, with_options
from minitri.tiles.text import format_programs
from minitri.tiles.verify import verify_all as verify_tiles
from minitri.triton import artifacts, emit, source
from minitri.triton.emit import EmittedKernel
from minitri.triton.workarounds.loops import hide_starts, settle

ROOMS = "minitri.optimize.rooms"  # has the table with the optimisations


# ---- passes that need more than the value before them ----------------------------------------


def lowered(plan: Plan, context: Context) -> Programs:
    """One tile program for each kernel, each by its simple schedule."""
    check_axes(context.options, plan, lambda: [_for_any_sizes(context)])
    return lower_each(plan, lambda kernel: (lower.lower(kernel, simple_schedule(kernel, context)), context.wide))


def _for_any_sizes(context: Context) -> Plan:
    return Compilation(replace(context, sizes={}, layouts={}, options=Options())).value("kernels")


def simple_schedule(kernel: Kernel, context: Context) -> Schedule:
    """The plain schedule; in the interpreter, where a program costs a millisecond, with large tiles."""
    chosen = plain(kernel, INTERPRETER) if context.target.kind == "interpreter" else plain(kernel)
    return with_options(kernel, chosen, replace(context.options, descriptors=False))


def lower_each(plan: Plan, lowered: Callable[[Kernel], tuple[Program, bool]]) -> Programs:
    """The programs of a plan. `lowered`: the program of a kernel, and whether its offsets need 64 bits."""
    programs: list[Program] = []
    for kernel in plan.kernels:
        check_time()
        program, wide = lowered(kernel)
        check_lanes(program)
        programs.append(replace(program, wide=wide))
    return Programs(plan, tuple(programs))


def masked(programs: Programs, context: Context) -> Programs:
    return programs.map(mask.mask)


def targeted(programs: Programs, context: Context) -> Programs:
    """Programs with workarounds for bugs of Triton, and only the options that the target's compiler has."""
    if context.target.kind != "cuda":
        programs = programs.map(lambda p: replace(p, registers=0) if p.registers else p)
    return programs.map(lambda p: hide_starts(settle(p)))


def emitted(programs: Programs, context: Context) -> list[EmittedKernel]:
    """The source of each kernel; MT0401 if there is too much source to compile."""
    made: list[EmittedKernel] = []
    for program in programs:
        check_time()
        made.append(emit.emit(program))
        if sum(len(k.source) for k in made) > (limit := current().code):
            raise exceeded("code", f"the generated source has more than {limit:,} characters")
    return made


# ---- the table -------------------------------------------------------------------------------


def graph_pass(name: str, stage: str, run: Any, function: Any, without: Any = None) -> Pass:
    return Pass(name, stage, run, verify_graph, format_graph, function, without)


def plan_pass(name: str, stage: str, run: Any, function: Any, without: Any = None) -> Pass:
    return Pass(name, stage, run, verify_plan, format_plan, function, without)


def tile_pass(name: str, stage: str, run: Any, function: Any, without: Any = None, masked: bool = False) -> Pass:
    return Pass(name, stage, run, lambda ps: verify_tiles(ps, masked), format_programs, function, without)


def _nothing(value: Any) -> None:
    """The parser and Triton check these stages themselves."""


# name, the stage it makes, how it runs, the function that does the work
CORE: tuple[Pass, ...] = (
    Pass("parse", "ast", lambda _, c: c.module, _nothing, format_module, parse_module),
    graph_pass("build", "graph", lambda m, c: builder.build(m, c.entry, c.instance), builder.build),
    graph_pass("specialise", "graph.specialised", lambda g, c: rewrite.specialise(g, c.sizes), rewrite.specialise),
    graph_pass("legalise", "graph.simplified", lambda g, c: rewrite.legalise(g), rewrite.legalise),
    plan_pass("partition", "kernels", lambda g, c: partition.partition(g, c.layouts), partition.partition),
    tile_pass("lower", "tile", lowered, lower.lower),
    tile_pass("mask", "tile.masked", masked, mask.mask, masked=True),
    tile_pass("target", "tile.target", targeted, targeted, masked=True),
    Pass("emit", "triton", emitted, _nothing, lambda ks: "".join(k.source for k in ks), emit.emit),
)  # fmt: skip
OUR_STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")


def passes(without: Collection[str]) -> tuple[Pass, ...]:
    """The passes that run where these optimisations are left out; "all" leaves the core alone."""
    if set(without) == {"all"}:
        return CORE
    rooms = import_module(ROOMS)
    rooms.check_names(without)
    return CORE if "all" in without else rooms.PASSES


class Compilation(PassManager):
    """The stages of one program for one context: ours by the passes of `passes`, then Triton's own.

    known   stages that are there already, by name
    Raises CompileError MT0402 for a name in `context.without` that is no optimisation.
    """

    def __init__(self, context: Context, known: Mapping[str, Any] | None = None) -> None:
        table = passes(context.without)
        logs.check_topics(tuple(dict.fromkeys(name for p in table for name in (p.name, p.stage))))
        super().__init__(context, table, known)
        self._compiled: list[artifacts.Built] | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages whose text can be had."""
        ours = [p.stage for p in self.steps if p.stage in OUR_STAGES]
        return (*ours, *self.context.target.stages)

    def __getitem__(self, stage: str) -> str:
        """The text of a stage of `stages`. Raises CompileError MT0402 for any other."""
        if stage == "triton":
            return self.module_text
        if stage in OUR_STAGES:
            return self.text(stage)
        if stage not in self.context.target.stages:
            self.require_later(stage)
            raise _unavailable(stage, self)
        names = [k.name for k in self.value("triton")]
        return artifacts.stage_text(self.compiled, names, stage)

    @property
    def module_text(self) -> str:
        """The Triton source of all kernels, as one Python module."""
        return source.module_text(self.plan, self.value("triton"))

    @property
    def plan(self) -> Plan:
        """What the kernels read, write and need in between; of a program that begins at tiles without kernels."""
        return self.value("tile.target").plan

    @property
    def compiled(self) -> list[artifacts.Built]:
        """What Triton's compiler made of each kernel."""
        if self._compiled is None:
            start = time.perf_counter()
            self._compiled = artifacts.build(self.module_text, self.value("triton"), self.context.target)
            self.seconds["triton"] = time.perf_counter() - start
        return self._compiled


def _unavailable(stage: str, compiled: Compilation) -> CompileError:
    """The error for a stage that a compilation does not have."""
    known = {*OUR_STAGES, *targets.CUDA_STAGES, *targets.HIP_STAGES}
    if stage in known:
        other = "hip:gfx942" if stage == "amdgcn" else "cuda:90"
        message = f"the target {compiled.context.target} has no stage {stage}"
        return StageUnavailable("MT0402", message, help=f"take another target: `--target={other}`")
    help = suggest(str(stage), known) or f"stages are {', '.join(compiled.stages)}"
    return CompileError("MT0402", f"there is no stage `{str(stage)[:40]}`", help=help)
