"""The ordered table of stages and passes; runs, verifies, times and records each.

    ast → graph → graph.simplified → kernels → tile → tile.masked → triton → (Triton's own)

In: a parsed module, an entry, what its parameters are, known sizes, a target. Out: a
`Compilation` from which every stage can be had as a value or as text; a stage is computed
when first asked for. The verifier of an IR runs before the first pass over it and after each
one; a failure names the pass and shows its IR before and after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from minitri.base import logs
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim
from minitri.base.limits import Limits, check_time, current, exceeded, timed, using
from minitri.graph import builder, specialise
from minitri.graph.parameters import Instance
from minitri.graph.text import format_graph
from minitri.graph.verify import verify as verify_graph
from minitri.hardware import targets
from minitri.hardware.chips import chip_of
from minitri.hardware.targets import StageUnavailable, Target
from minitri.kernels.ir import Plan
from minitri.kernels.text import format_decision, format_plan
from minitri.kernels.verify import verify as verify_plan
from minitri.language import ast
from minitri.language.ast_text import format_module
from minitri.language.parser import parse_module
from minitri.optimize import (
    boundary_peeling,
    collapse_axes,
    pack_operands,
    program_order,
    simplify,
    software_pipelining,
    split_reduction,
)
from minitri.optimize import hoist_loads as early
from minitri.optimize.fast_math import relax
from minitri.optimize.fusion import fuse
from minitri.optimize.index_width.kernel_offsets import fits_32_bits
from minitri.optimize.online_reductions import kernels as online
from minitri.optimize.skip_blocks import skip
from minitri.tiles import lower, mask
from minitri.tiles import schedule_options as options
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import Options, Schedule, schedule
from minitri.tiles.text import format_programs
from minitri.tiles.verify import verify_all as verify_tiles
from minitri.triton import artifacts, emit, source
from minitri.triton.workarounds import narrow_factors

OUR_STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton")
LONG, SHORT, BOTH = 1 << 22, 4, 1 << 11  # sizes for which axes are in parts
T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """Everything besides the program that decides what is compiled.

    sizes    known dimensions by name (elements)
    layouts  strides in elements of inputs that are not contiguous
    wide     offsets may need 64 bits (minitri/optimize/index_width/kernel_offsets.py asks each kernel)
    without  optional passes that are switched off
    options  what the caller decides about schedules
    start    the stage that is there from the beginning; the module then only says what the parameters are
    """

    module: ast.Module
    entry: str
    instance: Instance
    sizes: Mapping[str, int] = field(default_factory=dict)
    layouts: Mapping[str, tuple[Dim, ...]] = field(default_factory=dict)
    target: Target = Target("cuda", "90")
    wide: bool = False
    without: frozenset[str] = frozenset()
    options: Options = Options()
    limits: Limits = field(default_factory=current)
    start: Start | None = None


@dataclass(frozen=True, eq=False)
class Start:
    """The stage that a program begins at, if it is not a syntax tree: one that was read from a text."""

    stage: str
    value: Any


@dataclass(frozen=True)
class Pass:
    """One step: `run(value, context)` makes `stage` out of the stage before it.

    function   what does the work, where `run` only calls it
    without    what runs instead where the pass is left out; None: it cannot be
    """

    name: str
    stage: str
    run: Callable[[Any, Context], Any]
    verify: Callable[[Any], None]
    text: Callable[[Any], str]
    function: Callable[..., Any] | None = None
    without: Callable[[Any, Context], Any] | None = None

    def made(self, before: Any, context: Context) -> Any:
        """What the pass makes of the stage before it, or what stands in for it."""
        left_out = self.without is not None and self.name in context.without
        return (self.without if left_out else self.run)(before, context)  # type: ignore[misc]


@dataclass(frozen=True)
class PassRecord:
    name: str
    stage: str
    before: str
    after: str
    seconds: float


def schedule_of(kernel: Any, context: Context) -> Schedule:
    """How a kernel runs on the target of a context."""
    target, wanted = context.target, context.options
    if _is_wide(kernel, context) or not target.has_descriptors:
        wanted = replace(wanted, descriptors=bool(wanted.descriptors))
    chosen = schedule(kernel, target.kind == "interpreter", wanted, chip_of(target))
    return narrow_factors.avoided(kernel, chosen) if (target.kind, target.arch) == ("cuda", "90") else chosen


def _is_wide(kernel: Any, context: Context) -> bool:
    return context.wide and not fits_32_bits(kernel)


def _lower(plan: Any, context: Context) -> Any:
    options.check_axes(context.options, plan, lambda: _general(context))
    programs: list[Program] = []
    for kernel in plan.kernels:
        check_time()
        program = lower.lower(kernel, schedule_of(kernel, context))
        options.check_lanes(program)
        programs.append(replace(program, wide=_is_wide(kernel, context)))
    return Programs(plan, tuple(programs))


def _general(context: Context) -> list[Any]:
    """The plans for any sizes, before and after neighbouring axes are merged, and those for a GPU where one size is
    long, or all are, so that reductions are in parts."""
    compiled = Compilation(replace(context, sizes={}, layouts={}, options=Options()))
    plans = [compiled.value("kernels.fused"), compiled.value("kernels")]
    graph = compiled.value("graph") if context.start is None else None
    names = sorted({s.name for x in graph.inputs for d in x.shape for s in d.symbols()}) if graph else []
    for long in names:
        with suppress(CompileError):  # sizes that cannot be: they are made up
            sizes = {name: LONG if name == long else SHORT for name in names}
            plans.append(_for_gpu(context, sizes).value("kernels"))
    with suppress(CompileError):
        plans.append(_for_gpu(context, dict.fromkeys(names, BOTH)).value("kernels"))
    return plans


def _for_gpu(context: Context, sizes: Mapping[str, int]) -> Compilation:
    return Compilation(replace(context, sizes=sizes, layouts={}, target=Target("cuda", "90"), options=Options()))


def _emit(programs: Any, context: Context) -> Any:
    """The source of each kernel; MT0401 if there is too much of it to compile."""
    kernels: list[Any] = []
    described = context.options.descriptors is not False  # a text that was loaded may say so, too
    described = described and "descriptors" not in context.without
    early = context.target.has_early_starts and "early-start" not in context.without
    for program in map(_in_time, programs):
        registers = program.registers if context.target.kind == "cuda" else 0  # no other compiler can be told
        program = replace(program, descriptors=program.descriptors and described, registers=registers)
        kernels.append(emit.emit(program, follows=bool(kernels) and early, without=context.without))
        if sum(len(k.source) for k in kernels) > (limit := current().code):
            raise exceeded("code", f"the generated source has more than {limit:,} characters")
    return kernels


def _in_time(item: T) -> T:
    """The item, as long as there is time."""
    check_time()
    return item


def _fuse(graph: Any, context: Context) -> Any:
    return fuse.fuse(graph, dict(context.layouts), enabled=True)


def _unfused(graph: Any, context: Context) -> Any:
    return fuse.fuse(graph, dict(context.layouts), enabled=False)


def _pack(graph: Any, context: Context) -> Any:
    return graph if context.target.kind == "interpreter" else pack_operands.pack(graph, context.layouts)


def _split(graph: Any, context: Context) -> Any:
    if context.target.kind == "interpreter":
        return graph
    return split_reduction.split(graph, chip_of(context.target), context.layouts, context.without)


def _online(plan: Any, context: Context) -> Any:
    def looped(kernel: Any) -> list[str]:
        chosen = schedule_of(kernel, context)
        return [] if chosen.near else chosen.looped

    return online.online(plan, looped)


def _same(value: Any, context: Context) -> Any:
    """In the place of a pass that is left out."""
    return value


def _each(change: Callable[[Program], Program]) -> Callable[[Programs, Context], Programs]:
    """A pass over every program."""

    def run(programs: Programs, context: Context) -> Programs:
        return programs.map(lambda p: change(_in_time(p)))

    return run


def _order(programs: Programs, context: Context) -> Programs:
    chip = chip_of(context.target)
    return programs.map(lambda p: program_order.order(p, chip, context.options.group))


def _verify_tiles(masked: bool) -> Callable[[Any], None]:
    return lambda programs: verify_tiles(programs, masked)


def _nothing(value: Any) -> None:
    """The parser and Triton check these stages themselves."""


def _no_text(value: Any) -> str:
    """Nothing stands before the first pass."""
    return ""


def _text_of_broken(p: Pass, value: Any) -> str:
    try:
        return p.text(value)
    except Exception as error:  # a printer may rely on the very rule that is broken
        return f"(it cannot be printed: {type(error).__name__})"


def _graph_pass(name: str, stage: str, run: Any, function: Any, without: Any = None) -> Pass:
    return Pass(name, stage, run, verify_graph, format_graph, function, without)


def _plan_pass(name: str, stage: str, run: Any, function: Any, without: Any = None) -> Pass:
    return Pass(name, stage, run, verify_plan, format_plan, function, without)


def _tile_pass(name: str, stage: str, run: Any, function: Any, without: Any = None, masked: bool = False) -> Pass:
    return Pass(name, stage, run, _verify_tiles(masked), format_programs, function, without)


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
    _graph_pass("pack", "graph.packed", _pack, pack_operands.pack, _same),
    _graph_pass("split", "graph.simplified", _split, split_reduction.split, _same),
    _plan_pass("fuse", "kernels.fused", _fuse, fuse.fuse, _unfused),
    _plan_pass("flatten", "kernels.flat", lambda p, c: collapse_axes.flatten(p), collapse_axes.flatten, _same),
    _plan_pass("online", "kernels.online", _online, online.online, _same),
    _plan_pass("relax", "kernels", lambda p, c: relax.relax(p), relax.relax, _same),
    _tile_pass("lower", "tile.lowered", _lower, lower.lower),
    _tile_pass("hoist", "tile.hoisted", _each(early.early), early.early, _same),
    _tile_pass("skip", "tile.skipped", _each(skip.skip), skip.skip, _same),
    _tile_pass("rotate", "tile.rotated", _each(software_pipelining.rotate), software_pipelining.rotate, _same),
    _tile_pass("order", "tile.ordered", _order, program_order.order, _same),
    _tile_pass("peel", "tile", _each(boundary_peeling.peel), boundary_peeling.peel, _same),
    _tile_pass("mask", "tile.masked", _each(mask.mask), mask.mask, masked=True),
    Pass("emit", "triton", _emit, _nothing, lambda ks: "".join(k.source for k in ks), emit.emit),
)  # fmt: skip

# What can be left out: passes, and rewrites that the passes `split` and `emit` make.
SPLITS = ("join", "split-reduction", "split-scan", "split-k", "split-kv")
EMITTED = ("narrow", "halve", "descriptors", "early-start", "cache-hints")
OPTIONAL = (*(p.name for p in PASSES if p.without is not None), *SPLITS, *EMITTED)


TOPICS = tuple(dict.fromkeys(name for p in PASSES for name in (p.name, p.stage)))


class Compilation:
    """The stages of one program for one context, computed as they are asked for."""

    def __init__(self, context: Context, known: Mapping[str, Any] | None = None) -> None:
        unknown = set(context.without) - set(OPTIONAL)
        if unknown:
            name = sorted(unknown)[0]
            help = suggest(name, OPTIONAL) or f"passes that can be left out: {', '.join(OPTIONAL)}"
            raise CompileError("MT0402", f"there is no optional pass `{name[:40]}`", help=help)
        self.context = context
        self.values: dict[str, Any] = dict(known or {})
        self.steps = PASSES
        logs.check_topics(TOPICS)
        if context.start is not None:
            place = [p.stage for p in PASSES].index(context.start.stage)
            self.values, self.steps = {context.start.stage: context.start.value}, PASSES[place:]
        self.seconds: dict[str, float] = {}
        self._compiled: list[artifacts.Built] | None = None

    # ---- values ----------------------------------------------------------------------

    def value(self, stage: str) -> Any:
        """The IR of one of our stages (or of one in between: "graph.specialised"); KeyError for any other."""
        before: Any = None
        shown: Callable[[Any], str] = _no_text
        with using(self.context.limits), timed():
            for p in self.steps:
                if p.stage not in self.values:
                    self.values[p.stage] = self._run(p, before, shown)
                before, shown = self.values[p.stage], p.text
                if p.stage == stage:
                    return before
        if stage in (p.stage for p in PASSES):
            raise self._unavailable(stage)
        raise KeyError(stage)

    def _run(self, p: Pass, before: Any, shown: Callable[[Any], str]) -> Any:
        check_time()
        start = time.perf_counter()
        after = self._made(p, before)
        self.seconds[p.name] = time.perf_counter() - start
        try:
            if after is not before:  # else the pass before has verified it
                p.verify(after)
        except ValueError as error:
            texts = f"before:\n{shown(before)}\nafter:\n{_text_of_broken(p, after)}"
            message = f"the pass `{p.name}` broke a rule of its IR: {error}\n{texts}"
            raise CompileError("MT0403", message, help="this is a bug in minitri: please report the program") from None
        self._tell(p, after)
        return after

    def _tell(self, p: Pass, after: Any) -> None:
        """What MINITRI_LOGS asks for."""
        for topic in {p.name, p.stage}:
            if logs.enabled(topic):
                logs.log(topic, p.text(after))
        if p.stage == "kernels" and logs.enabled("fusion"):
            logs.log("fusion", "\n".join(map(format_decision, after.ledger)))

    def _made(self, p: Pass, before: Any) -> Any:
        """What a pass makes. From a text that says what no pass would write it may make nothing."""
        try:
            return p.made(before, self.context)
        except (CompileError, MemoryError, RecursionError):
            raise
        except Exception as error:
            if self.context.start is None:
                raise
            reason = f"{type(error).__name__} {str(error)[:80]}".strip()
            raise CompileError("MT0503", f"the pass `{p.name}` cannot go on from this text: {reason}") from None

    # ---- texts -----------------------------------------------------------------------

    @property
    def stages(self) -> tuple[str, ...]:
        ours = [p.stage for p in self.steps if p.stage in OUR_STAGES]
        return (*ours, *self.context.target.stages)

    def text(self, stage: str) -> str:
        """The text of one of our stages, or of one in between: "graph.specialised"."""
        p = next(p for p in PASSES if p.stage == stage)
        return p.text(self.value(stage))

    def __getitem__(self, stage: str) -> str:
        """The text of a stage."""
        if stage == "triton":
            return self.module_text
        if stage in OUR_STAGES:
            return self.text(stage)
        if stage not in self.context.target.stages:
            raise self._unavailable(stage)
        names = [k.name for k in self.value("triton")]
        return artifacts.stage_text(self.compiled, names, stage)

    def _unavailable(self, stage: str) -> CompileError:
        known = {*OUR_STAGES, *targets.CUDA_STAGES, *targets.HIP_STAGES}
        if self.context.start is not None and stage in {p.stage for p in PASSES}:
            begin = self.context.start.stage
            return StageUnavailable("MT0402", f"this program begins at `{begin}`: it has no stage `{stage}`")
        if stage in known:
            other = "hip:gfx942" if stage == "amdgcn" else "cuda:90"
            message = f"the target {self.context.target} has no stage {stage}"
            return StageUnavailable("MT0402", message, help=f"take another target: `--target={other}`")
        help = suggest(str(stage), known) or f"stages are {', '.join(self.stages)}"
        return CompileError("MT0402", f"there is no stage `{str(stage)[:40]}`", help=help)

    @property
    def module_text(self) -> str:
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

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """Every pass of ours with the text before and after it."""
        self.value("triton")
        records: list[PassRecord] = []
        before = ""
        for p in self.steps:
            after = p.text(self.values[p.stage])
            records.append(PassRecord(p.name, p.stage, before, after, self.seconds.get(p.name, 0.0)))
            before = after
        return tuple(records)


__all__ = ["Compilation", "Context", "Pass", "PassRecord", "StageUnavailable", "Start", "Target"]
