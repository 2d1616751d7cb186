"""The pass for products with converted 8-bit weights: which products, how many parts, which tiles, and results."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st
from strategies import by_types

import minitri as mt
from minitri.graph.ir import Contract
from minitri.hardware.chips import H200
from minitri.kernels.ir import Dot
from minitri.optimize import dequantised_product_cost
from minitri.optimize.product_cost import PACES
from minitri.optimize.schedules.products import TRANSPOSED, choose_tile, is_transposed
from minitri.runtime.schedule_search import propose

X, W, S = "f16[M, K]", "i8[K, N]", "f16[N]"
DEQUANTISED = "x @ (w.astype(f16) * s)"
TYPES = {"x": X, "w": W, "s": S}
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]


# ---- the choice ------------------------------------------------------------------------

MEASURED = {  # (depth, columns): rows, and the parts and tile rows that were fastest on an H200, or within a tenth of it
    (4096, 4096): {8: (4, 16), 32: (4, 32), 64: (4, 64), 128: (4, 128), 512: (1, 128), 768: (1, 256), 1024: (1, 256)},
    (4096, 1024): {8: (8, 16), 32: (8, 32), 64: (8, 64), 128: (8, 128), 256: (4, 128), 512: (4, 128), 768: (4, 256)},
    (4096, 11008): {8: (2, 16), 32: (2, 32), 64: (1, 64), 128: (1, 128), 256: (1, 256), 512: (1, 128)},
    (8192, 8192): {8: (2, 16), 32: (2, 32), 64: (2, 64), 128: (2, 128), 256: (2, 256), 512: (1, 256), 1024: (1, 256)},
    (1024, 4096): {128: (1, 64), 256: (1, 128), 512: (1, 128), 1024: (1, 256)},
    (11008, 4096): {64: (4, 64), 128: (4, 128), 256: (4, 256), 512: (2, 256), 1024: (1, 256)},
}  # fmt: skip


@pytest.mark.parametrize(("depth", "columns"), list(MEASURED))
def test_the_model_chooses_the_fastest_measured_schedule(depth: int, columns: int) -> None:
    wanted = MEASURED[depth, columns]
    found = {m: dequantised_product_cost.choose(H200, 1, m, columns, depth) for m in wanted}
    assert {m: (c.parts, c.pace.rows) for m, c in found.items()} == wanted


@given(
    st.integers(0, 9), st.integers(0, 3000), st.integers(0, 20000), st.integers(0, 20000), st.sampled_from([1, 4, 16])
)
def test_parts_have_equal_depth_and_tiles_are_mostly_full(batch: int, m: int, n: int, depth: int, most: int) -> None:
    parts, pace, _ = dequantised_product_cost.choose(H200, batch, m, n, depth, most)
    assert 1 <= parts <= most and (parts == 1 or depth % (64 * parts) == 0 and depth // parts >= 512)
    assert pace.rows == 16 or m > pace.rows // 2


@pytest.mark.parametrize("m", [8, 24, 50, 100, 200, 700])
@pytest.mark.parametrize(("depth", "columns"), [(4096, 4096), (11008, 4096), (4096, 1000)])
def test_a_part_has_the_tiles_that_the_split_was_chosen_for(m: int, depth: int, columns: int) -> None:
    """Later, the tile of a part is chosen from the sizes of the part alone."""
    parts, pace, _ = dequantised_product_cost.choose(H200, 1, m, columns, depth)
    low = mt.compile(DEQUANTISED, **TYPES).lower(target="cuda:90", M=m, K=depth, N=columns)
    (product,) = [n for n in low.compilation.value("graph.simplified").nodes() if isinstance(n, Contract)]
    assert int(product.a.shape[-1]) == depth // parts
    program = low.compilation.value("tile").programs[0]
    (dot,) = [op for op in program.ops() if isinstance(op, Dot)]
    assert program.axis(dot.tile[0]).block == pace.rows and program.descriptors


def test_there_is_a_tile_for_each_choice() -> None:
    assert set(TRANSPOSED) == {p.rows for p in PACES["transposed"]}
    assert {t.columns for t in TRANSPOSED.values()} == {p.columns for p in PACES["transposed"]}


# ---- the products ----------------------------------------------------------------------

CASES: dict[str, tuple[str, dict[str, str], bool]] = {
    "a scale of columns": (DEQUANTISED, TYPES, True),
    "a scale of rows": (DEQUANTISED.replace("s)", "s[:, None])"), TYPES | {"s": "f16[K]"}, True),
    "a scale and a zero point": ("x @ ((w.astype(f16) - z) * s)", TYPES | {"z": "f16[N]"}, True),
    "without a scale": ("x @ w.astype(bf16)", {"x": "bf16[M, K]", "w": W}, True),
    "unsigned": (DEQUANTISED, TYPES | {"w": "u8[K, N]"}, True),
    "a transposed factor": ("x @ (w.astype(f16) * s[:, None]).T", TYPES | {"w": "i8[N, K]"}, True),
    "a batch": (DEQUANTISED, {"x": "f16[B, M, K]", "w": "i8[B, K, N]", "s": "f16[B, 1, N]"}, True),
    "a part of the depth": ("x[:, 512:] @ (w[512:].astype(f16) * s)", TYPES, True),
    "the first factor is computed too": ("relu(x) @ (w.astype(f16) * s)", TYPES, False),
    "more arithmetic": ("x @ tanh(w.astype(f16) * s)", TYPES, False),
    "weights of 16 bits": ("x @ (w.astype(f16) * s)", TYPES | {"w": "i16[K, N]"}, False),
    "a product in f32": ("x.astype(f32) @ (w.astype(f32) * s)", TYPES, False),
    "a scale of 8 bits": ("x @ (w * s.astype(f16))", TYPES | {"w": "f16[K, N]", "s": "i8[N]"}, False),
    "weights as the first factor": ("(w.astype(f16) * s[:, None]).T @ x", {"w": "i8[K, N]", "x": "f16[K, M]", "s": "f16[K]"}, False),
}  # fmt: skip
SIZES = {"B": 2, "M": 24, "K": 4096, "N": 640}


def sizes(types: dict[str, str], known: dict[str, int]) -> dict[str, int]:
    return {n: size for n, size in known.items() if any(n in t[t.index("[") :] for t in types.values())}


@pytest.mark.parametrize("name", list(CASES))
def test_products_with_converted_weights_are_transposed_and_split(name: str) -> None:
    """With few rows they are multiplied transposed and in parts, and descriptors load both factors."""
    text, types, wanted = CASES[name]
    low = mt.compile(text, **types).lower(target="cuda:90", **sizes(types, SIZES))
    (before,) = [n for n in low.compilation.value("graph.packed").nodes() if isinstance(n, Contract)]
    kernel = low.compilation.value("kernels").kernels[0]
    assert dequantised_product_cost.is_converted(before) == is_transposed(kernel) == wanted
    if wanted:
        (after,) = [n for n in low.compilation.value("graph.simplified").nodes() if isinstance(n, Contract)]
        parts = dequantised_product_cost.choose(
            H200, 2 if "B" in types["x"] else 1, 24, 640, depth := int(before.a.shape[-1])
        ).parts
        assert parts > 1 and int(after.a.shape[-1]) == depth // parts
        assert low["triton"].count(".load([") == 2


def test_products_with_more_arithmetic_are_transposed_but_not_split() -> None:
    """The cost model does not cover such products, but bytes are still converted in registers."""
    low = mt.compile("x @ relu(w.astype(f16) * s)", **TYPES).lower(target="cuda:90", **sizes(TYPES, SIZES))
    (product,) = [n for n in low.compilation.value("graph.packed").nodes() if isinstance(n, Contract)]
    assert not dequantised_product_cost.is_converted(product) and is_transposed(
        low.compilation.value("kernels").kernels[0]
    )


def test_few_rows_of_bytes_and_of_other_weights_are_not_transposed() -> None:
    """Both products share a kernel, whose axes have one order."""
    types = TYPES | {"v": "f16[K, N]"}
    text = "silu(x @ (w.astype(f16) * s)) * (x @ relu(v))"
    low = mt.compile(text, **types).lower(target="cuda:90", **sizes(types, SIZES | {"K": 512}))
    (kernel,) = low.compilation.value("kernels").kernels
    first, second = (op for op in kernel.body if isinstance(op, Dot))
    order = [a.name for a in kernel.axes]
    assert first.tile == second.tile and order.index(first.tile[0]) < order.index(first.tile[1])


@pytest.mark.parametrize(("m", "rows"), [(16, {16, 32}), (32, {16, 32, 64}), (128, {64, 128, 256}), (1024, {128, 256})])
def test_tuning_tries_tiles_with_a_fitting_number_of_rows(m: int, rows: set[int]) -> None:
    """The tiles have about as many rows as the product. All candidates use descriptors."""
    plan = mt.compile(DEQUANTISED, **TYPES).lower(target="cuda:90", M=m, K=4096, N=4096).compilation.plan
    row = next(op.tile[0] for op in plan.kernels[0].body if isinstance(op, Dot))
    tried = propose(plan, interpreter=False, effort="max")
    assert {o.blocks[row] for o in tried} <= rows and len(tried) > 1 and all(o.descriptors for o in tried)


@pytest.mark.parametrize(("depth", "described"), [(2048, True), (2040, False)])
def test_small_products_have_no_descriptors(depth: int, described: bool) -> None:
    low = mt.compile(DEQUANTISED, **TYPES).lower(target="cuda:90", M=16, K=depth, N=512)
    assert low.compilation.value("tile").programs[0].descriptors is described


def test_products_with_stored_weights_are_split_as_other_products() -> None:
    for s in ("s", "s[:, None]"):  # without a scale, and with a scale that cannot be factored out
        types = TYPES | {"s": "f16[N]" if s == "s" else "f16[K]"}
        low = mt.compile(DEQUANTISED.replace("s)", f"{s})"), **types).lower(target="cuda:90", M=1280, K=16384, N=512)
        (product,) = [n for n in low.compilation.value("graph.packed").nodes() if isinstance(n, Contract)]
        assert not dequantised_product_cost.is_converted(product)
        assert len(low.kernels) == 3 and low["graph.simplified"].count("contract") == 1


def test_blocks_divide_the_depth_of_a_part() -> None:
    """Each of 4 parts has depth 2752, which is 43 blocks of 64."""
    kernel = (
        mt.compile(DEQUANTISED, **TYPES)
        .lower(target="cuda:90", M=128, K=11008, N=4096)
        .compilation.value("kernels")
        .kernels[0]
    )
    chosen = choose_tile(kernel, 128, 4096, 2752, 4, H200)
    assert chosen.tile == (128, 64, 64, 4, 4) and chosen.descriptors
    assert (
        choose_tile(kernel, 128, 4096, 1000, 1, H200).tile.depth == 128
    )  # no block divides this depth: the last block has zeros


# ---- results ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, (*_, wanted) in CASES.items() if wanted])
def test_every_stage(name: str) -> None:
    """Small ragged sizes. The cuda variants of `check` test the schedules of a GPU."""
    text, types, _ = CASES[name]
    report = mt.compile(text, **types).check(*by_types(types, {"B": 2, "M": 5, "K": 70, "N": 33}))
    assert report.ok, report


def test_parts_at_every_stage() -> None:
    f, known = mt.compile(DEQUANTISED, **TYPES), {"M": 3, "K": 2048, "N": 33}
    assert "f32[4, 3, 33] = contract" in f.lower(target="cuda:90", **known)["graph.simplified"]
    report = f.check(*by_types(TYPES, known))
    assert report.ok, report


SHAPES = [(1, 1000, 4096), (2, 4096, 512), (7, 1024, 1000), (16, 4096, 4096), (17, 11008, 256), (33, 4096, 100), (64, 1000, 520),
          (100, 8192, 264), (129, 4096, 1024), (200, 4096, 4096), (700, 2048, 4096)]  # fmt: skip


@pytest.mark.parametrize("shape", [pytest.param(s, marks=GPU) for s in SHAPES])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_on_a_gpu(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    made = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    random = torch.Generator("cuda").manual_seed(m)
    x = torch.randn(m, k, device="cuda", generator=random).to(made)
    w = torch.randint(-128, 128, (k, n), device="cuda", dtype=torch.int8, generator=random)
    s = torch.rand(n, device="cuda", generator=random).to(made)
    f = mt.compile(f"x @ (w.astype({dtype}) * s)", x=f"{dtype}[M, K]", w=W, s=f"{dtype}[N]")
    wanted = x.double() @ (w.to(made) * s).double()
    for weights in (w, w.T.contiguous().T):
        results = [f(x, weights, s) for _ in range(3)]
        assert all(torch.equal(r, results[0]) for r in results)
        error = (results[0].double() - wanted).norm() / wanted.norm()
        assert error < (1e-3 if dtype == "f16" else 4e-3)
        assert ((results[0].double() - wanted).abs() <= 0.02 * wanted.abs().max()).all()
