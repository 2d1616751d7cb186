"""What a user holds: a `Program`, to call, to check, to lower and to look at.

    f = mt.compile("relu(x @ w + b)", x="f16[M, K]", w="f16[K, N]", b="f16[N]")
    f(x, w, b)                  runs the generated kernels
    f.numpy(x, w, b)            the reference: the syntax tree evaluated by numpy
    f.lower(M=4096)["tile"]     the text of a stage

It holds no arrays and no device: those come with each call. Its compiled kernels are kept by
runtime/variants.py, calls that were made before by runtime/replay.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minitri.base.diagnostics import CompileError
from minitri.base.limits import using
from minitri.base.lru_cache import Recent
from minitri.hardware.targets import INTERPRETER, Target
from minitri.language import ast
from minitri.pipeline import Compilation, PassRecord
from minitri.program_stages import ProgramStages, checked, for_arrays, names, unaligned
from minitri.runtime.arguments import returned
from minitri.runtime.binding import Call, check_conditions, constant, dimension_names, given_sizes, takes_float
from minitri.runtime.devices import beside, on_cpu, on_gpu, own_target
from minitri.runtime.launch import Executable, Started, enough, require_graph
from minitri.runtime.program_protocol import check_effort
from minitri.runtime.replay import Bound, Captured, ReplayCache, call_key
from minitri.runtime.variants import MAX_VARIANTS, Variants, known_options
from minitri.tiles.schedule import Options
from minitri.trust import run_stage
from minitri.trust.check import CheckReport, check

if TYPE_CHECKING:
    from minitri.explore.page import Page

RUNNABLE = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton", "gpu")
MAX_STAGES = 8  # compilations kept for one program, with all their stages


class Program(ProgramStages):
    """A program of the language: one function, compiled for whatever it is called with.

    without   optimisations to leave out (`OPTIONAL` of minitri/optimize/rooms.py); "all" leaves out every one
    options   what is decided about schedules: blocks by axis, warps, stages and others (`Options`)
    effort    how much is measured at the first call of each shape on a GPU: "none" (the model's
              schedules), "quick", "full"
    choices   options that were measured or found on the disk, by the text of measured_schedules' key
    """

    against: Program | None = None  # the program whose results are right, if that is not this one

    def __init__(
        self, module: ast.Module, entry: str | None = None, *, without: Sequence[str] = (),
        options: Options = Options(), effort: str = "none",
    ) -> None:  # fmt: skip
        super().__init__(module, entry, without, options)
        self.effort = check_effort(effort)
        self._names = [p.name for p in self.function.params]
        self._variants, self._replays = Variants(), ReplayCache(_floats(self.function))
        self._stages: Recent[Any, Compilation] = Recent(MAX_STAGES)
        self.choices: Recent[str, Options] = Recent(MAX_VARIANTS)
        self._check_signature()

    def _check_signature(self) -> None:
        """A program whose types are all declared is typed now, so that errors come at compile time."""
        if all(map(_is_typed, self.function.params)):
            self.lower().compilation.value("graph")

    @property
    def _signature(self) -> str:
        return ", ".join(f"{name}: {type}" if type else name for name, type in self.parameters)

    def __repr__(self) -> str:
        return f"<minitri program {self.name}({self._signature})>"

    def _repr_html_(self) -> str:
        from minitri.explore.page import card

        typed = all(map(_is_typed, self.function.params))
        return card(self.name, self._signature, self.module.span.text, self.lower().compilation if typed else None)

    def configured(
        self, *, without: Sequence[str] | None = None, options: Options | None = None, effort: str | None = None
    ) -> Program:
        """The same program with other passes left out, other schedules, or more or less measuring."""
        dropped = tuple(self.without) if without is None else without
        with using(self.limits):
            return self._made(dropped, options or self.options, effort or self.effort)

    def _made(self, without: Sequence[str], options: Options, effort: str) -> Program:
        return Program(self.module, self.name, without=without, options=options, effort=effort)

    # ---- calling ---------------------------------------------------------------------

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        """Runs the generated kernels; results are of the kind and on the device of the arguments.

        Raises CompileError MT03xx for arguments that do not fit, before anything is launched.
        """
        if keywords:
            args, keywords = self._in_order(args, keywords)
        replays = self._replays
        again = None if keywords else replays.again
        if again is not None and (results := again(args)) is not None:
            return results
        found = None if keywords else call_key(args, replays.float_places)
        if found is not None and (replay := replays.find(*found, args)) is not None:
            return replay(found[1], args)
        call = self._bound(args, keywords)
        with enough():
            started = self._started(call)
            results = returned(started.outputs)
        if found is not None:
            replays.keep(*found, started, call, args)
        return results

    def _in_order(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call with its arguments in the order of the parameters, if that leaves none out."""
        names = self._names[len(args) : len(args) + len(keywords)]
        if any(name not in keywords for name in names) or len(names) < len(keywords):
            return args, keywords
        return (*args, *(keywords[name] for name in names)), {}

    def _started(self, call: Call) -> Started:
        call = self._ready(call)
        return self._variants.executable(self, call).started(call)

    def _ready(self, call: Call) -> Call:
        """The call as kernels take it: arrays as the program needs them, side by side; CompileError where it cannot be."""
        call = self.fitted(call)
        check_conditions(self.conditions(call.instance), call.sizes)
        return beside(call)

    def prepare(self, /, *args: Any, **keywords: Any) -> tuple[Executable, Call]:
        """The compiled kernels and the checked call that they fit; nothing runs yet."""
        call = self._ready(self._bound(args, keywords))
        return self._variants.executable(self, call), call

    def bind(self, /, *args: Any, **keywords: Any) -> Bound:
        """A handle that launches again on the same arrays, into the same outputs, without any checks.

        Its outputs are overwritten by its next call.
        """
        return Bound(*self.prepare(*args, **keywords))

    def capture(self, /, *args: Any, **keywords: Any) -> Captured:
        """The call as a CUDA graph: its kernels start with one launch, on the same arrays, into the same outputs.

        Raises CompileError MT0305 for arrays that are not on a GPU.
        """
        return Captured(*self.prepare(*args, **keywords))

    def on_gpu(self, /, *args: Any) -> tuple[Any, ...]:
        """The arguments of a call, arrays of the CPU copied to this machine's GPU."""
        moved = on_gpu(self._bound(args, {}))
        pairs = zip(self.function.params, args)
        return tuple(moved.arrays[p.name].owner if p.name in moved.arrays else a for p, a in pairs)

    # ---- reference and stages that run -----------------------------------------------

    def numpy(self, /, *args: Any, **keywords: Any) -> Any:
        """The reference: the syntax tree evaluated by numpy. Numpy arrays back."""
        return self.run("ast", *args, **keywords)

    def run(self, stage: str, /, *args: Any, **keywords: Any) -> Any:
        """Runs at a stage: "ast" "graph" "graph.simplified" "kernels" "tile" "tile.masked" "tile.target" by numpy
        evaluators, "triton" by Triton's interpreter, "gpu" on the GPU."""
        if stage not in RUNNABLE:
            help = f"these do: {', '.join(RUNNABLE)}"
            raise CompileError("MT0402", f"stage `{str(stage)[:40]}` does not run", help=help)
        call = self._bound(args, keywords)
        check_conditions(self.conditions(call.instance), call.sizes)
        with enough():
            results = self.evaluate(stage, call)
        return results[0] if len(results) == 1 else results

    def evaluate(self, stage: str, call: Call) -> tuple[Any, ...]:
        """The results of one stage of `RUNNABLE` for a checked call, as numpy arrays."""
        if stage not in ("triton", "gpu"):
            self._fits_memory(call)
        if stage == "ast":
            return run_stage.reference(self.module, self.name, call)
        if stage in ("triton", "gpu"):
            moved = on_cpu(call) if stage == "triton" else on_gpu(call)
            return tuple(v.numpy() for v in self._started(moved).outputs)
        call = on_cpu(call)
        return run_stage.results(self._kept(call, stage), stage, call)

    def _kept(self, call: Call, stage: str) -> Compilation:
        """The stages of a call for the interpreter, down to this one. Calls that are alike share them."""
        context = self.context(call, INTERPRETER)
        with self._stages.lock:
            kept = self._stages.made(context.key, lambda: self.compilation(context))
            kept.value(stage)
        return kept

    def _fits_memory(self, call: Call) -> None:
        """CompileError if some value would not fit: the reference and the evaluators make each of them."""
        require_graph(self.graph(call.instance), call.sizes)

    def check(self, /, *args: Any, **keywords: Any) -> CheckReport:
        """Every pass against the reference, for each target whose code runs here; `guilty` is the first wrong one."""
        call = self._bound(args, keywords)
        check_conditions(self.conditions(call.instance), call.sizes)
        with enough():
            return check(self, call)

    # ---- stages as texts and pages ---------------------------------------------------

    def lower(
        self, /, *args: Any, target: str = "cuda:90", without: Sequence[str] = (), options: Options | None = None,
        **sizes: Any,
    ) -> Lowered:  # fmt: skip
        """The stages for given arrays, or for given sizes; dimensions left out stay symbolic.

        A pack takes its axes: `lower(B=(8, 16), D=64)`. Scalar parameters are keywords too.
        """
        call = self._described(args, sizes)
        options = for_arrays(checked(options or self.options), call.arrays)
        context = self.context(call, Target.parse(target))
        context = replace(context, without=self.without | names(without), options=options)
        return Lowered(self.compilation(context))

    def _described(self, args: Sequence[Any], given: Mapping[str, Any]) -> Call:
        """The call that arguments of `lower` describe; it has no arrays if they are sizes."""
        named = set(given).difference(*dimension_names(self.function))
        has_arrays = args or any(p.name in named and _takes_array(p) for p in self.function.params)
        return self._bound(args, given) if has_arrays else given_sizes(self.function, given)

    def explain(self, /, *args: Any, measured: Mapping[str, float] | None = None, **sizes: Any) -> str:
        """One page: how each kernel runs, why its accesses are right, what was fused and why; arguments as of `lower`.

        Arrays on a GPU are explained for that GPU, by the schedules that a call with them runs; nothing is measured.

        measured   seconds by the name of the kernel (`Profile.measured` has them), to hold against the roofline
        """
        from minitri.explain import explain

        given, schedules, odd = self._as_called(args, sizes)
        return explain(self.lower(*args, **given).compilation, measured, schedules, odd)

    def _as_called(self, args: Sequence[Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], str, Sequence[str]]:
        """Arguments of `lower`; for arrays on a GPU also what a call with them runs.

        That is its target, its options if they are known, a sentence about its schedules, and the arrays that do not
        begin at a multiple of 16 bytes.
        """
        told = {n: given[n] for n in ("target", "without", "options") if n in given}
        call = self._described(args, {n: value for n, value in given.items() if n not in told})
        own, odd = own_target(call), unaligned(call.arrays)
        target = told.get("target") or str(own or "cuda:90")
        given, schedules = {**given, "target": target}, ""
        if self.effort != "none" and target != "interpreter" and not (told.get("without") or told.get("options")):
            given["options"], schedules = known_options(self, call, own if target == str(own) else None)
        return given, schedules, odd

    def explore(
        self,
        /,
        *args: Any,
        compare: Mapping[str, Any] | None = None,
        measured: Mapping[str, float] | None = None,
        panes: Sequence[str] = (),
        **sizes: Any,
    ) -> Page:
        """The explorer's page: every stage side by side, in one HTML file (`.save("page.html")`); arguments as of `lower`.

        compare    arguments of `lower` that the program beside it has otherwise: {"target": "cuda:80"}
        measured   seconds by the name of the kernel (`Profile.measured` has them), for the roofline
        panes      what is open: ("player", "tile.masked")
        """
        from minitri.explore.document import Shown, document
        from minitri.explore.page import Page

        given, *_ = self._as_called(args, sizes)
        first = self.lower(*args, **given).compilation
        second = self.lower(*args, **{**given, **compare}).compilation if compare else None
        return Page(document(first, second, shown=Shown(compare or {}, measured, tuple(panes))))


class Lowered:
    """The stages of a program for given sizes and a target; `lowered["tile"]` is a stage's text."""

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

    def __getitem__(self, stage: str) -> str:
        return self.compilation[stage]

    def __repr__(self) -> str:
        return f"<stages {', '.join(self.stages)} for {self.target}>"


# ---- parameters ------------------------------------------------------------------------


def _floats(function: ast.Function) -> dict[str, tuple[int, float]]:
    """For each float parameter its place, and the value it has where a call leaves it out."""
    floats = [(k, p) for k, p in enumerate(function.params) if takes_float(p)]
    return {p.name: (k, constant(p.default) if p.default is not None else 0.0) for k, p in floats}


def _takes_array(param: ast.Param) -> bool:
    return isinstance(param.annotation, ast.ArrayType) or (param.annotation is None and param.default is None)


def _is_typed(param: ast.Param) -> bool:
    """Whether what a parameter is can be known without a call: ints and bools are what they are called with."""
    at_call = isinstance(param.annotation, ast.ScalarType) and not takes_float(param)
    return param.default is not None or (param.annotation is not None and not at_call)
