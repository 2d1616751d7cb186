"""The pass manager and the table `CORE`, which lists the passes that every program needs. Each pass makes the next
stage of a program, such as the graph or the tile programs.

    ast → graph → graph.simplified → kernels → tile → tile.masked → tile.target → triton → …

    stages = Compilation(Context(module, "main", Instance()))
    stages.value("tile")                runs all passes up to the one that makes the stage `tile`
    stages["tile"]                      the text of this stage

A `Context` has a parsed module, the name of the function to compile, facts about the function's parameters, known sizes
and a target. A `Compilation` takes a `Context`, and returns any stage as a value or as text. A stage is made when the
stage is first requested. After each pass that changed something, the verifier of the IR runs. If the verifier fails,
the error MT0403 names the pass and shows the IR before and after the pass.

The passes of `CORE` can compile every program. For each operation except views, constants and index values, the passes
of `CORE` make one kernel with a simple schedule. The optimisations are in minitri/optimize/pass_table.py. The module
pass_table.py is imported only if a program is compiled with optimisations.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, field, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from minitri.base import pass_logs
from minitri.base.diagnostics import CompileError, misspelt
from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.base.resource_limits import Limits, check_limit, check_time, current, timed, using
from minitri.graph import lower_ast, rewrite
from minitri.graph.parameter_binding import Instance
from minitri.graph.text import format_graph
from minitri.graph.verify import verify as verify_graph
from minitri.hardware.targets import CUDA_STAGES, HIP_STAGES, StageUnavailable, Target
from minitri.kernels import lower_graph
from minitri.kernels.ir import Kernel, Plan
from minitri.kernels.text import format_decision, format_plan
from minitri.kernels.verify import verify as verify_plan
from minitri.language import ast
from minitri.language.ast_dump import format_module
from minitri.language.parser import parse_module
from minitri.tiles import lower, mask
from minitri.tiles.ir import Program, Programs
from minitri.tiles.schedule import INTERPRETER, Options, Schedule, check_axes, check_lanes, plain, with_options
from minitri.tiles.text import format_programs
from minitri.tiles.verify import verify_all as verify_tiles
from minitri.triton import compiled_stages, emit, source
from minitri.triton.workarounds.loops import hide_starts, settle

PASS_TABLE = "minitri.optimize.pass_table"  # the module with the table of optimisations


class Start(Record, eq=False):
    """The first stage of a loaded program: the stage whose text `mt.load` has read, such as `tile`."""

    stage: str
    value: Any


class Context(Record):
    """The input of a compilation. Every pass receives the context as its second argument, after the IR.

    `module`: the syntax tree of the program.
    `entry`: the name of the function to compile.
    `instance`: facts about the entry function's parameters that the type annotations leave open.
    `sizes`: the known sizes of dimensions, by name.
    `layouts`: the strides, in elements, of the inputs that are not row-major. The key is the input's name.
    `target`: the target of the compilation: the kind and version of a GPU, or the interpreter.
    `wide`: whether memory offsets may need 64 bits.
    `without`: the names of optimisations that do not run. The name "all" stands for every optimisation.
    `options`: the caller's options for schedules, such as block sizes.
    `limits`: the limits on the time and memory of the compilation.
    `start`: the stage whose text `mt.load` has read, or None for an ordinary program. For a loaded program, `module`
        contains only the declarations of the parameters.
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
        """Returns a hashable key that identifies this compilation among the compilations of one program.

        The key leaves out the options that autotuning chooses, such as block sizes. The key contains the option
        `descriptors`, because the addresses of the arrays can change this option.
        """
        sizes, layouts = tuple(self.sizes.items()), tuple(self.layouts.items())
        return self.instance.key, sizes, layouts, str(self.target), self.wide, self.options.descriptors


# ---- passes ----------------------------------------------------------------------------------


class Pass(Record):
    """One pass of the compiler. The function `run(value, context)` makes the stage named `stage` from the value of the
    previous stage.

    `function`: the main function of the pass. The docstring of the function's module explains the pass.
    `instead`: the function that runs in place of `run` if the pass is left out. `instead` is None if the pass cannot be
        left out.
    `verify`: a function that raises ValueError if the result of the pass breaks a rule of its IR.
    `text`: the function that prints the result of the pass as text.
    """

    name: str
    stage: str
    run: Callable[[Any, Context], Any]
    function: Callable[..., Any]
    instead: Callable[[Any, Context], Any] | None = None
    _: KW_ONLY
    verify: Callable[[Any], None] = lambda value: None  # the parser and Triton check their stages themselves
    text: Callable[[Any], str]

    def made(self, before: Any, context: Context) -> Any:
        """Returns the result of this pass for `before`, the value of the previous stage.

        If the caller has left out the pass, the function `instead` runs in its place.
        """
        run = self.instead if self.instead is not None and self.name in context.without else self.run
        return run(before, context)


class PassRecord(Record):
    """A record of a pass that ran: the text before the pass, the text after it, and the time of the pass in seconds."""

    name: str
    stage: str
    before: str
    after: str
    seconds: float


# ---- passes of the tile programs -------------------------------------------------------------


def lowered(plan: Plan, context: Context) -> Programs:
    """Returns one tile program for each kernel of a plan, with the schedule that `simple_schedule` returns."""
    of_any_sizes = replace(context, sizes={}, layouts={}, options=Options())
    check_axes(context.options, plan, lambda: [Compilation(of_any_sizes).value("kernels")])
    return lower_each(plan, lambda kernel: (lower.lower(kernel, simple_schedule(kernel, context)), context.wide))


def simple_schedule(kernel: Kernel, context: Context) -> Schedule:
    """Returns the schedule of a kernel that is compiled without optimisations. For Triton's interpreter, the schedule
    has large tiles, because the interpreter takes about a millisecond for each program of a grid.
    """
    chosen = plain(kernel, INTERPRETER) if context.target.kind == "interpreter" else plain(kernel)
    return with_options(kernel, chosen, replace(context.options, descriptors=False))


def lower_each(plan: Plan, lower_one: Callable[[Kernel], tuple[Program, bool]]) -> Programs:
    """Returns the tile programs of a plan. The function `lower_one` returns the tile program of a kernel, and whether
    memory offsets need 64 bits.
    """
    programs: list[Program] = []
    for kernel in plan.kernels:
        check_time()
        program, wide = lower_one(kernel)
        check_lanes(program)
        programs.append(replace(program, wide=wide))
    return Programs(plan, tuple(programs))


def targeted(programs: Programs, context: Context) -> Programs:
    """Changes tile programs so that they avoid known errors in Triton. If the target is not CUDA, the limit on
    registers is removed, because only CUDA supports such a limit.
    """
    if context.target.kind != "cuda":
        programs = programs.map(lambda p: replace(p, registers=0) if p.registers else p)
    return programs.map(lambda p: hide_starts(settle(p)))


def emitted(programs: Programs, context: Context) -> list[emit.EmittedKernel]:
    """Returns the Triton source of each kernel. Raises CompileError MT0401 if the source is too long."""
    made: list[emit.EmittedKernel] = []
    for program in programs:
        check_time()
        made.append(emit.emit(program))
        check_limit("code", sum(len(k.source) for k in made), "the generated source has more than {limit:,} characters")
    return made


# ---- the table -------------------------------------------------------------------------------


graph_pass = partial(Pass, verify=verify_graph, text=format_graph)
plan_pass = partial(Pass, verify=verify_plan, text=format_plan)


def tile_pass(*row: Any, masked: bool = False) -> Pass:
    """Returns the `Pass` object for a pass whose results are tile programs. If `masked` is true, the verifier also
    checks the mask of each load and store in the programs that the pass makes.
    """
    return Pass(*row, verify=partial(verify_tiles, masked=masked), text=format_programs)


# The columns are `name`, `stage`, `run` and `function` of `Pass`.
CORE: tuple[Pass, ...] = (
    Pass("parse", "ast", lambda _, c: c.module, parse_module, text=format_module),
    graph_pass("build", "graph", lambda m, c: lower_ast.build(m, c.entry, c.instance), lower_ast.build),
    graph_pass("specialise", "graph.specialised", lambda g, c: rewrite.specialise(g, c.sizes), rewrite.specialise),
    graph_pass("legalise", "graph.simplified", lambda g, c: rewrite.legalise(g), rewrite.legalise),
    plan_pass("one-kernel-each", "kernels", lambda g, c: lower_graph.one_kernel_each(g, c.layouts), lower_graph.one_kernel_each),
    tile_pass("lower", "tile", lowered, lower.lower),
    tile_pass("mask", "tile.masked", lambda p, c: p.map(mask.mask), mask.mask, masked=True),
    tile_pass("target", "tile.target", targeted, targeted, masked=True),
    Pass("emit", "triton", emitted, emit.emit, text=lambda ks: "".join(k.source for k in ks)),
)  # fmt: skip
OUR_STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")


def passes(without: Collection[str]) -> tuple[Pass, ...]:
    """Returns the passes of a compilation without the named optimisations; "all" leaves out every optimisation."""
    if set(without) == {"all"}:
        return CORE
    rooms = import_module(PASS_TABLE)
    rooms.check_names(without)
    return CORE if "all" in without else rooms.PASSES


class Compilation:
    """All stages of one program for one context: the stages that minitri's passes make, and the stages of Triton's
    compiler.

    `context`: the context of the compilation, which every pass receives.
    `values`: the stages made so far, by name. The argument `known` contains the initial stages.
    `table`: all passes, in their order.
    `steps`: the passes that run. If the program was loaded from the text of a stage, only the passes after this stage
        run.
    `seconds`: the seconds that each pass took, by the name of the pass.

    Raises CompileError MT0402 for a name in `context.without` that is not an optimisation.
    """

    def __init__(self, context: Context, known: Mapping[str, Any] | None = None) -> None:
        self.context, self.table = context, passes(context.without)
        self.steps = self.table
        self.values: dict[str, Any] = dict(known or {})
        self.seconds: dict[str, float] = {}
        if context.start is not None:
            place = [p.stage for p in self.table].index(context.start.stage)
            self.values, self.steps = {context.start.stage: context.start.value}, self.steps[place:]
        if pass_logs.SETTING in os.environ:
            names = dict.fromkeys(name for p in self.table for name in (p.name, p.stage))
            pass_logs.check_topics(os.environ[pass_logs.SETTING], tuple(names))

    def value(self, stage: str) -> Any:
        """Returns the IR of a stage such as "graph" or "tile".

        Raises CompileError if a pass rejects the program, and CompileError MT0402 for a stage that no pass makes.
        """
        before: Any = None
        with using(self.context.limits), timed():
            for k, p in enumerate(self.steps):
                if p.stage not in self.values:
                    self.values[p.stage] = self._run(k, before)
                before = self.values[p.stage]
                if p.stage == stage:
                    return before
        raise _unavailable(stage, self)

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """Returns a record for every pass, with the text before and after the pass.

        If a pass has not run yet, it is run now.
        """
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
            if after is not before:  # an unchanged stage has been verified already
                p.verify(after)
        except ValueError as error:
            texts = f"before:\n{self.steps[k - 1].text(before) if k else ''}\nafter:\n{_text_of_broken(p, after)}"
            message = f"the pass `{p.name}` broke a rule of its IR: {error}\n{texts}"
            raise CompileError("MT0403", message, help="this is a bug in minitri: please report the program") from None
        if pass_logs.SETTING in os.environ:
            _log_stage(p, after)
        return after

    def _made(self, p: Pass, before: Any) -> Any:
        """Returns the result of a pass."""
        try:
            return p.made(before, self.context)
        except (CompileError, MemoryError, RecursionError):
            raise
        except Exception as error:
            if self.context.start is None:  # the program was not read from the text of a stage
                raise
            # A text that the user has edited can break assumptions of the pass. MT0503 says that the text is wrong, not
            # the compiler.
            reason = f"{type(error).__name__} {str(error)[:80]}".strip()
            raise CompileError("MT0503", f"the pass `{p.name}` cannot go on from this text: {reason}") from None

    # ---- texts -----------------------------------------------------------------------

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of all stages; `self[name]` is the text of the stage `name`."""
        return (*[p.stage for p in self.steps if p.stage in OUR_STAGES], *self.context.target.stages)

    def __getitem__(self, stage: str) -> str:
        """Returns the text of a stage. Raises CompileError MT0402 if the property `stages` does not contain the name
        `stage`.
        """
        if stage == "triton":
            return self.module_text
        if stage in OUR_STAGES:
            return self.text(stage)
        if stage not in self.context.target.stages:
            raise _unavailable(stage, self)
        pairs = zip(self.value("triton"), self.compiled)
        texts = {k.name: compiled_stages.kernel_text(built.asm, stage, k.name) for k, built in pairs}
        return compiled_stages.stage_text(texts, stage)

    def text(self, stage: str) -> str:
        """Returns the text of a stage. The stage must be the output of a pass."""
        return next(p for p in self.table if p.stage == stage).text(self.value(stage))

    @property
    def module_text(self) -> str:
        """Returns the Triton source of all kernels, as one Python module."""
        return source.module_text(self.plan, self.value("triton"))

    @property
    def plan(self) -> Plan:
        """The plan of the program: its inputs, outputs, temporaries and kernels.

        For a program that was read from the text of a tile stage, the plan lists no kernels.
        """
        return self.value("tile.target").plan

    @cached_property
    def compiled(self) -> list[Any]:
        """The kernels of the program, compiled by Triton."""
        start = time.perf_counter()
        made = compiled_stages.build(self.module_text, self.value("triton"), self.context.target)
        self.seconds["triton"] = time.perf_counter() - start
        return made


def _log_stage(p: Pass, after: Any) -> None:
    """Logs the text of a stage if the environment variable MINITRI_LOGS names the stage."""
    # A topic is the name of a pass or of a stage.
    for topic in {p.name, p.stage}:
        if pass_logs.enabled(topic):
            pass_logs.log(topic, p.text(after))
    if p.stage == "kernels":
        pass_logs.log("fusion", "\n".join(map(format_decision, after.ledger)))


def _text_of_broken(p: Pass, value: Any) -> str:
    """Returns the text of an invalid IR, or an error message if printing fails."""
    try:
        return p.text(value)
    except Exception as error:  # the printer may assume the rule that is broken
        return f"(it cannot be printed: {type(error).__name__})"


def _unavailable(stage: str, compiled: Compilation) -> CompileError:
    """Returns the error for the name of a stage that this compilation does not have."""
    start, known = compiled.context.start, {*OUR_STAGES, *CUDA_STAGES, *HIP_STAGES}
    if start is not None and stage in {p.stage for p in compiled.table}:
        return StageUnavailable("MT0402", f"this program begins at `{start.stage}`: it has no stage `{stage}`")
    if stage in known:
        other = "hip:gfx942" if stage == "amdgcn" else "cuda:90"
        message = f"the target {compiled.context.target} has no stage {stage}"
        return StageUnavailable("MT0402", message, help=f"take another target: `--target={other}`")
    return misspelt("MT0402", "there is no stage", stage, known, f"stages are {', '.join(compiled.stages)}")
