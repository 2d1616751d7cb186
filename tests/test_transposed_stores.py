"""Transposed results of rows, scans and elementwise operations: how many kernels there are, and results at every stage."""

from __future__ import annotations

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt

ROWS = {"x": "f32[M, N]"}
CASES = {
    "softmax(x).mT * 2": 1,
    "softmax(x) * 2": 1,
    "softmax(x), x.mT * 2": 1,
    "softmax(x), x.mT": 1,
    "softmax(x), softmax(x).mT * 2": 1,
    "cumulative_sum(x, axis=1).mT": 1,
    "softmax(x, axis=0)": 1,
    "sum(x, axis=1), x.mT * 2": 1,
    "exp(x), x.mT * 2": 1,
    "softmax(softmax(x).mT * 2)": 2,
    "(softmax(x).mT * 2) @ x": 2,
}


@pytest.mark.parametrize("text", list(CASES))
def test_kernels_of_transposed_results(text: str) -> None:
    assert len(mt.compile(text, **ROWS).lower(M=500, N=700, target="h100").kernels) == CASES[text]


@pytest.mark.parametrize("text, shape", every_second(list(CASES), [(7, 33), (5, 1), (0, 3), (33, 64)]))
def test_results_are_right_at_every_stage(text: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    if 0 not in shape or "softmax" not in text:
        report = mt.compile(text, **ROWS).check(x)
        assert report.ok, report


def test_a_factor_of_a_product_is_row_major() -> None:
    product = mt.compile("(softmax(x).mT * 2) @ x", **ROWS)
    assert "{strides" not in product.lower(M=500, N=700, target="h100")["kernels"]
