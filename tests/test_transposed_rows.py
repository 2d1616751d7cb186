"""Schedules and rooms for arrays of several axes, at ragged sizes: every stage computes what the graph does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import minitri as mt
from minitri.graph.evaluate import evaluate as evaluate_graph
from minitri.kernels.evaluate import evaluate as evaluate_kernels
from minitri.tiles.evaluate import evaluate as evaluate_tiles

SIZES = st.sampled_from((0, 1, 2, 3, 5, 8, 17, 33, 64))
PROGRAMS = {
    "x @ w": True,
    "permute_dims(relu(x @ w + 1), (2, 1, 0)) * 2": True,
    "x[:, ::2] @ w": True,
    "softmax(x).mT * 2": False,
    "cumulative_sum(x, axis=-1).mT": False,
    "x / sqrt(sum(x * x) + 1)": False,
    "sum(x / (sum(abs(x), axis=0, keepdims=True) + 1))": False,
    "mean(pad(x, ((0, 0), (1, 1), (0, 3))))": False,
    "x.mT @ x": False,
}  # whether the program has a matrix w


@pytest.mark.parametrize("text", PROGRAMS)
@settings(max_examples=6)
@given(sizes=st.tuples(SIZES, SIZES, SIZES.filter(bool), SIZES), seed=st.integers(0, 99))
def test_every_stage_agrees(text: str, sizes: tuple[int, int, int, int], seed: int) -> None:
    b, m, k, n = sizes
    shapes = {"x": (b, m, k), "w": (k, n)} if PROGRAMS[text] else {"x": (b, m, k)}
    random = np.random.default_rng(seed)
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    types = ", ".join(f"{name}: f32[{', '.join(map(str, shape))}]" for name, shape in shapes.items())
    low = mt.compile(f"def f({types}):\n    return {text}\n").lower(*arrays.values(), target="cuda:90").compilation
    with np.errstate(all="ignore"):
        (wanted,) = evaluate_graph(low.value("graph"), arrays, {})
        programs = low.value("tile.target")
        found = (
            evaluate_kernels(low.value("kernels"), arrays, {}),
            evaluate_tiles(programs.plan, [*programs], arrays, {}, True),
        )
    for (result,) in found:
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
