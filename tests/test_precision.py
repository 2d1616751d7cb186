"""Integers, float literals and f64 arrays in one program: which digits are kept, and which programs are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.cli.inputs import make_inputs

STAGES = ("ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")
INTEGERS = np.array([-7, -1, 0, 3, 10, 100], np.int32)

F64_VALUES: dict[str, Any] = {  # integers with literals alone, and numpy's results, computed in f64
    "i * 0.1": INTEGERS * 0.1,
    "i / 3": INTEGERS / 3,
    "0.1 - i": 0.1 - INTEGERS,
    "exp(i / 50)": np.exp(INTEGERS / 50),
    "sqrt(abs(i)) + i": np.sqrt(abs(INTEGERS).astype(np.float64)) + INTEGERS,
    "where(i > 2, i, 0.1)": np.where(INTEGERS > 2, INTEGERS, 0.1),
    "(i * 0.1)[::-1]": (INTEGERS * 0.1)[::-1],
    "roll(flip(i / 7), 2)": np.roll(np.flip(INTEGERS / 7), 2),
    "broadcast_to(reshape(i * 0.1, (6, 1)), (6, 2))[:, 1]": INTEGERS * 0.1,
    "(i * 0.1)[None].T[:, 0]": INTEGERS * 0.1,
    "(arange(6) * 0.1)": np.arange(6) * 0.1,
    "(i > 0) * 0.1": (INTEGERS > 0) * 0.1,
    "mean(i) * 0.1": INTEGERS.mean() * 0.1,
}
F32_RESULTS = (  # after any operation except elementwise ones and views, values are f32
    "sum(i * 0.1)", "cumulative_sum(i * 0.1)", "softmax(i * 0.1)", "concat((i * 0.1, i))[:6]", "(i * 0.1)[i % 6]",
    "max(i * 0.1)", "full((6,), 0.1)", "astype(i * 0.1, f32)", "i * 0.1 + h",
)  # fmt: skip


def at_every_stage(f: mt.Program, *arrays: Any) -> list[Any]:
    return [f.run(stage, *arrays) for stage in STAGES]


@pytest.mark.parametrize("text", F64_VALUES)
def test_integers_with_literals_have_all_digits_if_combined_with_f64(text: str) -> None:
    x = np.linspace(1, 2, 6)
    for program, wanted in (
        (f"x * ({text})", x * F64_VALUES[text]),
        (f"astype({text}, f64) + 0 * x", F64_VALUES[text] + 0 * x),
    ):
        f = mt.compile(program, i="i32[6]", x="f64[6]")
        for got in at_every_stage(f, INTEGERS, x):
            np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=1e-300)
        assert f.check(INTEGERS, x).ok


@pytest.mark.parametrize("text", F64_VALUES)
def test_integers_with_literals_are_f32_without_f64_arrays(text: str) -> None:
    f = mt.compile(text, i="i32[6]")
    for got in at_every_stage(f, INTEGERS):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, F64_VALUES[text], rtol=1e-6)
    assert "f64" not in f.lower()["kernels"], "what is not needed is not computed"


@pytest.mark.parametrize("text", F32_RESULTS)
def test_results_of_functions_of_integers_with_literals_are_f32(text: str) -> None:
    h = np.ones(6, np.float32)
    types = {"i": "i32[6]", "x": "f64[]"} | ({"h": "f32[6]"} if "h" in text.split() else {})
    arrays = (INTEGERS, np.float64(1)) + ((h,) if "h" in types else ())
    f = mt.compile(f"({text}) * x", **types)
    for got in at_every_stage(f, *arrays):
        assert got.dtype == np.float64 and (got == got.astype(np.float32)).all()


@pytest.mark.parametrize("other, meets", [("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64")])
def test_the_promoted_dtype_of_integers_with_literals(other: str, meets: str) -> None:
    assert f"out: {meets}[N]" in mt.compile("(i * 0.5) * y", i="i32[N]", y=f"{other}[N]").lower()["kernels"]


def test_calls_whose_arguments_differ_only_in_f64_are_not_shared() -> None:
    """Calls of a function with equal arguments are computed once. These arguments are equal in f32, but not in f64."""
    text = "def g(a, x):\n    return h(a) * x\ndef h(a):\n    return a + 0\n"
    f = mt.compile(text + "def f(i: i32[N], x: f64[N]):\n    return g(i * 0.1, x) - g(astype(i * 0.1, f32), x)\n")
    x = np.ones(6)
    wanted = (INTEGERS * 0.1) - (INTEGERS * 0.1).astype(np.float32)
    for got in at_every_stage(f, INTEGERS, x):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("value", ["max", "min"])
def test_a_mean_of_64_bit_integers_does_not_wrap(dtype: Any, value: str) -> None:
    x = np.full((3, 4), getattr(np.iinfo(dtype), value), dtype)
    f = mt.compile("mean(x, axis=1)", x="i64[M, N]" if dtype == np.int64 else "u64[M, N]")
    for got in at_every_stage(f, x):
        np.testing.assert_array_equal(got, x.mean(axis=1).astype(np.float32))
    assert f.check(x).ok and np.isnan(mt.evaluate("mean(x)", x=x[:0]))


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "u8", "u16", "u32", "bool"])
def test_a_mean_of_smaller_integers_is_exact_until_it_is_rounded(dtype: str) -> None:
    numpy = {"b": np.bool_}.get(dtype[0]) or np.dtype(dtype[0] + str(int(dtype[1:]) // 8)).type
    x = np.full(5, 1 if dtype == "bool" else np.iinfo(numpy).max, numpy)
    f = mt.compile("mean(x)", x=f"{dtype}[N]")
    assert all(got == np.float32(x.mean()) for got in at_every_stage(f, x))


@pytest.mark.parametrize(
    ("text", "dtype", "most"),
    [
        ("x * 2**N", "i8", 6), ("x * 2**N", "u8", 7), ("x + (1 << N)", "i16", 14), ("x * (-2)**N", "i8", 7),
        ("x - 3**N", "i8", 4), ("x * (5 << N)", "u8", 5), ("x * 2**(N + 1)", "i8", 5), ("x * 2**N", "i32", 30),
        ("x * 2**N", "u64", 62),
    ],
)  # fmt: skip
def test_a_power_of_a_size_fits_the_dtype_of_the_other_operand(text: str, dtype: str, most: int) -> None:
    f = mt.compile(text, x=f"{dtype}[N]")
    kind = np.dtype(dtype[0] + str(int(dtype[1:]) // 8))
    x = np.ones(most, kind)
    results = at_every_stage(f, x)
    assert all((got == results[0]).all() and got.dtype == kind for got in results)
    assert f.check(x).ok
    for stage in STAGES:
        with pytest.raises(CompileError) as refused:
            f.run(stage, np.ones(most + 1, kind))
        assert refused.value.code == "MT0208" and refused.value.span is not None


def test_values_computed_from_a_power_wrap_as_arrays_do() -> None:
    f, x = mt.compile("x + (2**N - 1)", x="i8[N]"), np.zeros(9, np.int8)
    assert all((got == -1).all() for got in at_every_stage(f, x))


UNROUNDED = [
    "abs({x})", "-{x}", "clip({x}, -1, 1)", "maximum({x}, y)", "where(y > 0, {x}, y)", "sum({x}, axis=0)", "prod({x}, axis=0)",
    "mean({x}, axis=1)", "var({x}, axis=1)", "max({x}, axis=1)", "min({x}, axis=0)", "cumulative_sum({x}, axis=0)",
    "cumulative_prod({x}, axis=1)", "cumulative_max({x}, axis=0)", "cumulative_min({x}, axis=1)", "softmax({x}, axis=1)",
    "logsumexp({x}, axis=0)", "median({x}, axis=0)", "sort({x}, axis=1)", "diff({x}, axis=0)", "flip({x}, axis=0)",
    "roll({x}, 1, axis=0)", "concat(({x}, {x}), axis=0)", "stack(({x}, y), axis=0)", "pad({x}, ((1, 1), (0, 0)))",
    "tril({x})", "take({x}, arange(2), axis=0)", "take_along_axis({x}, 0 * arange(3)[:, None] + 1, axis=1)", "{x}.mT",
    "reshape({x}, (9,))", "repeat({x}, 2, axis=0)", "tile({x}, (2, 1))", "outer({x}[0], y[0])",
]  # fmt: skip


@pytest.mark.parametrize("text, dtype", every_second(list(UNROUNDED), ["f16", "bf16"]))
def test_16_bit_values_are_rounded_only_at_the_end(text: str, dtype: str) -> None:
    """Inside a program they have f32 precision (docs/reference/semantics.md)."""
    f = mt.compile(f"sin({text.format(x='(x * y)')})", x=f"{dtype}[3, 3]", y=f"{dtype}[3, 3]")
    assert f.lower()["graph.simplified"].count(f"{dtype}[") == 3  # the parameters and the last cast
    assert f.check(*make_inputs(f.function, {}, {}).arrays).ok
