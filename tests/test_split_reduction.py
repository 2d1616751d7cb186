"""The pass split-reduction: reductions that reduce each row first, because another reduction or scan runs over rows. tests/test_passes.py and
tests/test_collapse_reduced_axes.py test other parts.
"""

from __future__ import annotations

import numpy as np
import pytest

import minitri as mt

X = {"x": "f32[M, N]"}
# text, kernels for x of [2048, 1024] on an H100: with a row for each part, a total shares the kernel of the rows
TOTALS: dict[str, tuple[str, int]] = {
    "a total of centred rows": ("sum(exp(x - mean(x, axis=1, keepdims=True)))", 2),
    "a maximum of rows with a norm": ("max(x * rsqrt(sum(x * x, axis=1, keepdims=True) + 1))", 2),
    "a total of a scan": ("sum(relu(cumulative_sum(x, axis=1)))", 2),
    "a total and the rows": ("sum(abs(softmax(x))), softmax(x)", 2),
    "a total beside the rows": ("sum(x * x), max(x, axis=1)", 2),
    "a total beside a scan": ("max(x), cumulative_sum(x, axis=1)", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TOTALS))
def test_a_total_shares_the_kernel_of_its_rows(name: str) -> None:
    text, kernels = TOTALS[name]
    low = mt.compile(text, **X).lower(M=2048, N=1024, target="h100")
    assert len(low.kernels) == kernels, low["kernels"]


@pytest.mark.parametrize("rows, parts", [(131, 0), (132, 132), (40000, 40000)])
def test_rows_are_parts_if_they_fill_the_chip(rows: int, parts: int) -> None:
    f = mt.compile(TOTALS["a total of centred rows"][0], **X)
    found = [s.parts for s in f.lower(M=rows, N=512, target="h100").compilation.value("graph.simplified").splits]
    assert (parts in found) if parts else (rows not in found), found


@pytest.mark.parametrize(
    "text",
    ["sum(abs(x)), max(x, axis=2), mean(x)", "sum(x, axis=(0, 2)), softmax(x, axis=2)", "max(x), mean(x, axis=(1, 2))"],
)
def test_rows_of_several_axes_are_read_once(text: str) -> None:
    f = mt.compile(text, x="f32[B, M, N]")
    kernels = f.lower(B=256, M=32, N=256, target="h100").compilation.value("kernels").kernels
    assert sum(b.name == "x" for k in kernels for b in k.buffers) == 1, kernels
    report = f.check(np.random.default_rng(0).standard_normal((133, 2, 65)).astype(np.float32))
    assert report.ok, report


def test_many_rows_are_added_in_parts() -> None:
    low = mt.compile("sum(x * x), max(x, axis=1)", **X).lower(M=65536, N=128, target="h100")
    assert [[str(a.extent) for a in k.axes] for k in low.compilation.value("kernels").kernels] == [
        ["65536", "128"], ["64", "1024"], ["64"]
    ]  # fmt: skip


@pytest.mark.parametrize("columns, rows", [(63, False), (64, True)])
def test_short_rows_are_no_parts(columns: int, rows: bool) -> None:
    f = mt.compile(TOTALS["a total of centred rows"][0], **X)
    splits = f.lower(M=4096, N=columns, target="h100").compilation.value("graph.simplified").splits
    assert (4096 in [s.parts for s in splits]) is rows


@pytest.mark.parametrize("name", list(TOTALS))
@pytest.mark.parametrize("shape", [(133, 65), (140, 77)])
def test_results_are_right_at_every_stage(name: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    f = mt.compile(TOTALS[name][0], **X)
    report = f.check(x)
    assert report.ok, report


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_of_a_row_reach_the_total(value: float) -> None:
    x = np.random.default_rng(0).standard_normal((150, 70)).astype(np.float32)
    x[149, 69] = value
    for text, _ in list(TOTALS.values())[:3]:
        with np.errstate(all="ignore"):
            report = mt.compile(text, **X).check(x)
        assert report.ok, report


@pytest.mark.parametrize("shape", ["20, 8, 64, 512", "4, 3, 200, 900"])
def test_moments_of_parts_of_one_element_share_a_kernel(shape: str) -> None:
    """The parts are the indices of axis 2, so the mean and the variance of a part still run over the same axes."""
    low = mt.compile("var(x, axis=(0, 2, 3))", x=f"f32[{shape}]").lower(target="cuda:90")
    assert len(low.kernels) == 2, low["kernels"]


@pytest.mark.parametrize("rows", [32768, 99000, 200419])
def test_columns_with_a_chain_of_reductions_are_read_once(rows: int) -> None:
    low = mt.compile("var(x, axis=0)", x="f32[M, N]").lower(M=rows, N=600, target="cuda:90")
    first, *_ = low.compilation.value("tile").programs
    assert low["triton"].partition("def k1")[0].count("tl.load") == 1
    assert all(a.role != "loop" and a.block <= 256 for a in first.axes)
