"""The pass boundary-peeling: when it computes complete tiles apart, what it prints, and that results stay equal."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt
from minitri.explain import explain
from minitri.explore.provenance import Trace
from minitri.runtime.call_binding import bind
from minitri.tiles.text import parse_programs
from minitri.trust.check_passes import check

PROGRAMS = {  # text, types → whether the program is peeled
    "an odd length": ("x + 1", {"x": "bf16[1000001]"}, True),
    "half a vector": ("x + 1", {"x": "bf16[1000004]"}, True),
    "a complete vector": ("x + 1", {"x": "bf16[1000008]"}, False),
    "a complete vector of a wider dtype": ("x + 1", {"x": "f32[1000004]"}, False),
    "two dtypes": ("astype(x, f16)", {"x": "f32[1000004]"}, True),
    "two arrays of odd rows": ("x + y", {"x": "f32[8641, 777]", "y": "f32[8641, 777]"}, True),
    "odd rows and a bias": ("x + y", {"x": "f32[8641, 777]", "y": "f32[777]"}, True),  # one axis
    "few tiles": ("x + 1", {"x": "f32[4099]"}, False),
    "symbolic sizes": ("x + 1", {"x": "f32[N]"}, False),
    "every second element": ("x[::2] * astype(y[::2], f32)", {"x": "f32[2000003]", "y": "i8[2000003]"}, True),  # stores only
    "from the second column on": ("sum(x[:, 1:], axis=0)", {"x": "f32[4, 1000002]"}, True),
    "a sum in a loop": ("sum(x, axis=1)", {"x": "f32[1000001, 70000]"}, False),
    "nothing": ("x + 1", {"x": "f32[0]"}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_programs_are_peeled_if_accesses_become_wider(name: str) -> None:
    text, types, wanted = PROGRAMS[name]
    low = mt.compile(text, **types).lower(target="cuda:90")
    assert (" peeled {" in low["tile"]) is wanted is ("    else:\n" in low["triton"])
    assert ("lie in i whole are computed apart" in explain(low.compilation)) is wanted
    assert parse_programs(low["tile"], masked=False).programs[0].peeled is wanted


def test_a_peeled_program_has_a_branch() -> None:
    low = mt.compile("x * y", x="f16[1000003]", y="f16[]").lower(target="cuda:90")
    (program,) = low.compilation.value("tile.masked")
    tiles = 1000003 // program.axis("i").block
    _, whole, last = re.split(rf" {{4}}(?:if i_tile < {tiles}|else):\n", low["triton"])
    assert "mask" not in whole and whole.count("tl.load") == last.count("tl.load") == 2
    assert last.count("mask=") == 2 and "i < 1000003" in last
    assert not set(re.findall(r"\b[vm]\d+\b", whole)) & set(re.findall(r"\b[vm]\d+\b", last))


def test_bounds_checks_of_other_axes_stay() -> None:
    f = mt.compile("x[:, :4097] + 1", x="f32[3, 8192]").configured(options=mt.Options({"i": 2, "j": 64}, 1))
    low = f.lower(target="cuda:90")
    _, whole, last = re.split(r" {4}(?:if j_tile < 64|else):\n", low["triton"])
    assert "i < 3" in whole and "j < 4097" not in whole
    assert "i < 3" in last and "j < 4097" in last
    x = np.arange(3 * 8192, dtype=np.float32).reshape(3, 8192)
    report = check(f, bind(f.function, [x], {}), ("interpreter", "cuda"))
    assert report.ok, report


SIZES = [64 * 256 + more for more in (-1, 0, 1, 2, 3, 4, 5, 255, 257)]
TEXTS = {
    "one array": ("x * 2", ["x"]), "two arrays": ("x + y", ["x", "y"]), "slices": ("x[1:] - y[:-1]", ["x", "y"]),
    "a reversed array": ("x[::-1] + y", ["x", "y"]), "a where": ("where(x < y, x, y)", ["x", "y"]),
    "two results": ("(x + y, x > y)", ["x", "y"]), "padding": ("pad(x, 3) * 2", ["x"]), "a gather": ("x[i]", ["x", "i"]),
    "a concat": ("concat([x, y])", ["x", "y"]),
}  # fmt: skip


DTYPES = {"f32": np.float32, "f16": np.float16, "i8": np.int8}


@given(st.sampled_from(sorted(TEXTS)), st.sampled_from(SIZES), st.sampled_from(sorted(DTYPES)), st.integers(0, 9))
def test_peeling_keeps_results(name: str, size: int, dtype: str, seed: int) -> None:
    text, names = TEXTS[name]
    types = {n: f"{'i64' if n == 'i' else dtype}[{size}]" for n in names}
    f = mt.compile(text, **types).configured(options=mt.Options({"i": 256}, 1))
    if name in ("one array", "two arrays", "a where"):
        assert (" peeled" in f.lower(target="cuda:90")["tile"]) is (
            size >= 64 * 256 and size % (4 if dtype == "f32" else 8) > 0
        )
    values = np.random.default_rng(seed).integers(-100, 100, (len(names), size))
    arrays = [v.astype(np.int64 if n == "i" else DTYPES[dtype]) for n, v in zip(names, values)]
    report = check(f, bind(f.function, arrays, {}), ("interpreter", "cuda"))
    assert report.ok, report


def test_programs_whose_accesses_cannot_become_wider_are_not_peeled() -> None:
    """A program stores fewer bytes than one instruction of a thread could, or rows start at any address."""
    for text, kind in (
        ("sum(x)", "f16[1000003]"), ("sum(x, axis=1)", "f32[100001, 256]"), ("max(x, axis=1)", "f16[100001, 777]"),
        ("sum(x, axis=0)", "f32[32, 1000002]"), ("var(x, axis=1)", "f16[100001, 100]"),
    ):  # fmt: skip
        assert "peeled" not in mt.compile(text, x=kind).lower(target="cuda:90")["tile"]


def test_lines_of_both_branches_are_traced() -> None:
    trace = Trace(mt.compile("x * y", x="bf16[1000001]", y="bf16[1000001]").lower(target="cuda:90").compilation)
    rows = dict(zip(trace["triton"].text.splitlines(), trace["triton"].lines))
    whole, last = rows["        tl.store(p2 + i, v5)"], rows["        tl.store(p2 + i, v11, mask=m13)"]
    assert whole == last and len(whole) > 0
    assert rows["    if i_tile < 488:"] == rows["    else:"] >= whole
    assert all(any(map(len, trace[s].lines)) for s in ("ttir", "llir", "ptx"))


TEXT = """
plan main(x: f32[100]) -> out: f32[]

program k0(input x: f32[100], output out: f32[]) warps 1 peeled {
  whole r: 100 by 128
  %0: f32[r] = load x[r]
  %1: f32[] = reduce.sum %0 {over = [r]}
  store out[] %1
}
"""


def test_a_tile_text_may_say_peeled_for_any_program() -> None:
    f = mt.load(TEXT, "tile")
    x = np.arange(100, dtype=np.float32)
    assert f(x) == x.sum()
    assert "peeled" not in f.explain() and "else:" not in f.lower()["triton"]


@pytest.mark.parametrize("more", [-1, 1, 2, 3])
def test_columns_of_few_rows_are_right(more: int) -> None:
    """Each thread stores 16 bytes of sums, although rows start at any address."""
    x = np.random.default_rng(more + 1).integers(-100, 100, (3, 64 * 256 + more)).astype(np.float32)
    f = mt.compile("sum(x, axis=0)", x=f"f32[3, {64 * 256 + more}]").configured(options=mt.Options({"i": 256}, 2))
    assert (" peeled" in f.lower(target="cuda:90")["tile"]) is (more > 0)
    report = check(f, bind(f.function, [x], {}), ("interpreter", "cuda"))
    assert report.ok, report
