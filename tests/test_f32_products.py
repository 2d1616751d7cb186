"""The pass f32-products: f32 matrix products from three TF32 products, its choice, and the check of each sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.base.numpy_array_operations import contract
from minitri.base.operators_unlike_numpy import round_to_tf32
from minitri.base.tf32_splitting import LEAST_DEPTH, SPLIT_SCALE, tf32_parts
from minitri.base.types import f32
from minitri.graph.ir import Contract
from minitri.hardware.chips import has_fast_tf32
from minitri.hardware.targets import Target
from minitri.kernels.ir import Dot, Load
from minitri.optimize import pack_operands
from minitri.optimize.product_cost import PACES
from minitri.runtime.call_binding import bind
from minitri.tiles.ir import Loop
from minitri.trust.check_passes import check

F32 = np.float32
LARGEST, LEAST = np.finfo(F32).max, np.finfo(F32).smallest_subnormal


def wide(rng: np.random.Generator, *shape: int) -> Any:
    """Numbers of both signs and of all magnitudes that have parts, subnormal numbers included."""
    return (rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-149, 100, shape)).astype(F32)


def test_parts_are_tf32_numbers_that_add_up() -> None:
    x = np.concatenate(
        [wide(np.random.default_rng(0), 100_000), F32([0, LEAST, -3 * LEAST, 2.0**-126, 2.0**-136, 2.0**100])]
    )
    high, low = tf32_parts(x)
    assert (round_to_tf32(high) == high).all() and (round_to_tf32(low) == low).all()
    error = np.abs(high.astype(np.float64) + low - x.astype(np.float64) * SPLIT_SCALE)
    assert (error <= np.abs(x) * SPLIT_SCALE * 2.0**-23).all()
    assert (np.abs(low) <= np.abs(x) * (SPLIT_SCALE * 2.0**-11)).all()


@pytest.mark.parametrize("x", [np.inf, -np.inf, np.nan, LARGEST, -(2.0**102)])
def test_numbers_without_parts_have_parts_that_are_nan(x: float) -> None:
    with np.errstate(all="ignore"):
        high, _ = tf32_parts(F32([x]))
    assert not np.isfinite(high).any()


SPECIAL = {  # the first two products of a sum; all others are 0 * 0
    "largest and small": ((LARGEST, 0), (2.0**-100, 0)),
    "largest times nothing": ((LARGEST, 2), (0, 3)),
    "subnormal and large": ((LEAST, 0), (2.0**120, 0)),
    "a subnormal with several bits": ((0x7FFFFF * LEAST, 0), (2.0**20, 0)),
    "low part would be subnormal": ((F32(2.0**-120 * (1 + 2.0**-23)), 0), (2.0**30, 0)),
    "a subnormal result": ((2.0**-70, 2.0**-71), (2.0**-70, 2.0**-75)),
    "an overflow": ((2.0**100, 0), (2.0**100, 0)),
    "an overflow of the scaled sum alone": ((2.0**60, 0), (2.0**60, 0)),
    "infinite": ((np.inf, 1), (-2, 3)),
    "infinity times 0": ((np.inf, 1), (0, 3)),
    "infinities of both signs": ((np.inf, np.inf), (1, -1)),
    "NaN": ((np.nan, 1), (0, 3)),
    "negative zeros": ((-0.0, 0), (1, 0)),
    "terms that cancel": ((2.0**20, -(2.0**20)), (2.0**20, 2.0**20)),
}


def special(name: str, m: int = 5, k: int = 67, n: int = 7) -> tuple[Any, Any]:
    """Factors whose first row and first column give the products of a case. The other elements are ordinary."""
    rng = np.random.default_rng(3)
    x, w = rng.uniform(-1, 1, (m, k)).astype(F32), rng.uniform(-1, 1, (n, k)).astype(F32)
    x[0], w[0] = 0, 0
    x[0, :2], w[0, :2] = SPECIAL[name]
    return x, w


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_are_as_in_ieee_arithmetic(name: str) -> None:
    x, w = special(name)
    got = contract(x, w.T, f32, "tf32x3")
    with np.errstate(all="ignore"):
        (exact,) = F32([np.sum(x[0].astype(np.float64) * w[0])])
    np.testing.assert_allclose(got[0, 0], exact, rtol=2.0**-21)
    with np.errstate(all="ignore"):
        ordinary = x[1:].astype(np.float64) @ w[1:].T
    np.testing.assert_allclose(got[1:, 1:], ordinary, atol=1e-5)


@pytest.mark.parametrize("name", every_second(list(SPECIAL)))
def test_every_stage_has_the_special_values(name: str) -> None:
    """Without a GPU, its kernel runs in the interpreter. The loop after the product runs for tiles with special
    values.
    """
    x, w = special(name, 130, 67, 129)
    f = mt.compile('maximum(matmul(x, w.mT, precision="tf32x3"), -1e30)', x="f32[M, K]", w="f32[N, K]")
    report = check(f, bind(f.function, (x, w), {}), ("cuda",))
    assert report.ok, report


def test_an_unchecked_sum_is_right_or_not_finite() -> None:
    for name in SPECIAL:
        x, w = special(name)
        got, checked = (contract(x, w.T, f32, p) for p in ("tf32x3_unchecked", "tf32x3"))
        same = (got == checked) | ~np.isfinite(got)
        assert same.all(), name
    x, w = special("largest and small")
    assert not np.isfinite(contract(x, w.T, f32, "tf32x3_unchecked")[0, 0])


@pytest.mark.parametrize("k", [64, 500, 2000])
@pytest.mark.parametrize("signed", [False, True])
def test_sums_of_parts_are_as_exact_as_the_bound_says(k: int, signed: bool) -> None:
    rng = np.random.default_rng(k)
    x, w = rng.uniform(-1 if signed else 0, 1, (2, 40, k)).astype(F32)
    exact, size = x.astype(np.float64) @ w.T.astype(np.float64), np.abs(x).astype(np.float64) @ np.abs(w).T
    error = np.abs(contract(x, w.T, f32, "tf32x3") - exact) / size
    assert error.max() < (8 + 52 + k / 32) * 2.0**-24 <= (k + 1) * 2.0**-24 or k == LEAST_DEPTH


# ---- the choice --------------------------------------------------------------------------

NT, NN = {"x": "f32[M, K]", "w": "f32[N, K]"}, {"x": "f32[M, K]", "w": "f32[K, N]"}
LARGE = {"M": 1024, "K": 1024, "N": 512}
SHALLOW = LARGE | {"K": 128}  # too little depth to be split
CHOICES: dict[str, tuple[str, dict[str, str], dict[str, int], str, list[str]]] = {  # the last list: what the products become
    "contiguous along the depth": ("x @ w.mT", NT, LARGE, "cuda:90", ["tf32x3"]),
    "with an epilogue": ("relu(x @ w.mT + 1)", NT, LARGE, "cuda:90", ["tf32x3"]),
    "packed": ("x @ w", NN, LARGE, "cuda:90", ["tf32x3"]),
    "both packed": ("x.mT @ w", {**NN, "x": "f32[K, M]"}, LARGE, "cuda:90", ["tf32x3"]),
    "too small to be packed": ("x @ w", NN, {"M": 64, "K": 1024, "N": 1023}, "cuda:90", ["tf32x3"]),  # its factors are swapped
    "neither packed nor swapped": ("x.mT @ w", {**NN, "x": "f32[K, M]"}, {"M": 64, "K": 1024, "N": 1024}, "cuda:90", ["ieee"]),
    "computed": ("(x * 2) @ tanh(w).mT", NT, {"M": 128, "K": 1024, "N": 1024}, "cuda:90", ["tf32x3"]),
    "IEEE": ('matmul(x, w.mT, precision="ieee")', NT, LARGE, "cuda:90", ["ieee"]),
    "little depth": ("x @ w.mT", NT, {"M": 8192, "K": LEAST_DEPTH - 4, "N": 8192}, "cuda:90", ["ieee"]),
    "few rows": ("x @ w.mT", NT, {"M": 16, "K": 8192, "N": 8192}, "cuda:90", ["ieee"]),
    "small": ("x @ w.mT", NT, {"M": 128, "K": 128, "N": 128}, "cuda:90", ["ieee"]),
    "symbolic rows": ("x @ w.mT", NT, {"K": 1024, "N": 1024}, "cuda:90", ["ieee"]),
    "odd rows": ("x @ w.mT", NT, {"M": 130, "K": 2049, "N": 1024}, "cuda:90", ["tf32x3"]),
    "odd rows, few": ("x @ w.mT", NT, {"M": 64, "K": 2049, "N": 1024}, "cuda:90", ["tf32x3"]),
    "attention": ("softmax(x @ w.mT) @ w", {"x": "f32[8, M, 64]", "w": "f32[8, M, 64]"}, {"M": 1024}, "cuda:90", ["tf32x3"] * 2),
    "attention with few rows": ("softmax(x @ w.mT) @ w", {"x": "f32[8, 16, 64]", "w": "f32[8, M, 64]"}, {"M": 1024}, "cuda:90", ["ieee"] * 2),
    "attention with many scores": ("softmax(x @ w.mT) @ w", {"x": "f32[8, M, 64]", "w": "f32[8, M, 64]"}, {"M": 8192}, "cuda:90", ["ieee"] * 2),
    "attention with a mask of positions": (
        "softmax(where(arange(M) <= arange(M)[:, None], x @ w.mT, -inf)) @ w",
        {"x": "f32[8, M, 64]", "w": "f32[8, M, 64]"}, {"M": 1024}, "cuda:90", ["ieee"] * 2,
    ),
    "two products in one sum": ("x @ w.mT + (x + 1) @ w.mT", NT, {"M": 1024, "K": 1024, "N": 1024}, "cuda:90", ["tf32x3"] * 2),
    "f64": ("x @ w.mT", {"x": "f64[M, K]", "w": "f64[N, K]"}, LARGE, "cuda:90", ["ieee"]),
    "16 bits": ("x @ w.mT", {"x": "f16[M, K]", "w": "f16[N, K]"}, LARGE, "cuda:90", ["ieee"]),
    "Ampere": ("x @ w.mT", NT, LARGE, "a100", ["tf32x3"]),
    "slow tensor cores": ("x @ w.mT", NT, LARGE, "rtx4090", ["ieee"]),
    "AMD": ("x @ w.mT", NT, LARGE, "hip:gfx942", ["ieee"]),
    "the interpreter": ("x @ w.mT", NT, LARGE, "interpreter", ["ieee"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_which_products_tensor_cores_compute(name: str) -> None:
    text, types, sizes, target, wanted = CHOICES[name]
    plan = mt.compile(text, **types).lower(target=target, **sizes).compilation.value("kernels")
    assert [dot.precision for kernel in plan.kernels for dot in kernel.dots] == wanted


def test_without_the_room_products_are_ieee_and_nothing_is_packed() -> None:
    low = mt.compile("x @ w", **NN).lower(target="cuda:90", without=["f32-products"], **LARGE)
    kernel = low.compilation.value("kernels").kernels[0]
    assert kernel.dots[0].precision == "f32" and ', "f32")' in low["triton"]
    assert ".tf32" not in low["ptx"]


def test_chips_whose_rates_are_not_known_have_no_fast_tensor_cores() -> None:
    assert has_fast_tf32(Target.parse("cuda:90")) and not has_fast_tf32(Target.parse("cuda:86"))


SMALL_PARTS = ("WORTH_OF_PARTS", "WORTH_OF_COPY", "SIDE_OF_PARTS", "COLUMNS_OF_PARTS", "LEAST_DEPTH")


@pytest.mark.parametrize(
    ("text", "types", "products"),
    [
        ("x @ w", {"x": "f32[M, K]", "w": "f32[K, N]"}, ["tf32x3"]),  # the factors are swapped
        ("relu(x @ w + 1)", {"x": "f32[B, M, K]", "w": "f32[K, N]"}, ["tf32x3"]),
        ("x.mT @ w.mT", {"x": "f32[B, K, M]", "w": "f32[B, N, K]"}, ["tf32x3"]),
        ("softmax(x @ w.mT) @ w", {"x": "f32[B, M, K]", "w": "f32[B, N, K]"}, ["tf32x3"] * 2),
    ],
)
def test_products_of_any_layout_are_right_at_every_stage(
    text: str, types: dict[str, str], products: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For arrays so small that the interpreter can run the kernels. Infinities and NaN stay in their rows."""
    for constant in SMALL_PARTS:
        monkeypatch.setattr(pack_operands, constant, 1)
    monkeypatch.setitem(PACES, "32", [pace._replace(alone=1e6, beside=1e6) for pace in PACES["32"]])
    sizes = {"B": 2, "M": 35, "K": 68, "N": 36}
    rng = np.random.default_rng(1)
    shapes = [[sizes[d] for d in t[4:-1].split(", ")] for t in types.values()]
    given = [rng.normal(size=shape).astype(F32) for shape in shapes]
    given[0][..., 0, 0], given[0][..., -1, -1] = np.inf, np.nan
    f = mt.compile(text, **types)
    plan = f.lower(*given, target="cuda:90").compilation.value("kernels")
    assert [dot.precision for kernel in plan.kernels for dot in kernel.dots] == products
    report = check(f, bind(f.function, tuple(given), {}), ("cuda",), shrinking=False)
    assert report.ok, report


@pytest.mark.parametrize(("m", "first"), [(512, "w"), (2048, "x")])
@pytest.mark.parametrize("text", ["x @ w", "relu(x @ w + b)"])
def test_swapped_factors_stay_swapped_in_the_kernel(text: str, m: int, first: str) -> None:
    """Copying w for 512 rows would take too long. So w is the first factor: only the second must be contiguous along the depth."""
    f = mt.compile(text, x=f"f32[{m}, 4096]", w="f32[4096, 8192]", b="f32[8192]")
    *_, program = f.lower(target="h200").compilation.value("tile")
    (dot,) = (op for op in program.ops() if isinstance(op, Dot))
    a, _ = program.factors(dot)
    assert isinstance(a, Load) and a.buffer.name == first


@pytest.mark.parametrize("order", ["(1, 2, 0)", "(2, 1, 0)", "(2, 0, 1)", "(0, 1, 2)"])
def test_factors_keep_their_order_if_the_axes_of_a_result_are_permuted(order: str) -> None:
    text, types = f"permute_dims(x @ w, {order})", {"x": "f32[8, 512, 4096]", "w": "f32[8, 4096, 4096]"}
    *_, program = mt.compile(text, **types).lower(target="h200").compilation.value("tile")
    (dot,) = (op for op in program.ops() if isinstance(op, Dot))
    assert program.factors(dot) == (dot.a, dot.b)


def test_a_small_factor_is_copied_for_a_product_of_parts() -> None:
    """The rows of w do not begin at multiples of 16 bytes. A copy takes less time than a product in IEEE arithmetic."""
    low = mt.compile("x @ w.mT", x="f32[744, 4090]", w="f32[64, 4090]").lower(target="h200")
    assert "tf32x3" in low["kernels"] and len(low.kernels) > 1


@pytest.mark.parametrize("dtype, rank", [("f32", 2), ("bf16", 3)])
def test_a_batch_with_normalised_rows_is_one_product_of_parts(dtype: str, rank: int) -> None:
    """A product of TF32 parts shares no loop with the mean of a row, so its batch axis can become rows."""
    text, types = "layer_norm(x) @ w.mT", {"x": f"{dtype}[878, 3, 4096]", "w": f"{dtype}[16, 4096]"}
    low = mt.compile(text, **types).lower(target="h200")
    product = next(n for n in low.compilation.value("graph.rows").nodes() if isinstance(n, Contract))
    assert product.rank == rank
    shapes = [(5, 3, 70), (16, 70)]
    f = mt.compile(text, x="f32[B, M, K]", w="f32[N, K]")
    given = tuple(np.random.default_rng(0).normal(size=s).astype(F32) for s in shapes)
    assert (report := check(f, bind(f.function, given, {}), ("cuda",), shrinking=False)).ok, report


# ---- the check after the loop ------------------------------------------------------------


def loops_of(
    text: str, types: dict[str, str], stage: str = "tile.target", without: tuple[str, ...] = (), **sizes: int
) -> list[Loop]:
    low = mt.compile(text, **types).lower(target="cuda:90", without=without, **sizes)
    (program,) = low.compilation.value(stage)
    return [s for s in program.body if isinstance(s, Loop)]


def test_one_check_follows_the_loop() -> None:
    first, second = loops_of("x @ w.mT", NT, **SHALLOW)
    assert first.carries[0][1].precision == "tf32x3_unchecked"  # type: ignore[union-attr]
    assert second.redo is first.carries[0][0] and second.axes == ("s",)
    (only,) = loops_of("x @ w.mT", NT, without=("deferred-tf32-checks",), **SHALLOW)
    assert only.carries[0][1].precision == "tf32x3" and only.redo is None  # type: ignore[union-attr]


COMPUTED = {  # products with a computed factor: the text, and how many loops add them up
    "outside of the array, the factor is not zero": ('matmul(x + 1, w.mT, precision="tf32x3")', 1),
    "whole blocks of the factor are zero": ('matmul(pad(x + 1, ((0, 0), (40, 40))), pad(w, ((0, 0), (40, 40))).mT, precision="tf32x3")', 3),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("values", ["largest and small", "infinite", "NaN"])
def test_sums_of_computed_factors_are_checked_after_their_loops(name: str, values: str) -> None:
    """A regression: such sums were checked in each iteration, and their factors were not loaded in advance."""
    text, number = COMPUTED[name]
    loops = loops_of(text, NT, M=130, K=67, N=129)
    products = [loop.carries[0][1].precision for loop in loops[:number]]  # type: ignore[union-attr]
    assert products == ["tf32x3_unchecked"] * number
    assert len(loops) == 2 * number and all(loop.redo is loops[0].carries[0][0] for loop in loops[number:])
    x, w = special(values, 130, 67, 129)
    f = mt.compile(text, **NT)
    report = check(f, bind(f.function, (x, w), {}), ("cuda",), shrinking=False)
    assert report.ok, report


def test_the_text_of_a_loop_that_redoes_a_value() -> None:
    low = mt.compile('matmul(x, w.mT, precision="tf32x3")', **NT).lower(target="cuda:90", M=70, K=100, N=50)
    text = low["tile.target"]
    assert "for s {redo = %1} {" in text
    x, w = special("infinite", 70, 100, 50)
    loaded = mt.load(text, "tile.target")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(loaded(x, w), contract(x, w.T, f32, "ieee"), atol=1e-5)
    for wrong in ("%0", "%4"):  # of another type; of the loop before
        with pytest.raises(mt.CompileError):
            mt.load(text.replace("redo = %1", f"redo = {wrong}"), "tile.target")


@pytest.mark.parametrize("without", [(), ("deferred-tf32-checks",)])
def test_tensor_cores_multiply(without: tuple[str, ...]) -> None:
    text = 'matmul(x, w.mT, precision="tf32x3")'
    ptx = mt.compile(text, **NT).lower(target="cuda:90", without=without, M=64, K=64, N=64)["ptx"]
    assert "wgmma" in ptx and ".tf32" in ptx
