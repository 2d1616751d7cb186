"""The benchmark (`minitri bench`): its cases, whose torch version computes the same as the program, and its reports."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_report
import pytest
import sweep_rows
import torch
from short_profile import one_in

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.base.types import items_of
from minitri.bench import cases as table, measure_case, run
from minitri.bench.alternating_timer import Calls, Pace, Run
from minitri.bench.call_costs import Table
from minitri.bench.cases import Case, Input, cases
from minitri.bench.measure_case import (
    COMPUTING,
    COPY_BYTES,
    MOVING,
    as_tensors,
    compare,
    error_of,
    shrunk,
    tensor,
    within,
)
from minitri.bench.result_tables import Peer, Row, as_dict, report
from minitri.cli import terminal
from minitri.hardware.targets import StageUnavailable

FACTS = {"device": "x", "torch": "1", "triton": "2", "copy_bytes_per_second": 1e12}


def wide(x: Any) -> Any:
    """A small array of a case, with floats as f64."""
    return x.double() if x.is_floating_point() else x


def error(case: Case, way: Any) -> float:
    """The error of the reference against a function of torch, for small arrays."""
    arrays = [tensor(i, "cpu") for i in shrunk(case).inputs]
    return error_of(tuple(as_tensors(mt.compile(case.program).numpy(*arrays))), items_of(way(*map(wide, arrays))))


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_torch_computes_the_same(case: Case) -> None:
    for way in filter(None, (case.eager, case.library)):
        assert error(case, way) <= within(case)


@pytest.mark.parametrize("case", list(sweep_rows.cases())[:26], ids=lambda c: c.name)
def test_torch_computes_the_same_as_swept_cases(case: Case) -> None:
    assert error(case, case.eager) <= within(case)


def test_torch_has_the_attention_kernels_of_the_benchmark() -> None:
    from torch.nn.attention import SDPBackend

    assert all(hasattr(SDPBackend, name) for name in table.BACKENDS.values())
    assert all(c.peers and c.library for c in cases() if c.kind in ("attention", "decode"))


@pytest.mark.parametrize("mask", ["causal", "window"])
def test_operations_count_only_pairs_that_the_mask_keeps(mask: str) -> None:
    for case in (*cases(), *cases("ablation")):
        if mask in case.name:
            batch, heads, length, d = case.inputs[0].shape
            place = torch.arange(length)
            assert case.flops == 4 * batch * heads * d * int(table._seen(mask, place[:, None] - place).sum())


def test_weights_are_of_either_sign() -> None:
    given = next(i for case in cases() if case.name.startswith("dequantised") for i in case.inputs if i.dtype == "i8")
    made = tensor(given._replace(shape=(64, 64)), "cpu")
    assert made.min() < -100 and made.max() > 100


def test_names_are_different() -> None:
    assert len({c.name for c in cases()}) == len(cases())


def test_each_kind_of_case_has_its_mean() -> None:
    rows = [Row(f"r{k}", 1e-3, kind, peers={"minitri": Peer(1.0, 0.0), "eager": Peer(t, 0.0), "compile": Peer(2 * t, 0.0)})
            for k, (kind, t) in enumerate([("a", 2.0), ("a", 8.0), ("b", 3.0)])]  # fmt: skip
    text = report(rows, FACTS)
    assert "a, geometric mean of 2 cases: best/ours 4.00 (least 2.00), compile/ours 8.00" in text
    assert "b, geometric mean of 1 cases: best/ours 3.00 (least 3.00), compile/ours 6.00" in text


# ---- a GPU's measurement, on the CPU with small cases --------------------------------------------


class Clock:
    """Calls every peer once. The time is `seconds[name]`, or else a second."""

    def __init__(self, **seconds: float | Exception) -> None:
        self.seconds = seconds
        self.pace = Pace(0.0)
        self.calls: dict[str, int] = {}

    def __call__(self, peers: Mapping[str, Calls], pace: Pace) -> dict[str, float | Exception]:
        self.pace, self.calls = pace, {name: len(calls) for name, calls in peers.items()}
        for calls in peers.values():
            assert all(call() is not None for call in calls)
        return {name: self.seconds.get(name, 1.0) for name in peers}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    monkeypatch.setattr(measure_case, "SETS", 2)
    torch.manual_seed(0)  # for two elements that nearly cancel the relative error has no limit


def case_called(name: str) -> Case:
    return shrunk(next(c for c in cases() if c.name == name))


def copied() -> str:
    return "copied"


@pytest.mark.parametrize("case", one_in(4, cases()), ids=lambda c: c.name)
def test_cases_agree_with_their_reference(case: Case) -> None:
    clock = Clock()
    row = compare(shrunk(case), "cpu", clock, copied)
    assert row.ok and row.ratio("eager") == 1.0, row
    assert clock.calls.pop("copy", 2 if case.flops else 0) == (2 if case.flops else 1)
    assert set(clock.calls.values()) == {2} and clock.calls["minitri"] == 2
    if case.library is not None:
        assert row.peers["library"].error is not None and row.peers["library"].error <= row.within, row
    text = report([row], FACTS)
    assert case.name in text and "WRONG" not in text


def test_a_peer_that_fails_is_a_line_of_the_report() -> None:
    """One failure: our program has other parameters. Another: a peer fails while it is timed."""
    given = Case("too few", cases()[0].program, (Input("f32", (3, 3)),), lambda x: x)
    clock = Clock(compile=RuntimeError("out of memory\nin a long story"))
    row = compare(given, "cpu", clock, copied)
    assert not row.ok and row.peers["eager"].error == 0.0 and "minitri" not in clock.calls
    text = report([row], FACTS)
    assert text.count("failed") == 2 and "too few, minitri: " in text and "too few, compile: out of memory" in text


def test_memory_bound_cases_alternate_with_a_copy() -> None:
    case, clock = case_called("add f32 16384x4096"), Clock(copy=2.0, minitri=1e-6)
    row = compare(case, "cpu", clock, copied)
    assert clock.pace == MOVING and row.copy_bytes_per_second == COPY_BYTES
    moved = 3 * 4 * math.prod(case.inputs[0].shape)
    assert row.floor == moved / COPY_BYTES and as_dict(row)["of_copy"] == pytest.approx(row.floor / 1e-6)
    assert as_dict(row)["copy_bytes_per_second"] == COPY_BYTES


def test_compute_bound_cases_warm_up_longer_and_have_no_copy() -> None:
    clock = Clock()
    row = compare(case_called("matmul bf16 1024"), "cpu", clock, copied)
    assert clock.pace == COMPUTING and COMPUTING.warm_up > MOVING.warm_up and "copy" not in clock.calls
    assert row.copy_bytes_per_second == row.floor == 0.0 and as_dict(row)["of_copy"] is None


@pytest.mark.parametrize("mask", ["causal", "window"])
def test_masked_attention_is_compared_with_full_attention(mask: str) -> None:
    """Full attention alternates with the masked one. It is not a peer, so its different result is not an error."""
    name = f"attention {mask} bf16 4x16x4096x128"
    clock = Clock(minitri=2.0, full=1.0, eager=3.0, library=4.0, cudnn=4.0, flash=4.0, flex=4.0, compile=5.0)
    row = compare(case_called(name), "cpu", clock, copied)
    beside = row.beside["full"]
    assert clock.calls["full"] == 2 and (beside.seconds, beside.error) == (1.0, None) and "full" not in row.peers
    assert row.ok and row.ratio("eager", "compile") == 1.5
    text = report([row], FACTS)
    assert f"{name}: 0.50 times as fast as our own full" in text and "WRONG" not in text
    assert as_dict(row)["beside"] == {"full": {"seconds": 1.0, "error": None, "first": beside.first, "note": ""}}


def test_a_failing_program_for_comparison_is_a_line_of_the_report() -> None:
    case = case_called("add f32 16384x4096")._replace(beside={"other": "def f(x: f32[N]):\n    return x + z\n"})
    row = compare(case, "cpu", Clock(), copied)
    assert row.ok and f"{case.name}, other: " in report([row], FACTS)


@pytest.mark.parametrize(
    ("sizes", "sets"), [((1 << 30,), 1), ((256 << 20,), 1), ((255 << 20,), 2), ((64 << 20, 64 << 20), 2), ((2 << 20,), 64),
                        ((16 << 20, 17 << 20), 8), ((0,), 64)]
)  # fmt: skip
def test_sets_of_inputs_exceed_the_cache_together(
    sizes: Sequence[int], sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_case, "SETS", 64)
    arrays = [torch.empty(n, dtype=torch.int8, device="meta") for n in sizes]
    found = measure_case.rotated(arrays)
    assert len(found) == sets and found[0] is arrays
    assert len({id(a) for given in found for a in given}) == sets * len(arrays)
    assert sets in (1, 64) or (sets - 1) * sum(sizes) < measure_case.ROTATED <= sets * sum(sizes)


def test_copies_of_inputs_are_equal_and_have_their_own_memory() -> None:
    arrays = [torch.randn(3, 4), torch.arange(5)]
    first, second = measure_case.rotated(arrays)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) and a.data_ptr() != b.data_ptr()


def test_each_set_of_inputs_has_its_own_call() -> None:
    again = "def f(x: bf16[M, K], w: bf16[K, N]):\n    return x @ w\n"
    case = case_called("matmul bf16 1024")._replace(beside={"again": again})
    sets = [[measure_case.tensor(i, "cpu") for i in case.inputs] for _ in range(3)]
    beside = {name: partial(measure_case._bound, text, sets) for name, text in case.beside.items()}
    ways = measure_case._implementations(case, sets, Row("", 0.0), False) | beside
    assert {"minitri", "minitri tuned", "eager", "compile", "max-autotune", "again"} <= set(ways)
    for name, make in ways.items():
        for call, (x, w) in zip(make(), sets, strict=True):
            assert torch.allclose(call().double(), x.double() @ w.double(), rtol=1e-2, atol=1e-1), name


# ---- the whole command ---------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A machine that claims to have a GPU. Cases are small and run on the CPU."""
    clock = Clock(minitri=0.5, copy=1.0, full=1.5)
    cuda = SimpleNamespace(is_available=lambda: True, empty_cache=lambda: None)
    made = SimpleNamespace(
        cuda=cuda, int8=torch.int8, empty_like=torch.empty_like, compiler=SimpleNamespace(reset=lambda: None),
        empty=lambda n, dtype, device: torch.empty(n, dtype=dtype) if device == "cuda" else None,
    )  # fmt: skip

    def measured(case: Case, device: str, clock: Any, copy: Run, tune: bool) -> Row:
        assert device == "cuda"
        return compare(shrunk(case), "cpu", clock, copy, tune)

    facts = {"device": "a GPU", "torch": "2", "triton": "3", "minitri": "4"}
    for name, value in {
        "torch": made,
        "gpu_facts": lambda: facts,
        "alternating_times": clock,
        "compare": measured,
        "COPY_BYTES": 1 << 10,
    }.items():
        monkeypatch.setattr(run, name, value)
    return clock


def test_tune_measures_schedules_of_every_program(
    gpu: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tuned programs of two cases take 0.4 instead of 0.5. The report has the longer one of both tuning times."""
    gpu.seconds["minitri tuned"] = 0.4
    path = tmp_path / "found.json"
    assert run.main(["add f32", "row sum f32"], str(path)) == 0
    assert "tuned" not in capsys.readouterr().out
    assert run.main(["add f32", "row sum f32"], str(path), tune=True) == 0
    found = {c["name"]: c["tuning"] for c in json.loads(path.read_text())["cases"]}
    longest = max(found, key=lambda name: found[name])
    assert (
        f"schedules of 2 programs measured, in {found[longest]:.1f} s at most ({longest}); without that 0.80 at least"
        in capsys.readouterr().out
    )
    assert min(found.values()) > 0 and len(gpu.calls) == 5  # our program twice, eager, compiled, and a copy


def test_cases_are_chosen_by_parts_of_their_names_and_by_their_kinds() -> None:
    memory = run.select(["memory"])
    assert memory and {c.kind for c in memory} == {"memory"} and len(memory) == len(run.select(["memory", "add f32"]))
    assert {c.name for c in run.select(["decode", "row sum f32"])} == {
        c.name for c in cases() if c.kind == "decode" or "row sum f32" in c.name
    }
    with pytest.raises(CompileError, match="no case is called `memmory`") as raised:
        run.select(["memmory"])
    assert "memory" in str(raised.value.help)


def test_host_times_are_measured_with_all_cases_or_on_demand(
    gpu: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = run.select(["add f32"])
    monkeypatch.setattr(run, "cases", lambda: few)
    for measured in ("call_times", "first_results"):
        monkeypatch.setattr(run.call_costs, measured, lambda: Table("host time", "us", {"add": {"minitri": 7.25}}))
    shown = []
    for names, calls in (([], False), (["add f32"], False), (["add f32"], True)):
        assert run.main(names, calls=calls) == 0
        shown.append("7.25" in capsys.readouterr().out)
    assert shown == [True, False, True]
    monkeypatch.setattr(run.torch.cuda, "is_available", lambda: False)
    with pytest.raises(StageUnavailable, match="needs a GPU"):
        run.main(["add f32"], calls=True)


def test_a_run_can_be_printed_again_from_its_file(
    gpu: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "found.json"
    monkeypatch.setattr(run, "cases", lambda: [c for c in cases() if "add f32" in c.name or "causal" in c.name])
    host = Table("host time a call", "us", {"add f32 1024": {"minitri": 7.25, "eager": 8.0}})
    for measured in ("call_times", "first_results"):
        monkeypatch.setattr(run.call_costs, measured, lambda: host)
    gpu.seconds["compile"] = RuntimeError("out of memory")
    assert run.main([], str(path)) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["report", str(path)])
    bench_report.main()
    assert capsys.readouterr().out == first and "7.25" in first and "compile: out of memory" in first


def test_a_run_writes_its_results(
    gpu: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "found.json"
    monkeypatch.setattr(terminal, "PLAIN_EVERY", 0.0)
    assert run.main(["add f32", "attention causal"], str(path)) == 0
    shown = capsys.readouterr()
    assert "bench: 50%, attention causal" in shown.err and shown.out.startswith("a GPU, torch 2")
    assert "3.00 times as fast as our own full" in shown.out
    found = json.loads(path.read_text())
    assert found["copy_bytes_per_second"] == 2 * COPY_BYTES
    assert [c["copy_bytes_per_second"] for c in found["cases"]] == [2 * COPY_BYTES, 0.0]
    assert [c["best_over_minitri"] for c in found["cases"]] == [2.0, 2.0]


def test_an_interrupted_run_keeps_its_results(gpu: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, measured = tmp_path / "found.json", run.compare

    def cut(case: Case, *rest: Any) -> Row:
        if "causal" in case.name:
            raise KeyboardInterrupt
        return measured(case, *rest)

    monkeypatch.setattr(run, "compare", cut)
    with pytest.raises(KeyboardInterrupt):
        run.main(["add f32", "attention causal"], str(path))
    assert [c["name"] for c in json.loads(path.read_text())["cases"]] == ["add f32 16384x4096"]


def test_unusable_outputs_are_errors_before_the_run(
    gpu: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CompileError, match="cannot write"):
        run.main(["add f32"], str(tmp_path / "nowhere" / "found.json"))
    monkeypatch.setattr(run.torch.cuda, "is_available", lambda: False)
    with pytest.raises(StageUnavailable, match="no GPU here"):
        run.main(["add f32"], plot_path=str(tmp_path / "found.svg"))
    assert not gpu.calls


def test_results_without_a_gpu_have_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"device": "interpreter", "cases": []}))
    for given in ([str(path)], []):
        monkeypatch.setattr(sys, "argv", ["report", *given])
        with pytest.raises(SystemExit, match=r"\w"):
            bench_report.main()


def test_the_copy_for_comparison_copies(gpu: Clock) -> None:
    assert bool((run.copy_of_memory()() == 1).all())
