"""Checks every compiler pass: compares its result with the reference, for each target that this machine can run.

The function `check` takes a program and a call. It returns a `CheckReport` with one row for each pass and variant. A
row has the largest error after its pass, and the error bound. The row also says whether the error is within the bound.
The first row that fails names the wrong pass, because the result before that pass was still right. If a pass fails,
`check` searches for smaller arguments for which the same pass fails.

`interpreter`: code for numpy arrays, which Triton's interpreter runs. The tiles of this variant are as large as Triton
    allows.
`cuda`: code for a GPU, run on the CPU by numpy and by Triton's interpreter. In reports, `cuda` is called "cuda:90 on
    CPU".
`cuda general`: as `cuda`, but sizes and strides are arguments of the kernel.
`cuda wide`: as `cuda general`, but with 64-bit offsets. Only `minitri fuzz` checks the variant `cuda wide`.
`gpu`: code that runs on this machine's GPU, if this machine has a GPU.

`check` compares each result with an f64 evaluation of the graph. A running error analysis gives a radius for each
element: the largest error that rounding can explain (minitri/trust/error_bounds.py). The radius (largest accepted
error) is 0 for integers, for data that is only moved, and for single IEEE operations on exact operands. Elements that
are computed with several roundings, or with functions such as exp, have a radius of a few rounding errors. If rounding
can change an element to any value, `check` does not compare the element. A note in the report says how many elements
were not compared.

Before the passes, `check` compares the results of the graph with numpy's results for the syntax tree. The syntax tree
defines what a program means. If a program was loaded by `mt.load(text, stage, against=f)`, `check` compares it with the
program `f`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError, ensure
from minitri.base_program import BaseProgram
from minitri.graph.ir import check_conditions
from minitri.hardware.targets import INTERPRETER, StageUnavailable, Target
from minitri.language.program_forms import is_module
from minitri.pipeline import Compilation
from minitri.runtime.call_binding import Call, bind
from minitri.runtime.launch import on_cpu
from minitri.tiles.ir import Program, Programs
from minitri.trust import run_stage, shrink_arguments
from minitri.trust.check_report import TEXT, CheckReport, CheckRow, Failure
from minitri.trust.error_bounds import Enclosure, enclosures as graph_enclosures
from minitri.trust.error_propagation import distance

CUDA = Target("cuda", "90")
VARIANTS: dict[str, tuple[Target, bool, bool]] = {  # target, are sizes known, 64-bit offsets
    "interpreter": (INTERPRETER, True, False),
    "cuda": (CUDA, True, False),
    "cuda general": (CUDA, False, False),
    "cuda wide": (CUDA, False, True),
}
USUAL = ("interpreter", "cuda", "cuda general", "gpu")
MOST_PROGRAMS = 3000  # programs that run one after another with a GPU's schedule: about ten seconds


# ---- checking --------------------------------------------------------------------------


def check(program: BaseProgram, call: Call, variants: Sequence[str] = USUAL, shrinking: bool = True) -> CheckReport:
    """Compares the result of every pass with the reference.

    If this machine cannot run the stage that a pass made, the row of the stage gets a note, and the pass counts as
    right.

    A pass counts as wrong if it raises an exception. A pass also counts as wrong if running the stage that the pass
    made raises an exception.
    """
    report = CheckReport(tuple(_Check(program, call).rows(variants)))
    if report.first is None or not shrinking:
        return report
    return report._replace(smallest=_smallest(program, on_cpu(call), report.first))


class _Check:
    """Checks one call, and yields the rows of the report one by one."""

    def __init__(self, program: BaseProgram, call: Call) -> None:
        self.program, self.call = program, on_cpu(program.fitted(call))
        self.begin = program.start.stage if program.start is not None else "graph"
        message = f"a program that begins at `{self.begin}` has nothing to be checked against"
        help = "say what it came from: `mt.load(text, stage, against=program)`, or `--against FILE`"
        ensure(self.begin == "graph" or program.against is not None, "MT0402", message, help)

    @cached_property
    def wanted(self) -> tuple[Enclosure, ...]:
        return enclosures(*_origin(self.program, self.call))

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
        """Returns the first row of the report, for the stage where the program begins: the graph, or the stage whose
        text was loaded.

        If the program begins at the graph, the row says whether the syntax tree and the graph both give the right
        result.
        """
        if self.program.against is not None:
            return self.row(TEXT, self.begin, "", lambda: self.program.evaluate(self.begin, self.call))
        run = self.program.evaluate
        return self.row("build", "graph", "", lambda: run("ast", self.call) + run("graph", self.call), times=2)

    def passes(self, variant: str) -> Iterator[CheckRow]:
        """Yields a report row for each pass after the program's first stage."""
        compiled = compilation(self.program, self.call, variant)
        before, row, wrong = compiled.value(self.begin), None, False
        stages = [p.stage for p in compiled.table]
        for p in compiled.table[stages.index(self.begin) + 1 :]:
            if p.stage == "triton" and wrong:  # the stage may access memory out of bounds
                return
            after = None
            with suppress(Exception):  # `row` runs the stage again, and reports the error
                after = compiled.value(p.stage)
            if row is not None and _same(before, after):
                row = row._replace(by=p.name, stage=p.stage, seconds=0.0)  # the pass changed nothing
            else:
                row = self.row(p.name, p.stage, variant, lambda s=p.stage: self.results(compiled, s, variant))
            yield row
            if after is None:
                return  # the pass raised: the next pass has no input
            before, wrong = after, wrong or not row.ok

    def results(self, compiled: Compilation, stage: str, variant: str) -> tuple[Any, ...]:
        """Returns the results of a stage.

        Raises StageUnavailable if a schedule for a GPU has more than `MOST_PROGRAMS` grid programs, because a CPU runs
        them one after another.
        """
        if variant != "interpreter" and (stage == "triton" or stage.startswith("tile")):
            count = run_stage.programs(compiled, self.call)
            if count > MOST_PROGRAMS:
                raise StageUnavailable("MT0402", f"{count} programs are too many to run one after another")
        return run_stage.results(compiled, stage, self.call)

    def row(self, by: str, stage: str, variant: str, run: Callable[[], tuple[Any, ...]], times: int = 1) -> CheckRow:
        """Returns the row of a stage in the report of `check`.

        The function `run` returns the results that are compared.

        `times` is the number of results for each output. `times` is 2 if `run` evaluates both the syntax tree and the
        graph.
        """
        start = time.perf_counter()
        try:
            results = run()
        except StageUnavailable as reason:
            found = True, 0.0, 0.0, f"not run: {reason.message}"
        except Exception as error:  # a wrong pass can cause any error: AccessError, MT0403, Triton's own
            found = False, np.inf, 0.0, _reason(error)
        else:
            found = worst(results, self.wanted * times)
        return CheckRow(by, stage, variant, *found, time.perf_counter() - start)


def compilation(program: BaseProgram, call: Call, variant: str) -> Compilation:
    """Returns the compilation of a call for one of the variants in `VARIANTS`."""
    target, known, wide = VARIANTS[variant]
    return program.compilation(program.context(call, target, known, wide))


def _origin(program: BaseProgram, call: Call) -> tuple[BaseProgram, Call]:
    """Returns the program and the call that compute the expected results."""
    origin = program.against
    return (program, call) if origin is None else (origin, bind(origin.function, (), call.values))


def _same(before: Any, after: Any) -> bool:
    """Checks whether numpy's results must be exactly equal before and after a pass."""
    # For example, the number of warps does not change numpy's results, but a tensor descriptor can change them.
    if isinstance(before, Programs) and isinstance(after, Programs):
        return [_visible(p) for p in before] == [_visible(p) for p in after]
    return after is before


def _visible(program: Program) -> tuple[Any, ...]:
    blocks = [program.hint(op).descriptor for op in program.ops()]
    return program.axes, program.body, program.returning, program.descending, program.peeled, blocks


def _reason(error: Exception) -> str:
    message = error.message if isinstance(error, CompileError) else str(error)
    return f"{type(error).__name__}: {message.splitlines()[0] if message else ''}"[:300]


def enclosures(program: BaseProgram, call: Call) -> tuple[Enclosure, ...]:
    """Returns an `Enclosure` for each output: the values that a correct implementation can return."""
    return graph_enclosures(program.graph(call.instance), call.inputs, call.sizes)


def worst(results: Sequence[Any], wanted: Sequence[Enclosure]) -> tuple[bool, float, float, str]:
    """Compares every output. Returns the result of `compare` for the worst output: the output with the largest quotient
    of error and error bound.
    """
    if len(results) != len(wanted):
        return False, np.inf, 0.0, f"{len(results)} results, not {len(wanted)}"
    compared = [compare(*two) for two in zip(results, wanted)]
    return max(compared, key=lambda c: (not c[0], c[1] / (c[2] or 1)), default=(True, 0.0, 0.0, ""))


def compare(result: Any, wanted: Enclosure) -> tuple[bool, float, float, str]:
    """Compares one output and returns (ok, error, bound, note).

    `error` and `bound` belong to the element for which `error / bound` is largest.
    """
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


def _smallest(program: BaseProgram, call: Call, row: CheckRow) -> Failure:
    """Shrinks the arguments of a failing call as long as the check of the same pass still fails."""

    def first(arguments: Mapping[str, Any]) -> tuple[Call, CheckRow] | None:
        with suppress(CompileError):  # a program may refuse some sizes
            smaller = bind(program.function, (), arguments)
            check_conditions(program.conditions(smaller.instance), smaller.sizes)
            rows = _Check(program, smaller).rows([row.variant] if row.variant else [])
            found = next((r for r in rows if not r.ok), None)  # later passes are not run
            if found is not None and (found.by, found.stage) == (row.by, row.stage):
                return smaller, found

    origin, same = _origin(program, call)
    inputs = [n for n in origin.graph(same.instance).inputs if not n.scalar]
    given = {n.name: call.values[n.name] for n in inputs} | call.values  # in the order of the graph
    shapes = {n.name: n.shape for n in inputs if isinstance(given[n.name], np.ndarray)}
    given = shrink_arguments.smallest(given, shapes, call.sizes, lambda arguments: first(arguments) is not None)
    return _failure(program, *(first(given) or (call, row)), given)  # the failure may not occur every time


def _failure(program: BaseProgram, call: Call, row: CheckRow, arguments: dict[str, Any]) -> Failure:
    before, after, got = "", "", None
    origin, same = _origin(program, call)
    with suppress(Exception):  # the row's note describes the error
        compiled = compilation(program, call, row.variant if row.variant in VARIANTS else "interpreter")
        before, after = _texts(compiled, row.by)
        got = run_stage.results(compiled, row.stage, call) if row.stage != "gpu" else program.evaluate("gpu", call)
    expected = origin.evaluate("ast", same)
    return Failure(row, _text(origin), dict(same.sizes), arguments, expected, got, before, after)


def _texts(compiled: Compilation, by: str) -> tuple[str, str]:
    if by == TEXT:
        p = compiled.steps[0]
        return "", p.text(compiled.value(p.stage))
    before, after = next(two for two in pairwise(compiled.table) if two[1].name == by)
    return before.text(compiled.value(before.stage)), after.text(compiled.value(after.stage))


def _text(program: BaseProgram) -> str:
    """Returns the source text of the program."""
    text = program.module.span.text.strip()
    types = ", ".join(f"{name}: {type}" for name, type in program.parameters if type)
    # If the program is an expression, a comment lists the types of its parameters.
    return text if is_module(text) or not types else f"{text}  # {types}"
