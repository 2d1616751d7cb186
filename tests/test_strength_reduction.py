"""The pass strength-reduction: which powers become products, their accuracy, and special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt
from minitri.graph.evaluate import evaluate

EXPONENTS = (*range(-7, 9), *(k / 2 for k in range(-9, 16) if k % 2))
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 2e19, 3e38, 1e-20, -7.5, 1.5]
EIGHT_ROUNDINGS = 8 * 2.0**-24


def power(n: float, dtype: str = "f32") -> mt.Program:
    return mt.compile(f"x ** ({n!r})", x=f"{dtype}[N]")


def evaluated(program: mt.Program, x: Any) -> Any:
    graph = program.lower().compilation.value("graph.strength")
    return evaluate(graph, {"x": x}, {"N": len(x)})[0]


@pytest.mark.parametrize("n", EXPONENTS)
def test_a_power_is_products_and_keeps_special_values(n: float) -> None:
    program = power(n)
    assert " power " not in program.lower()["graph.simplified"]
    assert " power " in program.lower(without=["strength-reduction"])["graph.simplified"] or n == 1
    x = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), np.full(len(x), n)).astype(np.float32)
    found = evaluated(program, x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_array_equal(np.signbit(found[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
    np.testing.assert_allclose(found, want, rtol=EIGHT_ROUNDINGS, atol=1e-44)
    assert program.check(x).ok


@given(st.sampled_from(EXPONENTS), st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_no_more_than_eight_roundings(n: float, values: list[float]) -> None:
    x = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), n).astype(np.float64)
        found = evaluated(power(n), x).astype(np.float64)
        np.testing.assert_allclose(found, want.astype(np.float32), rtol=EIGHT_ROUNDINGS + 2.0**-24, atol=1e-44)


@pytest.mark.parametrize("text", ["x ** 9", "x ** -8", "x ** 8.5", "x ** -5.5", "x ** 0.3", "x ** y", "2 ** x"])
def test_other_powers_stay(text: str) -> None:
    assert " power " in mt.compile(text, x="f32[N]", y="f32[N]").lower()["graph.simplified"]


def test_integers_wrap_as_their_powers_do() -> None:
    x = np.array([0, -1, 3, 2_000_000_011, -(2**31)], np.int32)
    program = mt.compile("x ** 5 + x ** 0 + x ** -2", x="i32[N]")
    assert program.lower()["graph.simplified"].count(" power ") == 1
    assert program.check(x).ok


def test_16_bit_powers_are_rounded_once() -> None:
    """x ** 7 in bf16 is computed as f32 products, and only the result is rounded to bf16."""
    graph = power(7, "bf16").lower()["graph.simplified"]
    assert graph.count("= cast") == 2 == graph.count("bf16[N]")


@pytest.mark.parametrize(
    "by, kept", [("8", 0), ("-0.25", 0), ("2.0 ** 100", 0), ("2.0 ** 101", 1), ("3", 1), ("1e-40", 1)]
)
def test_divisions_by_powers_of_two(by: str, kept: int) -> None:
    program = mt.compile(f"x / ({by})", x="f32[N]")
    assert program.lower()["graph.simplified"].count(" divide ") == kept
    x = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        want = x / np.float32(eval(by))
    np.testing.assert_array_equal(evaluated(program, x), want)
    assert program.check(x).ok


@pytest.mark.parametrize(
    "base, simple",
    [
        ("mean(x * x, axis=0, keepdims=True) + 1e-5", True),
        ("abs(x) * exp(x)", True),
        ("astype(astype(x, i32), f32)", True),
        ("sum(x, axis=0, keepdims=True)", False),
        ("x + 1", False),
        ("abs(x) - 1", False),
        ("abs(x) * -0.0", False),
    ],
)
def test_a_base_that_is_never_negative_needs_no_sign_check(base: str, simple: bool) -> None:
    program = mt.compile(f"({base}) ** -0.5", x="f32[N]")
    assert (" where " not in program.lower()["graph.simplified"]) == simple
    assert program.check(np.array(SPECIAL, np.float32)).ok


MISH = ("tanh(softplus(x))", "x * tanh(softplus(x))", "tanh(log1p(exp(-abs(x))) + maximum(x, 0))")


@pytest.mark.parametrize("text", MISH[:2])
def test_mish_needs_neither_tanh_nor_log(text: str) -> None:
    simplified = mt.compile(text, x="f32[N]").lower()["graph.simplified"]
    assert " tanh " not in simplified and " log1p " not in simplified


@pytest.mark.parametrize("text", ["tanh(x)", "tanh(log1p(exp(-abs(x))))", "tanh(maximum(x, 0) + log1p(exp(-abs(y))))",
                                  "tanh(maximum(x, 1) + log1p(exp(-abs(x))))", "tanh(maximum(x, 0) + log1p(exp(-x)))"])  # fmt: skip
def test_another_tanh_stays(text: str) -> None:
    assert " tanh " in mt.compile(text, x="f32[N]", y="f32[N]").lower()["graph.simplified"]


@given(
    st.sampled_from(MISH),
    st.sampled_from(["f16", "bf16", "f32", "f64"]),
    st.lists(st.floats(width=16), min_size=1, max_size=40),
)
def test_mish_stays_within_its_bounds(text: str, dtype: str, values: list[float]) -> None:
    program = mt.compile(text, x=f"{dtype}[N]")
    x = np.array([*values, *SPECIAL, 88.0, -88.0, 104.0, -104.0])
    with np.errstate(all="ignore"):
        assert program.check(x.astype(getattr(mt, dtype).numpy)).ok


@given(st.lists(st.floats(-104, 104, width=32), min_size=1, max_size=50))
def test_mish_is_as_exact_as_tanh_and_log(values: list[float]) -> None:
    x = np.array(values, np.float32)
    n = np.exp(-abs(x.astype(np.longdouble)))
    want = np.where(x > 0, (1 + 2 * n) / (1 + 2 * n + 2 * n * n), n * (n + 2) / (n * (n + 2) + 2))
    np.testing.assert_allclose(
        evaluated(mt.compile(MISH[0], x="f32[N]"), x), want.astype(np.float64), rtol=6 * 2.0**-24, atol=1e-44
    )
