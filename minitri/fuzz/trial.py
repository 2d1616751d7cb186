"""One random program: every pass and stage against the reference, and against its relations.

In: a seed. Out: an `Outcome`: what was compared, and the failing case, if any, made smaller.

    check         every pass for every variant (minitri/trust/check.py)
    relations     programs that must compute the same (minitri/testing/relations.py)

Shrinking repeats the failing comparison. It first shrinks the choices that made the program, then sizes and elements of
its arguments. Left out: crashes and hangs; the caller sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minitri.base.diagnostics import CompileError
from minitri.fuzz.files import Case
from minitri.hardware.targets import INTERPRETER, StageUnavailable
from minitri.program import Program
from minitri.runtime.binding import Call, bind
from minitri.testing import RandomProgram, choices
from minitri.testing.relations import RELATIONS, parsed
from minitri.trust import run_stage
from minitri.trust.check import CheckReport, CheckRow, check, compilation, enclosures, first_wrong, worst

VARIANTS = {"cpu": ("interpreter", "cuda", "cuda general", "cuda wide"), "gpu": ("interpreter", "cuda", "gpu")}
FIRST = {"cpu": VARIANTS["cpu"], "gpu": ("gpu",)}  # what every program is tried in; all variants of one that fails
PAIRS = {"cpu": tuple(RELATIONS), "gpu": ("small blocks",)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`stages` and `pairs`: how many results were compared; `case`: what failed, and how.

    `refused`: pairs whose other program has blocks that Triton cannot compile. Blocks that minitri chose must compile.
    """

    stages: int = 0
    pairs: int = 0
    case: Case | None = None
    refused: int = 0


def is_lost(outcome: Outcome) -> bool:
    """Whether the process has no GPU any more: after an illegal access CUDA refuses everything."""
    return outcome.case is not None and "CUDA error" in outcome.case.said


def trial(seed: int, on: str = "cpu") -> Outcome:
    """Checks the program of a seed; a failure is shrunk."""
    example, numbers = choices.recorded(seed)
    outcome = examined(Case(example, seed), FIRST[on], on=on)
    if outcome.case is None or is_lost(outcome):
        return outcome
    first = examined(Case(example, seed), VARIANTS[on], on=on).case or outcome.case

    def fails(other: RandomProgram) -> bool:
        return _fails_alike(Case(other, seed), first, on)

    least = choices.smaller(numbers, fails)
    found = examined(Case(least, seed), VARIANTS[on], shrinking=True, on=on).case
    return replace(outcome, case=found or first)


def _fails_alike(case: Case, first: Case, on: str) -> bool:
    """Whether a case fails as another did: no more is looked at than that takes."""
    try:
        program = parsed(case.program.text)
        call = bind(program.function, case.values, {})
        if first.relation:
            return bool(_differs(program, call, case.program.text, first.relation, on))
        row = first_wrong(program, call, [first.variant] if first.variant else [])
        return row is not None and row.by == first.guilty
    except Exception as error:
        return _refused(case, error).guilty == first.guilty


def examined(case: Case, variants: Sequence[str], shrinking: bool = False, on: str = "cpu") -> Outcome:
    """What a case gives: the check first, then the relations, run on the CPU or a GPU."""
    try:
        program = parsed(case.program.text)
        call = bind(program.function, case.values, {})
        report = check(program, call, variants, shrinking)
        ran = len(report.ran)
        if not report.ok:
            return Outcome(ran, 0, _found(case, report))
        refused = 0
        for k, relation in enumerate(PAIRS[on]):
            try:
                said = _differs(program, call, case.program.text, relation, on)
            except StageUnavailable:
                refused, said = refused + 1, ""
            if said:
                return Outcome(ran, k, replace(case, relation=relation, said=said))
    except Exception as error:
        return Outcome(case=_refused(case, error))
    return Outcome(ran, len(PAIRS[on]) - refused, refused=refused)


def _refused(case: Case, error: Exception) -> Case:
    """The program is right by construction, so an error is a bug of the compiler."""
    if isinstance(error, CompileError):
        return replace(case, guilty=f"refused: {error.code}", said=error.message)
    return replace(case, guilty=f"refused: {type(error).__name__}", said=f"{type(error).__name__}: {error}")


def _found(case: Case, report: CheckReport) -> Case:
    smallest, first = report.smallest, report.first
    assert first is not None
    if smallest is None:
        return replace(case, guilty=first.by, variant=first.variant, said=_said(first))
    program = replace(case.program, sizes={n: s for n, s in smallest.sizes.items() if n in case.program.sizes})
    values = [smallest.arguments[p.name] for p in program.parameters]
    said = _said(smallest.row)
    return replace(case, program=program, guilty=first.by, variant=first.variant, said=said, arguments=values)


def _said(row: CheckRow) -> str:
    return f"{row}: {row.note}, error {row.max_error:.3g} of {row.bound:.3g}"


def _differs(program: Program, call: Call, text: str, relation: str, on: str) -> str:
    """What differs between a program and its relation; "" if nothing does, or both have the same source."""
    other = RELATIONS[relation](text)
    ordered = [call.arrays[n].owner if n in call.arrays else call.scalars[n] for n, _ in program.parameters]
    other_call = bind(other.function, ordered, {})
    if on == "gpu":
        results = other.evaluate("gpu", other_call)
    else:
        compiled = compilation(other, other_call, "interpreter")
        if compiled.module_text == program.compilation(program.context(call, INTERPRETER)).module_text:
            return ""
        if relation == "dead code":
            return f"{relation}: the generated source is not the same"
        results = run_stage.results(compiled, "triton", other_call)
    ok, error, bound, note = worst(results, enclosures(program, call))
    return "" if ok else f"{relation}: {note}, error {error:.3g} of {bound:.3g}"
