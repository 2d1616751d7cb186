"""The cost model of products (minitri/optimize/product_cost.py): tiles and parts of f32 products, and few tiles."""

from __future__ import annotations

import pytest

import minitri as mt
from minitri.graph.ir import Contract
from minitri.hardware.chips import H200
from minitri.optimize.product_cost import TF32_PARTS, cheapest, has_few_tiles
from minitri.optimize.schedules.products import LARGE

# (batch, rows, columns, depth): the parts, and the rows and columns of a tile, that were fastest on an H200, or within a tenth of it
MEASURED = {
    (1, 256, 256, 4096): (16, 64, 64),
    (1, 512, 512, 1024): (4, 64, 64),
    (1, 412, 1000, 4100): (4, 128, 128),
    (1, 16384, 16384, 64): (1, 64, 64),
    (1, 4096, 1000, 256): (1, 128, 128),
    (1, 2048, 2048, 2048): (1, 128, 128),
    (16, 512, 512, 512): (1, 128, 128),
}


@pytest.mark.parametrize("sizes", list(MEASURED))
def test_the_model_chooses_the_fastest_measured_schedule(sizes: tuple[int, int, int, int]) -> None:
    batch, rows, columns, depth = sizes
    few = has_few_tiles(H200, batch, rows, columns)
    parts = [1 << k for k in range(8) if k == 0 or few and depth >= 128 << k]
    found, pace = cheapest(H200, TF32_PARTS, parts, batch, rows, columns, depth)
    assert (found, pace.rows, pace.columns) == MEASURED[sizes]


@pytest.mark.parametrize("sizes", list(MEASURED))
def test_programs_have_the_parts_and_tiles_of_the_model(sizes: tuple[int, int, int, int]) -> None:
    batch, m, n, k = sizes
    parts, rows, columns = MEASURED[sizes]
    low = mt.compile("x @ w.mT", x="f32[B, M, K]", w="f32[B, N, K]").lower(target="cuda:90", B=batch, M=m, N=n, K=k)
    (product,) = [node for node in low.compilation.value("graph.simplified").nodes() if isinstance(node, Contract)]
    assert product.precision == "tf32x3" and (parts == 1) == (len(low.kernels) == 1)
    assert int(product.a.shape[-1]) == (-(-k // parts) + 63) // 64 * 64 if k % parts or k // parts % 4 else k // parts
    assert f"by {rows}" in low["tile"] and f"by {columns}" in low["tile"]


def test_each_measured_pace_has_a_tile() -> None:
    assert [(t.rows, t.columns) for t, _ in LARGE["tf32x3"]] == [(p.rows, p.columns) for p in TF32_PARTS]


@pytest.mark.parametrize(("m", "n", "few"), [(512, 512, True), (1024, 1056, False), (8192, 64, True), (0, 64, True)])
def test_few_tiles(m: int, n: int, few: bool) -> None:
    assert has_few_tiles(H200, 1, m, n) == few
