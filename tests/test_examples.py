"""The examples check themselves. Also: memory traffic, timing, profile, tuning and bench without a GPU, and
blocks of any number of elements.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.bench import run as bench
from minitri.bench.cases import cases
from minitri.kernels.memory_traffic import Traffic, traffic
from minitri.profile import profile, time_call
from minitri.runtime.schedule_search import trials
from minitri.runtime.timing import measure
from minitri.runtime.tuning_policy import measured

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples").glob("0*.py"))
PROGRAMS = sorted((ROOT / "examples").glob("*.mt"))
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13)

random = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return random.standard_normal(shape).astype(dtype)


def run(script: str, *args: str) -> str:
    return output(str(ROOT / "examples" / script), *args)


def output(*arguments: str) -> str:
    """The output of Python without a GPU, where every warning is an error."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return done.stdout


# ---- the examples ----------------------------------------------------------------------


ONE_BY_ONE = """
import runpy, sys
for path in list(sys.argv[1:]):
    sys.argv[:] = [path]
    print("====", path)
    runpy.run_path(path, run_name="__main__")
"""


def test_examples_agree_with_numpy() -> None:
    """In one process, because importing torch takes longer than an example does."""
    found = output("-c", ONE_BY_ONE, *map(str, SCRIPTS)).split("==== ")[1:]
    assert [text.partition("\n")[0] for text in found] == [*map(str, SCRIPTS)]
    assert all("differs from numpy by" in text for text in found)  # a script stops if the difference is too large


def test_there_is_an_example_for_each_founding_program() -> None:
    letters = [re.search(r'^"""\((.)\)', s.read_text()) for s in SCRIPTS[:7]]
    assert [m and m[1] for m in letters] == list("abcdefg")
    names = {p.stem for p in PROGRAMS}
    assert names >= {"vector_add", "gelu", "relu_matmul", "matmul", "softmax", "embedding", "attention", "linear"}


def test_vector_add_shows_its_masks() -> None:
    out = run("01_vector_add.py", "--stages")
    assert re.findall(r"^  (\d) +(.*?)  +([01 ]+)$", out, re.M) == [
        ("0", "0 1 2 (3)", "1 1 1 0"), ("1", "3 4 5 (6)", "1 1 1 0"), ("2", "6 7 8 (9)", "1 0 0 0"),
    ]  # fmt: skip
    shown = re.findall(r"^# ---- (\S+) ----$", out, re.M)
    assert shown == list(mt.compile(ROOT / "examples/vector_add.mt").lower(N=7).stages)
    assert ".visible .entry k0" in out  # tiles that use three of four elements compile for a GPU, too
    assert "16384 programs of 1024 elements" in out and "no test, 1024 divides 16777216" in out


def test_matmul_shows_its_tuning_when_asked() -> None:
    assert "fastest" in run("04_matmul.py", "--tune")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_programs_print_every_stage_of_minitri(path: Path) -> None:
    low = mt.compile(path).lower()
    for stage in ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton"):
        assert low[stage].strip()


@pytest.mark.parametrize("name", ["vector_add", "gelu", "relu_matmul", "matmul", "softmax", "embedding", "linear"])
def test_founding_programs_are_one_kernel(name: str) -> None:
    assert len(mt.compile(ROOT / "examples" / f"{name}.mt").lower().kernels) == 1


# ---- blocks of any number of elements --------------------------------------------------


def blocked(text: str, blocks: dict[str, int], **types: str) -> mt.Program:
    """The program with these blocks, for the axes that it has."""
    f = mt.compile(text, **types)
    axes = {a.name for kernel in f.lower().compilation.value("kernels.fused").kernels for a in kernel.axes}
    return f.configured(options=mt.Options(blocks={name: n for name, n in blocks.items() if name in axes}))


@pytest.mark.parametrize("block", [1, 2, 3, 5, 6, 7])
@pytest.mark.parametrize("n", SIZES)
def test_a_block_need_not_be_a_power_of_two(n: int, block: int) -> None:
    add = blocked("x + y", {"i": block}, x="f32[N]", y="f32[N]")
    x, y = normal(n), normal(n)
    report = add.check(x, y)
    assert report.ok, report
    (program,) = add.lower(N=n).compilation.value("tile.masked")
    for axis in program.grid:  # a dimension of size 1 is no axis
        assert axis.tiles == -(-n // block)
        assert axis.lanes == 1 << (block - 1).bit_length()


@pytest.mark.parametrize("blocks", [{"i": 3}, {"i": 3, "j": 5}, {"i": 48, "j": 24, "r": 16}, {"i": 1, "j": 1}])
@pytest.mark.parametrize(
    "text",
    ["softmax(x)", "sum(x, axis=0)", "x.mT + 1", "x @ x.mT", "cumulative_sum(x, axis=1)", "argmax(x, axis=1)"],
)
def test_results_are_right_with_blocks_of_the_caller(text: str, blocks: dict[str, int]) -> None:
    report = blocked(text, blocks, x="f32[M, N]").check(normal(7, 33))
    assert report.ok, report


def test_a_smaller_block_turns_a_row_into_a_loop() -> None:
    f = blocked("sum(x, axis=1)", {"r": 8, "j": 8}, x="f32[M, N]")
    (program,) = f.lower(M=7, N=33).compilation.value("tile.masked")
    assert [(a.role, a.block) for a in program.axes if a.role != "grid"] == [("loop", 8)]
    assert f.check(normal(7, 33)).ok


def test_the_text_has_the_size_of_a_blocks_tile() -> None:
    low = blocked("x + 1", {"i": 3}, x="f32[N]").lower(N=7)
    assert "grid i: 7 by 3 in 4 lanes" in low["tile"]
    assert "lanes tested, a block is 3 of 4 lanes" in low["tile.masked"]


# ---- memory traffic --------------------------------------------------------------------


def moved(f: mt.Program, without: tuple[str, ...] = (), **sizes: Any) -> tuple[Traffic, ...]:
    low = f.lower(without=without, **sizes)
    return traffic(low.compilation.value("kernels"), low.sizes)


def test_traffic_of_a_fused_product() -> None:
    f = mt.compile("relu(x @ w)", x="f32[M, K]", w="f32[K, N]")
    (one,) = moved(f, M=5, K=7, N=3)
    assert (one.reads, one.writes) == ({"x": 5 * 7 * 4, "w": 7 * 3 * 4}, {"out": 5 * 3 * 4})
    product, relu = moved(f, ("fusion",), M=5, K=7, N=3)
    assert product.read == one.read and relu.written == one.written
    assert product.total + relu.total - one.total == 2 * 5 * 3 * 4


@pytest.mark.parametrize("text, types, sizes, read, written", [
    ("x + x", {"x": "f32[N]"}, {"N": 7}, 28, 28),
    ("x[1:] + x[:-1]", {"x": "f32[N]"}, {"N": 7}, 28, 24),
    ("x[::2] * 2", {"x": "f32[N]"}, {"N": 7}, 16, 16),
    ("x + b", {"x": "f16[M, N]", "b": "f16[N]"}, {"M": 5, "N": 3}, 36, 30),
    ("x.mT + 1", {"x": "f64[M, N]"}, {"M": 5, "N": 3}, 120, 120),
    ("w[idx]", {"w": "f32[V, D]", "idx": "i64[N]"}, {"V": 1000, "D": 4, "N": 2}, 16 + 32, 32),
    ("sum(x)", {"x": "f32[N]"}, {"N": 9}, 36, 4),
    ("x + 1", {"x": "f32[N]"}, {"N": 0}, 0, 0),
])  # fmt: skip
def test_traffic_counts_each_element_once(text: str, types: Any, sizes: Any, read: int, written: int) -> None:
    (one,) = moved(mt.compile(text, **types), **sizes)
    assert (one.read, one.written) == (read, written)


# ---- timing, profile, tuning -----------------------------------------------------------


def test_a_warm_up_is_not_counted() -> None:
    calls: list[int] = []
    timing = measure(lambda: calls.append(1), "cpu", repeats=4, warmup=2)
    assert len(calls) == 6 and len(timing.seconds) == 4
    assert min(timing.seconds) <= timing.median <= max(timing.seconds) and "4 runs" in str(timing)
    with pytest.raises(ValueError):
        measure(lambda: None, "cpu", repeats=0)


def test_time_call_takes_any_function() -> None:
    assert time_call(np.add, normal(3), normal(3), repeats=2).device == "cpu"
    assert time_call(np.sum, normal(3), keepdims=True, repeats=2).median > 0


def test_profile_has_a_row_for_each_kernel() -> None:
    f = mt.compile("relu(x @ w)", x="f32[M, K]", w="f32[K, N]").configured(without=("fusion",))
    shown = profile(f, normal(5, 7), normal(7, 3), repeats=2, warmup=1)
    assert [k.name for k in shown.kernels] == ["k0", "k1"]
    assert [k.bytes for k in shown.kernels] == [5 * 7 * 4 + 7 * 3 * 4 + 60, 120]
    assert sum(map(shown.share, shown.kernels)) == pytest.approx(1)
    lines = str(shown).splitlines()
    assert "interpreter" in lines[0] and len(lines) == 4
    assert lines[1].split() == ["kernel", "launches", "programs", "warps", "time", "bytes", "GB/s", "share"]


def test_profile_of_an_empty_array_and_of_torch() -> None:
    f = mt.compile("x + 1", x="f32[N]")
    assert [k.launches for k in profile(f, normal(0), repeats=1).kernels] == [0]
    torch = pytest.importorskip("torch")
    assert [k.programs for k in profile(f, torch.zeros(7), repeats=1).kernels] == [1]


def test_profile_refuses_what_a_call_refuses() -> None:
    with pytest.raises(CompileError) as error:
        profile(mt.compile("x + y", x="f32[N]", y="f32[N]"), normal(3), normal(4))
    assert error.value.code == "MT0304"


def test_tuning_keeps_the_fastest_right_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    f = mt.compile("x @ w", x="f32[M, K]", w="f32[K, N]")
    x, w = normal(33, 20), normal(20, 17)
    candidates = [mt.Options({"i": 16, "j": 16}), mt.Options({"i": 64, "j": 64}), mt.Options({"i": 2**20, "j": 2**20})]
    best = mt.tune(f, x, w, candidates=candidates, repeats=2, show=True)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 5 and sum("fastest" in line for line in shown) == 1
    np.testing.assert_allclose(f.configured(options=best)(x, w), x @ w, rtol=1e-4, atol=1e-5)


def test_tuning_leaves_out_schedules_that_fail_or_are_wrong() -> None:
    expected = normal(5)

    def build(options: mt.Options) -> Any:
        if options.warps == 1:
            raise ZeroDivisionError("division by zero")
        return lambda: expected + (options.warps == 2)

    every = [mt.Options(warps=n) for n in (4, 1, 2, 8)]
    tuning = trials(build, every, expected, "cpu", repeats=1)
    assert [t.timing is None for t in tuning.trials] == [False, True, True, False]
    assert [t.note for t in tuning.trials[1:3]] == ["division by zero", "a different answer"]
    assert "a different answer" in str(tuning)
    assert tuning.summary.endswith("; 1 failed; 1 gave a different answer") and "4 schedules" in tuning.summary
    assert (
        trials(build, every[1:3], expected, "cpu", repeats=1).best.options == every[1]
    )  # no schedule could be measured


def test_tuning_starts_no_measurement_after_its_time() -> None:
    go = threading.Event()

    def build(options: mt.Options) -> Any:
        assert options.warps is None or go.wait(60)
        return lambda: np.ones(3)

    some = [mt.Options(), *(mt.Options(warps=w) for w in (1, 2, 4, 8))]
    try:
        assert len(trials(build, some, np.ones(3), "cpu", repeats=1, seconds=-1).trials) == 1
    finally:
        go.set()


@pytest.mark.parametrize("text", ["x + 1", "softmax(x)", "x @ x.mT", "sum(x)"])
def test_tuning_proposes_for_every_kind_of_program(text: str) -> None:
    tuning = measured(mt.compile(text, x="f32[M, N]"), normal(7, 33), repeats=1)
    assert 1 < len(tuning.trials) <= 8 and all(t.timing for t in tuning.trials), str(tuning)


def test_a_wrong_effort_is_refused() -> None:
    for refused in (
        lambda: mt.compile("x + 1", x="f32[N]", effort="much"),
        lambda: mt.tune(mt.compile("x + 1", x="f32[N]"), normal(3), effort="f32[N]"),
    ):
        with pytest.raises(CompileError, match="effort cannot be") as error:
            refused()
        assert error.value.code == "MT0404"


def test_logs_of_tuning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MINITRI_LOGS", "+autotune")
    options = mt.tune(mt.compile("x + 1", x="f32[N]"), normal(300), repeats=1)
    shown = capsys.readouterr().err
    assert shown.startswith("[autotune] main, x: f32[300]\n") and f"chosen: {options}" in shown
    assert eval(shown.split("chosen: ")[1], {"Options": mt.Options}) == options  # the text can be pasted into a program


# ---- bench without a GPU ---------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def test_bench_without_a_gpu_says_so(no_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    assert bench.main(["softmax", "embedding"], str(path)) == 0
    out = capsys.readouterr().out
    assert (
        "No GPU here" in out
        and "not how fast" in out
        and out.count(" ok") == len(bench.select(["softmax", "embedding"]))
    )
    written = json.loads(path.read_text())
    assert all(c["ok"] for c in written["cases"]) and written["device"] == "interpreter"


def test_bench_names_its_cases(no_gpu: None, tmp_path: Path) -> None:
    assert len(bench.select(())) == len(cases()) == len({c.name for c in cases()})
    with pytest.raises(CompileError, match="no case is called `sofmax`"):
        bench.main(["sofmax"])
    with pytest.raises(CompileError, match="cannot write"):
        bench.main(["add f32"], str(tmp_path / "none" / "bench.json"))
