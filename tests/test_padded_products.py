"""Products that are padded, cut or joined inside a reduction: each factor has guards for its own axes only."""

from __future__ import annotations

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.runtime.call_binding import bind
from minitri.trust.check_passes import check

TEXT = """
def program(w: f32[{batch}M, K], a: f32[{batch}K, N]):
    v = w @ a
    return {result}
"""
BODIES = (
    "sum(pad(v, ((0, 5), (1, 0))), axis=-1)",
    "sum(pad(v, ((3, 5), (1, 2))), axis=-1)",
    "sum(pad(v, ((3, 5), (1, 2))), axis=0)",
    "max(concat([v[:, 2:], v], axis=1), axis=-1)",
    "sum(pad(v, ((2, 0), (0, 3)))[1:, 1:], axis=-1, keepdims=True)",
    "sum(where(arange(N + 1) > arange(M + 5)[:, None], pad(v, ((0, 5), (1, 0))), 1), axis=-1)",
    "softmax(pad(v, ((0, 2), (1, 0))), axis=-1)",
    "sum(pad(pad(v, ((0, 1), (1, 0))), ((1, 0), (0, 1))) * 2, axis=-1)",
)


@pytest.mark.parametrize(
    "result, sizes", every_second(list(BODIES), [(16, 64, 33), (3, 5, 7), (1, 1, 1), (40, 16, 16)])
)
def test_padded_products_under_a_reduction(result: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    w, a = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    program = mt.compile(TEXT.format(batch="", result=result))
    assert check(program, bind(program.function, (w, a), {}), shrinking=False).ok


def test_batches_of_padded_products() -> None:
    rng = np.random.default_rng(0)
    w, a = rng.normal(size=(2, 16, 8)).astype(np.float32), rng.normal(size=(2, 8, 20)).astype(np.float32)
    result = "sum(pad(v, ((0, 1), (0, 5), (1, 0))), axis=-1)"
    program = mt.compile(TEXT.format(batch="B, ", result=result))
    assert check(program, bind(program.function, (w, a), {}), shrinking=False).ok


def test_each_factor_has_its_own_guards() -> None:
    """Padding rows say nothing about the columns of w, and padding columns say nothing about the rows."""
    text = TEXT.format(batch="", result="sum(pad(v, ((0, 5), (1, 0))), axis=-1)")
    kernels = mt.compile(text).lower(target="cuda:90", M=16, K=64, N=33)["kernels"]
    assert "load w[i, s] {where = [i < 16], other = 0}" in kernels
    assert "load a[s, r - 1] {where = [r >= 1], other = 0}" in kernels
