"""What a user holds: a `Program`, to call, to check, to lower and to look at.

    f = mt.compile("relu(x @ w + b)", x="f16[M, K]", w="f16[K, N]", b="f16[N]")
    f(x, w, b)                  runs the generated kernels
    f.numpy(x, w, b)            the reference: the syntax tree evaluated by numpy
    f.lower(M=4096)["tile"]     the text of a stage

It holds no arrays and no device: those come with each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitri.base.diagnostics import CompileError, listed, printable, suggest
from minitri.base.dims import Dim
from minitri.base.limits import current, using
from minitri.base.lru_cache import Recent
from minitri.explain import explain
from minitri.graph.ir import Condition, Graph
from minitri.graph.parameters import Instance
from minitri.hardware.targets import INTERPRETER, Target
from minitri.language import ast
from minitri.language.parameter_types import all_types, shared_names
from minitri.language.parser import is_module, parse_module, parse_program
from minitri.lowered import Lowered
from minitri.optimize.index_width.graph_offsets import LIMIT, needs_64_bits, numbers_fit
from minitri.optimize.schedules.products import ALIGNMENT
from minitri.passes.context import Context, Start
from minitri.pipeline import OPTIONAL, Compilation
from minitri.runtime.arguments import ArrayView
from minitri.runtime.binding import Call, bind, check_conditions, constant, scalar
from minitri.runtime.devices import beside, on_cpu, on_gpu, own_target, target_of
from minitri.runtime.free_memory import enough, require_graph
from minitri.runtime.launch import Executable, Started
from minitri.runtime.measured_schedules import check_effort, chosen, known
from minitri.runtime.replay import Again, Bound, Captured, Replay, again_like, call_key, replayable
from minitri.tiles.schedule import Options
from minitri.trust import run_stage
from minitri.trust.check import CheckReport, check

if TYPE_CHECKING:
    from minitri.explore.page import Page

RUNNABLE = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton", "gpu")
MAX_VARIANTS = 64  # executables kept for one program
MAX_STAGES = 8  # compilations kept for one program, with all their stages
MAX_REPLAYS = 1024  # and calls that were made, which are small
MAX_SPECIALISED = 8  # sizes a GPU program is specialised to before it stays general


class Program:
    """A program of the language: one function, compiled for whatever it is called with.

    without   optional passes to leave out (of `pipeline.OPTIONAL`)
    options   what is decided about schedules: blocks by axis, warps, stages and others (`Options`)
    effort    how much is measured at the first call of each shape on a GPU: "none" (the model's
              schedules), "quick", "full"
    """

    start: Start | None = None  # the stage that it begins at, if not the syntax tree
    against: Program | None = None  # what says what a right result is, if not the program itself

    def __init__(
        self, module: ast.Module, entry: str | None = None, *, without: Sequence[str] = (),
        options: Options = Options(), effort: str = "none",
    ) -> None:  # fmt: skip
        self.module = module
        self.function = _entry(module, entry)
        self.name = self.function.name
        self.without, self.options, self.limits = _left_out(without), _checked(options), current()
        self.effort = check_effort(effort)
        self.choices: Recent[str, Options] = Recent(MAX_VARIANTS)  # measured, or found on the disk (tuning.py)
        self._graphs: Recent[Any, Compilation] = Recent(MAX_VARIANTS)
        self._stages: Recent[Any, Compilation] = Recent(MAX_STAGES)
        self._conditions: Recent[Any, tuple[Condition, ...]] = Recent(MAX_VARIANTS)
        self._variants: Recent[Any, Executable] = Recent(MAX_VARIANTS)
        self._replays: Recent[Any, Replay] = Recent(MAX_REPLAYS)
        self._recent: Replay | None = None  # of the last call
        self._repeated: Replay | None = None  # of the last two calls that were alike, and what makes such a call again
        self._again: Again | None = None
        self._specialised: set[Any] = set()
        self._names = [p.name for p in self.function.params]
        self._check_signature()

    def _check_signature(self) -> None:
        """A program whose types are all declared is typed now, so that errors come at compile time."""
        for param in self.function.params:
            if _takes_float(param) and param.default is not None:
                constant(param.default)
        if all(map(_is_typed, self.function.params)):
            self.lower().compilation.value("graph")

    @cached_property
    def _floats(self) -> dict[str, tuple[int, float]]:
        """For each float parameter its place, and the value it has where a call leaves it out."""
        floats = [(k, p) for k, p in enumerate(self.function.params) if _takes_float(p)]
        return {p.name: (k, constant(p.default) if p.default else 0.0) for k, p in floats}

    @cached_property
    def _float_places(self) -> frozenset[int]:
        return frozenset(place for place, _ in self._floats.values())

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, type as written) of each parameter; "" where it has no annotation."""
        return tuple((p.name, printable(p.annotation.span.text) if p.annotation else "") for p in self.function.params)

    def __repr__(self) -> str:
        params = ", ".join(f"{name}: {type}" if type else name for name, type in self.parameters)
        return f"<minitri program {self.name}({params})>"

    def _repr_html_(self) -> str:
        from minitri.explore.card import card

        parameters = ", ".join(f"{name}: {type}" if type else name for name, type in self.parameters)
        typed = all(map(_is_typed, self.function.params))
        return card(self.name, parameters, self.module.span.text, self.lower().compilation if typed else None)

    # ---- calling ---------------------------------------------------------------------

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        """Runs the generated kernels; results are of the kind and on the device of the arguments.

        Raises CompileError MT03xx for arguments that do not fit, before anything is launched.
        """
        if keywords:
            args, keywords = self._in_order(args, keywords)
        again = None if keywords else self._again
        if again is not None and (results := again(args)) is not None:
            return results
        found = None if keywords else call_key(args, self._float_places)
        replay = self._replays.get(found[0]) if found is not None else None
        if replay is not None and found is not None:
            if replay is self._recent and (replay is not self._repeated or again is not None):
                self._repeated, self._again = replay, again_like(args, found[1], replay)
            self._recent = replay
            return replay(found[1], args)
        call = self._bound(args, keywords)
        with enough():
            started = self._started(call)
            results = self._results(started.outputs)
        if found is not None and len(found[1]) == len(call.arrays) and self._can_replay(started, call, args):
            self._replays.made(found[0], lambda: Replay(started, self._floats))
        return results

    def _in_order(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call with its arguments in the order of the parameters, if that leaves none out."""
        names = self._names[len(args) : len(args) + len(keywords)]
        if any(name not in keywords for name in names) or len(names) < len(keywords):
            return args, keywords
        return (*args, *(keywords[name] for name in names)), {}

    def _can_replay(self, started: Started, call: Call, args: Sequence[Any]) -> bool:
        """Whether a call ran on its own arrays, all of them tensors on a GPU, and has plain numbers for floats."""
        numbers = all(isinstance(args[k], (int, float)) for k in self._float_places if k < len(args))
        own = all(started.call.arrays[name] is a for name, a in call.arrays.items())
        return numbers and own and replayable(call)

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

    def prepare(self, /, *args: Any, **keywords: Any) -> tuple[Executable, Call]:
        """The compiled kernels and the checked call that they fit; nothing runs yet."""
        call = self._ready(self._bound(args, keywords))
        return self._executable(call), call

    def _ready(self, call: Call) -> Call:
        """The call as kernels take it: arrays as the program needs them, side by side; CompileError where it cannot be."""
        call = self.fitted(call)
        check_conditions(self.conditions(call.instance), call.sizes)
        return beside(call)

    def on_gpu(self, /, *args: Any) -> tuple[Any, ...]:
        """The arguments of a call, arrays of the CPU copied to this machine's GPU."""
        moved = on_gpu(self._bound(args, {}))
        pairs = zip(self.function.params, args)
        return tuple(moved.arrays[p.name].owner if p.name in moved.arrays else a for p, a in pairs)

    def configured(
        self, *, without: Sequence[str] | None = None, options: Options | None = None, effort: str | None = None
    ) -> Program:
        """The same program with other passes left out, other schedules, or more or less measuring."""
        left_out = tuple(self.without) if without is None else without
        with using(self.limits):
            return self._made(left_out, options or self.options, effort or self.effort)

    def _made(self, without: Sequence[str], options: Options, effort: str) -> Program:
        return Program(self.module, self.name, without=without, options=options, effort=effort)

    def fitted(self, call: Call) -> Call:
        """The call with arrays that lie as the program needs them: any way at all."""
        return call

    def _started(self, call: Call) -> Started:
        call = self._ready(call)
        return self._executable(call).started(call)

    def _results(self, views: Sequence[ArrayView]) -> Any:
        results = tuple(v.returned() for v in views)
        return results[0] if len(results) == 1 else results

    def _executable(self, call: Call) -> Executable:
        """What runs a call: of threads that need the same, one makes it."""
        with self._variants.lock:
            return self._made_for(call)

    def _made_for(self, call: Call) -> Executable:
        device = call.model.device if call.model is not None else "cpu"
        target = target_of(device)
        special = self._is_special(call, target)
        context = self.context(call, target, special)
        if not special and self.start is None:
            context = replace(context, sizes=self._unchanged(call))
        key = _key(context)
        tuned = special and self.effort != "none" and target.kind != "interpreter"
        build = partial(self._launchable, context)
        return self._variants.made(key, lambda: chosen(self, call, context, build) if tuned else build(context.options))

    def _launchable(self, context: Context, options: Options) -> Executable:
        options = self._for_call(context, options)
        return run_stage.launchable(self.compilation(replace(context, options=options)), context.target)

    def _for_call(self, context: Context, options: Options) -> Options:
        """Measured options, but for what the arrays or the program's own options say of descriptors."""
        own = context.options.descriptors
        return replace(options, descriptors=options.descriptors if own is None else own)

    def context(self, call: Call, target: Target, known: bool = True, wide: bool = False) -> Context:
        """What is compiled for a call.

        known   for its sizes and strides (they become literals), else for any
        wide    with 64-bit offsets, even if 32 bits are enough
        """
        wide = wide or self._wide(call.instance, call.sizes, call.arrays.values())
        sizes, layouts = call.sizes if known else {}, call.layouts(known)
        return Context(
            self.module, self.name, call.instance, sizes, layouts, target, wide, self.without,
            _for_arrays(self.options, call.arrays), self.limits, self.start,
        )  # fmt: skip

    def compilation(self, context: Context) -> Compilation:
        """The stages for a context; the graph is built once for all of them."""
        built = self._built(context.instance)
        made = Compilation(context, {"graph": built.value("graph")})
        made.seconds |= built.seconds
        return made

    def _is_special(self, call: Call, target: Target) -> bool:
        """Whether a call gets kernels for its own sizes: the first few shapes do, later ones share general kernels."""
        if target.kind == "interpreter":
            return True
        shape = (tuple(call.sizes.items()), tuple((n, a.strides) for n, a in call.arrays.items()))
        if shape not in self._specialised and len(self._specialised) >= MAX_SPECIALISED:
            return False
        self._specialised.add(shape)
        return True

    def _unchanged(self, call: Call) -> dict[str, int]:
        """The sizes that have been the same in every call that got kernels of its own: they stay literals."""
        known = [dict(sizes) for sizes, _ in self._specialised]
        return {n: size for n, size in call.sizes.items() if all(k.get(n) == size for k in known)}

    def _wide(self, instance: Instance, sizes: Mapping[str, int], arrays: Iterable[ArrayView] = ()) -> bool:
        """Whether offsets into the arguments, or indices within the program, need 64 bits."""
        return any(a.last_offset >= LIMIT for a in arrays) or needs_64_bits(self.graph(instance), sizes)

    # ---- stages ----------------------------------------------------------------------

    def graph(self, instance: Instance) -> Graph:
        """The graph with symbolic sizes."""
        return self._built(instance).value("graph")

    def _built(self, instance: Instance) -> Compilation:
        """The compilation that the graph was built by."""

        def built() -> Compilation:
            made = Compilation(Context(self.module, self.name, instance, without=self.without, limits=self.limits))
            made.value("graph")
            return made

        return self._graphs.made(_frozen(instance), built)

    def conditions(self, instance: Instance) -> tuple[Condition, ...]:
        """What must hold for the sizes of a call."""

        def found() -> tuple[Condition, ...]:
            graph = self.graph(instance)
            return graph.conditions + numbers_fit(graph)

        return self._conditions.made(_frozen(instance), found)

    def lower(
        self, /, *args: Any, target: str = "cuda:90", without: Sequence[str] = (), options: Options | None = None,
        **sizes: Any,
    ) -> Lowered:  # fmt: skip
        """The stages for given arrays, or for given sizes; dimensions left out stay symbolic.

        A pack takes its axes: `lower(B=(8, 16), D=64)`. Scalar parameters are keywords too.
        """
        target_ = Target.parse(target)
        arrays: Mapping[str, ArrayView] = {}
        layouts: Mapping[str, tuple[Dim, ...]] = {}
        call = self._with_arrays(args, sizes)
        if call is not None:
            instance, known, arrays, layouts = call.instance, call.sizes, call.arrays, call.layouts()
        else:
            instance, known = self._given_sizes(sizes)
        wide = self._wide(instance, known, arrays.values())
        context = Context(
            self.module, self.name, instance, known, layouts, target_, wide,
            without=self.without | _left_out(without), options=_for_arrays(_checked(options or self.options), arrays),
            limits=self.limits, start=self.start,
        )  # fmt: skip
        return Lowered(self.compilation(context))

    def _with_arrays(self, args: Sequence[Any], given: Mapping[str, Any]) -> Call | None:
        """The call that arguments of `lower` are; None if they are no arrays but sizes."""
        named = set(given).difference(*_dimension_names(self.function))
        has_arrays = args or any(p.name in named and _takes_array(p) for p in self.function.params)
        return self._bound(args, given) if has_arrays else None

    def _given_sizes(self, given: Mapping[str, Any]) -> tuple[Instance, dict[str, int]]:
        names, packs = _dimension_names(self.function)
        scalars = {p.name: p for p in self.function.params if not isinstance(p.annotation, ast.ArrayType)}
        sizes: dict[str, int] = {}
        ranks: dict[str, int] = {}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name in packs:
                axes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
                ranks[name] = len(axes)
                sizes.update({f"{name}{k}": _size(name, n) for k, n in enumerate(axes)})
            elif name in names:
                sizes[name] = _size(name, value)
            elif name in scalars:
                values[name] = scalar(scalars[name], value)
            else:
                known = [*names, *packs]
                help = suggest(name, known) or f"its dimensions: {', '.join(known) or 'none'}"
                raise CompileError("MT0304", f"{self.name} has no dimension `{name[:40]}`", help=help)
        return Instance(ranks, {}, values), sizes

    # ---- reference and stages that run -----------------------------------------------

    def numpy(self, /, *args: Any, **keywords: Any) -> Any:
        """The reference: the syntax tree evaluated by numpy. Numpy arrays back."""
        return self._run_call("ast", self._bound(args, keywords))

    def run(self, stage: str, /, *args: Any, **keywords: Any) -> Any:
        """Runs at a stage: "ast" "graph" "graph.simplified" "kernels" "tile" "tile.masked" by numpy
        evaluators, "triton" by Triton's interpreter, "gpu" on the GPU."""
        if stage not in RUNNABLE:
            raise CompileError(
                "MT0402", f"stage `{str(stage)[:40]}` does not run", help=f"these do: {', '.join(RUNNABLE)}"
            )
        return self._run_call(stage, self._bound(args, keywords))

    def _bound(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
        """The call with these arguments; CompileError MT03xx if they do not fit.

        Types that are taken from the call have named sizes, so that calls with other sizes share the graph. If the
        program is not right for all sizes, it may still be for these: `reshape(x, (2, -1)) * y` repeats x of size 2.
        """
        call = bind(self.function, args, keywords)
        if call.instance.types and not self._allows(call):
            call = call.with_known_sizes()
            check_conditions(self.conditions(call.instance), call.sizes)
        return call

    def _allows(self, call: Call) -> bool:
        """Whether the program can be typed for this call, and its conditions hold."""
        try:
            check_conditions(self.conditions(call.instance), call.sizes)
        except CompileError:
            return False
        return True

    def _run_call(self, stage: str, call: Call) -> Any:
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
            kept = self._stages.made(_key(context), lambda: self.compilation(context))
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

    def explain(self, /, *args: Any, measured: Mapping[str, float] | None = None, **sizes: Any) -> str:
        """One page: how each kernel runs, why its accesses are right, what was fused and why; arguments as of `lower`.

        Arrays on a GPU are explained for that GPU, by the schedules that a call with them runs; nothing is measured.

        measured   seconds by the name of the kernel (`Profile.measured` has them), to hold against the roofline
        """
        given, schedules, odd = self._as_called(args, sizes)
        return explain(self.lower(*args, **given).compilation, measured, schedules, odd)

    def _as_called(self, args: Sequence[Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], str, Sequence[str]]:
        """Arguments of `lower`, and of arrays on a GPU what a call with them runs: its target, and options if they are
        known; what there is to say of schedules; arrays that begin at no multiple of 16 bytes."""
        told = {n: given[n] for n in ("target", "without", "options") if n in given}
        call = self._with_arrays(args, {n: value for n, value in given.items() if n not in told})
        own = None if call is None else own_target(call)
        target, odd = told.get("target") or str(own or "cuda:90"), () if call is None else _odd(call.arrays)
        given, schedules = {**given, "target": target}, ""
        if self.effort != "none" and target != "interpreter" and not (told.get("without") or told.get("options")):
            given["options"], schedules = self._measured_before(call if target == str(own) else None)
        return given, schedules, odd

    def _measured_before(self, call: Call | None) -> tuple[Options | None, str]:
        """The options that a call on a GPU runs by, if they are known, and what there is to say of schedules."""
        if call is None:
            return None, f'schedules: the model\'s; effort "{self.effort}" measures them for arrays on a GPU'
        call = beside(call)
        context = self.context(call, own_target(call) or INTERPRETER)
        found = known(self, call, context)
        with suppress(CompileError):  # what was chosen for other kernels than there are now
            if found is not None:
                options = self._for_call(context, found[0])
                self.compilation(replace(context, options=options)).value("triton")
                return options, f"schedules: measured, kept {found[1]}: {found[0]}"
        return None, f'schedules: the model\'s; none is measured yet, effort "{self.effort}" does it at the first call'

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


# ---- helpers ---------------------------------------------------------------------------


def _entry(module: ast.Module, entry: str | None) -> ast.Function:
    if entry is None:
        return module.functions[-1]
    names = [f.name for f in module.functions]
    if entry not in names:
        help = suggest(str(entry), names) or f"it has {listed([f'`{n}`' for n in names[:8]])}"
        raise CompileError("MT0101", f"the module has no function `{str(entry)[:40]}`", help=help)
    return module.functions[names.index(entry)]


def _left_out(without: Sequence[str]) -> frozenset[str]:
    """The names of passes. One name alone is one name, not its letters; "all" stands for every optional one."""
    names = frozenset([without] if isinstance(without, str) else without)
    return names - {"all"} | frozenset(OPTIONAL) if "all" in names else names


def _checked(options: Options) -> Options:
    if not isinstance(options, Options):
        help = 'write `mt.Options(blocks={"i": 64}, warps=8)`'
        raise CompileError("MT0404", f"options are `mt.Options`, not {type(options).__name__}", help=help)
    return options


def _for_arrays(options: Options, arrays: Mapping[str, ArrayView]) -> Options:
    """Descriptors read what begins at a multiple of 16 bytes."""
    return replace(options, descriptors=False) if _odd(arrays) else options


def _odd(arrays: Mapping[str, ArrayView]) -> tuple[str, ...]:
    """Those that begin elsewhere."""
    return tuple(name for name, a in arrays.items() if a.address % ALIGNMENT)


def _takes_float(param: ast.Param) -> bool:
    return isinstance(param.annotation, ast.ScalarType) and param.annotation.kind == "float"


def _is_typed(param: ast.Param) -> bool:
    """Whether what a parameter is can be known without a call: ints and bools are what they are called with."""
    at_call = isinstance(param.annotation, ast.ScalarType) and not _takes_float(param)
    return param.default is not None or (param.annotation is not None and not at_call)


def _takes_array(param: ast.Param) -> bool:
    return isinstance(param.annotation, ast.ArrayType) or (param.annotation is None and param.default is None)


def _frozen(instance: Instance) -> tuple[Any, ...]:
    statics = tuple((name, repr(value)) for name, value in instance.statics.items())  # 1, 1.0 and True differ
    return tuple(instance.packs.items()), tuple(instance.types.items()), statics


def _key(context: Context) -> tuple[Any, ...]:
    """What compilations of one program differ in, unless options are tried for the first."""
    return (
        _frozen(context.instance), tuple(context.sizes.items()), tuple(context.layouts.items()),
        str(context.target), context.wide, context.options.descriptors,
    )  # fmt: skip


def _size(name: str, value: Any) -> int:
    try:
        size = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        size = -1
    if 0 <= size < 2**40:
        return size
    raise CompileError("MT0304", f"the size of `{name}` must be an integer from 0 to 2**40 - 1, not {repr(value)[:40]}")


def _dimension_names(function: ast.Function) -> tuple[list[str], list[str]]:
    names: dict[str, None] = {}
    packs: dict[str, None] = {}
    for param in function.params:
        if isinstance(param.annotation, ast.ArrayType):
            for d in param.annotation.dims:
                for node in ast.postorder(d):
                    if isinstance(node, ast.Name):
                        names[node.id] = None
                    elif isinstance(node, ast.Pack):
                        packs[node.id] = None
    return list(names), list(packs)


def compile(
    text: str | Path, /, *, types: Mapping[str, str | None] | str = {}, entry: str | None = None,
    name: str | None = None, options: Options = Options(), effort: str = "none", optimize: bool = True,
    **parameters: str | None,
) -> Program:  # fmt: skip
    """A program from an expression with parameter types, the text of a module, or a path.

    compile("a * b + c", a="f32[N]", b="f32[N]", c="f32[N]")
    compile("a * b", types={"a": "f32[N]", "b": "f32[N]"})
    compile("model.mt", entry="attention")

    A module says the types of its parameters itself; `entry` is its last function if none is named.
    `name` is what diagnostics call the text. `options` says how kernels are scheduled; `mt.tune` returns such options.
    With an `effort` ("quick", "full") schedules are measured at the first call of each shape on a GPU.
    `optimize=False` leaves out every optional pass, as `-O0` does.
    An expression may have a parameter called like one of these keywords: its value is then the type, `entry="f32[N]"`.
    Raises CompileError (ParseError for what is not the language).
    """
    if not isinstance(text, (str, Path)):
        raise CompileError(
            "MT0003", f"a program is a text or a path, not {type(text).__name__}", help="`@mt.jit` compiles functions"
        )
    is_path = isinstance(text, Path) or (text.endswith(".mt") and "\n" not in text and "(" not in text)
    text, path = (_read(Path(text)), str(text)) if is_path else (str(text), "")
    settings = {
        "types": types, "entry": entry, "name": name, "options": options, "effort": effort, "optimize": optimize,
    }  # fmt: skip
    shared = shared_names(text, settings)
    settings |= {key: DEFAULTS[key] for key in shared}
    kinds = all_types({**parameters, **shared}, settings["types"])
    module = _parsed(text, settings["name"] or path, kinds, is_path)
    without = () if settings["optimize"] else ("all",)
    return Program(module, settings["entry"], without=without, options=settings["options"], effort=settings["effort"])


DEFAULTS: dict[str, Any] = {
    "types": {}, "entry": None, "name": None, "options": Options(), "effort": "none", "optimize": True,
}  # fmt: skip


def _parsed(text: str, name: str, types: Mapping[str, str | None], is_path: bool) -> ast.Module:
    if types or not (is_path or is_module(text)):
        return parse_program(text, name or "<expression>", types)
    return parse_module(text, name or "<module>")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError("MT0003", f"cannot read {str(path)[:200]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CompileError("MT0003", f"{str(path)[:200]} is not text in UTF-8") from None
    except ValueError:
        raise CompileError("MT0003", f"{str(path)[:200]} cannot be the name of a file") from None


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: a Python function in the language's subset of Python becomes a Program."""
    from minitri.language.python_front_end import from_function

    if function is None:
        return lambda f: jit(f, **options)
    return Program(from_function(function), **options)


def evaluate(text: str, /, **arguments: Any) -> Any:
    """Evaluates an expression once; parameters take their types from the arrays."""
    if not isinstance(text, str):
        raise CompileError("MT0003", f"an expression is a text, not {type(text).__name__}")
    return Program(parse_program(text, "<expression>", {name: None for name in arguments}))(**arguments)
