"""The ordered table of passes: `PASSES`. Each row makes one stage out of the stage before it.

    ast → graph → graph.simplified → kernels → tile → tile.masked → triton → (Triton's own)

In: a parsed module, an entry, what its parameters are, known sizes, a target (a `Context`). Out: a
`Compilation`, which has every stage as a value or as text and makes it when it is first asked for.

minitri/passes/ says how a pass runs: `Pass` and `PassManager` in pass_manager.py, and in adapters.py what
each pass takes of the context.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from minitri.base import logs
from minitri.base.diagnostics import CompileError, suggest
from minitri.graph import builder, specialise
from minitri.graph.text import format_graph
from minitri.graph.verify import verify as verify_graph
from minitri.hardware import targets
from minitri.hardware.targets import StageUnavailable
from minitri.kernels.ir import Plan
from minitri.kernels.text import format_plan
from minitri.kernels.verify import verify as verify_plan
from minitri.language.ast_text import format_module
from minitri.language.parser import parse_module
from minitri.optimize import (
    boundary_peeling,
    collapse_axes,
    hoist_loads,
    pack_operands,
    program_order,
    simplify,
    software_pipelining,
    split_reduction,
)
from minitri.optimize.fast_math import relax
from minitri.optimize.fusion import fuse
from minitri.optimize.online_reductions import kernels as online
from minitri.optimize.schedules.rules import RULES
from minitri.optimize.skip_blocks import skip
from minitri.passes import adapters
from minitri.passes.context import Context
from minitri.passes.pass_manager import Pass, PassManager
from minitri.tiles import lower, mask
from minitri.tiles.text import format_programs
from minitri.tiles.verify import verify_all as verify_tiles
from minitri.triton import artifacts, emit, source


def _nothing(value: Any) -> None:
    """The parser and Triton check these stages themselves."""


def _graph_pass(name: str, stage: str, run: Any, function: Any, without: Any = None) -> Pass:
    return Pass(name, stage, run, verify_graph, format_graph, function, without)


def _plan_pass(name: str, stage: str, run: Any, function: Any, without: Any = None) -> Pass:
    return Pass(name, stage, run, verify_plan, format_plan, function, without)


def _tile_pass(name: str, stage: str, run: Any, function: Any, without: Any = None, masked: bool = False) -> Pass:
    return Pass(name, stage, run, lambda ps: verify_tiles(ps, masked), format_programs, function, without)


# name, the stage it makes, how it runs, the function that does the work, its stand-in where it is left out
PASSES: tuple[Pass, ...] = (
    Pass("parse", "ast", lambda _, c: c.module, _nothing, format_module, parse_module),
    _graph_pass("build", "graph", lambda m, c: builder.build(m, c.entry, c.instance), builder.build),
    _graph_pass(
        "specialise", "graph.specialised", lambda g, c: specialise.specialise(g, c.sizes), specialise.specialise
    ),
    _graph_pass(
        "simplify", "graph.folded", lambda g, c: simplify.simplify(g), simplify.simplify,
        lambda g, c: simplify.legalise(g),
    ),
    _graph_pass("pack", "graph.packed", adapters.pack, pack_operands.pack, adapters.same),
    _graph_pass("split", "graph.simplified", adapters.split, split_reduction.split, adapters.same),
    _plan_pass("fuse", "kernels.fused", adapters.fuse, fuse.fuse, adapters.unfused),
    _plan_pass("flatten", "kernels.flat", lambda p, c: collapse_axes.flatten(p), collapse_axes.flatten, adapters.same),
    _plan_pass("online", "kernels.online", adapters.online, online.online, adapters.same),
    _plan_pass("relax", "kernels", lambda p, c: relax.relax(p), relax.relax, adapters.same),
    _tile_pass("lower", "tile.lowered", lambda p, c: adapters.lower(p, c, Compilation), lower.lower),
    _tile_pass("hoist", "tile.hoisted", adapters.each(hoist_loads.early), hoist_loads.early, adapters.same),
    _tile_pass("skip", "tile.skipped", adapters.each(skip.skip), skip.skip, adapters.same),
    _tile_pass(
        "rotate", "tile.rotated", adapters.each(software_pipelining.rotate), software_pipelining.rotate, adapters.same
    ),
    _tile_pass("order", "tile.ordered", adapters.order, program_order.order, adapters.same),
    _tile_pass("peel", "tile", adapters.each(boundary_peeling.peel), boundary_peeling.peel, adapters.same),
    _tile_pass("mask", "tile.masked", adapters.each(mask.mask), mask.mask, masked=True),
    Pass("emit", "triton", adapters.emit, _nothing, lambda ks: "".join(k.source for k in ks), emit.emit),
)  # fmt: skip

# What can be left out: passes, rewrites that the passes `split` and `emit` make, and schedule rules.
SPLITS = ("join", "split-reduction", "split-scan", "split-k", "split-kv")
EMITTED = ("narrow", "halve", "descriptors", "early-start", "cache-hints")
OPTIONAL = (*(p.name for p in PASSES if p.without is not None), *SPLITS, *EMITTED, *RULES)

OUR_STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton")
TOPICS = tuple(dict.fromkeys(name for p in PASSES for name in (p.name, p.stage)))


class Compilation(PassManager):
    """The stages of one program for one context: ours by the passes of `PASSES`, then Triton's own.

    known   stages that are there already, by name
    Raises CompileError MT0402 for a name in `context.without` that is no optional pass.
    """

    def __init__(self, context: Context, known: Mapping[str, Any] | None = None) -> None:
        _check_left_out(context)
        logs.check_topics(TOPICS)
        super().__init__(context, PASSES, known)
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
        return self.value("tile.masked").plan

    @property
    def compiled(self) -> list[artifacts.Built]:
        """What Triton's compiler made of each kernel."""
        if self._compiled is None:
            start = time.perf_counter()
            self._compiled = artifacts.build(self.module_text, self.value("triton"), self.context.target)
            self.seconds["triton"] = time.perf_counter() - start
        return self._compiled


def _check_left_out(context: Context) -> None:
    unknown = sorted(set(context.without) - set(OPTIONAL))
    if unknown:
        help = suggest(unknown[0], OPTIONAL) or f"passes that can be left out: {', '.join(OPTIONAL)}"
        raise CompileError("MT0402", f"there is no optional pass `{unknown[0][:40]}`", help=help)


def _unavailable(stage: str, compiled: Compilation) -> CompileError:
    """The error for a stage that a compilation does not have."""
    known = {*OUR_STAGES, *targets.CUDA_STAGES, *targets.HIP_STAGES}
    if stage in known:
        other = "hip:gfx942" if stage == "amdgcn" else "cuda:90"
        message = f"the target {compiled.context.target} has no stage {stage}"
        return StageUnavailable("MT0402", message, help=f"take another target: `--target={other}`")
    help = suggest(str(stage), known) or f"stages are {', '.join(compiled.stages)}"
    return CompileError("MT0402", f"there is no stage `{str(stage)[:40]}`", help=help)
