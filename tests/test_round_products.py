"""Products of bf16 arrays that another kernel reads are stored as bf16, and no other product is rounded."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt

TYPES = {"x": "bf16[M, K]", "w": "bf16[K, N]", "b": "bf16[N]"}
BF16 = mt.bf16.numpy

ROUNDED = {
    "a sum over rows": "sum(x @ w, axis=1)",
    "a sum of squares": "sum((x @ w) ** 2, axis=1)",
    "a norm": "(x @ w - mean(x @ w, axis=1, keepdims=True)) / (std(x @ w, axis=1, keepdims=True) + 1)",
    "after a bias": "max(relu(x @ w + b), axis=0)",
    "a scan": "cumulative_sum(x @ w, axis=1)",
    "a softmax": "softmax(x @ w)",
    "a stack": "stack((x @ w, 2 * (x @ w)), axis=0)",
    "padded": "pad(relu(x @ w + b), ((0, 3), (1, 1)))",
    "a batch": "sum(reshape(x @ w, (1, M, N)), axis=2)",
}
KEPT = {
    "nothing is reduced": ("relu(x @ w + b)", TYPES),
    "a comparison": ("sum(where(x @ w > 1, b, 0), axis=1)", TYPES),
    "a position": ("take_along_axis(x @ w, argmax(x @ w, axis=1)[:, None], axis=1)", TYPES),
    "floor": ("sum(floor(x @ w), axis=1)", TYPES),
    "another product": ("softmax(x @ w) @ w.mT", TYPES),
    "an f32 result": ("astype(sum(x @ w, axis=1), f32)", TYPES),
    "f16": ("sum(x @ w, axis=1)", {"x": "f16[M, K]", "w": "f16[K, N]"}),
    "f32": ("sum(x @ w, axis=1)", {"x": "f32[M, K]", "w": "f32[K, N]"}),
    "a factor is f16": ("sum(x @ astype(w, f16), axis=1)", TYPES),
}


def used(text: str, types: dict[str, str]) -> dict[str, str]:
    return {name: t for name, t in types.items() if name in text}


@pytest.mark.parametrize("name", ROUNDED)
def test_the_kernel_of_the_product_stores_bf16(name: str) -> None:
    f = mt.compile(ROUNDED[name], **used(ROUNDED[name], TYPES))
    kernels = f.lower(target="cuda:90", without=("output-slices",))["kernels"]
    assert "temporary t0: bf16[M, N]" in kernels or "temporary t0: bf16[1, M, N]" in kernels
    assert "temporary t0: f32" in f.lower(target="cuda:90", without=("round-products", "output-slices"))["kernels"]


@pytest.mark.parametrize("name", KEPT)
def test_other_products_are_not_rounded(name: str) -> None:
    text, types = KEPT[name]
    f = mt.compile(text, **used(text, types))
    passes = f.lower(target="cuda:90").passes
    assert all(p.before == p.after for p in passes if p.name == "round-products")


@given(st.sampled_from(sorted(ROUNDED)), st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.integers(0, 99))
def test_results_stay_within_their_bounds(name: str, m: int, k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = ROUNDED[name]
    sizes = {"x": (m, k), "w": (k, n), "b": (n,)}
    if "max(" in text and m == 0:
        return  # a maximum of nothing is an error
    given = {a: (rng.standard_normal(sizes[a]) * 4).astype(BF16) for a in used(text, TYPES)}
    assert mt.compile(text, **used(text, TYPES)).check(**given).ok


def test_an_infinity_and_a_nan_stay() -> None:
    x = np.array([[np.inf, 1], [np.nan, 1], [3e38, 3e38], [1, -0.0]], BF16)
    report = mt.compile("max(x @ w, axis=1)", x="bf16[M, K]", w="bf16[K, N]").check(x, np.ones((2, 3), BF16))
    assert report.ok


@pytest.mark.parametrize("text", [
    "mean(x @ w, axis=1), (x @ w) @ v", "mean(where(x.shape[0] > 3, x @ w, floor(x @ w)), axis=1)",
    "mean(where(x.shape[0] > 100, ((x @ w) @ v)[:, 0], 0)[:, None] + x @ w, axis=1)", "mean((x @ w) ** 2, axis=1)",
])  # fmt: skip
def test_the_bounds_know_what_simplification_leaves(text: str) -> None:
    """A thin product, a condition on sizes, a power: what forbids the rounding is gone when the pass runs."""
    rng = np.random.default_rng(0)
    given = {"x": (64, 32), "w": (32, 48), "v": (48, 1)}
    arrays = {a: rng.standard_normal(s).astype(BF16) for a, s in given.items() if a == "x" or f" {a}" in text}
    types = {"x": "bf16[M, K]", "w": "bf16[K, N]", "v": "bf16[N, P]"}
    assert mt.compile(text, **{a: types[a] for a in arrays}).check(**arrays).ok
