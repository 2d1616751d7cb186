"""`minitri bench --ablate`: each optimisation is left out of each case. Here: small cases on the CPU, with given
times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import pytest
import room_pages
import torch

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.bench import ablation, measure_case, run
from minitri.bench.ablation import Ablation, Cell, measure, versions_of
from minitri.bench.alternating_timer import Calls, Pace
from minitri.bench.cases import INTERPRETED, TABLE, Case, Input, ablated, cases
from minitri.bench.measure_case import error_of, tensor, within
from minitri.hardware.targets import StageUnavailable
from minitri.optimize.pass_table import OPTIONAL
from minitri.program import Program

TEXT = """
def softmax_of_columns(x: f32[M, N]) -> f32[M, N]:
    return softmax(x, axis=0)
"""
SOFTMAX = Case("softmax", TEXT, (Input("f32", (24, 40)),), lambda x: torch.softmax(x, 0))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call moves 100 bytes, and nothing waits for a GPU."""
    monkeypatch.setattr(ablation.call_costs, "peak", lambda call: call() is not None and 100)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(ablation, "forget", lambda: None)
    monkeypatch.setattr(measure_case, "SETS", 2)


def clock(peers: Mapping[str, Calls], pace: Pace) -> dict[str, float | Exception]:
    """Every version takes 3 seconds, except the whole program, which takes 2."""
    assert all(call() is not None for calls in peers.values() for call in calls)
    return {name: 3.0 if name else 2.0 for name in peers}


def test_a_cell_is_the_time_relative_to_the_whole_program() -> None:
    cells = measure(SOFTMAX, OPTIONAL, clock, "cpu")
    assert cells and all(c.case == "softmax" and not c.note for c in cells)
    assert all(c.time == 1.5 and c.memory == 1.0 and c.first > 0 for c in cells)
    changed = {c.without for c in cells}
    assert "fusion" in changed and "split-k" not in changed  # a softmax has no product


def test_only_versions_with_other_code_are_measured() -> None:
    x = torch.ones(24, 40)
    versions = versions_of(SOFTMAX, OPTIONAL, [x])
    texts = [v.lower(x, target="interpreter")["triton"] for v in versions.values()]
    assert next(iter(versions)) == "" and len(texts) > 1 and texts[0] not in texts[1:]


def test_a_version_that_is_wrong_or_fails_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Case("wrong", SOFTMAX.program, SOFTMAX.inputs, lambda x: torch.softmax(x, 1))
    assert all("error" in c.note for c in measure(wrong, ["fusion"], clock, "cpu"))

    def fails(self: Program, *args: object) -> None:
        raise CompileError("MT0401", "too much")

    monkeypatch.setattr(Program, "bind", fails)
    cells = measure(SOFTMAX, ["fusion"], clock, "cpu")
    assert [c.note for c in cells] == ["error[MT0401]: too much"] and cells[0].best == float("inf")


def test_the_table_names_the_case_on_which_an_optimisation_matters_most() -> None:
    cells = [Cell("a", "fusion", 1.5, 1.0, 0.9), Cell("b", "fusion", 2.25, 3.0, 1.0), Cell("a", "skip", note="wrong")]
    found = Ablation("a GPU", ["fusion", "skip", "peel"], cells)
    lines = str(found).splitlines()
    assert any(line.split() == ["fusion", "2", "2.25", "3.00", "1.00", "b"] for line in lines)
    assert any(line.split() == ["peel", "0", "-", "-", "-", "-"] for line in lines)
    matrix = found.matrix().splitlines()
    assert any(line.split() == ["fusion", "1.50", "2.25"] for line in matrix)
    assert any(line.split() == ["skip", "wrong"] for line in matrix)
    assert matrix[-2:] == ["1: a", "2: b"]
    assert room_pages.from_dict(asdict(found)) == found


def test_there_are_enough_cases_and_names_choose_among_them() -> None:
    assert len(ablated([])) >= 16 and {c.name for c in cases("ablation")} <= {c.name for c in ablated([])}
    assert [c.name for c in ablated(["band sum"])] == ["band sum f32 8192x8192"]
    for name in TABLE["ablated"]["names"]:
        assert ablated([name]), name


def test_a_version_for_the_interpreter_has_times_of_the_host() -> None:
    (interpreted,) = (c for c in cases("ablation") if c.kind == INTERPRETED)
    cells = measure(interpreted, ["interpreter-schedules", "tensor-descriptors"], ablation.wall_times, "cpu")
    assert [(c.without, c.note) for c in cells] == [("interpreter-schedules", "")] and cells[0].time > 2


@pytest.mark.parametrize("case", cases("ablation"), ids=lambda c: c.name)
def test_torch_computes_the_same_as_an_extra_case(case: Case) -> None:
    """The comparison is in f64, as in the ablation."""
    torch.manual_seed(0)
    arrays = [tensor(i._replace(shape=tuple(min(n, 70) for n in i.shape)), "cpu") for i in case.inputs]
    reference = case.eager(*[a.double() if a.is_floating_point() else a for a in arrays])
    assert error_of(mt.compile(case.program)(*arrays), [reference]) <= within(case)


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.torch.cuda, "is_available", lambda: False)
    with pytest.raises(StageUnavailable, match="needs a GPU"):
        run.main([], ablate=True)
