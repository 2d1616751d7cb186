"""Compares the result of every compiler pass with the reference, for every target whose code runs on this machine.

In: a program and a call. Out: a `CheckReport` with one row for each pass and variant. A row holds the largest error
of the stage that the pass made, the error bound, and whether the error stays within the bound. The first row that
fails names the wrong pass: the stage before that pass was still right. `check` then shrinks the call to smaller
arguments for which the same pass fails.

    interpreter     code for numpy arrays, run by Triton's interpreter; its tiles are as large as Triton allows
    cuda            code for a GPU, run by numpy and by Triton's interpreter; reports call it "cuda:90 on CPU"
    cuda general    the same, but sizes and strides are arguments of the kernel
    cuda wide       the same as "cuda general" with 64-bit offsets; only `minitri fuzz` asks for it
    gpu             the GPU itself, if there is one

`check` compares each result with an f64 evaluation of the graph. A running error analysis gives a radius for each
element: the largest error that rounding can explain (minitri/trust/error_bounds.py). The radius is 0 for integers,
for moved data, and for single IEEE operations on exact operands. For other values the radius is a few rounding
errors. If rounding can change an element to any value, `check` does not compare the element. A note in the report
counts such elements.

Before the passes, `check` compares the graph with the syntax tree, which numpy evaluates. The syntax tree defines
what a program means. A program that was loaded from the text of a stage is compared with its original program:
`mt.load(text, stage, against=f)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.text_tables import table
from minitri.graph.ir import Input
from minitri.hardware.targets import INTERPRETER, StageUnavailable, Target
from minitri.language.front_end import is_module
from minitri.notebook.html import card, counted
from minitri.pipeline import Compilation
from minitri.runtime.binding import Call, bind, check_conditions
from minitri.runtime.device_transfer import on_cpu
from minitri.runtime.program_protocol import ProgramProtocol
from minitri.tiles.ir import Program, Programs
from minitri.trust import run_stage, shrink_arguments
from minitri.trust.error_bounds import Enclosure
from minitri.trust.error_bounds import enclosures as graph_enclosures
from minitri.trust.error_propagation import distance

CUDA = Target("cuda", "90")
VARIANTS: dict[str, tuple[Target, bool, bool]] = {  # target, are sizes known, 64-bit offsets
    "interpreter": (INTERPRETER, True, False),
    "cuda": (CUDA, True, False),
    "cuda general": (CUDA, False, False),
    "cuda wide": (CUDA, False, True),
}
PLACES = {  # what runs, and where, for people
    "interpreter": "interpreter",
    "cuda": f"{CUDA} on CPU",
    "cuda general": "any sizes on CPU",
    "cuda wide": "64-bit offsets on CPU",
    "gpu": "gpu",
}
USUAL = ("interpreter", "cuda", "cuda general", "gpu")
MOST_PROGRAMS = 3000  # that run one after another with a GPU's schedule: about ten seconds
TEXT = "text"  # `CheckRow.by` of a stage that was loaded from a text
SHOWN = 24  # elements of an array that a report prints


@dataclass(frozen=True, slots=True)
class CheckRow:
    """The result of checking one stage, which the pass `by` made.

    `max_error` and `bound` belong to the same element: the element whose error is the largest relative to its
    bound.
    """

    by: str
    stage: str
    variant: str
    ok: bool
    max_error: float = 0.0
    bound: float = 0.0
    note: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.stage, self.variant)))
        return f"{culprit(self.by)} is {'right' if self.ok else 'wrong'} ({where})"


@dataclass(frozen=True, slots=True)
class Failure:
    """The smallest call found for which the wrong pass is still the first pass that fails.

    before, after   texts of the stage that the pass received and of the stage that it made
    got             the results of the stage that the pass made; None if that stage does not run
    """

    row: CheckRow
    program: str
    sizes: dict[str, int]
    arguments: dict[str, Any]
    expected: tuple[Any, ...]
    got: tuple[Any, ...] | None
    before: str
    after: str

    def as_dict(self) -> dict[str, Any]:
        """The failure as values that JSON can hold; a large array is given by its dtype and shape only."""
        arrays = {n: _as_json(v) for n, v in self.arguments.items()}
        results = {"expected": list(map(_as_json, self.expected)), "got": self.got and list(map(_as_json, self.got))}
        texts = {"program": self.program, "before": self.before, "after": self.after}
        return {**asdict(self.row), "sizes": self.sizes, "arguments": arrays, **results, **texts}

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} = {s}" for n, s in self.sizes.items())
        lines = [f"{self.row}: {self.row.note}", self.program]
        lines += [f"sizes     {sizes}"] if sizes else []
        lines += [f"{name:9} {_described(value)}" for name, value in self.arguments.items()]
        lines += [f"expected  {_described(value)}" for value in self.expected]
        lines += [f"got       {_described(value)}" for value in self.got or ()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The rows of a check. `smallest` is the shrunk failure, or None if every row is ok or shrinking was off."""

    rows: Sequence[CheckRow]
    smallest: Failure | None = None

    @property
    def ok(self) -> bool:
        return all(r.ok for r in self.rows)

    @property
    def ran(self) -> list[CheckRow]:
        """The rows of stages that this machine could run."""
        return [r for r in self.rows if not r.note.startswith("not run")]

    @property
    def scope(self) -> str:
        """In one line: what ran, on which processor, and what did not run, with the reason."""
        ran = dict.fromkeys(PLACES[r.variant] for r in self.ran if r.variant)
        missing = dict.fromkeys(
            f"{PLACES[r.variant]} ({r.note.removeprefix('not run: ')})" for r in self.rows if r not in self.ran
        )
        return "; ".join([f"ran: {', '.join(ran)}"] * bool(ran) + [f"not run: {', '.join(missing)}"] * bool(missing))

    @property
    def first(self) -> CheckRow | None:
        """The first wrong row, or None if every row is right."""
        return next((r for r in self.rows if not r.ok), None)

    @property
    def guilty(self) -> str | None:
        """The name of the first pass that breaks the program, or None if every row is right."""
        return self.first and self.first.by

    @property
    def first_bad(self) -> str | None:
        """The stage that the guilty pass made, or None if every row is right."""
        return self.first and self.first.stage

    def as_dict(self) -> dict[str, Any]:
        """The report as values that JSON can hold."""
        rows, smallest = [asdict(r) for r in self.rows], self.smallest and self.smallest.as_dict()
        return {"ok": self.ok, "guilty": self.guilty, "first_bad": self.first_bad, "rows": rows, "smallest": smallest}

    def __str__(self) -> str:
        rows = self._table()
        text = table(rows, (0, 1, len(rows[0]) - 1))
        return "\n".join([text, *self._not_run(), *([f"\n{self.smallest}"] if self.smallest else [])])

    def _repr_html_(self) -> str:
        verdict = "every pass is right" if self.ok else str(self.first)
        text = str(self.smallest) if self.smallest else ""
        rows, note = self._table(), "; ".join(self._not_run())
        fold = counted(len(rows) - 1, "pass", "passes")
        return card("check", facts=verdict, wrong=not self.ok, rows=rows, fold=fold, text=text, note=note)

    def _table(self) -> list[tuple[str, ...]]:
        """A line for each pass, after the line of heads."""
        ran = self.ran
        variants = list(dict.fromkeys(r.variant for r in ran if r.variant))
        steps = list(dict.fromkeys((r.by, r.stage) for r in ran))
        lines = [_line([r for r in ran if (r.by, r.stage) == step], variants) for step in steps]
        shown = [PLACES[v] for v in variants]
        return [("pass", "stage", *shown, "max error", "of bound", "note"), *lines]

    def _not_run(self) -> list[str]:
        """A line for each variant that did not run: its place and the reason."""
        return list(dict.fromkeys(f"{PLACES[r.variant]}: {r.note}" for r in self.rows if r not in self.ran))


def _line(rows: Sequence[CheckRow], variants: Sequence[str]) -> tuple[str, ...]:
    """The table's cells for one pass in all variants; the error and the bound are those of the worst variant."""
    worst = max(rows, key=lambda r: (not r.ok, r.max_error / (r.bound or 1)))
    found = {r.variant: "ok" if r.ok else "WRONG" for r in rows}
    cells = [found.get(v, found.get("", "")) for v in variants]
    note = worst.note or next((r.note for r in rows if r.note), "")
    return (worst.by, worst.stage, *cells, f"{worst.max_error:.2e}", f"{worst.bound:.2e}", note)


def culprit(by: str) -> str:
    """How messages name the maker of a stage: a pass, or a text that was loaded."""
    return "the text" if by == TEXT else f"the pass `{by}`"


# ---- checking --------------------------------------------------------------------------


def check(program: ProgramProtocol, call: Call, variants: Sequence[str] = USUAL, shrinking: bool = True) -> CheckReport:
    """Compares every pass with the reference. A stage that this machine cannot run gets a note and counts as right.

    A pass that raises an exception counts as wrong. So does a pass whose stage raises one when it runs.
    """
    rows = tuple(_Check(program, call).rows(variants))
    report = CheckReport(rows)
    if report.first is None or not shrinking:
        return report
    return replace(report, smallest=_smallest(program, on_cpu(call), report.first))


def first_wrong(program: ProgramProtocol, call: Call, variants: Sequence[str] = USUAL) -> CheckRow | None:
    """The first wrong row, or None. Later passes are not run."""
    return next((r for r in _Check(program, call).rows(variants) if not r.ok), None)


class _Check:
    """The check of one call: it computes the expected results once and yields the rows one by one."""

    def __init__(self, program: ProgramProtocol, call: Call) -> None:
        self.program, self.call = program, on_cpu(program.fitted(call))
        self.begin = program.start.stage if program.start is not None else "graph"
        self.wanted: tuple[Enclosure, ...] = ()

    def rows(self, variants: Sequence[str]) -> Iterator[CheckRow]:
        first = self.first()
        yield first
        if not first.ok:
            return  # every later stage is made from this one
        for variant in variants:
            if variant in VARIANTS and variant != "interpreter" and self.begin.startswith("tile"):
                continue  # the loaded text has its schedules already
            if variant == "gpu":
                yield self.row("emit", "gpu", "gpu", lambda: self.program.evaluate("gpu", self.call))
            else:
                yield from self.passes(variant)

    def first(self) -> CheckRow:
        if self.program.against is None:
            first = self.row("build", "graph", "", self.build)
            self.wanted = self.wanted[len(self.wanted) // 2 :]
            return first
        self.wanted = enclosures(*_origin(self.program, self.call))
        return self.row(TEXT, self.begin, "", lambda: self.program.evaluate(self.begin, self.call))

    def build(self) -> tuple[Any, ...]:
        """The outputs of the syntax tree and of the graph. Both are compared with the graph's enclosures, so
        `wanted` holds these twice.
        """
        self.wanted = enclosures(self.program, self.call) * 2
        return self.program.evaluate("ast", self.call) + self.program.evaluate("graph", self.call)

    def passes(self, variant: str) -> Iterator[CheckRow]:
        """One row for each pass after the stage where the program begins."""
        compiled = compilation(self.program, self.call, variant)
        before, row, wrong = compiled.value(self.begin), None, False
        stages = [p.stage for p in compiled.table]
        for p in compiled.table[stages.index(self.begin) + 1 :]:
            if p.stage == "triton" and wrong:  # it may access memory out of bounds
                return
            if row is not None and _same(before, _value(compiled, p.stage)):
                row = replace(row, by=p.name, stage=p.stage, seconds=0.0)  # the pass changed nothing
            else:
                row = self.row(p.name, p.stage, variant, lambda s=p.stage: self.results(compiled, s, variant))
            yield row
            wrong = wrong or not row.ok
            before = compiled.values.get(p.stage)
            if before is None:
                return  # the pass raised: the next pass has no input

    def results(self, compiled: Compilation, stage: str, variant: str) -> tuple[Any, ...]:
        """The results of a stage. StageUnavailable if a GPU's schedule has too many programs to run one after
        another.
        """
        if variant != "interpreter" and (stage == "triton" or stage.startswith("tile")):
            count = run_stage.programs(compiled, self.call)
            if count > MOST_PROGRAMS:
                raise StageUnavailable("MT0402", f"{count} programs are too many to run one after another")
        return run_stage.results(compiled, stage, self.call)

    def row(self, by: str, stage: str, variant: str, run: Callable[[], tuple[Any, ...]]) -> CheckRow:
        start = time.perf_counter()
        try:
            results = run()
        except StageUnavailable as reason:
            found = True, 0.0, 0.0, f"not run: {reason.message}"
        except Exception as error:  # a wrong pass can cause any error: AccessError, MT0403, Triton's own
            found = False, np.inf, 0.0, _reason(error)
        else:
            found = worst(results, self.wanted)
        return CheckRow(by, stage, variant, *found, time.perf_counter() - start)


def compilation(program: ProgramProtocol, call: Call, variant: str) -> Compilation:
    """The compilation of a call for one of `VARIANTS`."""
    target, known, wide = VARIANTS[variant]
    return program.compilation(program.context(call, target, known, wide))


def _origin(program: ProgramProtocol, call: Call) -> tuple[ProgramProtocol, Call]:
    """The program that defines the right result, and the call with its arguments bound to that program."""
    if program.against is None:
        return program, call
    return program.against, bind(program.against.function, (), _arguments(call))


def _value(compiled: Compilation, stage: str) -> Any:
    """The value of a stage, or None if its pass raises. Running the stage raises again, and `row` reports the
    error.
    """
    try:
        return compiled.value(stage)
    except Exception:
        return None


def _same(before: Any, after: Any) -> bool:
    """Whether a pass changed nothing that can affect numpy's result. Most hints for the target do not affect it."""
    if isinstance(before, Programs) and isinstance(after, Programs):
        return [_visible(p) for p in before] == [_visible(p) for p in after]
    return after is before


def _visible(program: Program) -> tuple[Any, ...]:
    blocks = [program.hint(op).descriptor for op in program.ops()]
    return program.axes, program.body, program.returning, program.descending, program.peeled, blocks


def _reason(error: Exception) -> str:
    message = error.message if isinstance(error, CompileError) else str(error)
    return f"{type(error).__name__}: {message.splitlines()[0] if message else ''}"[:300]


def enclosures(program: ProgramProtocol, call: Call) -> tuple[Enclosure, ...]:
    """For each output the values that a correct implementation may return."""
    return graph_enclosures(program.graph(call.instance), call.inputs, call.sizes)


def worst(results: Sequence[Any], wanted: Sequence[Enclosure]) -> tuple[bool, float, float, str]:
    """Compares every output and returns `compare`'s tuple for the output that is nearest to its bounds."""
    if len(results) != len(wanted):
        return False, np.inf, 0.0, f"{len(results)} results, not {len(wanted)}"
    compared = [compare(*two) for two in zip(results, wanted)]
    return max(compared, key=lambda c: (not c[0], c[1] / (c[2] or 1)), default=(True, 0.0, 0.0, ""))


def compare(result: Any, wanted: Enclosure) -> tuple[bool, float, float, str]:
    """Compares one output: (ok, error, bound, note), where error and bound are of the element nearest to its bound."""
    result, value, radius = np.asarray(result), wanted.value, wanted.radius
    if result.shape != value.shape or result.dtype != wanted.dtype.numpy:
        made, right = f"{result.dtype}{list(result.shape)}", f"{wanted.dtype}{list(value.shape)}"
        return False, np.inf, 0.0, f"{made} is not {right}"
    if not result.size:
        return True, 0.0, 0.0, ""
    with np.errstate(all="ignore"):
        error = distance(result, value)
        excess = np.where(error > 0, error / radius, 0)
    worst = int(np.argmax(np.where(np.isnan(excess), 0, excess)))
    wrong, unknown = int(np.count_nonzero(error > radius)), int(np.count_nonzero(np.isinf(radius)))
    where = [int(k) for k in np.unravel_index(worst, error.shape)]
    note = f"{wrong} of {error.size} elements, the worst at {where}" if wrong else ""
    note = note or (f"{unknown} of {error.size} elements can be anything" if unknown else "")
    return not wrong, float(error.flat[worst]), float(radius.flat[worst]), note


# ---- the smallest call that fails ----------------------------------------------------------


def _smallest(program: ProgramProtocol, call: Call, row: CheckRow) -> Failure:
    """Shrinks the call for as long as the same pass of the same variant is the first wrong one."""

    def first(arguments: Mapping[str, Any]) -> tuple[Call, CheckRow] | None:
        try:
            smaller = bind(program.function, (), arguments)
            check_conditions(program.conditions(smaller.instance), smaller.sizes)
            found = first_wrong(program, smaller, [row.variant] if row.variant else [])
        except CompileError:
            return None  # a program may refuse some sizes
        return (smaller, found) if found and (found.by, found.stage) == (row.by, row.stage) else None

    origin, same = _origin(program, call)
    inputs = [n for n in origin.graph(same.instance).inputs if not n.scalar]
    given = _arguments(call, inputs)
    shapes = {n.name: n.shape for n in inputs if isinstance(given[n.name], np.ndarray)}
    given = shrink_arguments.smallest(given, shapes, call.sizes, lambda arguments: first(arguments) is not None)
    found = first(given)
    smaller, found_row = found or (call, row)  # None if the failure does not occur every time
    return _failure(program, smaller, found_row, given)


def _arguments(call: Call, inputs: Sequence[Input] = ()) -> dict[str, Any]:
    """The arguments of the call by parameter name; those of `inputs` come first, in that order."""
    arrays = {n: a.numpy() for n, a in call.arrays.items()}
    return {**{n.name: arrays[n.name] for n in inputs}, **arrays, **call.scalars, **call.instance.statics}


def _failure(program: ProgramProtocol, call: Call, row: CheckRow, arguments: dict[str, Any]) -> Failure:
    before, after, got = "", "", None
    origin, same = _origin(program, call)
    try:
        compiled = compilation(program, call, row.variant if row.variant in VARIANTS else "interpreter")
        before, after = _texts(compiled, row.by)
        got = run_stage.results(compiled, row.stage, call) if row.stage != "gpu" else program.evaluate("gpu", call)
    except Exception:  # the row's note describes this error
        pass
    expected = origin.evaluate("ast", same)
    return Failure(row, _text(origin), dict(same.sizes), arguments, expected, got, before, after)


def _texts(compiled: Compilation, by: str) -> tuple[str, str]:
    if by == TEXT:
        p = compiled.steps[0]
        return "", p.text(compiled.value(p.stage))
    before, after = next(two for two in pairwise(compiled.table) if two[1].name == by)
    return before.text(compiled.value(before.stage)), after.text(compiled.value(after.stage))


def _text(program: ProgramProtocol) -> str:
    """The source text of the program. For an expression a comment lists the types of its parameters."""
    text = program.module.span.text.strip()
    types = ", ".join(f"{name}: {type}" for name, type in program.parameters if type)
    return text if is_module(text) or not types else f"{text}  # {types}"


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        kind = {"dtype": value.dtype.name, "shape": list(value.shape)}
        return kind | ({"values": _elements(value)} if value.size <= SHOWN else {})
    return value if isinstance(value, (int, float, str)) else repr(value)


def _elements(array: Any) -> Any:
    return (array.astype(np.float64) if array.dtype.kind == "V" else array).tolist()


def _described(value: Any) -> str:
    """One line for a value; an array is given by its dtype and shape, and by its elements if there are few."""
    if not isinstance(value, np.ndarray):
        return repr(value)
    kind = f"{value.dtype}{list(value.shape)}"
    return f"{kind} {_elements(value)}" if value.size <= SHOWN else kind
