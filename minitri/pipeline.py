"""The ordered table of passes, `CORE`, and the manager that runs them. Each row makes one stage out of the stage before it.

    ast → graph → graph.simplified → kernels → tile → tile.masked → tile.target → triton → …

    stages = Compilation(Context(module, "main", Instance()))
    stages.value("tile")                runs each pass down to the one that makes `tile`
    stages["tile"]                      its text

In: a parsed module, an entry, what its parameters are, known sizes, a target (a `Context`, the same for each pass).
Out: a `Compilation`, which has every stage as a value or as text and makes it when it is first asked for. The verifier
of an IR runs after each pass that made something new. A failure names the pass and shows its IR before and after
(MT0403).

The core compiles every program: one kernel for each node that computes, with a simple schedule. It imports no
optimisation. minitri/optimize/rooms.py has the table in which the optimisations stand between the rows of the
core; it is imported by name, and only where something is optimised.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from minitri.base import logs
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim
from minitri.base.limits import Limits, check_time, current, exceeded, timed, using
from minitri.graph import builder, rewrite
from minitri.graph.parameters import Instance
from minitri.graph.text import format_graph
from minitri.graph.verify import verify as verify_graph
from minitri.hardware import targets
from minitri.hardware.targets import StageUnavailable, Target
from minitri.kernels import partition
from minitri.kernels.ir import Kernel, Plan
from minitri.kernels.text import format_decision, format_plan
from minitri.kernels.verify import verify as verify_plan
from minitri.language import ast
from minitri.language.ast_text import format_module
from minitri.language.parser import parse_module
from minitri.tiles import lower, mask
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import INTERPRETER, Options, Schedule, check_axes, check_lanes, plain, with_options
from minitri.tiles.text import format_programs
from minitri.tiles.verify import verify_all as verify_tiles
from minitri.triton import artifacts, emit, source
from minitri.triton.emit import EmittedKernel
from minitri.triton.workarounds.loops import hide_starts, settle

ROOMS = "minitri.optimize.rooms"  # has the table with the optimisations


@dataclass(frozen=True, eq=False)
class Start:
    """The stage at which a program begins, where that is not its syntax tree: a stage read from a text."""

    stage: str
    value: Any


@dataclass(frozen=True)
class Context:
    """What every pass receives: everything besides the program that decides what is compiled.

    sizes    known dimensions by name (elements)
    layouts  strides in elements of inputs that are not contiguous
    wide     offsets may need 64 bits
    without  the names of optimisations that are left out; "all" leaves out every one
    options  what the caller decides about schedules
    start    the stage that is there from the beginning; the module then only declares the parameters
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

    @property
    def key(self) -> tuple[Any, ...]:
        """What the compilations of one program differ in, apart from options that are being measured."""
        return (
            self.instance.key, tuple(self.sizes.items()), tuple(self.layouts.items()),
            str(self.target), self.wide, self.options.descriptors,
        )  # fmt: skip


# ---- passes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """One step: `run(value, context)` makes `stage` out of the stage before it.

    function   what does the work; `run` only calls it
    without    what runs instead where the pass is left out; None: it cannot be
    """

    name: str
    stage: str
    run: Callable[[Any, Context], Any]
    function: Callable[..., Any]
    without: Callable[[Any, Context], Any] | None = None
    _: KW_ONLY
    verify: Callable[[Any], None] = lambda value: None  # the parser and Triton check their stages themselves
    text: Callable[[Any], str]

    def made(self, before: Any, context: Context) -> Any:
        """The pass's result for the stage before it; where the pass is left out, the result of its stand-in."""
        run = self.without if self.without is not None and self.name in context.without else self.run
        return run(before, context)


@dataclass(frozen=True)
class PassRecord:
    """A pass that ran: the texts of its stage before and after, and the time it took."""

    name: str
    stage: str
    before: str
    after: str
    seconds: float


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


graph_pass = partial(Pass, verify=verify_graph, text=format_graph)
plan_pass = partial(Pass, verify=verify_plan, text=format_plan)


def tile_pass(*row: Any, masked: bool = False) -> Pass:
    return Pass(*row, verify=partial(verify_tiles, masked=masked), text=format_programs)


# name, the stage it makes, how it runs, the function that does the work
CORE: tuple[Pass, ...] = (
    Pass("parse", "ast", lambda _, c: c.module, parse_module, text=format_module),
    graph_pass("build", "graph", lambda m, c: builder.build(m, c.entry, c.instance), builder.build),
    graph_pass("specialise", "graph.specialised", lambda g, c: rewrite.specialise(g, c.sizes), rewrite.specialise),
    graph_pass("legalise", "graph.simplified", lambda g, c: rewrite.legalise(g), rewrite.legalise),
    plan_pass("partition", "kernels", lambda g, c: partition.partition(g, c.layouts), partition.partition),
    tile_pass("lower", "tile", lowered, lower.lower),
    tile_pass("mask", "tile.masked", masked, mask.mask, masked=True),
    tile_pass("target", "tile.target", targeted, targeted, masked=True),
    Pass("emit", "triton", emitted, emit.emit, text=lambda ks: "".join(k.source for k in ks)),
)  # fmt: skip
OUR_STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")


def passes(without: Collection[str]) -> tuple[Pass, ...]:
    """The passes that run where these optimisations are left out; "all" leaves the core alone."""
    if set(without) == {"all"}:
        return CORE
    rooms = import_module(ROOMS)
    rooms.check_names(without)
    return CORE if "all" in without else rooms.PASSES


class Compilation:
    """The stages of one program for one context: ours by the passes of `passes`, then Triton's own.

    context   what every pass receives
    values    the stages made so far, by name; `known` are there already
    table     every pass
    steps     the passes that run: all, or the passes after the stage at which the program begins
    seconds   how long each pass took, by its name
    Raises CompileError MT0402 for a name in `context.without` that is no optimisation.
    """

    def __init__(self, context: Context, known: Mapping[str, Any] | None = None) -> None:
        self.context, self.table = context, passes(context.without)
        self.steps = self.table
        self.values: dict[str, Any] = dict(known or {})
        self.seconds: dict[str, float] = {}
        if context.start is not None:
            place = [p.stage for p in self.table].index(context.start.stage)
            self.values, self.steps = {context.start.stage: context.start.value}, self.steps[place:]
        if logs.SETTING in os.environ:
            names = dict.fromkeys(name for p in self.table for name in (p.name, p.stage))
            logs.check_topics(os.environ[logs.SETTING], tuple(names))

    def value(self, stage: str) -> Any:
        """The IR of a stage, "graph" or "graph.specialised" for example.

        Raises KeyError for a name that no pass makes, StageUnavailable (MT0402) for a stage before the
        beginning of the program, and CompileError for a program that a pass refuses.
        """
        before: Any = None
        with using(self.context.limits), timed():
            for k, p in enumerate(self.steps):
                if p.stage not in self.values:
                    self.values[p.stage] = self._run(k, before)
                before = self.values[p.stage]
                if p.stage == stage:
                    return before
        self._require_later(stage)
        raise KeyError(stage)

    def _require_later(self, stage: str) -> None:
        """StageUnavailable (MT0402) for a stage that lies before the beginning of the program."""
        if self.context.start is not None and stage in {p.stage for p in self.table}:
            begin = self.context.start.stage
            raise StageUnavailable("MT0402", f"this program begins at `{begin}`: it has no stage `{stage}`")

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """The record of every pass, with the text before and after it."""
        self.value(self.steps[-1].stage)
        texts = [p.text(self.values[p.stage]) for p in self.steps]
        rows = zip(self.steps, ["", *texts], texts)
        return tuple(PassRecord(p.name, p.stage, a, b, self.seconds.get(p.name, 0.0)) for p, a, b in rows)

    # ---- one pass --------------------------------------------------------------------

    def _run(self, k: int, before: Any) -> Any:
        check_time()
        p = self.steps[k]
        start = time.perf_counter()
        after = self._made(p, before)
        self.seconds[p.name] = time.perf_counter() - start
        try:
            if after is not before:  # else the pass before has verified it
                p.verify(after)
        except ValueError as error:
            texts = f"before:\n{self.steps[k - 1].text(before) if k else ''}\nafter:\n{_text_of_broken(p, after)}"
            message = f"the pass `{p.name}` broke a rule of its IR: {error}\n{texts}"
            raise CompileError("MT0403", message, help="this is a bug in minitri: please report the program") from None
        if logs.SETTING in os.environ:
            _tell(p, after)
        return after

    def _made(self, p: Pass, before: Any) -> Any:
        """The result of a pass. A text may say what no pass would write, and then a pass may fail on it."""
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
            self._require_later(stage)
            raise _unavailable(stage, self)
        names = [k.name for k in self.value("triton")]
        return artifacts.stage_text(self.compiled, names, stage)

    def text(self, stage: str) -> str:
        """The text of a stage that a pass makes."""
        return next(p for p in self.table if p.stage == stage).text(self.value(stage))

    @property
    def module_text(self) -> str:
        """The Triton source of all kernels, as one Python module."""
        return source.module_text(self.plan, self.value("triton"))

    @property
    def plan(self) -> Plan:
        """What the kernels read, write and need in between; of a program that begins at tiles without kernels."""
        return self.value("tile.target").plan

    @cached_property
    def compiled(self) -> list[artifacts.Built]:
        """What Triton's compiler made of each kernel."""
        start = time.perf_counter()
        made = artifacts.build(self.module_text, self.value("triton"), self.context.target)
        self.seconds["triton"] = time.perf_counter() - start
        return made


def _tell(p: Pass, after: Any) -> None:
    """Writes what MINITRI_LOGS asks for."""
    for topic in {p.name, p.stage}:
        if logs.enabled(topic):
            logs.log(topic, p.text(after))
    if p.stage == "kernels":
        logs.log("fusion", "\n".join(map(format_decision, after.ledger)))


def _text_of_broken(p: Pass, value: Any) -> str:
    try:
        return p.text(value)
    except Exception as error:  # a printer may rely on the very rule that is broken
        return f"(it cannot be printed: {type(error).__name__})"


def _unavailable(stage: str, compiled: Compilation) -> CompileError:
    """The error for a stage that a compilation does not have."""
    known = {*OUR_STAGES, *targets.CUDA_STAGES, *targets.HIP_STAGES}
    if stage in known:
        other = "hip:gfx942" if stage == "amdgcn" else "cuda:90"
        message = f"the target {compiled.context.target} has no stage {stage}"
        return StageUnavailable("MT0402", message, help=f"take another target: `--target={other}`")
    help = suggest(str(stage), known) or f"stages are {', '.join(compiled.stages)}"
    return CompileError("MT0402", f"there is no stage `{str(stage)[:40]}`", help=help)
