"""The class `Program`: a compiled function that the user calls, checks, lowers and inspects.

    f = mt.compile("relu(x @ w + b)", x="f16[M, K]", w="f16[K, N]", b="f16[N]")
    f(x, w, b)                  runs the generated kernels
    f.numpy(x, w, b)            the reference: the syntax tree evaluated by numpy
    f.lower(M=4096)["tile"]     the text of a stage

A `Program` contains no arrays and no device: the arguments of each call determine the device. The file
runtime/variants.py keeps the compiled kernels of a program. The file runtime/replay.py records the kernel launches of a
call. A repeated call uses the recorded launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minitri.base.diagnostics import CompileError, ensure, listed
from minitri.base.lru_cache import Recent
from minitri.base.resource_limits import using
from minitri.base.tracebacks import forget_frames, hides_frames_of_methods
from minitri.base_program import BaseProgram, checked, for_arrays, names, unaligned
from minitri.graph.ir import Graph
from minitri.graph.parameter_binding import sizes_of
from minitri.graph.shape_warnings import warn_of_requirements
from minitri.hardware.targets import INTERPRETER, Target
from minitri.language import ast
from minitri.language.program_forms import is_module
from minitri.notebook.card_html import StageText
from minitri.notebook.cards import program_card, stages_card
from minitri.pipeline import OUR_STAGES, Compilation, PassRecord
from minitri.runtime.call_binding import Call, float_default, given_sizes, takes_float
from minitri.runtime.launch import Bound, Executable, beside, enough, on_cpu, on_gpu, own_target, require_graph
from minitri.runtime.replay import Captured, ReplayCache, call_key
from minitri.runtime.variants import Variants
from minitri.tiles.schedule import Options
from minitri.trust import run_stage
from minitri.trust.check_passes import check
from minitri.trust.check_report import CheckReport

if TYPE_CHECKING:
    from minitri.explore.page import Page

RUNNABLE = (*OUR_STAGES, "gpu")
MAX_STAGES = 8  # compilations kept for one program, with all their stages


@hides_frames_of_methods
class Program(BaseProgram):
    """A compiled function of the language. Each new dtype, size or device of the arguments causes another compilation.

    `without`: the names of optimisations to leave out, or "all". `OPTIONAL` in minitri/optimize/pass_table.py lists the
        possible names.
    `options`: the schedules of kernels (`Options`), such as block sizes by axis, warps and software pipelining.
    `effort`: "none" chooses schedules by rules. "quick" and "full" measure schedules on a GPU, at the first call of
        each shape.
    """

    def __init__(self, module: ast.Module, entry: str | None = None, **settings: Any) -> None:
        super().__init__(module, entry, **settings)
        self._names = [p.name for p in self.function.params]
        self._variants, self._replays = Variants(), ReplayCache(_floats(self.function))
        self._stages: Recent[Any, Compilation] = Recent(MAX_STAGES)
        self._check_signature()

    @property
    def _typed(self) -> bool:
        """Whether the types of all parameters are known before any call."""
        # An int or a bool needs a default, because its value becomes part of the program.
        return all(p.default is not None or takes_float(p) or _is_array(p) for p in self.function.params)

    def _check_signature(self) -> None:
        """Finds errors before any call, if the types of all parameters are known."""
        if self._typed:
            warn_of_requirements(self.lower().compilation.value("graph").conditions)

    @property
    def _signature(self) -> str:
        return ", ".join(f"{name}: {type}" if type else name for name, type in self.parameters)

    @property
    def _source(self) -> str:
        return self.module.span.text

    def __repr__(self) -> str:
        return f"<minitri program {self.name}({self._signature})>"

    def _repr_html_(self) -> str:
        compilation = self.lower().compilation if self._typed else None
        return program_card(self.name, self._signature, self._source, compilation)

    def configured(
        self, *, without: Sequence[str] | None = None, options: Options | None = None, effort: str | None = None
    ) -> Program:
        """Returns a copy of this program with other settings. If a setting is None, the copy has the setting of this
        program.
        """
        dropped = tuple(self.without) if without is None else without
        with using(self.limits):
            return self._made(without=dropped, options=options or self.options, effort=effort or self.effort)

    def _made(self, **settings: Any) -> Program:
        return Program(self.module, self.name, **settings)

    # ---- calling ---------------------------------------------------------------------

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        """Runs the generated kernels, and returns arrays of the caller's library, on the device of the arguments.

        Raises CompileError MT03xx, before any kernel starts, for arguments that do not fit the parameters.
        """
        try:
            if keywords:
                args, keywords = self._in_order(args, keywords)
            for read, value in self.watched:
                if read() is not value:
                    self.refresh()
                    break
            replays = self._replays
            again = None if keywords else replays.again
            if again is not None and (results := again(args)) is not None:
                return results
            found = None if keywords else call_key(args, replays.float_places)
            if found is not None and (replay := replays.find(*found, args)) is not None:
                return replay(found[1], args)
            call = self._bound(args, keywords)
            with enough():
                bound = self._started(call)
            if found is not None:
                replays.keep(*found, bound, call, args)
            return bound.results
        except CompileError as error:
            forget_frames(error)
            raise

    def _in_order(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Turns keyword arguments into positional arguments: `f(x, b=2, a=1)` becomes `f(x, 1, 2)`."""
        names = self._names[len(args) : len(args) + len(keywords)]
        if any(name not in keywords for name in names) or len(names) < len(keywords):
            return args, keywords  # an argument is missing
        return (*args, *(keywords[name] for name in names)), {}

    def _started(self, call: Call) -> Bound:
        """Runs the kernels of a call."""
        call = self._ready(call)
        bound = Bound(self._variants.executable(self, call), call)
        bound()  # on a GPU, this usually returns before the kernels end
        return bound

    def _ready(self, call: Call) -> Call:
        """Returns the call with arrays on one device, in the layout that the kernels need."""
        return beside(self.fitted(call))

    def prepare(self, /, *args: Any, **keywords: Any) -> tuple[Executable, Call]:
        """Compiles the kernels for a call and checks the arguments of the call. Runs no kernel."""
        call = self._ready(self._bound(args, keywords))
        return self._variants.executable(self, call), call

    def bind(self, /, *args: Any, **keywords: Any) -> Bound:
        """Returns a handle: each call of the handle launches the kernels on the given arrays, without any checks.

        Each call of the handle overwrites the outputs of the previous call.
        """
        return Bound(*self.prepare(*args, **keywords))

    def capture(self, /, *args: Any, **keywords: Any) -> Captured:
        """Returns a CUDA graph of the call. A launch runs the kernels on the given arrays, and overwrites the outputs.

        Raises CompileError MT0305 for arrays that are not on a GPU.
        """
        return Captured(*self.prepare(*args, **keywords))

    def on_gpu(self, /, *args: Any) -> tuple[Any, ...]:
        """Returns the arguments of a call, with a copy on this machine's GPU in place of each array on the CPU."""
        moved = on_gpu(self._bound(args, {}))
        pairs = zip(self.function.params, args)
        return tuple(moved.arrays[p.name].owner if p.name in moved.arrays else a for p, a in pairs)

    # ---- reference and stages that run -----------------------------------------------

    def numpy(self, /, *args: Any, **keywords: Any) -> Any:
        """Returns the reference result, which numpy computes from the syntax tree. For a program made by `mt.load`,
        numpy evaluates the loaded stage.
        """
        return self.run("ast" if self.start is None else self.start.stage, *args, **keywords)

    def run(self, stage: str, /, *args: Any, **keywords: Any) -> Any:
        """Runs one stage of the program, and returns the results as numpy arrays.

        numpy evaluates the stages "ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked" and
        "tile.target". Triton's interpreter runs the stage "triton", and the GPU runs the stage "gpu". Raises
        CompileError MT0402 for a stage that cannot be run.
        """
        help = f"these do: {', '.join(RUNNABLE)}"
        ensure(stage in RUNNABLE, "MT0402", f"stage `{str(stage)[:40]}` does not run", help)
        call = self._bound(args, keywords)
        with enough():
            results = self.evaluate(stage, call)
        return results[0] if len(results) == 1 else results

    def evaluate(self, stage: str, call: Call) -> tuple[Any, ...]:
        """Runs one stage of the program, such as "tile", for the checked arguments `call`, and returns numpy arrays."""
        moved = on_gpu(call) if stage == "gpu" else on_cpu(call)
        if stage in ("triton", "gpu"):
            return tuple(v.numpy() for v in self._started(moved).outputs)
        if self.start is None or isinstance(self.start.value, Graph):
            require_graph(self.graph(call.instance), call.sizes)  # evaluators store every value
        return run_stage.results(self._kept(moved, stage), stage, moved)

    def _kept(self, call: Call, stage: str) -> Compilation:
        """Returns the compilation of a call for Triton's interpreter."""
        # Calls with equal types, sizes and settings share one compilation.
        context = self.context(call, INTERPRETER)
        with self._stages.lock:
            kept = self._stages.made(context.key, lambda: self.compilation(context))
            kept.value(stage)
        return kept

    def check(self, /, *args: Any, **keywords: Any) -> CheckReport:
        """Compares the result of every pass with the reference. `report.guilty` is the name of the first wrong pass.

        For a program loaded from a stage after the graph, the reference is the argument `against` of `mt.load`. Raises
        CompileError MT0402 if `mt.load` was called without `against`.
        """
        call = self._bound(args, keywords)
        with enough():
            return check(self, call)

    # ---- stages as texts and pages ---------------------------------------------------

    def lower(
        self, /, *args: Any, target: str = "cuda:90", without: Sequence[str] = (), options: Options | None = None,
        **sizes: Any,
    ) -> Lowered:  # fmt: skip
        """Returns the stages of the program for given arrays or sizes. If the size of a dimension is not given, the
        size stays symbolic in the stages.

            lower(M=4096, target="h100")
            lower(B=(8, 16), D=64)          the axes of the pack `*B`; scalar parameters are keywords too

        Raises CompileError MT0304 for sizes that do not fit the parameters. Raises CompileError MT0106 if a parameter
        has neither a type nor an array.
        """
        call = self._described(args, sizes)
        options = for_arrays(checked(options or self.options), call.arrays)
        context = self.context(call, Target.parse(target))
        return Lowered(self.compilation(replace(context, without=self.without | names(without), options=options)))

    def _described(self, args: Sequence[Any], given: Mapping[str, Any]) -> Call:
        """Returns a `Call` with the arguments of `lower`: arrays, or only sizes."""
        self.refresh()
        named = set(given).difference(sizes_of(self.function, {}))
        untyped = [p for p in self.function.params if p.annotation is None and p.default is None]
        if args or any(p.name in named for p in [*untyped, *filter(_is_array, self.function.params)]):
            return self._bound(args, given)
        if untyped:
            raise self._without_types(untyped)
        return given_sizes(self.function, given)  # sizes instead of arrays

    def _without_types(self, untyped: Sequence[ast.Param]) -> CompileError:
        """Returns the error that asks the user to declare the types of parameters, or to pass arrays."""
        names, between = [p.name for p in untyped], ": " if is_module(self.module.source.text) else "="
        types = ", ".join(f'{n}{between}"f32[N]"' for n in names)
        message = f"the stages of {self.name} depend on the types of {listed([f'`{n}`' for n in names])}"
        help = f"give types, as in {types}, or arrays: `lower({', '.join(names)})`"
        return CompileError("MT0106", message, untyped[0].span, help=help)

    def explain(self, /, *args: Any, measured: Mapping[str, float] | None = None, **sizes: Any) -> str:
        """Returns a page of text about the kernels. The page says how each kernel runs, and proves that the memory
        accesses are right. The page also says which operations were fused and why.

        The arguments are those of the method `lower`. For arrays on a GPU, the page shows the schedules of a call with
        these arrays. The method `explain` itself runs no kernel and measures nothing.

        `measured`: the measured seconds of each kernel (see `Profile.measured`). The page shows the measured seconds
            beside the predicted times.
        """
        from minitri.explain import explain

        given, schedules, odd = self._as_called(args, sizes)
        return explain(self.lower(*args, **given).compilation, measured, schedules, odd)

    def _as_called(self, args: Sequence[Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], str, Sequence[str]]:
        """Returns three values: keyword arguments for `lower`, a text about schedules, and the names of unaligned
        arrays.
        """
        call = self._described(args, {n: v for n, v in given.items() if n not in ("target", "without", "options")})
        own, schedules = own_target(call), ""
        target = given.get("target") or str(own or "cuda:90")
        told = {**given, "target": target}  # with `told`, `lower` makes the kernels of a call with `args`
        if self.effort != "none" and target != "interpreter" and not (given.get("without") or given.get("options")):
            from minitri.runtime.tuning_policy import known_options

            told["options"], schedules = known_options(self, call, own if target == str(own) else None)
        # An array is unaligned if its address is not a multiple of 16 bytes.
        return told, schedules, unaligned(call.arrays)

    def plot(self, /, *args: Any, **sizes: Any) -> Any:
        """Draws the graph of the program, in one colour for each kernel, and returns the matplotlib figure.

        The method `plot` takes the same arguments as the method `lower`. Raises StageUnavailable MT0402 if matplotlib
        is not installed.
        """
        from minitri.notebook.figures import graph_figure

        return graph_figure(self.lower(*args, **sizes).compilation)

    def explore(
        self, /, *args: Any, compare: Mapping[str, Any] | None = None, measured: Mapping[str, float] | None = None,
        panes: Sequence[str] = (), **sizes: Any,
    ) -> Page:  # fmt: skip
        """Returns the explorer: an HTML page that shows all stages of the program side by side. The method
        `save("page.html")` of the result writes the page to a file.

        The method `explore` also takes all arguments of the method `lower`.

        `compare`: changed arguments of `lower`, such as {"target": "cuda:80"}. The page then shows a second version of
            the program beside the first.
        `measured`: the measured seconds of each kernel (see `Profile.measured`). The roofline plot shows the measured
            times.
        `panes`: the names of the panes that are open at first, such as ("player", "tile.masked").
        """
        from minitri.explore.document import document
        from minitri.explore.page import Page

        given, *_ = self._as_called(args, sizes)
        first = self.lower(*args, **given).compilation
        second = self.lower(*args, **{**given, **compare}).compilation if compare else None
        return Page(document(first, second, compare=compare or {}, measured=measured, panes=panes))


@hides_frames_of_methods
class Lowered:
    """The stages of a program for given sizes and a target. `lowered["tile"]` is the text of the stage `tile`."""

    def __init__(self, compilation: Compilation) -> None:
        self.compilation = compilation

    @property
    def stages(self) -> tuple[str, ...]:
        return self.compilation.stages

    @property
    def target(self) -> str:
        return str(self.compilation.context.target)

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.compilation.context.sizes)

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        return self.compilation.passes

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, in the order in which they run."""
        return tuple(p.name for p in self.compilation.value("tile.target"))

    def __getitem__(self, stage: str) -> StageText:
        """Returns the text of a stage. Raises CompileError MT0402 for a stage that this target does not have."""
        return StageText(self.compilation[stage])

    def roofline(self, measured: Mapping[str, float] | None = None) -> Any:
        """Draws a roofline plot: each kernel is a point below the peak rates of the target's chip. Returns the
        matplotlib figure.

        `measured`: the measured seconds of each kernel, by name (see `Profile.measured`).

        Raises StageUnavailable MT0402 if matplotlib is not installed, and CompileError MT0106 if a size is not known.
        """
        from minitri.notebook.figures import roofline_figure

        return roofline_figure(self.compilation, measured)

    def __repr__(self) -> str:
        return f"<stages {', '.join(self.stages)} for {self.target}>"

    def _repr_html_(self) -> str:
        return stages_card(self.compilation)


# ---- parameters ------------------------------------------------------------------------


def _floats(function: ast.Function) -> dict[str, tuple[int, float]]:
    """Maps each float parameter to its position and its default; a missing default counts as 0.0."""
    floats = [(k, p) for k, p in enumerate(function.params) if takes_float(p)]
    return {p.name: (k, 0.0 if p.default is None else float_default(function, p)) for k, p in floats}


def _is_array(param: ast.Param) -> bool:
    return isinstance(param.annotation, ast.ArrayType)
