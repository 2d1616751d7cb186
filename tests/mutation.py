"""Mutation testing: which small changes of the compiler would no test notice?

    python tests/mutation.py [FILE ...] [--jobs 2]      runs what is not known yet, prints the survivors
    python tests/mutation.py --figures                  the score of each file, as JSON

Cosmic Ray (a development dependency) makes the mutants: `<` becomes `<=`, `+` becomes `-`, `and`
becomes `or`, a number is one off, a condition is negated, a loop is not entered, … Only how they
are run is our own: a mutant is a text in memory and a fork (tests/patched.py), not a changed file
and a new interpreter, which makes it 0.5 s instead of 5. Against a mutant runs tests/oracle_quick.py,
and what survives that must survive the tests in `TESTS` as well.

Results are kept in build/mutation.jsonl, by the text of the function that was changed: a second run takes
up where the first one stopped, and after a change of a file what stands in other functions of it is known
still. Survivors that cannot be killed because they change
nothing are listed with the reason in tests/mutation_equivalent.toml; they do not count.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patched import ROOT, Job, Outcome, run

FILES = (
    "minitri/tile/mask.py", "minitri/tile/lower.py", "minitri/tile/schedule.py",
    "minitri/kernel/index.py", "minitri/kernel/build.py", "minitri/kernel/partition.py",
    "minitri/kernel/fuse.py", "minitri/kernel/flatten.py", "minitri/backend/emit.py",
    "minitri/graph/simplify.py", "minitri/graph/split.py",
)  # fmt: skip
TESTS = (
    "tests/test_emit.py", "tests/test_masks.py", "tests/test_flatten.py", "tests/test_passes.py", "tests/test_regressions.py",
    "tests/test_trace.py", "tests/test_schedules.py", "tests/test_proofs.py",
)  # fmt: skip
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add", "ReplaceBinaryOperator_Mul_Add",
    "ReplaceBinaryOperator_FloorDiv_Mul", "ReplaceBinaryOperator_Mod_FloorDiv", "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_Pow_Mul", "ReplaceBinaryOperator_LShift_RShift", "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq", "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt", "ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Lt_GtE", "ReplaceComparisonOperator_Gt_LtE", "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is", "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not",
    "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ExceptionReplacer",
    "ZeroIterationForLoop",
)  # fmt: skip
RESULTS = ROOT / "build" / "mutation.jsonl"
EQUIVALENT = Path(__file__).parent / "mutation_equivalent.toml"
SECONDS = 150  # of CPU time for one mutant
CASE_SECONDS = 8  # for one case, which takes 0.1
LIKELY = 30  # cases that run before the tests which have noticed other mutants of the file


@dataclass(frozen=True)
class Result:
    """`by`: the case or test that noticed, "" if none did."""

    key: str
    file: str
    operator: str
    was: str
    now: str
    killed: bool
    by: str
    seconds: float


# ---- mutants ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    file: str
    operator: str
    source: str
    was: str  # the lines that changed
    now: str
    key: str  # of the function that they are in, as it is now


def mutants(file: str) -> list[Mutant]:
    """Every mutant of a file that changes more than an annotation, each text once; kept beside the results."""
    source = (ROOT / file).read_text(encoding="utf-8")
    kept = RESULTS.parent / f"made-{_hash(repr((OPERATORS, source)))}.json"
    if not kept.exists():
        RESULTS.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps([asdict(m) for m in _made(file, source)]), encoding="utf-8")
    return [Mutant(**row) for row in json.loads(kept.read_text(encoding="utf-8"))]


def _made(file: str, source: str) -> Iterator[Mutant]:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    seen = {_meaning(source)}
    for name in OPERATORS:
        operator, occurrence = get_operator(f"core/{name}")(), 0
        while (mutated := mutate_code(source, operator, occurrence)) is not None:
            occurrence += 1
            meaning = _meaning(mutated)
            if meaning and meaning not in seen:
                seen.add(meaning)
                yield made(file, name, source, mutated)


def made(file: str, operator: str, source: str, mutated: str) -> Mutant:
    """A mutant from the text of a file before and after."""
    before, after = source.splitlines(), mutated.splitlines()
    (change,) = [c for c in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(0)][:1]
    was, now = before[change[0][1] : change[-1][2]], after[change[0][3] : change[-1][4]]
    key = _hash(f"{file}\n{_around(mutated, change[0][3] + 1)}\n{was}\n{now}")
    return Mutant(file, operator, mutated, *("\n".join(line.strip() for line in lines) for lines in (was, now)), key)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _around(source: str, line: int) -> str:
    """The innermost function that a line stands in, or the line itself."""
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in ast.walk(tree) if isinstance(n, functions) and n.lineno <= line <= (n.end_lineno or 0)]
    inner = min(found, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)
    return ast.unparse(inner) if inner is not None else source.splitlines()[line - 1]


def _meaning(source: str) -> str:
    """The syntax tree without annotations, which nothing evaluates, nor `not not`; "" for what is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # `|` in a pattern is no operator
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(_Single().visit(tree))


class _Single(ast.NodeTransformer):
    """`not not x` in a condition is `x`."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        inner = node.operand
        twice = isinstance(node.op, ast.Not) and isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not)
        return inner.operand if twice and isinstance(inner, ast.UnaryOp) else node


# ---- running ---------------------------------------------------------------------------


def verdict(names: Sequence[str], likely: Sequence[str], tests: Sequence[str]) -> str:
    """In a child: what notices the mutant, "" if nothing does. What has noticed others comes first."""
    return _cases(names[:LIKELY]) or _tests(likely) or _cases(names[LIKELY:]) or _tests(tests)


def _cases(names: Sequence[str]) -> str:
    import oracle_quick

    for name in names:
        signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)  # ends a child that loops for ever
        failure = oracle_quick.first_failure([name], after=("mask", "emit"))
        if failure is not None:
            return f"{failure.case}, {failure.schedule}"
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def _tests(names: Sequence[str]) -> str:
    import pytest

    first = _First()
    if names:
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu", *names], plugins=[first])
    return first.failed


class _First:
    """The first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def run_all(files: Sequence[str], workers: int, most: int, again: bool) -> None:
    """Runs the mutants of these files that are not known to be killed.

    At most `most` of each file have a result afterwards: those with the smallest keys, a fair sample.
    """
    known = {r.key: r for r in results()}
    sound = _sound(files[0], workers)
    for file in files:
        chosen = sorted(mutants(file), key=lambda m: m.key)[:most]
        pending = [m for m in chosen if m.key not in known or (again and not known[m.key].killed)]
        killers = Counter(_killer(r.by) for r in known.values() for _ in range(20 if r.file == file else 1))
        by_key = {m.key: m for m in pending}
        for outcome in run(_jobs(pending, killers, sound), workers):
            _record(by_key[outcome.job.name], outcome, killers)


def _killer(by: str) -> str:
    """The case of the oracle, or the function with the test, that noticed a mutant."""
    return by.partition("[")[0] if "::" in by else by.rpartition(",")[0]


def _sound(file: str, workers: int) -> list[str]:
    """The cases that the compiler as it is passes on this machine; a test that fails there ends the run."""
    source = (ROOT / file).read_text(encoding="utf-8")
    cases = [Job(name, file, source, "mutation:verdict", ([name], (), ()), SECONDS) for name in _case_names()]
    tests = [Job(name, file, source, "mutation:verdict", ((), (), (name,)), 20 * SECONDS) for name in TESTS]
    failed = {outcome.job.name: outcome.value or outcome.error for outcome in run([*tests, *cases], workers)}
    failed = {name: why for name, why in failed.items() if why}
    for name, why in failed.items():
        print(f"left out, it fails without a mutant: {name}: {why}", file=sys.stderr)
    assert not failed.keys() & set(TESTS), "the tests fail without a mutant"
    return [job.name for job in cases if job.name not in failed]


def _jobs(pending: Sequence[Mutant], killers: Counter[str], names: Sequence[str]) -> Iterator[Job]:
    """Made when they are taken: the order of the cases follows what has killed most so far."""
    for m in pending:
        ordered = sorted(names, key=lambda n: -killers[n])
        likely = [k for k, n in killers.most_common() if "::" in k and n >= 20]
        yield Job(m.key, m.file, m.source, "mutation:verdict", (ordered, likely, TESTS), SECONDS)


def _case_names() -> list[str]:
    """The cases of the oracle, read and not imported: nothing of minitri may be imported here."""
    tree = ast.parse((Path(__file__).parent / "oracle_quick.py").read_text(encoding="utf-8"))
    table = next(n for n in tree.body if isinstance(n, ast.AnnAssign) and getattr(n.target, "id", "") == "CASES")
    assert isinstance(table.value, ast.Dict)
    return [k.value for k in table.value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]


def _record(m: Mutant, outcome: Outcome, killers: Counter[str]) -> None:
    by = outcome.value if outcome.value is not None else outcome.error
    result = Result(m.key, m.file, m.operator, m.was, m.now, bool(by), by, round(outcome.seconds, 2))
    killers[_killer(by)] += 20
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(result)) + "\n")
    if not by:
        print(f"{m.file} {m.operator}\n  - {m.was}\n  + {m.now}", flush=True)


def results() -> list[Result]:
    """The last result for each mutant."""
    if not RESULTS.exists():
        return []
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return list({r.key: r for r in (Result(**json.loads(line)) for line in lines)}.values())


# ---- figures ---------------------------------------------------------------------------


def equivalent() -> dict[tuple[str, str, str], str]:
    """(file, was, now) → why no test can see the difference."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {(r["file"], r["was"], r["now"]): r["why"] for r in rows}


def figures() -> dict[str, Any]:
    """For each file the mutants of its present text: how many, killed, equivalent, the score."""
    known, why = {r.key: r for r in results()}, equivalent()
    table: dict[str, Any] = {}
    tried = {r.file for r in known.values()}
    for file in (f for f in FILES if f in tried):
        found = [(m, known.get(m.key)) for m in mutants(file)]
        ran = [(m, r) for m, r in found if r is not None]
        survivors = [m for m, r in ran if not r.killed]
        same = [m for m in survivors if (m.file, m.was, m.now) in why]
        killed = len(ran) - len(survivors)
        counted = len(ran) - len(same)
        table[file] = {
            "mutants": len(found), "run": len(ran), "killed": killed, "equivalent": len(same),
            "score": round(100 * killed / counted, 1) if counted else None,
            "survivors": [{"was": m.was, "now": m.now} for m in survivors if m not in same],
        }  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing with Cosmic Ray's operators.")
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=1 << 30, help="this many of a file, a sample")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--count", action="store_true", help="count the mutants, run none")
    parser.add_argument("--figures", action="store_true", help="the scores as JSON; runs nothing")
    options = parser.parse_args()
    if options.count:
        print(json.dumps({f: len(mutants(f)) for f in options.files}, indent=1))
    elif options.figures:
        print(json.dumps(figures(), indent=1))
    else:
        start = time.perf_counter()
        run_all(options.files, options.jobs, options.most, options.again)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
