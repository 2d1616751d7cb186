"""Autotuning: which schedules it measures, which it keeps, and how it decides that a result is right."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scheduled import scheduled

import minitri as mt
from minitri.base import json_disk_cache
from minitri.base.diagnostics import CompileError
from minitri.hardware.targets import Target
from minitri.runtime import tuning_policy as tuning
from minitri.runtime.call_binding import bind
from minitri.runtime.schedule_search import Trial, Tuning, close, propose, trials
from minitri.runtime.timing import Timing
from minitri.runtime.tuning_policy import measured

NAN, INF = float("nan"), float("inf")
CASES = {
    "the same": ([1.0, -2.0, 0.0], [1.0, -2.0, 0.0], True),
    "an error of the largest element's size": ([1.0, 1e6 + 2.0], [1.0, 1e6], True),
    "…which a small one may have too": ([1.5, 1e6], [1.0, 1e6], True),
    "too large an error": ([1.0, 1e6 + 20.0], [1.0, 1e6], False),
    "nan for nan": ([NAN, 1.0], [NAN, 1.0], True),
    "nan for a number": ([NAN, 1.0], [2.0, 1.0], False),
    "a number for nan": ([2.0, 1.0], [NAN, 1.0], False),
    "inf for inf": ([INF, -INF, 1.0], [INF, -INF, 1.0], True),
    "inf with the other sign": ([-INF, 1.0], [INF, 1.0], False),
    "a number for inf": ([3e38, 1.0], [INF, 1.0], False),
    "nothing": ([], [], True),
    "a small element of another row": ([[1.5, 1.0], [1e6, 1e6]], [[1.0, 1.0], [1e6, 1e6]], False),
    "the largest number": ([3e38, 3e38, 1.0], [3e38, 3e38, 1.0], True),
    "zeros for small numbers": ([1e-30, 0.0], [1e-30, 2e-30], False),
}


def test_missing_rows_are_noticed() -> None:
    """One large element in one of many rows does not raise the bound of the other rows."""
    rows = np.tril(np.ones((512, 512), np.float32))
    rows /= rows.sum(1, keepdims=True)
    for make in (np.array, torch.tensor, lambda x: torch.tensor(x).bfloat16()):
        wanted, got = make(rows), make(rows)
        got[32:] = 0
        assert close(wanted, wanted) and not close(got, wanted)


def test_the_error_of_a_sum_is_relative_to_its_terms() -> None:
    for make in (np.float32, torch.tensor):
        got, wanted, scale = (make(x) for x in (3e-6, -2e-6, 30.0))
        assert close(got, wanted, scale) and not close(got, wanted) and not close(make(3e-3), wanted, scale)
    x = np.random.default_rng(0).standard_normal((64, 63)).astype(np.float32)
    x[0, 0] -= np.float32(x.astype(np.float64).sum())
    tuning = measured(mt.compile("sum(x)", x="f32[M, N]"), x, repeats=1)
    assert all(t.timing is not None for t in tuning.trials)


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """`chosen` for a call, as on a GPU. The fake measurement is counted, and the first of some options wins."""
    monkeypatch.setenv("MINITRI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "_key", lambda program, call, context: {"program": program.name})
    wins = [mt.Options(warps=2)]

    def pretended(program: mt.Program, **_: Any) -> Tuning:
        pretended.times += 1
        return Tuning((Trial(wins[0], Timing((1.0,), "cuda:0") if wins[0].warps else None),))

    pretended.times = 0
    monkeypatch.setattr(tuning, "measured", pretended)
    f, x = mt.compile("softmax(x)", x="f32[M, N]", effort="quick"), np.ones((3, 5), np.float32)
    call = bind(f.function, [x], {})

    def choose(options: mt.Options | None = None) -> tuple[mt.Options, int]:
        wins[0] = options or wins[0]
        context = f.context(call, Target.parse("cuda:90"))

        def build(options: mt.Options) -> mt.Options:
            f.compilation(replace(context, options=options)).value("triton")
            return options

        return tuning.chosen(f, call, context, build), pretended.times

    return choose


def test_a_choice_is_measured_once_and_kept(tuned: Callable[..., Any]) -> None:
    assert tuned(mt.Options(warps=2)) == (mt.Options(warps=2), 1)
    assert tuned(mt.Options(warps=8)) == (mt.Options(warps=2), 1)


def test_a_kept_choice_that_does_not_fit_is_measured_again(tuned: Callable[..., Any]) -> None:
    for unfit in ({"blocks": {"zz": 64}}, {"blocks": {"j": 1 << 30}}, {"warps": 3}, {"nothing": 1}, [], "x"):
        json_disk_cache.put("autotune", {"program": "main"}, unfit)
        _, before = tuned()
        json_disk_cache.put("autotune", {"program": "main"}, unfit)
        assert tuned(mt.Options(warps=4)) == (mt.Options(warps=4), before + 1), unfit


def test_without_a_measurement_nothing_is_kept(tuned: Callable[..., Any]) -> None:
    assert tuned(mt.Options()) == (mt.Options(), 1)
    assert tuned(mt.Options(warps=2)) == (mt.Options(warps=2), 2)


def test_a_kept_choice_is_logged(
    tuned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MINITRI_LOGS", "+autotune")
    tuned()
    assert not capsys.readouterr().err  # a measurement prints its own table
    tuned()
    told = f"[autotune] main, x: f32[3, 5]\n[autotune] kept in {tmp_path}: {mt.Options(warps=2)}\n"
    assert capsys.readouterr().err == told


def test_explain_shows_what_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The call of a GPU is simulated; `explain` measures nothing."""
    monkeypatch.setenv("MINITRI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        tuning, "_key", lambda program, call, context: {"program": program.name, "for": str(context.target)}
    )
    monkeypatch.setattr(tuning, "measured", lambda *_, **__: pytest.fail("it is measured"))
    f, x = mt.compile("softmax(x)", x="f32[M, N]", effort="quick"), np.ones((3, 5), np.float32)
    assert 'schedules: the model\'s; effort "quick" measures them for arrays on a GPU\n' in f.explain(x)
    assert "; 1 warps" in f.explain(M=3, N=5) and "schedules:" not in f.configured(effort="none").explain(x)
    monkeypatch.setattr("minitri.program.own_target", lambda call: Target.parse("cuda:100"))
    assert 'none is measured yet, effort "quick" does it at the first call\n' in f.explain(x)
    json_disk_cache.put("autotune", {"program": "main", "for": "cuda:100"}, {"warps": 8})
    page = f.explain(x)
    assert page.startswith("main for cuda:100") and "; 8 warps" in page
    assert f"schedules: measured, kept in {tmp_path}: {mt.Options(warps=8)}\n" in page
    assert "; 8 warps" not in f.explain(x, target="cuda:90") + f.explain(x, options=mt.Options(warps=4))
    f.choices[f.context(bind(f.function, (x,), {}), Target.parse("cuda:100")).key] = mt.Options(warps=2)
    assert "kept in this process" in f.explain(x) and "; 2 warps" in f.explain(x)
    f.choices.clear()
    json_disk_cache.put("autotune", {"program": "main", "for": "cuda:100"}, {"blocks": {"zz": 64}})
    assert "none is measured yet" in f.explain(x)  # the kept choice does not fit this program and is measured again


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("make", [lambda x: np.array(x, np.float32), lambda x: torch.tensor(x, dtype=torch.float32)])
def test_close(name: str, make: Any) -> None:
    got, wanted, expected = CASES[name]
    assert close(make(got), make(wanted)) == expected
    assert close((make(wanted), make(got)), (make(wanted), make(wanted))) == expected


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "uint32", "int64"])
def test_integers_must_be_equal(dtype: str) -> None:
    x, y = np.array([[0, 1], [1, 1]], dtype), np.array([[1, 1], [1, 0]], dtype)
    assert close(x, x) and not close(x, y)
    assert close(torch.from_numpy(x).T, torch.from_numpy(x)) and not close(torch.from_numpy(x), torch.from_numpy(y))


@pytest.mark.parametrize(("dtype", "off", "expected"), [(torch.bfloat16, 1.02, True), (torch.bfloat16, 1.1, False),
                                                       (torch.float64, 1 + 1e-14, True), (torch.float64, 1 + 1e-12, False)])  # fmt: skip
def test_the_allowed_error_depends_on_the_dtype(dtype: torch.dtype, off: float, expected: bool) -> None:
    x = torch.ones((), dtype=dtype)
    assert close((x.double() * off).to(dtype), x) == expected


def test_tiles_of_two_axes_are_tried_in_shapes_that_compile_fast() -> None:
    plan = mt.compile("x.T + y", x="f32[M, N]", y="f32[N, M]").lower(target="cuda:90", M=4096, N=4096).compilation.plan
    (kernel,), found = plan.kernels, propose(plan, False, "full")
    assert all(set(o.blocks) == {a.name for a in kernel.parallel} for o in found) and len(found) >= 8
    assert all(math.prod(o.blocks.values()) <= 128 * 32 * (o.warps or 0) for o in found)
    chosen = scheduled(kernel)
    assert (*(b for _, b in chosen.axes.values()), chosen.warps) not in [(*o.blocks.values(), o.warps) for o in found]


@pytest.mark.parametrize("text, sizes, expected", [
    ("x @ w", (1500, 4096, 4096), [96]),  # 192 tiles in two waves; the default has smaller tiles
    ("x @ w", (3000, 1024, 3000), [96]),  # 288 tiles in three waves
    ("x @ w", (512, 4096, 4096), []),  # 64 tiles: one wave, nothing to repeat
    ("x @ w", (8192, 4096, 8192), []),  # the default is already persistent
    ("(x @ w).astype(f32)", (8192, 4096, 8192), []),  # shared memory is too small
])  # fmt: skip
def test_persistent_kernels_are_tried_for_several_waves_that_fit(
    text: str, sizes: tuple[int, ...], expected: list[int]
) -> None:
    f = mt.compile(text, x="bf16[M, K]", w="bf16[K, N]")
    plan = f.lower(target="cuda:90", **dict(zip("MKN", sizes))).compilation.plan
    assert [o.persistent for o in propose(plan, False, "full") if o.persistent] == expected


def test_tiles_are_no_larger_than_the_array() -> None:
    plan = mt.compile("x.T + y", x="f32[M, N]", y="f32[N, M]").lower(target="cuda:90", M=4, N=100_000).compilation.plan
    (kernel,) = plan.kernels
    found = propose(plan, False, "full")
    short = next(a.name for a in kernel.parallel if a.extent.constant == 4)
    assert {o.blocks[short] for o in found} == {4} and len({str(o) for o in found}) == len(found) > 3


def test_a_candidate_that_compiles_too_long_is_skipped() -> None:
    go = threading.Event()

    def build(options: mt.Options) -> Any:
        if options.warps == 8:
            go.wait(60)
        return lambda: np.ones(3)

    some = [mt.Options(), mt.Options(warps=8), mt.Options(warps=4)]
    try:
        tuning = trials(build, some, np.ones(3), "cpu", repeats=1, seconds=0.2)
    finally:
        go.set()
    assert tuning.best.options == some[0] and [t.note for t in tuning.trials] == ["", "compiles for too long"]


@pytest.mark.parametrize("wrong", [{"candidates": [{"warps": 4}]}, {"repeats": 0}, {"repeats": -1}, {"effort": "some"}])
def test_wrong_arguments_of_tune_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(CompileError) as found:
        mt.tune(mt.compile("x + 1", x="f32[N]"), np.ones(3, np.float32), **wrong)
    assert found.value.code == "MT0404" and found.value.help


def test_arrays_are_named_too() -> None:
    f, x = mt.compile("sum(x * y)", x="f32[N]", y="f32[N]"), np.ones(300, np.float32)
    assert isinstance(mt.tune(f, x, y=x, repeats=1), mt.Options)


def test_the_table_names_each_candidate_differently() -> None:
    timing = Timing((1.0,), "cuda:0")
    made = [
        Trial(mt.Options(descriptors=d, persistent=p), timing) for d, p in ((None, None), (True, None), (True, 132))
    ]
    lines = [line.split("1000")[0] for line in str(Tuning(tuple(made))).splitlines()]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
    "text, shape",
    [
        ("sum(x, axis=1)", (4, 1000000)),
        ("sum(x)", (3000, 3000)),
        ("cumulative_sum(x, axis=1)", (2, 1000000)),
        ("softmax(x, axis=0)", (1000000, 4)),
    ],
)
def test_options_proposed_for_one_shape_are_valid_for_all_shapes(text: str, shape: tuple[int, int]) -> None:
    f, (m, n) = mt.compile(text, x="f32[M, N]"), shape
    proposed = propose(f.lower(M=m, N=n).compilation.plan, False, "full")
    general = {a.name for k in f.lower().compilation.plan.kernels for a in k.axes}
    assert text != "sum(x, axis=1)" or any(set(o.blocks) - general for o in proposed)
    for options in proposed:
        g = mt.compile(text, x="f32[M, N]", options=options)
        for sizes in ({"M": m, "N": n}, {"M": 4096, "N": 4096}, {"M": 1, "N": 1000000}, {"M": 3, "N": 5}, {}):
            assert g.lower(**sizes)["triton"]
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    np.testing.assert_allclose(g(x), f.numpy(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(mt.CompileError, match="no kernel has an axis `zz`"):
        mt.compile(text, x="f32[M, N]", options=mt.Options({"zz": 4})).lower(M=m, N=n)["triton"]


def test_options_of_a_program_are_options() -> None:
    with pytest.raises(mt.CompileError, match="MT0404.*`mt.Options`, not str"):
        mt.compile("x", x="f32[N]", options="f32[N]")  # type: ignore[arg-type]
