"""The pass hoist-loads: which loads move before the loop of a product, which loads stay, and equal results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt
from minitri.optimize import hoist_loads

TYPES = {
    "x": "f32[M, K]", "w": "f32[K, N]", "b": "f32[N]", "c": "f32[M, 1]", "y": "f32[M, N]", "t": "i64[M]", "a": "f32[K]",
}  # fmt: skip
HOISTED = {  # program → the loads before its first loop
    "a bias": ("x @ w + b", ["load b[j]"]),
    "a bias, and a scale of rows": ("(x @ w + b) * c", ["load b[j]", "load c[i, 0]"]),
    "a small tile": ("x @ w + y", ["load y[i, j]"]),
    "an element that an index picks": ("x @ w * a[t][:, None]", ["load t[i]", "load a["]),
    "a sum": ("sum(x, axis=1) + c[:, 0]", []),
    "an element that the product picks": ("a[argmax(x @ w, axis=-1)]", []),
}


def compiled(name: str, **options: int) -> mt.Program:
    """A program whose reductions are loops."""
    text, _ = HOISTED[name]
    used = {n: type for n, type in TYPES.items() if n in text.replace("axis", "").replace("argmax", "")}
    f = mt.compile(text, **used)
    axes = {a.name for kernel in f.lower(target="cuda:90").compilation.value("kernels").kernels for a in kernel.axes}
    return f.configured(options=mt.Options(dict.fromkeys(axes, 4), **options))


def loads(f: mt.Program, without: tuple[str, ...] = (), **sizes: int) -> tuple[list[str], list[str]]:
    """The loads before the first loop of the last kernel, and the later loads."""
    kernel = f.lower(target="cuda:90", without=without, **sizes)["tile"].rpartition("program k")[2]
    before, _, after = kernel.partition("\n  for ")
    first, later = ([s.split("= ", 1)[1] for s in part.splitlines() if "= load" in s] for part in (before, after))
    return first, later


@pytest.mark.parametrize("name", list(HOISTED))
def test_loads_before_the_loop(name: str) -> None:
    _, wanted = HOISTED[name]
    before, after = loads(compiled(name))
    assert [found[: len(w)] for found, w in zip(before, wanted, strict=True)] == wanted
    plain, all_after = loads(compiled(name), ("hoist-loads",))
    assert plain == [] and sorted(s.partition("[")[0] for s in before + after) == sorted(
        s.partition("[")[0] for s in all_after
    )


def test_large_tiles_stay() -> None:
    f = mt.compile("x @ w + b", **{x: TYPES[x] for x in "xwb"})
    for columns, count in ((hoist_loads.LANES, 1), (2 * hoist_loads.LANES, 0)):
        g = f.configured(options=mt.Options({"i": 16, "j": columns, "r": 16}, warps=columns // 128))
        before, after = loads(g, N=8192)
        assert len(before) == count and len(before) + len(after) == 3


def test_loads_after_large_tiles_stay() -> None:
    """128 by 256 accumulators are 128 numbers for each thread of 8 warps."""
    f = mt.compile("x @ w + b", x="bf16[M, K]", w="bf16[K, N]", b="bf16[N]")
    for columns, count in ((128, 1), (256, 0)):
        g = f.configured(options=mt.Options({"i": 128, "j": columns, "r": 64}, warps=8))
        before, _ = loads(g, M=4096, N=4096, K=4096)
        assert len(before) == count


def test_persistent_programs_stay() -> None:
    before, after = loads(compiled("a bias", persistent=4))
    assert before == [] and len(after) == 3


@pytest.mark.parametrize("name", list(HOISTED))
@given(m=st.integers(0, 9), k=st.integers(1, 9), n=st.integers(1, 9), seed=st.integers(0, 99))
def test_equal_results(name: str, m: int, k: int, n: int, seed: int) -> None:
    f = compiled(name)
    random = np.random.default_rng(seed)
    sizes = {"M": m, "K": k, "N": n, "1": 1}
    arrays = []
    for p in f.function.params:
        dtype, dims = TYPES[p.name].rstrip("]").split("[")
        shape = tuple(sizes[d.strip()] for d in dims.split(","))
        integers = random.integers(-k, k, shape)
        arrays.append(integers if dtype == "i64" else random.standard_normal(shape).astype(np.float32))
    if "argmax" in HOISTED[name][0] and n > k:
        return  # an index of a column of the product must be an index of `a`
    found = f(*arrays)
    np.testing.assert_allclose(found, f.numpy(*arrays), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found, f.configured(without=["hoist-loads"])(*arrays))
