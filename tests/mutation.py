"""Mutation testing: finds small changes of the compiler that no test notices.

    python tests/mutation.py [FILE ...] [--jobs 2]      runs mutants without a result, prints the survivors
    python tests/mutation.py --figures                  the score of each file, as JSON

Cosmic Ray (a development dependency) makes the mutants: `<` becomes `<=`, `+` becomes `-`, `and`
becomes `or`, a number is one off, a condition is negated, a loop is not entered, … This module runs
them. A mutant is a text in memory, imported by a forked process (tests/patched.py). That takes 0.2 s;
a changed file and a new interpreter would take 5 s.

A mutant is run only against the cases and tests that execute its line. The cases are those of
tests/oracle_quick.py; the tests are the quick ones of the files in `TESTS`. One coverage run of each
says which lines it executes. Cases that killed another mutant of the same function run first. Tests
run after the cases.

build/mutation.jsonl keeps the results, with the code of the changed function as the key. So a second
run continues an interrupted one, and a change of a file only loses the results for the functions whose
code it changes. Some survivors cannot be killed because they change nothing. They are listed with the reason
in tests/mutation_equivalent.toml and do not count. tests/mutation_survivors.toml says why each other
mutant survives.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patched import ROOT, Job, Outcome, run

FILES = (
    "minitri/tiles/mask.py", "minitri/optimize/mask_elision.py", "minitri/tiles/lower.py", "minitri/tiles/schedule.py",
    "minitri/kernels/demand.py", "minitri/optimize/fusion/one_kernel.py",
    "minitri/kernels/lower_graph.py", "minitri/optimize/fusion/partition.py",
    "minitri/optimize/fusion/fuse.py", "minitri/optimize/collapse_axes.py", "minitri/optimize/online_reductions/merge_loops.py", "minitri/optimize/online_reductions/lower.py",
    "minitri/optimize/skip_blocks/skip.py", "minitri/optimize/skip_blocks/condition_ranges.py", "minitri/optimize/skip_blocks/abstract_values.py", "minitri/optimize/skip_blocks/no_effect_proofs.py",
    "minitri/optimize/program_order.py", "minitri/optimize/hoist_loads.py", "minitri/optimize/boundary_peeling.py",
    "minitri/graph/partial_sum_correction.py",
    "minitri/triton/emit.py", "minitri/triton/grid.py", "minitri/triton/expressions.py", "minitri/optimize/narrow_integers.py",
    "minitri/optimize/f16_multiplication.py", "minitri/triton/workarounds/loops.py",
    "minitri/optimize/simplify.py", "minitri/optimize/split_reduction.py", "minitri/optimize/two_step_reductions.py",
)  # fmt: skip
TESTS = (
    "tests/test_emit.py", "tests/test_mask_elision.py", "tests/test_collapse_axes.py", "tests/test_passes.py", "tests/test_regressions.py",
    "tests/test_provenance.py", "tests/test_schedules.py", "tests/test_proofs.py", "tests/test_online_reductions.py", "tests/test_attention.py",
    "tests/test_skip_blocks.py", "tests/test_program_order.py", "tests/test_hoist_loads.py", "tests/test_fusion_partition.py", "tests/test_online_transport.py", "tests/test_demand.py",
    "tests/test_narrow_integers.py", "tests/test_early_start.py", "tests/test_boundary_peeling.py", "tests/test_f16_multiplication.py", "tests/test_wgmma_wait.py",
    "tests/test_identity_proofs.py", "tests/test_skip_conditions.py", "tests/test_lower_graph.py",
)  # fmt: skip
OWN = {  # these tests are about one file and run first
    "minitri/kernels/demand.py": "tests/test_demand.py",
    "minitri/optimize/fusion/one_kernel.py": "tests/test_demand.py",
    "minitri/optimize/online_reductions/merge_loops.py": "tests/test_online_transport.py",
    "minitri/optimize/fusion/partition.py": "tests/test_fusion_partition.py", "minitri/optimize/online_reductions/lower.py": "tests/test_online_transport.py", "minitri/optimize/program_order.py": "tests/test_program_order.py", "minitri/optimize/hoist_loads.py": "tests/test_hoist_loads.py",
    "minitri/optimize/boundary_peeling.py": "tests/test_boundary_peeling.py",
    "minitri/optimize/f16_multiplication.py": "tests/test_f16_multiplication.py", "minitri/triton/workarounds/loops.py": "tests/test_wgmma_wait.py",
}  # fmt: skip
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
SURVIVING = Path(__file__).parent / "mutation_survivors.toml"
PYTEST = ("-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu")
SECONDS = 900  # of CPU time for one mutant: longer than all cases and tests together take without one
CASE_SECONDS = 8  # CPU time for one case or test; a case usually takes 0.1
TEST_SECONDS = 2  # slower tests are not run against mutants


@dataclass(frozen=True)
class Result:
    """`by`: the case or test that killed the mutant, "" if it survived."""

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
    was: str  # the changed lines before the mutation
    now: str
    key: str  # hash of the present text of the function around them

    @property
    def line(self) -> int:
        """The first changed line."""
        lines = zip((ROOT / self.file).read_text(encoding="utf-8").splitlines(), self.source.splitlines())
        return next(k for k, (before, after) in enumerate(lines, 1) if before != after)


def mutants(file: str) -> list[Mutant]:
    """Every mutant of a file that changes more than an annotation, without duplicates. They are cached beside the
    results.
    """
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
    """A mutant from the text of a file before and after the change."""
    before, after = source.splitlines(), mutated.splitlines()
    (change,) = [c for c in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(0)][:1]
    was, now = before[change[0][1] : change[-1][2]], after[change[0][3] : change[-1][4]]
    key = _hash(f"{file}\n{_around(mutated, change[0][3] + 1)}\n{was}\n{now}")
    return Mutant(
        file,
        operator,
        mutated,
        *("\n".join(line.strip() for line in lines) for lines in (was, now)),
        key,
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _around(source: str, line: int) -> str:
    """The innermost function that contains a line, without its docstring, or the line itself."""
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in ast.walk(tree) if isinstance(n, functions) and n.lineno <= line <= (n.end_lineno or 0)]
    inner = min(found, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)
    if inner is None:
        return source.splitlines()[line - 1]
    if ast.get_docstring(inner) is not None:
        inner.body = inner.body[1:] or [ast.Pass()]
    return ast.unparse(inner)


def _meaning(source: str) -> str:
    """The syntax tree without annotations (nothing evaluates them) and without `not not`. "" if the text is not
    Python.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # `|` in a pattern is not an operator
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
    """Replaces `not not x` in a condition by `x`."""

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        inner = node.operand
        twice = isinstance(node.op, ast.Not) and isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not)
        return inner.operand if twice and isinstance(inner, ast.UnaryOp) else node


# ---- running ---------------------------------------------------------------------------


def verdict(own: Sequence[str], names: Sequence[str], after: Sequence[str], tests: Sequence[str]) -> str:
    """In a forked process: the case or test that notices the mutant, "" if none does."""
    return _tests(own) or _cases(names, after) or _tests(tests)


def _cases(names: Sequence[str], after: Sequence[str]) -> str:
    import oracle_quick

    for name in names:
        signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)  # ends a process that loops for ever
        failure = oracle_quick.first_failure([name], after=after)
        if failure is not None:
            return f"{failure.case}, {failure.schedule}"
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


def _tests(names: Sequence[str]) -> str:
    import pytest

    first = _First()
    if names:
        pytest.main(["-x", *PYTEST, *names], plugins=[first])
    return first.failed


class _First:
    """Records the first test that fails, and ends a process in which a test loops for ever."""

    failed = ""

    def pytest_runtest_logstart(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, CASE_SECONDS)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def run_all(files: Sequence[str], workers: int, most: int, again: bool, meets: int) -> None:
    """Runs the mutants of these files that are not known to be killed, each against at most `meets` cases and tests.

    At most `most` mutants of each file have a result afterwards: those with the smallest keys, which is a fair sample.
    """
    known = {r.key: r for r in results()}
    reach = reached(workers)
    for file in files:
        chosen = sorted(mutants(file), key=lambda m: m.key)[:most]
        pending = [m for m in chosen if m.key not in known or (again and not known[m.key].killed)]
        killers = Counter((r.file, _killer(r.by)) for r in known.values())
        by_key = {m.key: m for m in pending}
        for outcome in run(_jobs(pending, killers, reach, meets), workers):
            _record(by_key[outcome.job.name], outcome, killers)


def _jobs(
    pending: Sequence[Mutant], killers: Counter[tuple[str, str]], reach: Sequence[Reach], meets: int
) -> Iterator[Job]:
    """Jobs, made one at a time when a worker is free. Cases that killed mutants of the same function come first, then
    quick ones.
    """
    for m in pending:
        lines = _statement((ROOT / m.file).read_text(encoding="utf-8"), m.line)
        able = [r for r in reach if any(k in lines for k in r.lines.get(m.file, ()))]
        near = _function_key(m)
        able.sort(key=lambda r: (-killers[near, r.name], -killers[m.file, r.name], r.seconds))
        cases, tests = ([r.name for r in able if ("::" in r.name) == told] for told in (False, True))
        own = [t for t in tests if t.partition("::")[0] == OWN.get(m.file)]
        others = [t for t in tests if t not in own]
        args = own, cases[:meets], _compared_pass(m.file), others[:meets]
        yield Job(m.key, m.file, m.source, "mutation:verdict", args, SECONDS)


def _killer(by: str) -> str:
    """The case or the test that killed a mutant."""
    return by if "::" in by else by.rpartition(",")[0]


def _compared_pass(file: str) -> tuple[str]:
    """The pass after which cases compare results. An error of an earlier pass also shows after `tile.masked`, which
    runs faster.
    """
    return ("emit",) if "/triton/" in file else ("mask",)


def _function_key(m: Mutant) -> str:
    """A key that the mutants of one function share."""
    return f"{m.file} {_around(m.source, m.line).partition('(')[0]}"


def _statement(source: str, line: int) -> range | frozenset[int]:
    """The lines of the statement around a line. For a compound statement or a `case`: the lines of its head.

    Every program executes the code that runs at import. For such a line the result is all lines inside functions.
    """
    tree = ast.parse(source)
    inside = [
        n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.body[0].lineno <= line <= (n.end_lineno or 0)
    ]
    if not inside:
        bodies = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        return frozenset(k for n in bodies for k in range(n.body[0].lineno, (n.end_lineno or 0) + 1))
    starts = [n.lineno for n in ast.walk(tree) if isinstance(n, (ast.stmt, ast.excepthandler, ast.pattern))]
    return range(max(k for k in starts if k <= line), min((k for k in starts if k > line), default=1 << 30))


# ---- which case and test executes which line ---------------------------------------------


@dataclass(frozen=True)
class Reach:
    """`lines`: for each file, the lines that a case or a test executes."""

    name: str
    seconds: float
    lines: dict[str, list[int]]
    failed: str


def reached(workers: int) -> list[Reach]:
    """The lines of `FILES` that each case and each quick test executes, cached beside the results.

    A case or test that fails without a mutant is reported and left out. A mutant of a line that nothing executes
    survives without a run.
    """
    found, jobs = list[Any](), list[Job]()
    source = (ROOT / FILES[0]).read_text(encoding="utf-8")
    code = "".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "minitri").rglob("*.py")))
    for name, text in {**_case_texts(), **{t: (ROOT / t).read_text(encoding="utf-8") for t in TESTS}}.items():
        kept = RESULTS.parent / f"reached-{_hash(code + name + text)}.json"
        if kept.exists():
            found += json.loads(kept.read_text(encoding="utf-8"))
        else:
            jobs.append(Job(str(kept), FILES[0], source, "mutation:reaching", (name,), 20 * SECONDS))
    for outcome in run(jobs, workers):
        nothing = {"seconds": outcome.seconds, "lines": {}, "failed": outcome.error or "no test"}
        rows = outcome.value or [{"name": outcome.job.args[0], **nothing}]
        RESULTS.parent.mkdir(exist_ok=True)
        Path(outcome.job.name).write_text(json.dumps(rows), encoding="utf-8")
        found += rows
    for row in (r for r in found if r["failed"]):
        print(f"left out, it fails without a mutant: {row['name']}: {row['failed']}", file=sys.stderr)
    return [r for r in (Reach(**row) for row in found) if not r.failed and r.seconds < TEST_SECONDS]


def reaching(name: str) -> list[dict[str, Any]]:
    """In a forked process, without a mutant: the `Reach` of a case, or of each test of a file. Failures have
    `failed`.
    """
    import coverage
    import pytest

    measure = coverage.Coverage(data_file=None, include=[str(ROOT / f) for f in FILES], config_file=False)
    noted = _Noted(measure)
    measure.start()
    if "/" in name:
        pytest.main([*PYTEST, name], plugins=[noted])
    else:
        noted.pytest_runtest_logstart(name)
        noted.failed[name] = _cases([name], ("mask", "emit"))
        noted.pytest_runtest_logfinish(name)
    measure.stop()
    return noted.rows()


class _Noted:
    """Tells the coverage tool which test runs, and records how long each takes."""

    def __init__(self, measure: Any) -> None:
        self.measure, self.seconds, self.failed = measure, dict[str, float](), dict[str, str]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.measure.switch_context(nodeid)
        self.seconds[nodeid] = -time.process_time()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed[report.nodeid] = report.longreprtext[-500:]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = round(self.seconds[nodeid] + time.process_time(), 3)
        self.measure.switch_context("")

    def rows(self) -> list[dict[str, Any]]:
        lines: dict[str, dict[str, list[int]]] = {name: {} for name in ["", *self.seconds]}
        for file in FILES:
            for line, names in self.measure.get_data().contexts_by_lineno(str(ROOT / file)).items():
                for name in names:
                    lines[name].setdefault(file, []).append(line)
        return [
            {"name": n, "seconds": s, "lines": lines[n], "failed": self.failed.get(n, "")}
            for n, s in self.seconds.items()
        ]


def _case_texts() -> dict[str, str]:
    """The cases of the oracle as text. They are not imported, because that would import minitri in this process."""
    tree = ast.parse((Path(__file__).parent / "oracle_quick.py").read_text(encoding="utf-8"))
    table = next(n for n in tree.body if isinstance(n, ast.AnnAssign) and getattr(n.target, "id", "") == "CASES")
    assert isinstance(table.value, ast.Dict)
    rows = zip(table.value.keys, table.value.values)
    return {k.value: ast.unparse(v) for k, v in rows if isinstance(k, ast.Constant) and isinstance(k.value, str)}


def _record(m: Mutant, outcome: Outcome, killers: Counter[tuple[str, str]]) -> None:
    by = outcome.value if outcome.value is not None else outcome.error
    result = Result(m.key, m.file, m.operator, m.was, m.now, bool(by), by, round(outcome.seconds, 2))
    for place in (m.file, _function_key(m)):
        killers[place, _killer(by)] += 1
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(result)) + "\n")
    if not by:
        print(f"{m.file} {m.operator}\n  - {m.was}\n  + {m.now}", flush=True)


def results() -> list[Result]:
    """The latest result of each mutant."""
    if not RESULTS.exists():
        return []
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return list({r.key: r for r in (Result(**json.loads(line)) for line in lines)}.values())


# ---- figures ---------------------------------------------------------------------------


def equivalent() -> dict[tuple[str, str, str], str]:
    """(file, was, now) → why no test can notice the change."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return {(r["file"], r["was"], r["now"]): r["why"] for r in rows}


def surviving() -> dict[tuple[str, str, str], str]:
    """(file, was, now) → why no test has noticed the change yet. One reason may cover several mutants."""
    rows = tomllib.loads(SURVIVING.read_text(encoding="utf-8")).get("reason", [])
    return {(r["file"], was, now): r["why"] for r in rows for was, now in r["mutants"]}


def figures() -> dict[str, Any]:
    """For each file: how many mutants its present text has, how many are killed or equivalent, the score, and the
    survivors with reasons.
    """
    known, why, surviving_why = {r.key: r for r in results()}, equivalent(), surviving()
    table: dict[str, Any] = {}
    tried = {r.file for r in known.values()}
    for file in (f for f in FILES if f in tried):
        found = [(m, known.get(m.key)) for m in mutants(file)]
        ran = [(m, r) for m, r in found if r is not None]
        survivors = [m for m, r in ran if not r.killed]
        same = [m for m in survivors if (m.file, m.was, m.now) in why]
        others = [m for m in survivors if m not in same]
        killed = len(ran) - len(survivors)
        counted = len(ran) - len(same)
        table[file] = {
            "mutants": len(found), "run": len(ran), "killed": killed, "equivalent": len(same),
            "score": round(100 * killed / counted, 1) if counted else None,
            "survivors": _listed(others, surviving_why), "same": _listed(same, why),
        }  # fmt: skip
    return table


def _listed(survivors: Sequence[Mutant], why: Mapping[tuple[str, str, str], str]) -> list[dict[str, Any]]:
    rows = [{"line": m.line, "was": m.was, "now": m.now, "why": why.get((m.file, m.was, m.now), "")} for m in survivors]
    return sorted(rows, key=lambda r: (r["line"], r["now"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing with Cosmic Ray's operators.")
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=1 << 30, help="this many of a file, a sample")
    parser.add_argument("--meets", type=int, default=1 << 30, help="against so many cases and so many tests at most")
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
        run_all(options.files, options.jobs, options.most, options.again, options.meets)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
