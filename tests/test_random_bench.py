"""Random programs in the benchmark: their torch functions, their report, and the slow parts of programs."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import bench_report
import numpy as np
import pytest
import torch
from short_profile import numbers, slow_except
from torch.utils._python_dispatch import TorchDispatchMode

import minitri as mt
from minitri.base.types import items_of
from minitri.bench import measure_case, random_run
from minitri.bench.alternating_timer import Calls, Pace
from minitri.bench.measure_case import tensor
from minitri.bench.random_programs import EVERYDAY, TABLE, RandomProgram, draw
from minitri.bench.random_run import Measure, Session
from minitri.bench.result_tables import Peer, Row

TINY = {"least": 24, "most": 600, "last": (3, 4, 5, 8, 12, 16), "inner": (2, 3, 4, 8), "widths": (1, 3, 8)}
FACTS = {"device": "a GPU", "torch": "1", "triton": "2"}
COUNT = 300


@cache
def tiny_program(number: int) -> RandomProgram:
    return draw(f"7/{number}", "f32", TINY)


def tiny_programs() -> list[RandomProgram]:
    return [tiny_program(k) for k in range(COUNT)]


@pytest.mark.parametrize("number", numbers(100, COUNT))
def test_torch_computes_what_the_reference_computes(number: int) -> None:
    program = tiny_program(number)
    case = program.case()
    torch.manual_seed(0)
    arrays = [tensor(i, "cpu") for i in case.inputs]
    wide = [a.double() if a.is_floating_point() else a for a in arrays]
    ours = mt.compile(case.program.replace("f32", "f64")).numpy(*[a.numpy() for a in wide])
    for a, b in zip(items_of(ours), items_of(case.eager(*wide)), strict=True):
        assert np.shape(a) == tuple(b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9, err_msg=program.text)


def test_every_kind_of_statement_occurs() -> None:
    texts = "\n".join(s.text for p in tiny_programs() for s in p.statements)
    for kind, row in TABLE["kinds"].items():
        for form in (form for forms in row.values() if isinstance(forms, list) for form in forms):
            pattern = re.sub(r"\\{\w+\\}", r"[^\n]+?", re.escape(form))
            assert re.search(f"^{pattern}$", texts, re.MULTILINE), f"no program has the {kind} {form}"


def test_sizes_are_usual_ones() -> None:
    programs = [draw(f"1/{k}", "bf16") for k in range(40)]
    assert programs[0].text == draw("1/0", "bf16").text != draw("2/0", "bf16").text
    sizes = [p.case().inputs[0].shape for p in programs]
    assert all(2**19 < np.prod(shape) <= 2**27 and 1 <= len(shape) <= 4 for shape in sizes)
    assert {"product", "norm", "scan", "up to 4M", "over 32M", "strided", "odd sizes", "several results"} <= {
        word for p in programs for word in p.classes
    }


class Largest(TorchDispatchMode):
    """Records the size in bytes of the largest array that torch allocates. A view allocates none."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.bytes = max(
            self.bytes, *(t.untyped_storage().nbytes() for t in items_of(made) if isinstance(t, torch.Tensor)), 0
        )
        return made


@pytest.mark.parametrize("count", slow_except([60], [60, 200]))
def test_no_array_is_too_large(count: int) -> None:
    """This holds for parameters and for intermediate results of torch, even if they are f32."""
    for k in range(count):
        case = draw(f"1/{k}", "bf16").case()
        with Largest() as found:
            case.eager(*(tensor(i, "meta") for i in case.inputs))
        assert found.bytes <= 4 * 2 * EVERYDAY["most"], case.program


def test_arrays_have_their_layouts() -> None:
    inputs = {i.layout: i for p in tiny_programs() for i in p.arrays.values() if i.dtype == "f32"}
    for layout, given in inputs.items():
        first, second = measure_case.rotated([tensor(given, "cpu")])[0][0], measure_case._copied(tensor(given, "cpu"))
        assert tuple(first.shape) == given.shape and first.stride() == second.stride()
        assert first.is_contiguous() != bool(layout) or 1 in given.shape
    assert set(inputs) == {"", "transposed", "wide rows", "every other"}


# ---- parts -------------------------------------------------------------------------------------


def test_parts_compute_what_the_whole_computes() -> None:
    """A program without its first statement, called with the first value, has the results of the whole program."""
    program = next(p for p in tiny_programs() if len(p.statements) > 3 and len(p.results) == 1)
    *_, rest = program.parts(len(program.statements) - 1)
    torch.manual_seed(0)
    values = {n: tensor(i, "cpu").double() for n, i in program.arrays.items()}
    (first,) = [p for p in program.parts(1) if p.statements[0] is program.statements[0]]
    values[first.results[0]] = first.case().eager(*[values[n] for n in first.arrays])
    whole = program.case().eager(*[values[n] for n in program.arrays])
    assert torch.equal(rest.case().eager(*[values[n] for n in rest.arrays]), whole)


def rows_of(seconds: Callable[[RandomProgram], float], seen: list[str]) -> Measure:
    """A measurement in which eager torch always takes a second."""

    def measure(programs: Sequence[RandomProgram]) -> Iterator[Row]:
        for p in programs:
            seen.append(p.name)
            peers = {"minitri": Peer(seconds(p), 0.0, 0.25), "eager": Peer(1.0, 0.0), "compile": Peer(1.5, 0.0, 3.0)}
            yield Row(p.name, 1e-3, ", ".join(p.classes), peers=peers, program=p.text)

    return measure


def slow_scans(program: RandomProgram) -> float:
    return 2.0 if any(s.kind == "scan" for s in program.statements) else 0.5


def test_a_slow_program_shrinks_to_the_statement_that_is_slow() -> None:
    program = next(p for p in tiny_programs() if sum(s.kind == "scan" for s in p.statements) == 1 < len(p.statements))
    seen: list[str] = []
    measure = rows_of(slow_scans, seen)
    (whole,) = measure([program])
    part = random_run.slowest_part(program, whole, 0.9, measure)
    assert part.program.count(" = ") == 1 and "cumulative_sum" in part.program
    assert len(seen) == 1 + len(program.statements)  # no part of two statements was measured


def test_a_program_of_fast_parts_stays_whole() -> None:
    program = next(p for p in tiny_programs() if len(p.statements) == 4)
    measure = rows_of(lambda p: 2.0 if len(p.statements) == 4 else 0.9, [])
    (whole,) = measure([program])
    assert random_run.slowest_part(program, whole, 0.9, measure) is whole


# ---- a whole run ---------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_run, "draw", lambda seed, dtype: draw(seed, dtype, TINY))
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    monkeypatch.setattr(measure_case, "SETS", 2)


def test_the_report_has_a_line_for_each_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "found.json"
    session = Session(40, seed=3, dtype="f32", shrink=0.9, json=str(path))
    rows, shrunk = random_run.run(session, rows_of(slow_scans, []), FACTS, batch=16)
    slow = sum("scan" in r.kind for r in rows)
    shown = capsys.readouterr().out
    assert "40 programs of f32 from seed 3: 40 right" in shown and len(shrunk) == slow > 0
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines() if line}
    assert lines["scan"][1:] == [str(slow), "0.50", "0.75", "100%", "100%", "100%", "0.50"]
    assert lines["all"][1] == "40" and lines["all"][-1] == "0.50" and lines["all"][4] == f"{slow / 40:.0%}"
    assert lines["minitri"][1:] == ["0.25"] * 3 and lines["compile"][1:] == ["3.00"] * 3
    assert shown.count("the smallest part that is slow: ") == slow
    monkeypatch.setattr(sys, "argv", ["report", str(path)])
    bench_report.main()
    assert capsys.readouterr().out == shown
    found = json.loads(path.read_text())
    assert len(found["cases"]) == 40 and len(found["shrunk"]) == slow and found["seed"] == 3


def test_a_run_ends_when_its_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(random_run, "now", lambda: float(next(clock)))
    path, seen = tmp_path / "found.json", list[str]()
    session = Session(40, dtype="f32", shrink=0.9, budget=20.0, json=str(path))
    rows, shrunk = random_run.run(session, rows_of(slow_scans, seen), FACTS, batch=4)
    assert 0 < len(rows) < 20 and len(seen) == len(rows) and not shrunk
    assert len(json.loads(path.read_text())["cases"]) == len(rows)


def test_programs_are_measured_like_cases(tmp_path: Path) -> None:
    """On the CPU in Triton's interpreter. The worker reports the time of torch.compile."""

    def clock(peers: Mapping[str, Calls], pace: Pace) -> dict[str, float | Exception]:
        return dict.fromkeys(peers, 1.0)

    (tmp_path / "a.best_config").write_text("measured while others used the GPU")
    programs = [tiny_program(k) for k in range(3)]
    with ThreadPoolExecutor(1) as pool:
        rows = list(random_run.measured(programs, "cpu", clock, pool, tmp_path))
    assert not list(tmp_path.iterdir())
    for row, program in zip(rows, programs, strict=True):
        assert row.ok and row.ratio("eager", "compile") == 1.0 and row.program == program.text, row
        assert all((row.peers[name].first or 0) > 0 for name in ("minitri", "compile"))


def test_a_program_that_is_too_large_is_a_line_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*arguments: Any) -> Row:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(random_run, "compare", fails)
    with ThreadPoolExecutor(1) as pool:
        rows = list(random_run.measured([tiny_program(0)], "cpu", lambda *_: {}, pool, tmp_path))
    assert not rows[0].ok
    random_run.run(Session(1, dtype="f32"), lambda programs: iter(rows), FACTS, 1)
    shown = capsys.readouterr().out
    assert "0 right" in shown and "WRONG" in shown and "minitri: CUDA out of memory" in shown


@pytest.mark.parametrize(("error", "said"), [(1e150, "1 right (1 not judged"), (math.nan, "0 right")])
def test_a_program_without_a_correct_digit_is_not_judged(
    error: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """exp(-x * x) of a large product is almost 0, and rounding the product decides about every digit."""
    peers = {"minitri": Peer(1.0, error), "eager": Peer(1.0, 1.0), "compile": Peer(1.0, 1.0)}
    monkeypatch.setattr(random_run, "compare", lambda case, *_: Row(case.name, 1e-3, case.kind, peers=peers))
    with ThreadPoolExecutor(1) as pool:
        rows = list(random_run.measured([tiny_program(0)], "cpu", lambda *_: {}, pool, tmp_path))
    random_run.run(Session(1, dtype="f32"), lambda programs: iter(rows), FACTS, 1)
    assert said in capsys.readouterr().out
