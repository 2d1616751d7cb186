"""Checks one random program, and stores a failure as a file from which the failure can be repeated.

The function `trial` takes a seed. The returned `Outcome` says how many comparisons were made. If a comparison failed,
the `Outcome` also has a `Case`: a smaller program and arguments that still fail. A random program is checked in two
ways:

`check`: compares every pass and stage with the reference, for several variants of the compilation
    (minitri/trust/check_passes.py).
`relations`: compares the program with changed programs that must compute the same result
    (minitri/testing/equivalent_programs.py).

To make a failing program smaller, `trial` simplifies the random choices that made the program. Then the function
`trial` simplifies the sizes and elements of the arguments. After each simplification, `trial` repeats only the
comparison that failed for the original program. The file session.py, not `trial`, reports crashes and hangs.

The file that stores a failure contains the failing program. Comments above the program contain everything that is
needed to repeat the failure:

    # minitri fuzz --replay seed-17-mask.mt
    # the pass `mask` is wrong (tile.masked, cuda): 1 of 3 elements, the worst at [2]
    # case {"relation": "", "guilty": "mask", "seed": 17, "sizes": {"N": 3}, "arguments": …}
    def program(x: f32[N]):
        return sum(x)

The stored file is a module of minitri's language, so commands such as `minitri run` accept the file too. If the
program's arguments have few elements, the stored file has every element and the strides. If the program's arguments
have many elements, the stored file has only the seed. To repeat the failure, the arguments are made from the seed
again.

This command starts the worker process that checks programs, so a crash or a hang of Triton's interpreter does not end
the session:

    python -m minitri.fuzz.trial cpu

The worker reads seeds from standard input, one on each line, and prints one line of JSON for each seed. Any text that
the worker prints, except the lines of JSON, goes to standard error.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError
from minitri.base.json_child_process import serve
from minitri.base.nodes import Record
from minitri.base.types import BY_NUMPY_NAME, DTYPES
from minitri.hardware.targets import INTERPRETER, StageUnavailable
from minitri.program import Program
from minitri.runtime.array_interop import strided
from minitri.runtime.call_binding import Call, bind
from minitri.testing import Parameter, RandomProgram, small_random_programs
from minitri.testing.equivalent_programs import RELATIONS, parsed
from minitri.trust import run_stage
from minitri.trust.check_passes import check, compilation, enclosures, worst
from minitri.trust.check_report import CheckReport, CheckRow

VARIANTS = {"cpu": ("interpreter", "cuda", "cuda general", "cuda wide"), "gpu": ("interpreter", "cuda", "gpu")}
# Every program is checked in these variants. A program that fails is checked in all `VARIANTS`.
FIRST = {"cpu": VARIANTS["cpu"], "gpu": ("gpu",)}
PAIRS = {"cpu": tuple(RELATIONS), "gpu": ("small blocks",)}
MARK = "# case "
MOST = 4096  # the most elements of arguments in a file


class Case(Record):
    """A program, its arguments, and the failure that was found.

    `relation`: a key of `RELATIONS` (equivalent_programs.py) if a comparison with a changed program failed. The text is
        empty if `check` found the failure.
    `variant`: the variant for which `check` found the failure, such as "cuda general" (minitri/trust/check_passes.py).
    `said`: the message that describes the failure.
    """

    program: RandomProgram
    seed: int
    relation: str = ""
    guilty: str = ""
    variant: str = ""
    said: str = ""
    arguments: Sequence[Any] | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """The kind of the failure, such as the name of the wrong pass. The name of the case's file contains the kind of
        the failure.
        """
        return (self.relation or self.guilty).replace(": ", "-").replace(" ", "-")

    @property
    def file(self) -> str:
        """The name of the file for this case."""
        return f"seed-{self.seed}-{self.kind}.mt"

    @property
    def values(self) -> list[Any]:
        return self.program.arguments(self.seed) if self.arguments is None else list(self.arguments)


class Outcome(Record):
    """The result of checking one program.

    `stages`: the number of stages whose results were compared with the reference.
    `pairs`: the number of changed programs whose results were compared with the program's results.
    `case`: the failure, or None if the program did not fail.
    `refused`: the number of changed programs that Triton cannot compile, because of their block sizes.
    """

    stages: int = 0
    pairs: int = 0
    case: Case | None = None
    refused: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether this process can no longer use the GPU.

        After a kernel has accessed an illegal address, CUDA rejects every further call of the process.
        """
        return self.case is not None and "CUDA error" in self.case.said


def trial(seed: int, on: str = "cpu") -> Outcome:
    """Makes a random program from the number `seed`, and checks the program. If the program fails, makes the program
    smaller.
    """
    example, numbers = small_random_programs.recorded(seed)
    outcome = examined(Case(example, seed), FIRST[on], on=on)
    if outcome.case is None or outcome.is_lost:
        return outcome
    first = examined(Case(example, seed), VARIANTS[on], on=on).case or outcome.case
    variants, relations = ((name,) if name else () for name in (first.variant, first.relation))

    def fails(other: RandomProgram) -> bool:
        """Checks whether the program `other` fails in the same way as the original program. The function repeats only
        the comparison that found the failure of the original program.
        """
        found = examined(Case(other, seed), variants, on=on, relations=relations).case
        return found is not None and (found.relation, found.guilty) == (first.relation, first.guilty)

    least = small_random_programs.smaller(numbers, fails)
    found = examined(Case(least, seed), VARIANTS[on], shrinking=True, on=on).case
    return replace(outcome, case=found or first)


def examined(
    case: Case, variants: Sequence[str], shrinking: bool = False, on: str = "cpu",
    relations: Sequence[str] | None = None,
) -> Outcome:  # fmt: skip
    """Checks a case on the CPU or a GPU, and returns the outcome.

    First, every compiler pass is checked for each variant of compilation in `variants` (minitri/trust/check_passes.py).
    If no pass is wrong, the program is compared with changed programs that must compute the same result, such as a
    program with renamed variables. The argument `relations` lists kinds of changed programs: keys of the dictionary
    `RELATIONS`. The default is `PAIRS[on]`.
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
                if said := _differs(program, call, case.program.text, relation, on):
                    return Outcome(ran, k, replace(case, relation=relation, said=said))
            except StageUnavailable:
                refused += 1
    except Exception as error:  # random programs are valid, so any error is a bug of the compiler
        kind = type(error).__name__
        code, said = (error.code, error.message) if isinstance(error, CompileError) else (kind, f"{kind}: {error}")
        return Outcome(case=replace(case, guilty=f"refused: {code}", said=said))
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
    """Returns how the results of two related programs differ, or "" if they agree."""
    other = RELATIONS[relation](text)
    ordered = [call.arrays[n].owner if n in call.arrays else call.scalars[n] for n, _ in program.parameters]
    other_call = bind(other.function, ordered, {})
    if on == "gpu":
        results = other.evaluate("gpu", other_call)
    else:
        compiled = compilation(other, other_call, "interpreter")
        if compiled.module_text == program.compilation(program.context(call, INTERPRETER)).module_text:
            return ""  # equal sources give equal results
        if relation == "dead code":
            return f"{relation}: the generated source is not the same"
        results = run_stage.results(compiled, "triton", other_call)
    ok, error, bound, note = worst(results, enclosures(program, call))
    return "" if ok else f"{relation}: {note}, error {error:.3g} of {bound:.3g}"


# ---- the file of a failure ---------------------------------------------------------------------


def written(case: Case, name: str) -> str:
    header = {
        "relation": case.relation, "guilty": case.guilty, "variant": case.variant, "seed": case.seed, "sizes": case.program.sizes,
        "parameters": [[p.name, p.type, p.low, p.high] for p in case.program.parameters],
        "arguments": _listed(case.arguments),
    }  # fmt: skip
    said = [f"# {line}".rstrip() for line in case.said.splitlines()]
    return "\n".join([f"# minitri fuzz --replay {name}", *said, MARK + json.dumps(header), case.program.text])


def read(text: str) -> Case:
    """Reads a test case from the text of a file. The function `written` writes this text.

    Raises CompileError MT0003 if the text is not a test case that `minitri fuzz` has written.
    """
    lines = text.splitlines(keepends=True)
    try:
        header = json.loads(next(line for line in lines if line.startswith(MARK)).removeprefix(MARK))
        parameters = tuple(Parameter(str(n), str(t), float(a), float(b)) for n, t, a, b in header["parameters"])
        sizes = {str(n): int(s) for n, s in header["sizes"].items()}
        arguments = header["arguments"] and [_array(a) for a in header["arguments"]]
        said = "".join(line[2:] for line in lines[1:] if line.startswith("# ") and not line.startswith(MARK))
        program = RandomProgram("".join(line for line in lines if not line.startswith("#")), parameters, sizes)
        relation, guilty, variant = (str(header[name]) for name in ("relation", "guilty", "variant"))
        return Case(program, int(header["seed"]), relation, guilty, variant, said, arguments)
    except (StopIteration, ValueError, KeyError, TypeError, AttributeError):
        message = "this is no file that `minitri fuzz` has written"
        raise CompileError("MT0003", message, help="such a file has a line `# case {...}`") from None


def _listed(arguments: Sequence[Any] | None) -> list[Any] | None:
    """Returns the arguments as data for JSON, or None if they are too large."""
    if arguments is None or sum(np.size(a) for a in arguments) > MOST:
        return None
    return [_plain(a) for a in arguments]


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return float(value)
    dtype = BY_NUMPY_NAME[value.dtype.name]
    wide = value.astype(np.float64) if dtype.is_float else value  # f64 holds every float dtype exactly
    strides, elements = [s // value.dtype.itemsize for s in value.strides], wide.reshape(-1).tolist()
    return {"dtype": dtype.name, "shape": list(value.shape), "strides": strides, "values": elements}


def _array(given: Any) -> Any:
    """Makes a number or a numpy array from its form in JSON."""
    if not isinstance(given, Mapping):
        return float(given)
    dtype, shape, strides = DTYPES[given["dtype"]], tuple(map(int, given["shape"])), tuple(map(int, given["strides"]))
    plain = np.array(given["values"], np.float64 if dtype.is_float else None).reshape(shape).astype(dtype.numpy)
    if 0 in shape or sum((n - 1) * abs(s) for n, s in zip(shape, strides)) > 64 * (MOST + math.prod(shape)):
        return plain
    array = strided(shape, strides, dtype.numpy, np.zeros)
    array[...] = plain
    return array


# ---- the worker process --------------------------------------------------------------------------


def answer(seed: int, on: str) -> dict[str, Any]:
    """Returns the worker's answer for one seed. The answer has three counts of comparisons: `stages`, `pairs` and
    `refused`. If the seed's program fails, the answer also has the kind and the description of the failure, and the
    text of the failure's file. If `lost` is true in the answer, the worker can no longer use the GPU, and the parent
    process ends the worker.
    """
    outcome = trial(seed, on)
    counts = {"stages": outcome.stages, "pairs": outcome.pairs, "refused": outcome.refused}
    case = outcome.case
    failure = {} if case is None else {"kind": case.kind, "said": case.said, "text": written(case, case.file)}
    return {"seed": seed, "lost": outcome.is_lost, **counts, **failure}


if __name__ == "__main__":
    serve(lambda seed: answer(seed, sys.argv[1]), sys.stdin)
