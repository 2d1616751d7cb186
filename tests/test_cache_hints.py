"""The pass cache-hints: which loads the L2 cache may drop first, and their Triton text."""

import re

import pytest

import minitri as mt

READ_ONCE = {
    "sum(x, axis=1)": {"x"},
    "sum(x + y, axis=1)": {"x", "y"},
    "sum(x + y[0], axis=1)": {"x"},  # a row of y is read by every program
    "sum(x * x.mT, axis=1)": set(),  # twice
    "x + y": set(),  # as much is written
    "softmax(x, axis=1)": set(),
    "x @ y": set(),
    "x[:1] @ y": {"y"},
    "sum(x[k], axis=1)": set(),
    "sum(x + y[k], axis=1)": set(),  # a gather can read an element again
    "x[0, 0] + y[0, 0]": set(),
}


@pytest.mark.parametrize("text", list(READ_ONCE))
def test_what_the_cache_may_drop(text: str) -> None:
    types = {"x": "f32[N, N]", "y": "f32[N, N]", "k": "i64[N]"}
    f = mt.compile(text, **{n: t for n, t in types.items() if re.search(rf"\b{n}\b", text)})
    low = f.lower(N=500, target="cuda:90")
    found = {op for p in low.compilation.value("tile.target") for op, hints in p.hints.items() if hints.evict_first}
    assert {load.buffer.name for load in found} & {*types} == READ_ONCE[text]
    assert low["triton"].count('eviction_policy="evict_first"') == len(found)


def test_ptx_has_the_hint() -> None:
    f = mt.compile("sum(x, axis=1)", x="f32[256, 4096]")
    assert "L2::evict_first" in f.lower(target="cuda:90")["ptx"]
    assert "L2::evict_first" not in f.configured(without=("cache-hints",)).lower(target="cuda:90")["ptx"]
