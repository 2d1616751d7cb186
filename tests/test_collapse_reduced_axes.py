"""The pass collapse-reduced-axes: sums over neighbouring axes become one sum, which may be split into parts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from short_profile import every_second

import minitri as mt
from minitri.optimize.split_reduction import ALIGNED, BLOCK, MOST_PARTS, _length
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

SHAPES = {"x": "f32[A, B, C]", "y": "f32[A, B, C]", "b": "f32[C]", "s": "f32[A]"}
COLLAPSED = {  # text: the axes of x that become one
    "sum(x)": "d0//5025, (d0//75)%67, d0%75",
    "mean(x * y + 2)": "d0//5025, (d0//75)%67, d0%75",
    "sum(x, axis=(0, 1))": "d0//67, d0%67, d1",
    "max(x) + sum(exp(x - max(x)))": "d0//5025, (d0//75)%67, d0%75",
    "var(x)": "d0//5025, (d0//75)%67, d0%75",
}
OUTER = (  # a bias lacks an axis; another order; gaps: only the two outer axes become one, which gives more parts
    "sum(x + b)", "sum(x), sum(x + b)", "sum(x + y[::-1])", "sum(x[:, :, ::2])",
)  # fmt: skip
COLLAPSED |= dict.fromkeys(OUTER, "d0//67, d0%67, d1")
APART = (  # axes without a common border; one axis; rows that are short enough for one program
    "sum(x, axis=(0, 2))", "sum(x, axis=2)", "sum(x, axis=(1, 2))", "sum(x * s[:, None, None], axis=(1, 2))",
)  # fmt: skip


def compiled(text: str) -> mt.Program:
    """The program, with the parameters that its text names."""
    return mt.compile(text, **{n: t for n, t in SHAPES.items() if re.search(rf"\b{n}\b", text)})


def arrays(f: mt.Program, random: np.random.Generator) -> list[Any]:
    sizes = {"A": 70, "B": 67, "C": 75}
    shapes = {n: [sizes[d] for d in t[4:-1].split(", ")] for n, t in SHAPES.items()}
    return [random.normal(size=shapes[p.name]).astype(np.float32) for p in f.function.params]


@pytest.mark.parametrize("text", every_second([*COLLAPSED, *APART]))
def test_neighbouring_reduced_axes_become_one(text: str) -> None:
    f = compiled(text)
    graph = f.lower(A=70, B=67, C=75, target="cuda:90")["graph.simplified"]
    assert (f"index = [{COLLAPSED[text]}]" in graph) if text in COLLAPSED else ("//" not in graph), graph
    report = check(f, bind(f.function, arrays(f, np.random.default_rng(0)), {}), ("interpreter", "cuda"))
    assert report.ok, report


def test_sums_of_the_same_array_share_a_kernel() -> None:
    """Not all axes of `sum(x + b)` can become one. So other sums of x keep the same axes, and one kernel reads x once."""
    for text, whole in (
        ("sum(x), sum(x + b)", False),
        ("sum(x), max(x), sum(y + b)", True),
        ("sum(x * y), sum(y + b)", False),
    ):
        low = compiled(text).lower(A=70, B=67, C=75, target="cuda:90")
        assert ("d0//5025" in low["graph.simplified"]) is whole
        assert low["kernels"].count(" = load x[") == 1


@pytest.mark.parametrize("shape", [(1, 1, 5000), (3, 1, 4099), (70, 67, 1), (2, 0, 7), (130, 130, 2)], ids=str)
@pytest.mark.parametrize("text", ["sum(x)", "sum(x, axis=(1, 2))", "logsumexp(x, axis=(0, 1))", "var(x)"])
def test_short_and_empty_axes(text: str, shape: tuple[int, ...]) -> None:
    if 0 in shape and not text.startswith("sum"):
        shape = (2, 3, 7)
    f = compiled(text)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    report = check(f, bind(f.function, [x], {}), ("interpreter", "cuda"))
    assert report.ok, report


def test_an_array_with_gaps_stays_as_it_is() -> None:
    """With gaps, its addresses would need quotients and remainders."""
    f, x = mt.compile("sum(x)", x="f32[M, N]"), np.ones((1001, 1998), np.float32)
    for given_, joined in ((x[:, ::2], False), (x[:, :999].copy(), True), (x[:999].T, False)):
        low = f.lower(given_, target="cuda:90")
        assert ("//" in low["graph.simplified"]) is joined and "//" not in low["kernels"]
        report = check(f, bind(f.function, [given_], {}), ("cuda",))
        assert report.ok, report


def test_addresses_have_no_quotients() -> None:
    low = compiled("mean(x * y + 2)").lower(A=700, B=670, C=75, target="cuda:90")
    first = low["triton"].partition("def k0")[2].partition("def k1")[0]
    assert "r_start" in first and not set(re.findall(r"//|%", first))


@given(st.integers(2, 10**9), st.integers(2, 1024), st.booleans())
def test_lengths_of_parts(extent: int, parts: int, any_start: bool) -> None:
    """All parts but the last have equal length. Their number is close to the wanted one, and their starts are
    aligned.
    """
    parts = min(parts, extent // 1024 or 1)
    length = _length(extent, parts, any_start)
    made = -(-extent // length)
    assert 0 < length <= extent
    assert parts // 2 <= made <= min(2 * parts + 1, MOST_PARTS)
    if not any_start and length >= 1024:
        assert length % ALIGNED == 0
        assert extent % length == 0 or length % (BLOCK if length >= 8 * BLOCK else 1024) == 0


COLUMNS = {  # a reduced array: the number of parts, so that two or four programs of each multiprocessor read it
    ("f32", 1024, 4096): 4, ("bf16", 1024, 4096): 8, ("i8", 4096, 4096): 8, ("f64", 1024, 4096): 2, ("f32", 2048, 1024): 16,
    ("f32", 600, 128): 4, ("f32", 511, 128): 1, ("f32", 1024, 16384): 1, ("bf16", 1024, 16384): 2, ("f32", 16384, 256): 64,
    ("bf16", 65536, 512): 64, ("f32", 4096, 16384): 4, ("f32", 1 << 20, 64): 1024, ("f32", 4096, 0): 1,
}  # fmt: skip
ONLINE = {  # chains of reductions, as in softmax: a program holds the columns of a part whole
    ("f32", 1024, 4096): 4, ("bf16", 1024, 4096): 4, ("f64", 1024, 4096): 4, ("f32", 1024, 16384): 4,
    ("bf16", 1024, 16384): 4, ("f32", 600, 128): 10, ("bf16", 65536, 512): 256, ("f32", 4096, 16384): 16,
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "rows", "columns"), list(COLUMNS))
def test_reduced_columns_are_split_into_parts(dtype: str, rows: int, columns: int) -> None:
    several = ONLINE if dtype != "i8" else {}
    texts = {"max(x, axis=0)": COLUMNS, "softmax(x, axis=0)" if several else "argmax(x, axis=0)": COLUMNS | several}
    for text, parts in texts.items():
        wanted = parts[dtype, rows, columns]
        graph = mt.compile(text, x=f"{dtype}[M, N]").lower(target="cuda:90", M=rows, N=columns)["graph.simplified"]
        assert f"[{wanted}, {-(-rows // wanted)}, {columns}]" in graph if wanted > 1 else "*d0 + d1" not in graph


@pytest.mark.parametrize("rows", [511, 512, 777, 1024])
@pytest.mark.parametrize(
    "text", ["sum(x, axis=0)", "softmax(x, axis=0)", "var(x, axis=0)", "argmin(x, axis=0)", "logsumexp(x, axis=0)"]
)
def test_short_columns_in_parts_are_right(text: str, rows: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
    x[:, 1], x[rows // 2, 2] = -np.inf, np.nan
    f = mt.compile(text, x="f32[M, N]")
    report = check(f, bind(f.function, [x], {}), ("cuda",))
    assert report.ok, report
