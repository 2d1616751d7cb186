"""What is read after a loop, and could be read before it: that it is, what stays, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitri as mt
from minitri.optimize import hoist_loads

TYPES = {
    "x": "f32[M, K]", "w": "f32[K, N]", "b": "f32[N]", "c": "f32[M, 1]", "y": "f32[M, N]", "t": "i64[M]", "l": "i64[M]", "a": "f32[K]",
}  # fmt: skip
EARLY = {  # program → what stands ahead of the first loop
    "bias": ("x @ w + b", ["load b[j]"]),
    "a bias and a scale of rows": ("(x @ w + b) * c", ["load b[j]", "load c[i, 0]"]),
    "a small tile": ("x @ w + y", ["load y[i, j]"]),
    "a label, and what it picks": ("log(sum(exp(x), axis=-1)) - take_along_axis(x, t[:, None], axis=1)[:, 0]", ["load t[i]", "load x[i, "]),
    "what the loop picks": ("a[argmax(x, axis=-1)]", []),
    "what two labels pick": ("sum(x, axis=-1) + a[t] * a[l]", ["load t[i]", "load a[", "load l[i]", "load a["]),
    "between two loops": ("sum(exp(x - (sum(x, axis=-1) * a[t])[:, None]), axis=-1)", ["load t[i]", "load a["]),
}  # fmt: skip
LOOPED = {"i": 4, "j": 4, "k": 4, "r": 4}


def compiled(text: str, **options: int) -> mt.Program:
    """With all that is reduced walked in a loop, on any target."""
    used = {name: type for name, type in TYPES.items() if name in text.replace("axis", "").replace("take", "")}
    f = mt.compile(text, **used)
    (kernel,) = f.lower(target="cuda:90").compilation.value("kernels").kernels
    blocks = {a.name: 4 for a in kernel.axes}
    return f.configured(options=mt.Options(blocks, **options))


def reads(tile: str) -> tuple[list[str], list[str]]:
    """Ahead of the first loop, and after."""
    before, _, after = tile.partition("\n  for ")
    return tuple([l.split("= ", 1)[1] for l in part.splitlines() if "= load" in l] for part in (before, after))  # type: ignore[return-value]


@pytest.mark.parametrize("name", list(EARLY))
def test_what_is_read_ahead_of_the_loop(name: str) -> None:
    text, wanted = EARLY[name]
    before, _ = reads(compiled(text).lower(target="cuda:90")["tile"])
    assert [found[: len(w)] for found, w in zip(before, wanted, strict=True)] == wanted
    before, after = reads(compiled(text).lower(target="cuda:90", without=["hoist-loads"])["tile"])
    assert before == [] and len(after) >= len(wanted)


def test_large_tiles_stay() -> None:
    f = mt.compile("x @ w + b", **{x: TYPES[x] for x in "xwb"})
    for columns, count in ((hoist_loads.LANES, 1), (2 * hoist_loads.LANES, 0)):
        g = f.configured(options=mt.Options({"i": 16, "j": columns, "r": 16}))
        before, after = reads(g.lower(target="cuda:90", N=8192)["tile"])
        assert len(before) == count and len(before) + len(after) == 3


def test_programs_of_many_tiles_read_where_they_did() -> None:
    before, after = reads(compiled("x @ w + b", persistent=4).lower(target="cuda:90")["tile"])
    assert before == [] and len(after) == 3


@pytest.mark.parametrize("name", list(EARLY))
@given(m=st.integers(0, 9), k=st.integers(1, 9), n=st.integers(0, 9), seed=st.integers(0, 99))
def test_the_values_are_the_same(name: str, m: int, k: int, n: int, seed: int) -> None:
    f = compiled(EARLY[name][0])
    random = np.random.default_rng(seed)
    sizes = {"M": m, "K": k, "N": n, "1": 1}
    arrays = []
    for p in f.function.params:
        dtype, dims = TYPES[p.name].rstrip("]").split("[")
        shape = tuple(sizes[d.strip()] for d in dims.split(","))
        whole = dtype == "i64"
        arrays.append(random.integers(-k, k, shape) if whole else random.standard_normal(shape).astype(np.float32))
    found = f(*arrays)
    np.testing.assert_allclose(found, f.numpy(*arrays), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found, compiled(EARLY[name][0]).configured(without=["hoist-loads"])(*arrays))
