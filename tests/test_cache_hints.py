"""The pass cache-hints: which loads the L2 cache may drop first, and their Triton text."""

import re

import pytest

import minitri as mt

HINTED = {
    "sum(x, axis=0)": {"x"},
    "sum(x + y, axis=0)": {"x", "y"},
    "x[0] @ y": {"x", "y"},
    "sum(x, axis=1)": set(),  # rows
    "x[0] @ y.mT": set(),
    "x + y": set(),  # as much is written
    "cumulative_sum(x, axis=0)": set(),
    "x @ y": set(),  # tensor cores
    "sum(x[k], axis=0)": set(),  # a gather can read an element again
    "x[0, 0] + y[0, 0]": set(),
}  # fmt: skip


@pytest.mark.parametrize("text", list(HINTED))
def test_what_the_cache_may_drop(text: str) -> None:
    types = {"x": "f32[N, N]", "y": "f32[N, N]", "k": "i64[N]"}
    f = mt.compile(text, **{n: t for n, t in types.items() if re.search(rf"\b{n}\b", text)})
    low = f.lower(N=4096, target="cuda:90")
    found = {op for p in low.compilation.value("tile.target") for op, hints in p.hints.items() if hints.evict_first}
    assert {load.buffer.name for load in found} & {*types} == HINTED[text]
    assert low["triton"].count('eviction_policy="evict_first"') == len(found)


def test_ptx_has_the_hint() -> None:
    f = mt.compile("sum(x, axis=0)", x="f32[4096, 4096]")
    assert "evict_first" in f.lower(target="cuda:90")["ptx"]
    assert "evict_first" not in f.configured(without=("cache-hints",)).lower(target="cuda:90")["ptx"]
