"""What a pass is, what it is told, and the manager that runs passes.

    manager = PassManager(Context(module, "main", Instance()), passes)
    manager.value("tile")               runs each pass down to the one that makes `tile`

In: a context, the same for each pass, and a row of passes. Out: a `PassManager`, which has every stage as a value and its
text. The verifier of an IR runs after each pass that made something new. A failure names the pass and
shows its IR before and after (MT0403).

Left out: which passes there are (minitri/pipeline.py), and Triton's own stages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minitri.base import logs
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.limits import Limits, check_time, current, timed, using
from minitri.graph.parameters import Instance
from minitri.hardware.targets import StageUnavailable, Target
from minitri.kernels.text import format_decision
from minitri.language import ast
from minitri.tiles.schedule import Options


@dataclass(frozen=True, eq=False)
class Start:
    """The stage at which a program begins, where that is not its syntax tree: a stage read from a text."""

    stage: str
    value: Any


@dataclass(frozen=True)
class Context:
    """What the passes are told: everything besides the program that decides what is compiled.

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
        """The pass's result for the stage before it; where the pass is left out, the result of its stand-in."""
        left_out = self.without is not None and self.name in context.without
        return (self.without if left_out else self.run)(before, context)  # type: ignore[misc]


@dataclass(frozen=True)
class PassRecord:
    """A pass that ran: the texts of its stage before and after, and the time it took."""

    name: str
    stage: str
    before: str
    after: str
    seconds: float


class PassManager:
    """The stages of one program for one context.

    context   what every pass receives
    values    the stages made so far, by name
    table     every pass
    steps     the passes that run: all, or the passes after the stage at which the program begins
    seconds   how long each pass took, by its name
    """

    def __init__(self, context: Context, passes: Sequence[Pass], known: Mapping[str, Any] | None = None) -> None:
        self.context, self.table, self.steps = context, tuple(passes), tuple(passes)
        self.values: dict[str, Any] = dict(known or {})
        self.seconds: dict[str, float] = {}
        if context.start is not None:
            place = [p.stage for p in passes].index(context.start.stage)
            self.values, self.steps = {context.start.stage: context.start.value}, self.steps[place:]

    def value(self, stage: str) -> Any:
        """The IR of a stage, "graph" or "graph.specialised" for example.

        Raises KeyError for a name that no pass makes, StageUnavailable (MT0402) for a stage before the
        beginning of the program, and CompileError for a program that a pass refuses.
        """
        before: Any = None
        shown: Callable[[Any], str] = _no_text
        with using(self.context.limits), timed():
            for p in self.steps:
                if p.stage not in self.values:
                    self.values[p.stage] = self._run(p, before, shown)
                before, shown = self.values[p.stage], p.text
                if p.stage == stage:
                    return before
        self.require_later(stage)
        raise KeyError(stage)

    def require_later(self, stage: str) -> None:
        """StageUnavailable (MT0402) for a stage that lies before the beginning of the program."""
        if self.context.start is not None and stage in {p.stage for p in self.table}:
            begin = self.context.start.stage
            raise StageUnavailable("MT0402", f"this program begins at `{begin}`: it has no stage `{stage}`")

    def text(self, stage: str) -> str:
        """The text of a stage that a pass makes."""
        p = next(p for p in self.table if p.stage == stage)
        return p.text(self.value(stage))

    @property
    def passes(self) -> tuple[PassRecord, ...]:
        """The record of every pass, with the text before and after it."""
        self.value(self.steps[-1].stage)
        records: list[PassRecord] = []
        before = ""
        for p in self.steps:
            after = p.text(self.values[p.stage])
            records.append(PassRecord(p.name, p.stage, before, after, self.seconds.get(p.name, 0.0)))
            before = after
        return tuple(records)

    # ---- one pass --------------------------------------------------------------------

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


def _tell(p: Pass, after: Any) -> None:
    """Writes what MINITRI_LOGS asks for."""
    for topic in {p.name, p.stage}:
        if logs.enabled(topic):
            logs.log(topic, p.text(after))
    if p.stage == "kernels" and logs.enabled("fusion"):
        logs.log("fusion", "\n".join(map(format_decision, after.ledger)))


def _no_text(value: Any) -> str:
    """There is no text before the first pass."""
    return ""


def _text_of_broken(p: Pass, value: Any) -> str:
    try:
        return p.text(value)
    except Exception as error:  # a printer may rely on the very rule that is broken
        return f"(it cannot be printed: {type(error).__name__})"
