"""Checks one random program: compares every pass and stage with the reference, and the program with changed programs
that must compute the same result.

In: a seed. Out: an `Outcome`, which says how many comparisons were made, and has the shrunk failure, if there is one.

    check         every pass for every variant (minitri/trust/check_passes.py)
    relations     changed programs that must compute the same result (minitri/testing/equivalent_programs.py)

To shrink a failure, trial.py first simplifies the random choices that made the program, and then the sizes and elements
of the arguments. After each simplification, only the comparison that failed is repeated. Left out: crashes and hangs,
which session.py reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minitri.base.diagnostics import CompileError
from minitri.fuzz.failure_file import Case
from minitri.hardware.targets import INTERPRETER, StageUnavailable
from minitri.program import Program
from minitri.runtime.call_binding import Call, bind
from minitri.testing import RandomProgram, choice_lists
from minitri.testing.equivalent_programs import RELATIONS, parsed
from minitri.trust import run_stage
from minitri.trust.check_passes import check, compilation, enclosures, worst
from minitri.trust.check_report import CheckReport, CheckRow

VARIANTS = {"cpu": ("interpreter", "cuda", "cuda general", "cuda wide"), "gpu": ("interpreter", "cuda", "gpu")}
# Every program is checked in these variants. A program that fails is checked in all `VARIANTS`.
FIRST = {"cpu": VARIANTS["cpu"], "gpu": ("gpu",)}
PAIRS = {"cpu": tuple(RELATIONS), "gpu": ("small blocks",)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of checking one program.

    stages   number of stages that were compared
    pairs    number of changed programs that were compared
    case     the failure, or None if the program did not fail
    refused  number of changed programs that were not compared, because Triton cannot compile the block sizes that the
             change prescribes. Triton must be able to compile the block sizes that minitri itself chooses
    """

    stages: int = 0
    pairs: int = 0
    case: Case | None = None
    refused: int = 0


def is_lost(outcome: Outcome) -> bool:
    """Checks whether this process can no longer use the GPU.

    After a kernel has accessed an illegal address, CUDA rejects every further call of the process.
    """
    return outcome.case is not None and "CUDA error" in outcome.case.said


def trial(seed: int, on: str = "cpu") -> Outcome:
    """Checks the random program of a seed, and shrinks the program if it fails."""
    example, numbers = choice_lists.recorded(seed)
    outcome = examined(Case(example, seed), FIRST[on], on=on)
    if outcome.case is None or is_lost(outcome):
        return outcome
    first = examined(Case(example, seed), VARIANTS[on], on=on).case or outcome.case
    variants, relations = ((name,) if name else () for name in (first.variant, first.relation))

    def fails(other: RandomProgram) -> bool:
        """Repeats the comparison that failed, and checks whether `other` fails in the same way."""
        found = examined(Case(other, seed), variants, on=on, relations=relations).case
        return found is not None and (found.relation, found.guilty) == (first.relation, first.guilty)

    least = choice_lists.smaller(numbers, fails)
    found = examined(Case(least, seed), VARIANTS[on], shrinking=True, on=on).case
    return replace(outcome, case=found or first)


def examined(
    case: Case, variants: Sequence[str], shrinking: bool = False, on: str = "cpu",
    relations: Sequence[str] | None = None,
) -> Outcome:  # fmt: skip
    """Checks a case on the CPU or a GPU, and returns the outcome.

    Every pass is checked first, in each of the given variants of compilation (minitri/trust/check_passes.py). If no
    pass is wrong, programs that were changed but must compute the same result are checked too. `relations` are the
    names of the changes; if `relations` is not given, the changes are those of `PAIRS`.
    """
    relations = PAIRS[on] if relations is None else relations
    try:
        program = parsed(case.program.text)
        call = bind(program.function, case.values, {})
        report = check(program, call, variants, shrinking)
        ran = len(report.ran)
        if not report.ok:
            return Outcome(ran, 0, _found(case, report))
        refused = 0
        for k, relation in enumerate(relations):
            try:
                said = _differs(program, call, case.program.text, relation, on)
            except StageUnavailable:
                refused, said = refused + 1, ""
            if said:
                return Outcome(ran, k, replace(case, relation=relation, said=said))
    except CompileError as error:  # random programs are valid, so any error is a bug of the compiler
        return Outcome(case=replace(case, guilty=f"refused: {error.code}", said=error.message))
    except Exception as error:
        kind = type(error).__name__
        return Outcome(case=replace(case, guilty=f"refused: {kind}", said=f"{kind}: {error}"))
    return Outcome(ran, len(relations) - refused, refused=refused)


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
    """Returns how the result of a changed program differs from that of the original program, or "" if the results
    agree.

    On the CPU, the changed program is not run if its generated source is the same as the original's, because equal
    sources give equal results.
    """
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
