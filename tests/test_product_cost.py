"""The cost model of products (minitri/optimize/product_cost.py): tiles and parts of products, and copies."""

from __future__ import annotations

import numpy as np
import pytest

import minitri as mt
from minitri.base.dims import Dim
from minitri.base.types import f32
from minitri.graph.ir import Contract, Interner
from minitri.hardware.chips import CHIPS, GENERIC, H200
from minitri.optimize.product_cost import PACES, TF32_PARTS, cheapest, time_of_copy
from minitri.optimize.schedules.products import LARGE
from minitri.optimize.two_step_reductions import padded
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

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
    few = batch * -(-rows // 64) * -(-columns // 64) <= 2 * H200.multiprocessors
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
    assert int(product.a.shape[-1]) == k if parts == 1 else (-(-k // parts) + 63) // 64 * 64
    assert f"by {rows}" in low["tile"] and f"by {columns}" in low["tile"]


@pytest.mark.parametrize("kind", list(PACES))
def test_each_pace_has_a_tile(kind: str) -> None:
    assert [(t.rows, t.columns) for t, _ in LARGE[kind]] == [(p.rows, p.columns) for p in PACES[kind]]


# the programs of 128 by 256 elements, the depth, and the measured time in microseconds (docs/log/benchmarks.md)
@pytest.mark.parametrize(("programs", "depth", "time"), [(512, 4096, 178), (128, 4096, 47), (72, 16384, 157)])
def test_estimated_times_of_16_bit_products_are_near_the_measured_ones(programs: int, depth: int, time: float) -> None:
    assert PACES["16"][0].time(H200, programs, depth) == pytest.approx(time, rel=0.12)


# types, sizes; parts, their length, and the rows and columns of a tile
BY_MODEL = {
    "the last wave": ("bf16[M, K]", "bf16[N, K]", (722, 3000, 16384), (5, 3328, 128, 256)),
    "no idle wave": ("bf16[M, K]", "bf16[N, K]", (1000, 4096, 4096), (1, 4096, 128, 256)),
    "the last wave of TF32 parts": ("f32[M, K]", "f32[N, K]", (722, 3000, 16384), (8, 2048, 128, 128)),
    "few columns": ("f32[M, K]", "f32[N, K]", (512, 16, 4095), (32, 128, 64, 16)),
    "few columns, shallow": ("f32[M, K]", "f32[N, K]", (512, 16, 128), (1, 128, 64, 16)),
    "nothing to multiply": ("f32[M, K]", "f32[N, K]", (512, 16, 0), (1, 0, 64, 16)),
}


@pytest.mark.parametrize("name", list(BY_MODEL))
def test_parts_fill_the_chip(name: str) -> None:
    x, w, (m, n, k), (parts, length, rows, columns) = BY_MODEL[name]
    low = mt.compile("x @ w.mT", x=x, w=w).lower(target="cuda:90", M=m, N=n, K=k)
    splits = [(s.parts, int(s.length)) for s in low.compilation.value("graph.simplified").splits]
    assert splits == ([(parts, length)] if parts > 1 else [])
    assert k == 0 or f"by {rows}" in low["tile"] and f"by {columns}" in low["tile"]


TRANSPOSED = "def f(x: bf16[K, M], y: bf16[K, M]):\n    return x.mT @ y, (x + 0.1 * x ** 3).mT @ y\n"


@pytest.mark.parametrize("depth", [16970, 16976, 8192])
def test_descriptors_load_all_blocks_of_uneven_parts(depth: int) -> None:
    """Parts consist of complete blocks, and a factor that is padded twice has one condition."""
    low = mt.compile(TRANSPOSED).lower(target="cuda:90", K=depth, M=768)
    products = [p for p in low["tile.target"].split("program ") if " dot " in p]
    assert len(products) == 2 and all(p.count("descriptor = ") == 2 for p in products)


def test_padding_twice_is_padding_once() -> None:
    i = Interner()
    x = i.input("x", f32, (Dim.of(3), Dim.of(10)))
    once = padded(i, x, 1, Dim.of(2), 0.0)
    assert padded(i, once, 1, Dim.of(4), 0.0) is padded(i, x, 1, Dim.of(6), 0.0)
    assert padded(i, once, 1, Dim.of(4), -0.0) is not padded(i, x, 1, Dim.of(6), 0.0)
    assert padded(i, once, 0, Dim.of(4), 0.0).shape == (Dim.of(7), Dim.of(12))


@pytest.mark.parametrize(("m", "k", "n"), [(5, 1000, 7), (1, 257, 1), (33, 129, 17), (3, 4095, 16)])
def test_each_stage_of_products_in_parts_is_right(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m)
    x, w = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(n, k)).astype(np.float32)
    f = mt.compile("x @ w.mT + 1", x="f32[M, K]", w="f32[N, K]")
    report = check(f, bind(f.function, (x, w), {}), ("cuda",))
    assert report.ok, report


def test_a_copy_takes_as_long_as_its_bytes() -> None:
    """A kernel that copied 201 MB took 135 microseconds on an H100, whose memory moves 3.35 TB/s."""
    assert 130 < time_of_copy(CHIPS["h100"], 256 * 768 * 256) < 140
    assert time_of_copy(GENERIC["cuda"], 1 << 24) == time_of_copy(H200, 1 << 24) > time_of_copy(H200, 1)
