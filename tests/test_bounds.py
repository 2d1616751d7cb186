"""The error bounds of `check`: right implementations keep them, and wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import minitri as mt
from minitri.base.operators import OPERATORS, Operator
from minitri.base.types import f32
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check, compare, enclosures
from minitri.trust.error_propagation import moved

F = np.float32


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def wanted(text: str, *arrays: Any) -> Any:
    types = {
        n: f"{mt.base.types.BY_NUMPY_NAME[a.dtype.name]}[{', '.join(map(str, a.shape))}]" for n, a in zip("xyz", arrays)
    }
    f = mt.compile(text, **types)
    (found,) = enclosures(f, bind(f.function, arrays, {}))
    return found


def accepts(text: str, result: Any, *arrays: Any) -> bool:
    return compare(result, wanted(text, *arrays))[0]


# ---- sums: any order, but no lower precision ---------------------------------------------------


def one_by_one(x: Any, dtype: Any = F) -> Any:
    total = np.zeros(x.shape[:-1], dtype)
    for k in range(x.shape[-1]):
        total = (total + x[..., k].astype(dtype)).astype(dtype)
    return total.astype(F)


ORDERS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.sum(-1),
    "one by one": one_by_one,
    "backwards": lambda x: one_by_one(x[..., ::-1]),
    "lanes": lambda x: one_by_one(np.stack([one_by_one(x[..., k::7]) for k in range(7)], -1)),
    "sorted": lambda x: one_by_one(np.sort(x, -1)),
    "in f64, rounded once": lambda x: x.sum(-1, dtype=np.float64).astype(F),
}
DRAWN: dict[str, Callable[[], Any]] = {
    "normal": lambda: rng().normal(size=(9, 500)),
    "positive": lambda: rng().random((9, 500)),
    "cancelling": lambda: np.concatenate([x := rng().normal(size=(9, 250)) * 1e4, -x], -1),
    "of all sizes": lambda: rng().normal(size=(9, 500)) * 10.0 ** rng().integers(-20, 20, (9, 500)),
    "mostly zero": lambda: rng().normal(size=(9, 500)) * (rng().random((9, 500)) < 0.05),
}


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("drawn", list(DRAWN))
def test_any_order_of_adding_is_right(drawn: str, order: str) -> None:
    x = DRAWN[drawn]().astype(F)
    assert accepts("sum(x, axis=-1)", ORDERS[order](x), x)
    y = rng(1).normal(size=(500, 9)).astype(F)
    products = (x[:, None, :] * y.T[None]).astype(F)
    assert accepts("x @ y", ORDERS[order](products), x, y)


@pytest.mark.parametrize("drawn", list(DRAWN))
def test_f16_accumulation_is_wrong(drawn: str) -> None:
    x = DRAWN[drawn]().astype(F)
    with np.errstate(all="ignore"):
        assert not accepts("sum(x, axis=-1)", one_by_one(x, np.float16), x)


def test_small_whole_numbers_have_one_sum() -> None:
    x = rng().integers(-8, 9, (5, 300)).astype(F) / 4
    assert not wanted("sum(x, axis=-1)", x).radius.any()
    assert not accepts("sum(x, axis=-1)", np.nextafter(x.sum(-1), F(1e9)), x)
    assert not wanted("x @ y", x, x.T.copy()).radius.any()
    assert wanted("sum(x, axis=-1)", x / 3).radius.all()


# ---- products: TF32, 16 bits -----------------------------------------------------------------


def tf32(x: Any) -> Any:
    """The array rounded to the 10 mantissa bits of TF32."""
    bits = np.ascontiguousarray(x, F).view(np.uint32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(F)


@pytest.mark.parametrize("k", [1, 2, 16, 64, 128])
@pytest.mark.parametrize("seed", range(5))
def test_tf32_is_wrong(k: int, seed: int) -> None:
    x, y = rng(seed).normal(size=(40, k)).astype(F), rng(seed + 99).normal(size=(k, 40)).astype(F)
    assert accepts("x @ y", x @ y, x, y)
    assert not accepts("x @ y", tf32(x) @ tf32(y), x, y)


@pytest.mark.parametrize("k", [1, 16, 100])
def test_products_of_f16_add_in_f32(k: int) -> None:
    x, y = rng().normal(size=(40, k)).astype(np.float16), rng(1).normal(size=(k, 40)).astype(np.float16)
    right = (x.astype(F) @ y.astype(F)).astype(np.float16)
    assert accepts("x @ y", right, x, y)
    with np.errstate(all="ignore"):
        halves = (x[:, None, :].astype(F) * y.T[None].astype(F)).astype(np.float16)
    summed = one_by_one(halves, np.float16).astype(np.float16)
    assert k == 1 or not accepts("x @ y", summed, x, y)


# ---- softmax: a missing rescale ------------------------------------------------------------------


def online(x: Any, rescale: bool = True) -> Any:
    """A softmax in one pass over blocks of 16. The running sum is rescaled when the maximum grows."""
    m, s = np.full(len(x), -np.inf, F), np.zeros(len(x), F)
    for k in range(0, x.shape[1], 16):
        block = x[:, k : k + 16]
        new = np.maximum(m, block.max(1))
        s = s * np.exp(m - new) if rescale else s
        m, s = new, (s + np.exp(block - new[:, None]).sum(1)).astype(F)
    return (np.exp(x - m[:, None]) / s[:, None]).astype(F)


@pytest.mark.parametrize("spread", [0.1, 1, 10, 80])
def test_a_missing_rescale_is_wrong(spread: float) -> None:
    x = (rng().normal(size=(20, 200)) * spread).astype(F)
    assert accepts("softmax(x, axis=-1)", online(x), x)
    assert not accepts("softmax(x, axis=-1)", online(x, rescale=False), x)


# ---- elementwise ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x * y + x", "x / y - y", "sqrt(abs(x)) * y", "floor(x / y)", "x % y", "maximum(x, y) ** 1"]
)
def test_operations_that_ieee_defines_must_be_exact(text: str) -> None:
    x, y = (rng(s).normal(size=50).astype(F) for s in (0, 1))
    found = wanted(text, x, y)
    f = mt.compile(text, x="f32[50]", y="f32[50]")
    exact = "**" not in text
    assert not exact or not found.radius.any()
    result = f.numpy(x, y)
    assert compare(result, found)[0]
    assert not exact or not compare(np.nextafter(result, F(np.inf)), found)[0]


def test_one_rounding_is_wrong_if_the_program_has_two() -> None:
    x, y = (rng(s).normal(size=200).astype(F) for s in (0, 1))
    fused = (x.astype(np.float64) * y + x).astype(F)
    assert not accepts("x * y + x", fused, x, y)


def test_functions_may_be_off_by_their_ulps() -> None:
    x = np.linspace(-20, 20, 300).astype(F)
    exact = np.exp(x.astype(np.float64))
    assert accepts("exp(x)", exact.astype(F), x)
    assert accepts("exp(x)", (exact * (1 + 2 * 2.0**-23)).astype(F), x)
    assert not accepts("exp(x)", (exact * (1 + 60 * 2.0**-23)).astype(F), x)
    assert accepts("exp(x)", np.full(2, np.inf, F), np.array([89, 1e4], F))
    assert accepts("exp(x)", np.zeros(1, F), np.array([-104], F))


def test_nan_and_infinity_must_be_at_the_right_elements() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1], F)
    assert accepts("tanh(x)", np.tanh(x), x)
    for place, value in ((0, 1), (1, np.nan), (2, np.inf), (3, np.nan)):
        other = np.tanh(x)
        other[place] = value
        assert not accepts("tanh(x)", other, x)


def test_f64_results_must_have_f64_precision() -> None:
    x = rng().normal(size=(5, 300))
    assert accepts("sum(tanh(x), axis=-1)", np.tanh(x).sum(-1), x)
    assert not accepts("sum(tanh(x), axis=-1)", np.tanh(x.astype(F)).sum(-1).astype(np.float64), x)


@pytest.mark.parametrize("n", [2, 3, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_may_round_once_for_each_factor_but_one(n: int, dtype: str) -> None:
    x = (rng(n).random((200, n)) + 0.5).astype(dtype)
    one_by_one = np.multiply.reduce(x, axis=-1)
    assert accepts("prod(x, axis=-1)", one_by_one, x)
    assert accepts("prod(x, axis=-1)", np.multiply.reduce(x[:, ::-1], axis=-1), x)
    assert not accepts("prod(x, axis=-1)", one_by_one * (1 + 4 * n * np.finfo(dtype).eps).astype(dtype), x)


SCORES = """def scores(w: bf16[16, 16], z: bf16[16], a: bf16[16, 16]):
    v = relu(w @ a + z)
    return softmax(v @ v.mT, axis=-1) @ v
"""


def test_an_unbounded_factor_gives_an_unbounded_product() -> None:
    """Scores computed with fast math may be so far off that softmax divides by 0."""
    f = mt.compile(SCORES)
    arrays = [rng().integers(-1, 2, shape).astype(ml_dtypes.bfloat16) for shape in ((16, 16), (16,), (16, 16))]
    (found,) = enclosures(f, bind(f.function, arrays, {}))
    unbounded = np.isinf(found.radius)  # complete rows: the ones with such scores
    assert unbounded.any() and (unbounded.any(axis=1) == unbounded.all(axis=1)).all()


def test_a_weight_may_be_rounded_before_it_is_divided_by_the_sum() -> None:
    """In units of f16's smallest denormal: exp(x - max) = 19.7 rounds to 20; 19.7 / 1.025 = 19.2 rounds to 19."""
    q, v = np.zeros((16, 16), np.float16), np.zeros((16, 16), np.float16)
    k = np.eye(16, dtype=np.float16)
    q[:, 0], q[:, 1] = np.log(2**-24 * 19.71), np.log(0.025)  # columns 0, 1 and all others
    q[:, 3:] = -60000
    v[0, :] = 1
    text = "softmax(x @ y.mT, axis=-1) @ z"
    q64 = q.astype(np.float64)
    own = np.exp(q64 - q64.max(-1, keepdims=True))
    rounded = own.astype(np.float16).astype(np.float64)
    late = ((rounded / own.sum(-1, keepdims=True)) @ v).astype(np.float16)
    early = ((own / own.sum(-1, keepdims=True)).astype(np.float16).astype(np.float64) @ v).astype(np.float16)
    assert (late != early).any() and accepts(text, late, q, k, v) and accepts(text, early, q, k, v)


def test_functions_with_jumps_have_both_values_if_operands_are_inexact() -> None:
    x = np.array([0.5, 1.0, 2.0], F)  # tanh(x) / tanh(x) is 1 or its neighbour: its floor is 0 or 1
    found = wanted("floor(exp(log(x)))", x)
    assert found.radius.tolist()[0] == 0 and found.radius[1] >= 1 and found.radius[2] >= 1
    assert not compare(np.array([1, 1, 2], F), found)[0]


FLOATS = [row for row in OPERATORS.values() if "f" in row.accepts and row.operands != "bool"]


@pytest.mark.parametrize("row", FLOATS, ids=[row.name for row in FLOATS])
def test_results_of_operands_within_their_radius_are_within_the_result_box(row: Operator) -> None:
    """For operands anywhere within their radius, the result is within the radius of the box."""
    r = rng(len(row.name))
    low, high = max(row.domain[0], -50), min(row.domain[1], 50)
    count = 3000
    kinds = [np.bool_ if row.operands == "where" and k == 0 else np.float64 for k in range(row.arity)]
    args = [(r.random(count) < 0.5) if kind == np.bool_ else r.uniform(low, high, count).round(1) for kind in kinds]
    radii = [
        (r.random(count) < 0.3) * (1.0 if kind == np.bool_ else 10.0 ** r.integers(-6, 2, count)) for kind in kinds
    ]
    with np.errstate(all="ignore"):
        centre = row.numpy(*args)
        reach = moved(row, f32, args, radii, centre)
        for _ in range(30):
            inside = [
                np.where(e > 0, r.random(count) < 0.5, x) if x.dtype == bool else np.where(e > 0, x + e * r.uniform(-1, 1, count), x)
                for x, e in zip(args, radii)
            ]  # fmt: skip
            result = row.numpy(*inside)
            off = np.abs(result.astype(np.float64) - centre.astype(np.float64))
            known = ~np.isnan(off)
            assert (off[known] <= reach[known] * (1 + 1e-9) + 1e-12).all(), row.name


SKIPPED = {  # factors of which whole blocks are 0, and the index of an infinity that only these blocks see
    "a mask": ("x @ where(arange(K)[:, None] >= 70, w, 0)", "x", 0),
    "padding": ('matmul(pad(x[:, :K - 80] + 1, ((0, 0), (40, 40))), w, precision="tf32x3")', "w", 0),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_elements_that_depend_on_skipped_blocks_can_be_anything(name: str) -> None:
    """A regression: a second infinity, in a block that is not skipped, made such elements count as nan."""
    text, factor, at = SKIPPED[name]
    given = {n: np.random.default_rng(0).normal(size=(147, 147)).astype(F) for n in "xw"}
    special = given[factor] if factor == "x" else given[factor].T
    special[0, at] = special[1, 75] = np.inf
    special[2, [at, 75]] = np.inf
    special[3, [at, 75]] = np.inf, np.nan
    f = mt.compile(text, x="f32[M, K]", w="f32[K, N]")
    call = bind(f.function, tuple(given.values()), {})
    (found,) = enclosures(f, call)
    known = np.isfinite(found.radius if factor == "x" else found.radius.T).all(axis=1)
    assert known[:5].tolist() == [False, True, False, True, True]
    assert check(f, call, ("cuda", "interpreter"), shrinking=False).ok


@pytest.mark.parametrize(
    "text", ["0.5 * (y @ w)", "0 * (y @ w)", "relu(y @ w)", "(y @ w > 0) * 1.0", "sum(y @ w, axis=0)"]
)
def test_results_of_elements_that_can_be_anything_can_be_anything(text: str) -> None:
    """A regression: an operator made an exact nan of a nan that a skipped block can turn into a number."""
    x, w = np.random.default_rng(0).normal(size=(2, 147, 147)).astype(F)
    w[0, 0], w[0, 1], w[75, 1] = np.inf, np.inf, np.nan
    f = mt.compile(text.replace("y", "where(arange(K) >= 70, x, 0)"), x="f32[M, K]", w="f32[K, N]")
    call = bind(f.function, (x, w), {})
    (found,) = enclosures(f, call)
    assert (found.radius[..., 0] >= (1 if "> 0" in text else np.inf)).all()
    assert np.isfinite(found.radius[..., 1:]).all()  # the nan in row 75 is in no skipped block
    assert check(f, call, ("cuda", "interpreter"), shrinking=False).ok
