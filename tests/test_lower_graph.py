"""Kernels from the graph (minitri/kernels/lower_graph.py): which loads need a `where`, and which array a kernel reads."""

from __future__ import annotations

import pytest

import minitri as mt

TYPES = {"x": "f32[N]", "h": "f16[N]"}
WHERE = {  # how many values are selected by a `where`, because a load does not give the other value already
    "pad(x, ((0, 2),))": 0,
    "pad(x, ((0, 2),), constant_values=1)": 1,
    "pad(astype(h, f32), ((0, 2),))": 0,  # 0 stays 0 in another dtype
}


@pytest.mark.parametrize("text", list(WHERE))
def test_a_load_that_gives_the_other_value_needs_no_where(text: str) -> None:
    assert mt.compile(text, **TYPES).lower()["kernels"].count(" = where ") == WHERE[text]


def test_of_two_equal_outputs_the_first_is_read() -> None:
    text = "def f(x: f32[M, N]):\n    y = cumulative_sum(x, axis=0)\n    return y, y, sum(y, axis=1)\n"
    kernels = mt.compile(text).lower()["kernels"]
    assert "load out0[" in kernels and "load out1[" not in kernels


def test_a_view_needed_at_many_indices_is_stored_without_fusion() -> None:
    slices = ", ".join(f"y[{k}:{k + 9}]" for k in range(33))
    f = mt.compile(f"def f(u: f32[40], v: f32[40]):\n    y = concat((u, v))\n    return concat(({slices}))\n")
    assert "temporary t0: f32[80]" in f.lower(without=("all",))["kernels"]
