"""The gallery of planted bugs (tests/mutants.toml): the oracle notices every bug, and `check` names the wrong pass.

The compiler is patched in forks of a process that has not imported it (tests/patched.py). So the gallery
runs as a separate program, `python tests/mutants.py --json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from typing import Any

import mutation
import oracle_quick
import pytest
from mutants import AFTER, GALLERY
from patched import ROOT, Job, replaced, run

from minitri.optimize.pass_table import PASSES

NAMED = 0.95  # the share of planted bugs whose pass `check` names


def planted(*arguments: str) -> dict[str, dict[str, Any]]:
    """The result for each bug, by name."""
    command = [sys.executable, str(ROOT / "tests" / "mutants.py"), "--json", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_every_bug_is_noticed_and_its_pass_named() -> None:
    judge(planted())


def judge(found: dict[str, dict[str, Any]]) -> None:
    """Asserts that all bugs are noticed, and that `check` names the right pass or the row says why it cannot."""
    assert set(found) == {m.name for m in GALLERY}
    missed = [name for name, row in found.items() if not row["noticed"]]
    assert not missed
    right = {m.name for m in GALLERY if found[m.name]["named"] == m.guilty}
    wrong = {m.name: (m.guilty, found[m.name]["named"], found[m.name]["what"]) for m in GALLERY if m.name not in right}
    assert len(right) >= NAMED * len(GALLERY), wrong
    unexplained = {name: row for name, row in wrong.items() if not next(m for m in GALLERY if m.name == name).unseen}
    assert not unexplained


@pytest.mark.slow
def test_every_bug_is_noticed_by_all_cases_together() -> None:
    """Any case of the oracle may notice the bug. `check` runs all its variants and names the pass."""
    judge(planted("--thorough"))


def test_the_oracle_finds_nothing_wrong() -> None:
    """Each case runs with small blocks, or, if it is too long for them, with the first of its own schedules."""
    for name in sorted({m.case for m in GALLERY}):
        own = oracle_quick.CASES[name].schedules
        assert oracle_quick.first_failure([name], ("small",) if "small" in own else own[:1], AFTER) is None


@pytest.mark.slow
def test_the_oracle_finds_nothing_wrong_in_any_schedule() -> None:
    assert oracle_quick.first_failure(schedules=oracle_quick.ALL) is None


def test_the_gallery_is_complete_and_consistent() -> None:
    """There are many bugs in all passes. None occurs twice, and the case of each exists."""
    assert len(GALLERY) >= 48
    assert len({m.name for m in GALLERY}) == len(GALLERY)
    passes = Counter(m.guilty for m in GALLERY)
    of_the_emitter = {"boundary-peeling"}  # it only decides for the emitter
    assert set(passes) == {p.name for p in PASSES} - {"parse"} - of_the_emitter
    assert all(m.case in oracle_quick.CASES for m in GALLERY)


@pytest.mark.parametrize("mutant", GALLERY, ids=lambda m: m.name)
def test_the_text_of_a_patch_occurs_exactly_once(mutant: Any) -> None:
    """The result of the patch must be valid Python, or a valid table."""
    source = mutant.job("mutants:noticed").source
    tomllib.loads(source) if mutant.file.endswith(".toml") else compile(source, mutant.file, "exec")


def test_a_patch_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        replaced("a b", "c", "d", "a bug")
    with pytest.raises(ValueError, match="stands 2 times"):
        replaced("a a", "a", "b", "a bug")


def test_patched_code_stays_in_its_fork() -> None:
    """The patch runs in another process, because this one has already imported the compiler."""
    with pytest.raises(AssertionError, match="must not be imported"):
        list(run([Job("x", "minitri/base/operators.py", "", "oracle_quick:first_failure")]))


# ---- mutation testing ------------------------------------------------------------------


def test_equivalent_mutants_exist_in_the_present_code() -> None:
    for file, was, now in mutation.equivalent():
        lines = [line.strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert all(line in lines for line in was.splitlines()), f"{file} has changed: {was}"
        assert was != now


def test_each_published_survivor_has_a_reason() -> None:
    """`python tests/reliability.py mutation` lists the survivors."""
    table = json.loads((ROOT / "docs" / "log" / "reliability.json").read_text(encoding="utf-8"))["mutation"]
    published = {(file, m["was"], m["now"]): m["why"] for file, row in table.items() for m in row["survivors"]}
    assert [m for m, why in published.items() if not why] == []


def test_mutation_testing_runs_every_case() -> None:
    assert list(mutation._case_texts()) == list(oracle_quick.CASES)


def test_a_changed_annotation_is_not_a_mutant() -> None:
    meaning = mutation._meaning
    assert meaning("def f(x: int | None) -> int: return x") == meaning("def f(x: int & None) -> str: return x")
    assert meaning("if not not x: y = 1") == meaning("if x: y = 1") != meaning("if not x: y = 1")
    assert meaning("case a | b:") == ""


def test_a_mutant_is_noticed_or_survives() -> None:
    """Two mutants from the text of a file to the verdict: one changes results, the other does not."""
    file = "minitri/tiles/mask.py"
    source = (ROOT / file).read_text(encoding="utf-8")
    changes = {
        "return any(c % axis.block for _, c in axis.extent.terms)": "return False",
        "return Masking(program).run()": "return Masking(program).run() if program else program",
    }
    jobs = [[file, replaced(source, old, new, old)] for old, new in changes.items()]
    call = "import json, sys, patched; jobs = [patched.Job(str(k), f, s, 'mutation:_cases', (['bias'], ('mask',))) for k, (f, s) in enumerate(json.load(sys.stdin))]; print(json.dumps([o.value for job in jobs for o in patched.run([job])]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [sys.executable, "-c", call], input=json.dumps(jobs), capture_output=True, text=True, env=environment
    )
    assert json.loads(done.stdout) == ["bias, own", ""], done.stderr
