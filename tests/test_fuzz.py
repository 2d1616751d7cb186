"""`minitri fuzz`: it finds planted bugs, shrinks and saves the failing programs, and survives crashes of its workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from short_profile import slow_except
from test_check import Planted, min_for_max, nodes, only, ops, planted

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.cli.main import main
from minitri.fuzz import session
from minitri.fuzz.session import Session, fuzz
from minitri.fuzz.trial import Case, examined, read, trial, written
from minitri.graph.ir import Apply, Node
from minitri.hardware.targets import StageUnavailable
from minitri.testing import RandomProgram, random_program, small_random_programs
from minitri.testing.equivalent_programs import RELATIONS, parsed, permuted, renamed, with_dead_code

pytest.importorskip("triton")


def minitri(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def no_maximum(i: Any, node: Node) -> Node | None:
    """A wrong rule: relu keeps negative numbers."""
    match node:
        case Apply(op="maximum", args=(x, _)):
            return x
    return None


# ---- findings --------------------------------------------------------------------------------


def first_failure(seeds: range) -> Case:
    for seed in seeds:
        case = trial(seed).case
        if case is not None:
            return case
    raise AssertionError("nothing was found")


def test_a_planted_bug_is_found_shrunk_and_replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        planted(patch, Planted("simplify", nodes(no_maximum)))
        case = first_failure(range(174, 200))  # the first of these programs in which relu changes a result
        path = tmp_path / "found.mt"
        path.write_text(written(case, path.name), encoding="utf-8")
        assert case.guilty == "simplify" and not case.relation
        assert len(case.program.text.splitlines()) <= 4, case.program.text
        assert all(np.size(v) <= 3 and np.all(np.abs(v) <= 3) for v in case.values)
        result = minitri("fuzz", "--replay", str(path))
        assert result.exit_code == 1 and "the pass `simplify` is wrong" in result.stderr
        answer = json.loads(minitri("fuzz", "--replay", str(path), "--json").stdout)
        assert answer["guilty"] == "simplify" and answer["ok"] is False
    result = minitri("fuzz", "--replay", str(path))  # now without the bug
    assert result.exit_code == 0 and "ok" in result.stderr, result.output
    assert minitri("compile", str(path), "--emit=graph").exit_code == 0  # the saved file is an ordinary module


def test_a_bug_of_the_gpus_schedules_is_found_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, Planted("lower", only("cuda", ops(min_for_max))))
    case = first_failure(range(1, 100))
    assert case.guilty == "lower" and "cuda" in case.said


def test_a_program_that_needs_an_optional_pass_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is right only with the pass. So its results differ from the ones without the pass."""
    right = mt.Program.configured

    def wrong(self: mt.Program, **options: Any) -> mt.Program:
        made = right(self, **options)
        return parsed(self.module.span.text.replace("* 2", "* 3")) if options.get("without") == ("fusion",) else made

    monkeypatch.setattr(mt.Program, "configured", wrong)
    example = RandomProgram("def program(x: f32[N]):\n    return x * 2\n", (), {"N": 3})
    case = Case(example, 0, arguments=[np.ones(3, np.float32)])
    found = examined(case, ("interpreter",)).case
    assert found is not None and found.relation == "without fusion"


def test_a_program_that_is_refused_is_a_finding() -> None:
    example = RandomProgram("def program(x: f32[N]):\n    return x @ undefined\n", (), {})
    found = examined(Case(example, 0), ("interpreter",)).case
    assert found is not None and found.guilty == "refused: MT0101" and "undefined" in found.said


def test_small_blocks_that_triton_refuses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> str:
        raise StageUnavailable("MT0402", "Triton could not compile k0")

    monkeypatch.setitem(examined.__globals__, "_differs", refused)
    example = RandomProgram("def program(x: f32[N]):\n    return x * 2\n", (), {"N": 3})
    outcome = examined(Case(example, 0, arguments=[np.ones(3, np.float32)]), ("interpreter",))
    assert (outcome.case, outcome.pairs, outcome.refused) == (None, 0, len(RELATIONS))


# ---- relations -------------------------------------------------------------------------------

TEXT = "def program(x: f32[N, M], y: f32[M]):\n    v1 = x * y + 1\n    v2 = maximum(v1, y)\n    return v2, v1 - N\n"


@pytest.mark.parametrize("relation", list(RELATIONS))
def test_relations_compute_the_same(relation: str) -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, -2, 3], np.float32)
    for got, want in zip(RELATIONS[relation](TEXT).numpy(x, y), parsed(TEXT).numpy(x, y)):
        np.testing.assert_array_equal(got, want)


def test_relations_change_the_program() -> None:
    assert "multiply y" in permuted("def program(x: f32[N], y: f32[N]):\n    return x * y\n").lower()["graph"]
    joined = "def program(x: f32[N]):\n    return broadcast_to(x, (2,) + x.shape)\n"
    assert permuted(joined).numpy(np.ones(3, np.float32)).shape == (2, 3)
    names = [n for n, _ in renamed(TEXT).parameters]
    assert set(names).isdisjoint({"x", "y", "N", "M"}) and names == sorted(names, reverse=True)
    assert "unused" in with_dead_code(TEXT).module.span.text
    assert with_dead_code(TEXT).lower()["triton"] == parsed(TEXT).lower()["triton"]
    assert with_dead_code("def program():\n    return arange(3)\n").numpy().tolist() == [0, 1, 2]


def test_renaming_leaves_helpers_and_keywords_alone() -> None:
    text = "def scaled(a, by=2):\n    return a * by\n\n\ndef program(a: f32[N], s: float):\n    return sum(scaled(a, by=3), axis=-1) * s * 1e-5\n"
    changed = renamed(text).module.span.text
    assert "def scaled(a, by=2)" in changed and "by=3" in changed and "1e-5" in changed and "axis=-1" in changed
    assert renamed(text).numpy(np.ones(2, np.float32), 1e5) == pytest.approx(6)


# ---- shrinking programs ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_a_recorded_choice_sequence_gives_the_program_of_its_seed(seed: int) -> None:
    example, numbers = small_random_programs.recorded(seed)
    assert (
        repr(example)
        == repr(random_program(seed))
        == repr(small_random_programs.written(small_random_programs.Tape(numbers)))
    )


def test_programs_shrink_to_the_failing_part() -> None:
    seed = next(s for s in range(500) if "softmax" in random_program(s).text)
    _, numbers = small_random_programs.recorded(seed)
    found = small_random_programs.smaller(numbers, lambda example: "softmax" in example.text, tries=400)
    assert "softmax" in found.text and len(found.text.splitlines()) <= 3, found.text
    parsed(found.text)


# ---- files -----------------------------------------------------------------------------------


def arrays() -> dict[str, Callable[[], Any]]:
    x = np.array([[1.5, np.nan, -0.0], [np.inf, 1e-40, 3]], np.float32)
    bf16 = mt.base.types.DTYPES["bf16"].numpy
    return {
        "floats": lambda: x, "transposed": lambda: x.T, "backwards": lambda: x[::-1, ::-2], "number": lambda: 1.25,
        "repeated": lambda: np.broadcast_to(x[:1], (4, 3)), "bf16": lambda: x.astype(bf16), "empty": lambda: x[:0],
        "bools": lambda: x > 1, "large": lambda: np.array([2**63 - 1, -(2**63)]), "u64": lambda: np.array([2**64 - 1], np.uint64),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(arrays()))
def test_saved_arguments_are_read_back(name: str) -> None:
    value = arrays()[name]()
    program = RandomProgram("def program(x: f32[N, M]):\n    return x\n", (), {"N": 2, "M": 3})
    case = Case(program, 7, "permuted", "mask", "cuda", "said\nin two lines", [value])
    back = read(written(case, "case.mt"))
    assert (back.program.text, back.seed, back.relation) == (program.text, 7, "permuted")
    assert (back.guilty, back.variant) == ("mask", "cuda")
    (got,) = back.values
    if isinstance(value, float):
        assert got == value
        return
    assert got.dtype == value.dtype and got.shape == value.shape
    wide = np.float64 if value.dtype.name == "bfloat16" else value.dtype
    np.testing.assert_array_equal(got.astype(wide), value.astype(wide))
    if value.dtype.kind == "f":
        assert np.array_equal(np.signbit(got), np.signbit(value))
    if name in ("transposed", "backwards", "repeated"):
        assert got.strides == value.strides


def test_large_arguments_are_saved_as_their_seed() -> None:
    example = next(e for e in map(random_program, range(200)) if sum(map(np.size, e.arguments(3))) > 5000)
    back = read(written(Case(example, 3, arguments=example.arguments(3)), "case.mt"))
    assert back.arguments is None
    for got, want in zip(back.values, example.arguments(3)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("text", ["", "x", "# case\n", "# case {}\n", "# case []\n", '# case {"seed": 1}\n# case 2'])
def test_wrong_files_are_errors(text: str) -> None:
    with pytest.raises(CompileError) as raised:
        read(text)
    assert raised.value.code == "MT0003"


# ---- sessions ----------------------------------------------------------------------------------

WORKERS = {
    "crash": "import os, sys; sys.stdin.readline(); print('Fatal: heap', file=sys.stderr, flush=True); os.abort()",
    "hang": "import sys, time; sys.stdin.readline(); time.sleep(60)",
    "fine": "import json, sys\nfor s in sys.stdin: print(json.dumps({'seed': int(s), 'stages': 2, 'pairs': 1, 'refused': 0}), flush=True)",
}


@pytest.mark.parametrize("kind", list(WORKERS))
def test_a_program_that_kills_a_worker_is_a_finding(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "COMMAND", (sys.executable, "-c", WORKERS[kind]))
    monkeypatch.setattr(session, "LIMIT", 0.5 if kind == "hang" else 60)
    summary = fuzz(Session(60, seed=5, jobs=2, directory=tmp_path, programs=3))
    assert summary.counts["programs"] == 3 and len(summary.found) == (0 if kind == "fine" else 3)
    assert (summary.counts["stages"], summary.counts["pairs"]) == ((6, 3) if kind == "fine" else (0, 0))
    for f in summary.found:
        assert f["kind"] == kind
        again = read(Path(f["file"]).read_text(encoding="utf-8"))
        assert again.program.text == random_program(f["seed"]).text
    if kind == "crash":
        assert "Fatal: heap" in summary.found[0]["said"]


def test_fuzzing_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "COMMAND", (sys.executable, "-c", WORKERS["fine"]))
    told: list[int] = []
    summary = fuzz(Session(0.5), lambda s: told.append(s.counts["programs"]))
    assert summary.counts["programs"] == told[-1] > 0


@pytest.mark.parametrize("count", slow_except([1], [1, 3]))
def test_the_command(tmp_path: Path, count: int) -> None:
    result = minitri("fuzz", "--programs", str(count), "--jobs", "1", "-o", str(tmp_path / "found"), "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 0 and answer["programs"] == count and answer["disagreements"] == []
    assert answer["stages"] >= count * 9 and answer["pairs"] == count * len(RELATIONS) and answer["hardware"]
    assert not (tmp_path / "found").exists()


def test_the_command_with_a_disagreement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "COMMAND", (sys.executable, "-c", WORKERS["crash"]))
    result = minitri("fuzz", "--programs", "1", "--jobs", "1", "-o", str(tmp_path))
    assert result.exit_code == 1 and "1 disagreement" in result.stdout and "seed-0-crash.mt" in result.stdout


@pytest.mark.parametrize("budget", ["", "x", "10 minutes", "-1s", "1d", "inf"])
def test_wrong_budgets_are_errors(budget: str) -> None:
    assert minitri("fuzz", "--budget", budget).exit_code == 2


def test_fuzzing_on_a_missing_gpu_is_an_error() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    result = minitri("fuzz", "--on", "gpu", "--programs", "1")
    assert result.exit_code == 3 and "no GPU" in result.stderr
