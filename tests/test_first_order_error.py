"""First-order rounding errors: their scale for each result. Rounding errors are small compared with it, wrong results
are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from short_profile import numbers

import minitri as mt
from minitri.graph.evaluate import evaluate
from minitri.graph.verify import verify
from minitri.runtime.call_binding import bind
from minitri.runtime.schedule_search import close
from minitri.runtime.tuning_policy import measured
from minitri.testing import random_program
from minitri.trust.first_order_error import magnitude

RANDOM = np.random.default_rng(0)
FAR = (-10 * RANDOM.random((6, 50)) - 20).astype(np.float32)  # their exponentials are small, their square roots are not
P = RANDOM.random((6, 50)).astype(np.float32)
Q = RANDOM.permutation(P.ravel()).reshape(P.shape)


def sizes_of(f: mt.Program, *given: Any) -> Any:
    call = bind(f.function, given, {})
    graph = magnitude(f.graph(call.instance))
    verify(graph)
    assert [i.name for i in graph.inputs] == [i.name for i in f.graph(call.instance).inputs]
    with np.errstate(all="ignore"):
        found = evaluate(graph, call.inputs, call.sizes)
    return found if len(found) > 1 else found[0]


def compiled(text: str, count: int = 1) -> mt.Program:
    return mt.compile(text, **dict(zip("xy", ["f32[M, N]"] * count)))


RULES = {  # text → the scale computed by numpy from x and y in f64
    "x": lambda x, y: 0 * x,
    "maximum(-x, y).T[::2]": lambda x, y: 0 * x.T[::2],
    "x - y": lambda x, y: abs(x - y),
    "x - y + x": lambda x, y: abs(x - y) + abs(x - y + x),
    "sum(x, axis=0)": lambda x, y: np.sum(abs(x), 0),
    "sum(x - y, axis=0)": lambda x, y: np.sum(2 * abs(x - y), 0),
    "max(x - y, axis=1)": lambda x, y: np.max(abs(x - y), 1),
    "prod(x - y, axis=1)": lambda x, y: 2 * 50 * abs(np.prod(x - y, 1)),
    "x * 4": lambda x, y: 0 * x,
    "(x - y) * -0.5": lambda x, y: 0.5 * abs(x - y),
    "x * y": lambda x, y: abs(x * y),
    "x / y": lambda x, y: abs(x / y),
    "(x - y) * x": lambda x, y: 2 * abs((x - y) * x),
    "cumulative_sum(-x, axis=1)": lambda x, y: np.cumsum(abs(x), 1),
    "cumulative_prod(x, axis=1)": lambda x, y: np.arange(1, 51) * abs(np.cumprod(x, 1)),
    "cumulative_max(x - y, axis=1)": lambda x, y: np.maximum.accumulate(abs(x - y), 1),
    "x @ y.T": lambda x, y: abs(x) @ abs(y).T,
    "(x - 1) @ (y - 1).T": lambda x, y: 3 * abs(x - 1) @ abs(y - 1).T,
    "where(x < y, x - y, y)": lambda x, y: np.where(x < y, abs(x - y), 0),
    "concat([x - y, y])[:, ::2]": lambda x, y: np.concatenate([abs(x - y), 0 * y])[:, ::2],
    "take_along_axis(x - y, argmax(x, axis=1)[:, None], axis=1)[:, 0]": lambda x, y: abs(x - y)[range(6), x.argmax(1)],
    "exp(x)": lambda x, y: np.exp(x),
    "exp(x - y)": lambda x, y: np.exp(x - y) * (1 + abs(x - y)),
    "sqrt(x * x)": lambda x, y: 1.5 * abs(x),
    "floor(x - y)": lambda x, y: abs(np.floor(x - y)),
}  # fmt: skip


@pytest.mark.parametrize("text", list(RULES))
def test_the_scale_of_each_operation(text: str) -> None:
    x, y = (RANDOM.standard_normal((6, 50)) for _ in "xy")
    given = {
        n: a for n, a in (("x", x), ("y", y)) if n in text.replace("axis", "").replace("max", "").replace("exp", "")
    }
    f = mt.compile(text, **dict.fromkeys(given, "f64[M, N]"))
    np.testing.assert_allclose(sizes_of(f, *given.values()), RULES[text](x, y), rtol=0.1)


@pytest.mark.parametrize("text", ["exp(x)", "sigmoid(x)", "sum(exp(x), axis=1)", "x / (1 + exp(x))", "softmax(x, axis=1)", "mean(x, axis=1)", "log(-x) * 1e-20"])  # fmt: skip
def test_wrong_results_are_outside_the_scale(text: str) -> None:
    f = compiled(text)
    wanted = f.numpy(FAR)
    scale = sizes_of(f, FAR)
    for wrong in (np.zeros_like(wanted), np.ones_like(wanted), wanted * np.float32(1.002), np.full_like(wanted, 1e5)):
        assert not close(wrong, wanted, scale)
    assert close(f(FAR), wanted, scale) and close(wanted * np.float32(1 + 2e-7), wanted, scale)


@pytest.mark.parametrize("text", [
    "sum(x - y)", "sum(x - mean(x))", "mean(x - mean(x, axis=1, keepdims=True), axis=1)", "cumulative_sum(x - y, axis=1)[:, -1]",
    "sum(x) - sum(y)", "tanh(sum(x - y))", "sum(x @ y.T - y @ x.T)", "1 / (1000 + sum(x - y))",
])  # fmt: skip
def test_errors_of_sums_that_cancel_are_within_the_scale(text: str) -> None:
    """Results in another order and with exact arithmetic are accepted; a result that is 0.3 off is not."""
    f = compiled(text, 2 if "y" in text else 1)
    given = (P, Q)[: len(f.parameters)]
    wanted, scale = f.numpy(*given), sizes_of(f, *given)
    exact = mt.compile(text, **{n: "f64[M, N]" for n, _ in f.parameters}).numpy(*(a.astype(np.float64) for a in given))
    assert close(f(*given), wanted, scale) and close(np.asarray(exact, np.float32), wanted, scale)
    assert not close(wanted + np.float32(0.3), wanted, scale)
    tuning = measured(f, *given, repeats=1)
    assert tuning.best.timing is not None and "different" not in tuning.summary


def test_roundings_to_fewer_bits_count_where_they_are() -> None:
    f = mt.compile("sum(x.astype(bf16).astype(f32), axis=1)", x="f32[M, N]")
    wanted, scale = f.numpy(P), sizes_of(f, P)
    other = f.numpy(np.nextafter(P, np.float32(2)))  # some of these numbers are rounded to another neighbour
    assert close(other, wanted, scale) and not close(wanted * np.float32(1.1), wanted, scale)


@pytest.mark.parametrize("seed", numbers(20, 60))
def test_random_programs(seed: int) -> None:
    """The graph that computes the scale passes the verifier, and the compiled results are close to numpy's."""
    example = random_program(seed)
    f, given = example.compile(), example.arguments(seed)
    assert close(f(*given), f.numpy(*given), sizes_of(f, *given))
