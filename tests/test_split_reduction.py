"""The pass split-reduction: reductions that reduce each row first, because another reduction or scan runs over rows. tests/test_passes.py and
tests/test_collapse_reduced_axes.py test other parts. The last tests are about results of the elements that a reduction
reads in parts: they share the kernel of its first step.
"""

from __future__ import annotations

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.kernels.demand import plain_axis
from minitri.kernels.ir import Store
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

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


def test_rows_that_are_columns_in_memory_are_parts_only_if_they_fill_half_of_the_chip() -> None:
    """One program reduces 64 neighbouring rows of a transposed array."""
    f = mt.compile("sum(x * x), max(x, axis=1)", **X)
    for rows, by_rows in ((2048, False), (8192, True)):
        x = np.zeros((64, rows), np.float32).T
        found = f.lower(x, target="h100").compilation.value("graph.simplified").splits
        assert (rows in [s.parts for s in found]) == by_rows, found


@pytest.mark.parametrize(
    "text", ["max(abs(pad(x, ((0, 0), (1, 0)))))", "var(pad(cumulative_sum(x, axis=1), ((0, 0), (1, 0))), axis=1)"]
)
def test_padded_columns_are_reduced_in_parts(text: str) -> None:
    """Long rows of an array that is transposed in memory are long columns."""
    x = np.zeros((4095, 256), np.float32).T
    low = mt.compile(text, **X).lower(x, target="h100")
    splits = low.compilation.value("graph.simplified").splits
    assert splits and all(s.parts >= 16 for s in splits), splits
    report = mt.compile(text, **X).check(np.random.default_rng(0).normal(size=(600, 5)).astype(np.float32).T)
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


@pytest.mark.parametrize("name, shape", every_second(list(TOTALS), [(133, 65), (140, 77)]))
def test_results_are_right_at_every_stage(name: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    f = mt.compile(TOTALS[name][0], **X)
    report = f.check(x)
    assert report.ok, report


@pytest.mark.parametrize("value, name", every_second([np.nan, np.inf, -np.inf], list(TOTALS)[:3]))
def test_special_values_of_a_row_reach_the_total(value: float, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((150, 70)).astype(np.float32)
    x[149, 69] = value
    with np.errstate(all="ignore"):
        report = mt.compile(TOTALS[name][0], **X).check(x)
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


@pytest.mark.parametrize(("shape", "axes", "parts"), [
    ((64, 5, 450), (0, 2), 32), ((70, 2, 300), (0, 2), 24), ((300, 40, 80), (0, 2), 25), ((6, 50, 4, 64), (0, 1, 3), 25),
])  # fmt: skip
def test_moments_of_several_axes_are_read_once(shape: tuple[int, ...], axes: tuple[int, ...], parts: int) -> None:
    """A program keeps its part, which has at most 4096 elements, in registers."""
    f = mt.compile(f"mean(x, axis={axes}), var(x, axis={axes})", x=f"f32[{', '.join(map(str, shape))}]")
    low = f.lower(target="cuda:90")
    first, *_ = low.compilation.value("tile").programs
    assert low["triton"].partition("def k1")[0].count("tl.load") == 1
    assert all(a.role != "loop" for a in first.axes)
    assert parts in [int(a.extent) for a in low.compilation.value("kernels").kernels[0].axes]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32) * 3 + 1
    report = check(f, bind(f.function, [x], {}), ("cuda",))
    assert report.ok, report


def test_a_part_of_several_axes_has_at_most_4096_elements() -> None:
    low = mt.compile("var(x, axis=(0, 2))", x="f32[2000, 99, 80]").lower(target="cuda:90")
    assert [int(a.extent) for a in low.compilation.value("kernels").kernels[0].reduced] == [50, 80]


# text, types, kernels on an H100: the first step of the reduction stores the results of the same elements
BESIDE: dict[str, tuple[str, dict[str, str], int]] = {
    "a sum": ("sum(x), x * 2", {"x": "f32[512, 128]"}, 2),
    "transposed": ("mean(x), relu(x).T", {"x": "f32[256, 320]"}, 2),
    "transposed in the sum": ("sum(x.T * x.T), relu(x), x.T + 1", {"x": "f32[384, 300]"}, 2),
    "a half of rows": ("sum(x[:, :64] * x[:, 64:]), x[:, :64] * x[:, 64:] + 1", {"x": "f32[640, 128]"}, 2),
    "columns": ("mean(x, axis=0), x + 1", {"x": "f32[8192, 16]"}, 2),
    "a chain": ("std(x), x * x", {"x": "f32[512, 64]"}, 2),
    "another result of the sum": ("x / sum(x), relu(x)", {"x": "f32[512, 128]"}, 3),
    "results of both kinds": ("max(x), sum(x * y), x - y, x * y", {"x": "f32[256, 256]", "y": "f32[256, 256]"}, 2),
    "broadcast": ("sum(x), x * r", {"x": "f32[512, 128]", "r": "f32[128]"}, 2),
    "an axis of size one": ("sum(x), x[:, None] * 2", {"x": "f32[65536]"}, 2),
    "the first rows": ("sum(x[:128]), x[:128] * 2", {"x": "f32[256, 256]"}, 2),
    # a kernel of their own
    "both orders of axes": ("sum(x), x + y.T", {"x": "f32[256, 256]", "y": "f32[256, 256]"}, 3),
    "a shorter last part": ("sum(x), x * 2", {"x": "f32[257, 131]"}, 3),
    "columns of 12 bytes": ("mean(x, axis=0), x + 1", {"x": "f32[8192, 3]"}, 3),
    "a flipped result": ("sum(x), x[:, ::-1] * 2", {"x": "f32[256, 128]"}, 3),
    "another array": ("sum(x), y * 2", {"x": "f32[512, 128]", "y": "f32[512, 128]"}, 3),
    "a part of each row": ("sum(x[:128]), x[:, :128] * 2", {"x": "f32[256, 256]"}, 3),
    "a diagonal": ("sum(x[0]), einsum('iij->ij', x) * 2", {"x": "f32[8, 8, 16384]"}, 3),
    "the factor of a product": ("sum(x), gelu(x) @ w, gelu(x)", {"x": "f32[512, 128]", "w": "f32[128, 64]"}, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BESIDE))
def test_results_beside_a_reduction_share_its_first_step(name: str) -> None:
    text, types, kernels = BESIDE[name]
    low = mt.compile(text, **types).lower(target="h100")
    assert len(low.kernels) == kernels, low["kernels"]
    stores = [op for k in low.compilation.value("kernels").kernels for op in k.body if isinstance(op, Store)]
    assert all(plain_axis(d) for op in stores for d in op.index), low[
        "kernels"
    ]  # the proofs need an axis for each index


@pytest.mark.parametrize("name", every_second(list(BESIDE)))
def test_results_beside_a_reduction_are_right_at_every_stage(name: str) -> None:
    text, types, _ = BESIDE[name]
    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in t[4:-1].split(",")] for t in types.values()]
    report = mt.compile(text, **types).check(*(rng.standard_normal(shape).astype(np.float32) for shape in shapes))
    assert report.ok, report


def test_a_loop_reads_elements_once_for_a_sum_and_for_results() -> None:
    low = mt.compile("mean(x * y), sigmoid(x * y)", x="f32[262144, 128]", y="f32[262144, 128]").lower(target="h100")
    first, _ = low.compilation.value("tile").programs
    assert [(str(a.extent), a.role, a.block) for a in first.axes] == [("1024", "grid", 1), ("32768", "loop", 2048)]
    assert (low["triton"].partition("def k1")[0].count("tl.load"), first.warps) == (2, 8)


def test_a_block_covers_rows_of_several_axes_without_padding() -> None:
    text = "v = x[..., :2560] * sigmoid(x[..., 2560:])\nreturn mean(v), v + 1"
    low = mt.compile("def f(x: f32[8, 32, 32, 5120]):\n    " + text.replace("\n", "\n    ")).lower(target="h100")
    first, _ = low.compilation.value("tile").programs
    assert [(a.role, a.block) for a in first.axes] == [("grid", 1), ("loop", 4), ("loop", 512)]


def test_results_in_parts_keep_the_layout_of_their_operands() -> None:
    types = {"x": "f32[16, 16, 32, 1023]", "y": "f32[16, 16, 32, 1023]"}
    low = mt.compile("mean((x - y) ** 2), y / 3, x.mT * 2", **types).lower(target="h100")
    strides = [[int(s) for s in b.strides] for b in low.compilation.value("kernels").outputs]
    assert len(low.kernels) == 2
    assert strides == [[], [523776, 32736, 1023, 1], [523776, 32736, 1, 1023]]


def test_long_parts_are_equally_long_if_they_can_be() -> None:
    """201576 * 200 elements have 925 parts of 43584 elements, so a result of all elements is stored in these parts."""
    low = mt.compile("sum(x), x + 1", x="f32[201576, 200]").lower(target="h100")
    assert [[str(a.extent) for a in k.axes] for k in low.compilation.value("kernels").kernels] == [
        ["925", "43584"],
        ["925"],
    ]
