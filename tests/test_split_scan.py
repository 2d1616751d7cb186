"""The pass split-scan: few long scans are computed in parts. When, in how many programs, and results at every stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

WHOLE = {  # sizes for which scans are not split, along the last axis
    "short": (1, 16383), "many rows": (65, 1 << 20), "nothing": (0, 1 << 20), "no elements": (4, 0),
}  # fmt: skip
CASES: dict[str, tuple[str, tuple[int, ...], str, int]] = {  # program, shape, dtype, kernels
    "a row": ("cumulative_sum(x)", (32768,), "f32", 3),
    "parts of different length": ("cumulative_sum(x)", (40_009,), "f32", 3),
    "rows": ("cumulative_sum(x, axis=1)", (3, 20_000), "f32", 3),
    "columns": ("cumulative_sum(x, axis=0)", (16_411, 5), "f32", 3),
    "short columns": ("cumulative_sum(x, axis=0)", (700, 130), "f32", 3),
    "an axis between others": ("cumulative_sum(x, axis=1)", (2, 16_400, 3), "f32", 3),
    "products": ("cumulative_prod(1 + x / 10000)", (20_011,), "f32", 3),
    "sums in f16": ("cumulative_sum(x)", (17_003,), "f16", 3),
    "with other operations": ("2 * cumulative_sum(where(x > 0, x, 0)) - x", (16_640,), "f32", 3),
    "whole numbers that wrap": ("cumulative_sum(x * 1000000007)", (33_000,), "i32", 3),
    "products of whole numbers": ("cumulative_prod(x * 2 + 1)", (17_003,), "i64", 3),
    "maxima": ("cumulative_max(x)", (20_011,), "f32", 3),
    "minima of columns of whole numbers": ("cumulative_min(x, axis=0)", (16_411, 5), "i32", 3),
    "counts": ("cumulative_sum(x > 0)", (16_640,), "f32", 3),
}


def given(name: str) -> tuple[mt.Program, np.ndarray]:
    text, shape, dtype, _ = CASES[name]
    axes = ", ".join("ABC"[: len(shape)])
    random = np.random.default_rng(0)
    numpy = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64}[dtype]
    x = random.normal(size=shape) if dtype[0] == "f" else random.integers(-99, 99, shape)
    return mt.compile(text, x=f"{dtype}[{axes}]"), x.astype(numpy)


@pytest.mark.parametrize("name", every_second(list(CASES)))
def test_scans_in_parts_are_right(name: str) -> None:
    f, x = given(name)
    assert len(f.lower(x).kernels) == CASES[name][3]
    report = check(f, bind(f.function, [x], {}), ("interpreter", "cuda"))
    assert report.ok, report
    if x.dtype.kind == "i":
        assert np.array_equal(f(x), f.numpy(x))


def test_nan_continues_to_the_end_of_a_scan() -> None:
    x = np.ones(40_000, np.float32)
    x[12_345], x[30_000] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        assert np.array_equal(mt.compile("cumulative_sum(x)", x="f32[N]")(x), np.cumsum(x), equal_nan=True)


@pytest.mark.parametrize("name", list(WHOLE))
def test_scans_that_are_not_split(name: str) -> None:
    rows, length = WHOLE[name]
    f = mt.compile("cumulative_sum(x, axis=1)", x="f32[M, N]")
    assert len(f.lower(M=rows, N=length, target="cuda:90").kernels) == 1


@pytest.mark.parametrize(("rows", "columns", "kernels"), [(511, 64, 1), (512, 64, 3), (512, 16384, 3), (512, 16385, 1)])
def test_few_columns_are_split(rows: int, columns: int, kernels: int) -> None:
    f = mt.compile("cumulative_sum(x, axis=0)", x="f32[M, N]")
    assert len(f.lower(M=rows, N=columns, target="cuda:90").kernels) == kernels


@pytest.mark.parametrize(("axis", "kernels"), [(0, 1), (1, 3)])
def test_memory_decides_what_a_column_is(axis: int, kernels: int) -> None:
    """A scan along the last axis of a transposed array is a scan of columns."""
    f = mt.compile(f"cumulative_sum(x.T, axis={axis})", x="f32[M, N]")
    low = f.lower(M=4096, N=4096, target="cuda:90")
    assert len(low.kernels) == kernels
    if kernels > 1:
        assert "store t0[j, k, i]" in low["kernels"]


def test_scans_of_symbolic_sizes_are_not_split() -> None:
    assert len(mt.compile("cumulative_sum(x)", x="f32[N]").lower(target="cuda:90").kernels) == 1


@pytest.mark.parametrize(("text", "sizes"), [
    ("cumulative_sum(x)", {"A": 1 << 24}), ("cumulative_sum(x, axis=1)", {"A": 4, "B": 1 << 22}),
    ("cumulative_sum(x, axis=0)", {"A": 1 << 20, "B": 64}), ("cumulative_sum(x, axis=0)", {"A": 4096, "B": 8192}), ("cumulative_sum(x, axis=1)", {"A": 64, "B": 1 << 20}),
])  # fmt: skip
def test_parts_fill_a_gpu(text: str, sizes: dict[str, int]) -> None:
    f = mt.compile(text, x=f"f32[{', '.join(sizes)}]")
    grids = [_programs(p) for p in f.lower(**sizes, target="cuda:90").compilation.value("tile").programs]
    assert len(grids) == 3 and grids[0] >= 1024 and grids[2] >= 1024


def _programs(program: Any) -> int:
    return int(np.prod([int(a.tiles) for a in program.grid]))


def test_the_sizes_alone_decide_the_order_of_additions() -> None:
    f, x = given("parts of different length")
    assert f(x).tobytes() == f(x.copy()).tobytes()


def test_neighbours_that_cancel_are_added_in_order() -> None:
    """The sum of a part is the end of its scan. A reduction would add elements that are far apart (random program
    99/9).
    """
    low = mt.compile("cumulative_sum(x[1:] - x[:-1])", x="f32[N]").lower(N=1 << 17, target="cuda:90")
    assert len(low.kernels) == 3 and "reduce." not in low["kernels"]


@pytest.mark.gpu
def test_sums_of_differences_are_as_exact_as_those_of_torch() -> None:
    import torch

    x = torch.randn(1 << 17, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    exact = (x[1:].double() - x[0].double()).norm()
    mine = mt.compile("cumulative_sum(x[1:] - x[:-1], axis=0)", x="f32[M, N]")(x)
    theirs = torch.cumsum(x[1:] - x[:-1], 0)
    errors = [(y.double() - x[1:].double() + x[0].double()).norm() / exact for y in (mine, theirs)]
    assert errors[0] < 2 * errors[1]
