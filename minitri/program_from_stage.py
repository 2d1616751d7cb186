"""Loads a program from the text of a compilation stage, and runs the later passes. The user may have edited the text.

    text = f.lower(M=1000, N=300)["tile"]
    g = mt.load(text.replace("by 2", "by 4"), "tile")
    g(x, b)

The function `load` takes the text of the stage `graph`, `graph.simplified`, `kernels`, `tile`, `tile.masked` or
`tile.target`. The function `load` returns a `Program` with the stage of the text and all later stages. The first line
of a stage is a signature, like the head of a function. A call of the `Program` binds its arguments to the names and
types in the signature.

The text of a stage is not trusted, so the verifier of the stage checks the text first. On a CPU, the numpy evaluator
checks every access to memory before the kernels run. A mistake in the text of a stage gives an error (MT05xx), never a
traceback. On a GPU, the accesses to memory are not checked.

The syntax tree defines the right result of an ordinary program, but a loaded program has no syntax tree. If the user
calls `load` with the argument `against=f`, the method `check` compares the loaded program with the program `f`. Without
`against`, `check` works only for a text of the stage `graph`, and compares the program with this graph.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from minitri.api import read_source
from minitri.base.diagnostics import BrokenRule, CompileError, ensure, suggest
from minitri.base.dims import ZERO, Dim
from minitri.base.spans import Source, Span
from minitri.base.tracebacks import hides_frames, hides_frames_of_methods
from minitri.base_program import BaseProgram
from minitri.graph.index_width import LIMIT, reach
from minitri.graph.ir import Condition, Graph, Input
from minitri.graph.parameter_binding import Instance
from minitri.graph.text import parse_graph
from minitri.kernels.ir import Buffer, Kernel, Plan, Position
from minitri.kernels.parse import parse_plan
from minitri.language import ast
from minitri.language.parser import parse_type
from minitri.pipeline import CORE, Compilation, Context, Start
from minitri.program import Lowered, Program
from minitri.runtime.array_interop import ArrayView, laid
from minitri.runtime.call_binding import Call
from minitri.runtime.launch import Bound
from minitri.tiles import ir as tiles
from minitri.tiles.schedule import Options
from minitri.tiles.text import parse_programs
from minitri.trust import run_stage
from minitri.trust.sanitizer import AccessError

READERS: dict[str, Callable[..., Any]] = {
    "graph": parse_graph, "graph.simplified": parse_graph, "kernels": parse_plan,
    **{stage: partial(parse_programs, masked=stage != "tile") for stage in ("tile", "tile.masked", "tile.target")},
}  # fmt: skip


@hides_frames
def load(
    text: str | Path, stage: str | None = None, /, *, against: Program | None = None,
    without: Sequence[str] = (), options: Options = Options(),
) -> Program:  # fmt: skip
    """Makes a program from the text of a stage, or from a file that contains the text of a stage.

        load(low["tile"], "tile")
        load("out/tile.masked.txt")       a file of `minitri compile … -o out`: its name says the stage
        load(text, "tile", against=f)     `check` compares this stage and all later stages with f

    Raises CompileError MT05xx, with a line number, for a text that does not follow the syntax of the stage. Raises
    MT0402 for an unknown stage, and MT0003 for a file that cannot be read.
    """
    name = f"<{stage}>"
    ensure(isinstance(text, (str, Path)), "MT0003", f"a stage is a text or a path, not {type(text).__name__}")
    if isinstance(text, Path) or "\n" not in text:
        path = Path(text)
        text, name, stage = read_source(path), str(path), stage or path.name.removesuffix(".txt")
    if stage is None:
        help = f'as in `mt.load(text, "tile")`; these can be read: {", ".join(READERS)}'
        raise CompileError("MT0402", "the stage of this text is not named", help=help)
    if stage not in READERS:
        help = suggest(str(stage), READERS) or f"these are: {', '.join(READERS)}"
        raise CompileError("MT0402", f"`{str(stage)[:40]}` is no stage that can be read", help=help)
    start = Start(stage, _verified(stage, READERS[stage](text, name=name)))
    return Loaded(start, Source(name, text), against=against, without=without, options=options)


def _verified(stage: str, value: Any) -> Any:
    """Verifies the value of a stage, and returns the value unchanged."""
    try:
        next(p for p in CORE if p.stage == stage).verify(value)
    except ValueError as error:
        span = next(iter(error.spans), None) if isinstance(error, BrokenRule) else None
        raise CompileError("MT0502", f"this breaks a rule of the stage `{stage}`: {error}", span) from None
    return value


# ---- the signature -------------------------------------------------------------------------


def _head(value: Graph | Plan | tiles.Programs) -> Graph | Plan:
    """Returns the graph or plan that contains the program's name, its inputs and the conditions on sizes."""
    return value.plan if isinstance(value, tiles.Programs) else value


def _module(value: Any, source: Source) -> ast.Module:
    """Returns a module with one function: parameters for the inputs, but no body."""
    place = Span(source, 0, len(source.text))
    params = tuple(map(_param, _head(value).inputs))
    return ast.Module(place, source, (ast.Function(place, _head(value).name, params, None, ()),))


def _param(i: Input | Buffer) -> ast.Param:
    scalar = i.scalar if isinstance(i, Input) else i.role == "scalar"
    text = "float" if scalar else f"{i.dtype}[{', '.join(map(str, i.shape))}]"
    try:
        annotation = parse_type(text, f"<type of {i.name}>")
    except CompileError as error:
        raise CompileError("MT0502", f"`{i.name}` cannot be called with {text}: {error.message}") from None
    return ast.Param(annotation.span, i.name, annotation, None)


# ---- the program ---------------------------------------------------------------------------


@hides_frames_of_methods
class Loaded(Program):
    """A program that was read from the text of a stage.

    `stage` is the name of the first stage, and `value` is the graph, plan or tile programs of this stage.
    """

    def __init__(self, start: Start, source: Source, *, against: BaseProgram | None = None, **settings: Any) -> None:
        self.start, self.stage, self.value, self.against = start, start.stage, start.value, against
        head = _head(start.value)
        self._plan = head if isinstance(head, Plan) else None  # None for a program that begins at a graph
        super().__init__(_module(start.value, source), **settings)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} from {self.stage}>"

    def _made(self, *, options: Options, effort: str, **settings: Any) -> Program:
        fixed = isinstance(self.value, tiles.Programs) and options != self.options
        if fixed or effort != "none":
            what = "options" if fixed else "effort"
            message = f"a program that begins at `{self.stage}` takes no {what}"
            measured = "measure once, with `mt.tune(…)`, and give it the options"
            raise CompileError("MT0404", message, help="its schedules are in the text" if fixed else measured)
        start = Start(self.stage, self.value)
        return Loaded(start, self.module.source, options=options, against=self.against, **settings)

    def _check_signature(self) -> None:
        """Checks nothing, because `load` has already verified the text."""

    def graph(self, instance: Instance) -> Graph:
        if isinstance(self.value, Graph):
            return self.value
        raise CompileError("MT0402", f"this program begins at `{self.stage}`: it has no graph")

    def conditions(self, instance: Instance) -> tuple[Condition, ...]:
        return _head(self.value).conditions

    def compilation(self, context: Context) -> Compilation:
        """Returns a compilation that starts at the stage whose text was loaded.

        If the address of an array is not a multiple of 16 bytes, the tensor descriptors are removed.
        """
        if self.stage == "tile.target" and context.options.descriptors is False:
            context = replace(context, start=Start(self.stage, self.value.map(tiles.Program.without_descriptors)))
        return Compilation(context)

    def lower(self, /, *args: Any, **given: Any) -> Lowered:
        """Returns the stages for given sizes or arrays, as `Program.lower` does.

        Sizes can be given only if the text is a `graph`, because in the texts of later stages the sizes are fixed
        already.
        """
        names = set(given) - {"target", "without", "options", *(p.name for p in self.function.params)}
        if names and self.stage != "graph":
            message = f"the sizes of a program that begins at `{self.stage}` are in its text"
            raise CompileError("MT0402", message, help="write them there, or begin at `graph`")
        return super().lower(*args, **given)

    def _wide(self, instance: Instance, sizes: Mapping[str, int], arrays: Iterable[ArrayView] = ()) -> bool:
        if self._plan is None:
            return super()._wide(instance, sizes, arrays)
        known = defaultdict(lambda: 1, sizes)
        largest = max((_largest(k, known) for k in self._plan.kernels), default=0)
        return largest >= LIMIT or any(a.last_offset >= LIMIT for a in arrays)

    # ---- running ---------------------------------------------------------------------

    def evaluate(self, stage: str, call: Call) -> tuple[Any, ...]:
        stage = self.stage if stage == "ast" and isinstance(self.value, Graph) else stage
        if stage not in ("triton", "gpu"):
            self._kept(call, stage)  # a stage that is not available is not wrong
        with _watched(stage):
            return super().evaluate(stage, self.fitted(call))

    def _ready(self, call: Call) -> Call:
        """Moves the arrays of a call to one device, and returns the new call."""
        call = super()._ready(call)
        if call.device == "cpu":
            with _watched("tile.target"):
                # finds wrong accesses, which Triton's interpreter does not check
                run_stage.results(self._kept(call, "tile.target"), "tile.target", call)
        return call

    def _started(self, call: Call) -> Bound:
        with _watched("triton"):
            return super()._started(call)

    def fitted(self, call: Call) -> Call:
        """Returns the call with arrays in the layout that the text of the stage requires."""
        if self._plan is None:
            return call
        sizes, arrays = dict(call.sizes), dict(call.arrays)
        for b in self._plan.inputs:
            if b.name in arrays:
                arrays[b.name] = laid(arrays[b.name], _strides(b, arrays[b.name], sizes), b.name)
        return call._replace(sizes=sizes, arrays=arrays)


def _strides(b: Buffer, array: ArrayView, sizes: dict[str, int]) -> tuple[int, ...]:
    """Returns the strides that an array must have for the loaded program."""
    names = [f"{b.name}.stride{k}" for k in range(len(b.shape))]
    # the strides with a name in the text, such as `x.stride0`
    open_ = [k for k, s in enumerate(b.strides) if names[k] in {x.name for x in s.symbols()}]
    given = {**sizes, **{names[k]: array.strides[k] for k in open_}}
    strides = tuple(s.evaluate(given) for s in b.strides)
    # A stride differs from the text, so the array will be copied. Named strides get numbers in row-major order that are
    # so large that no two elements overlap.
    if any(n > 1 and s != t for n, s, t in zip(array.shape, strides, array.strides)):  # chooses the named strides
        step = 1 + sum((n - 1) * abs(s) for k, (n, s) in enumerate(zip(array.shape, strides)) if k not in open_)
        for k in reversed(open_):
            given[names[k]], step = step, step * array.shape[k]
    sizes |= given  # adds the values of named strides
    return tuple(s.evaluate(given) for s in b.strides)


def _largest(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Returns the largest of all index values and all buffer lengths in a kernel."""
    elements = [prod(e.evaluate(sizes) for e in b.shape) for b in kernel.buffers]
    ranges = {a.symbol: (ZERO, Dim.of(a.extent.evaluate(sizes)) - 1) for a in kernel.axes}
    positions = [reach(op.expr, ranges, sizes) for op in kernel.body if isinstance(op, Position)]
    return max([*elements, *positions], default=0)


@contextmanager
def _watched(stage: str) -> Iterator[None]:
    """Turns an exception of a running program into a CompileError."""
    try:
        with np.errstate(all="ignore"):
            yield
    except CompileError:
        raise
    except AccessError as error:
        at = f"{error.program}, program {list(error.place)}: " if error.place is not None else ""
        raise CompileError("MT0503", f"{at}{error.problem}", error.span, label=error.kind) from None
    except (IndexError, KeyError, ValueError, OverflowError, TypeError, AssertionError, ZeroDivisionError) as error:
        # The user has possibly put a mistake into the text of the stage.
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise CompileError("MT0503", f"the stage `{stage}` does not run: {reason}") from None
