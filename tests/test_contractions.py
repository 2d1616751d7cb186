"""Matrix products and einsum: compared with numpy at every stage, compiled to one kernel, with several precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import minitri as mt
from minitri.base.diagnostics import CompileError
from minitri.kernels.ir import Dot
from minitri.runtime.call_binding import bind

SPECS = {
    "ij,jk->ik": [(3, 4), (4, 5)], "ij,jk": [(3, 4), (4, 5)], "ij,jk->ki": [(17, 4), (4, 5)],
    "bhtd,bhsd->bhts": [(2, 3, 5, 4), (2, 3, 7, 4)], "bqhgd,bkhd->bhgqk": [(2, 3, 2, 4, 5), (2, 6, 2, 5)],
    "ii->i": [(4, 4)], "ii": [(4, 4)], "ij->ji": [(3, 4)], "ij->": [(3, 4)], "iij,jk->ik": [(3, 3, 4), (4, 5)],
    "i,j->ij": [(3,), (4,)], "i,i": [(5,), (5,)], "ij,kl->": [(3, 4), (5, 6)], "ij,ij->i": [(3, 4), (3, 4)],
    "ijk,jkl->il": [(3, 4, 5), (4, 5, 6)], "ijk,kjl->il": [(3, 4, 5), (5, 4, 6)], "abk,kn->abn": [(2, 3, 4), (4, 5)],
    "mk,kab->mab": [(3, 4), (4, 2, 5)], "mk,kab->amb": [(3, 4), (4, 2, 5)], "ab,cd->acbd": [(2, 3), (4, 5)],
    "...ij,...jk->...ik": [(2, 3, 4), (4, 5)], "...ij,jk": [(2, 3, 4), (4, 5)], "i...,i...->...": [(3, 4), (3, 4)],
    "ij,jk,kl->il": [(3, 4), (4, 5), (5, 2)], "i,ij,j->": [(3,), (3, 4), (4,)], "ij,j,jk->ik": [(3, 4), (4,), (4, 5)],
    " b i j , b j k -> b i k ": [(2, 3, 4), (2, 4, 5)], "ij,jk->ik ": [(3, 1), (4, 5)], ",ij->ij": [(), (3, 4)],
    "ij, jk->ik": [(0, 4), (4, 5)], "ij,jk ->ik": [(3, 0), (0, 5)],
}  # fmt: skip


def typed(shapes: Any, dtype: str) -> dict[str, str]:
    return {name: f"{dtype}[{', '.join(map(str, s))}]" for name, s in zip("abc", shapes)}


def einsum(spec: str, shapes: Any, dtype: str) -> mt.Program:
    return mt.compile(f'einsum("{spec}", {", ".join("abc"[: len(shapes)])})', **typed(shapes, dtype))


def small(shapes: Any, dtype: str, seed: int = 0) -> list[Any]:
    """Whole numbers that are small enough for exact sums of products."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0 if dtype == "bool" else -3, 2, s).astype(mt.base.types.DTYPES[dtype].numpy) for s in shapes]


@pytest.mark.parametrize("spec", list(SPECS))
@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
def test_einsum_equals_numpys(spec: str, dtype: str) -> None:
    arrays = small(SPECS[spec], dtype)
    got = einsum(spec, SPECS[spec], dtype)(*arrays)
    want = np.einsum(spec, *arrays)
    assert got.dtype == arrays[0].dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("spec", ["ijk,kjl->il", "iij,jk->ik", "...ij,jk", "ij,j,jk->ik", "bqhgd,bkhd->bhgqk"])
def test_einsum_at_every_stage(spec: str) -> None:
    report = einsum(spec, SPECS[spec], "f16").check(*small(SPECS[spec], "f16"))
    assert report.ok, report


@given(st.data())
def test_any_einsum(data: st.DataObject) -> None:
    sizes = data.draw(st.fixed_dictionaries({n: st.integers(1, 5) for n in "abcd"}))
    terms = data.draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3))
    named = sorted(set("".join(terms)))
    result = "".join(data.draw(st.lists(st.sampled_from(named), unique=True))) if named else ""
    shapes = [tuple(sizes[n] for n in term) for term in terms]
    spec, arrays = f"{','.join(terms)}->{result}", small(shapes, "i32", seed=len(terms))
    f = einsum(spec, shapes, "i32")
    (got,) = f.evaluate("graph", bind(f.function, arrays, {}))
    np.testing.assert_array_equal(got, np.einsum(spec, *arrays))


@pytest.mark.parametrize(("text", "message"), [
    ('einsum("ij,jk->ik", a)', "einsum names 2 arrays and gets 1"),
    ('einsum("i1,jk->ik", a, b)', "letters for axes, not `1`"),
    ('einsum("ij,jk->iz", a, b)', "`z` of the result in no array"),
    ('einsum("ij,jk->ii", a, b)', "`i` twice in the result"),
    ('einsum("ijk,jk->i", a, b)', "names 3 axes of an array of rank 2"),
    ('einsum("i,jk->i", a, b)', "names 1 axis of an array of rank 2"),
    ('einsum("ij,jk->ik", a, b.T)', "`j` is 4 and 5"),
    ("einsum(a, b)", "the first argument of einsum is a text"),
    ('einsum("...i,ik->k", a, b)', "lacks the axes of `...`"),
    ('matmul(a, b, precision="tf23")', "did you mean `tf32`?"),
    ('exp("ij")', "an array or number is needed here, not a string"),
])  # fmt: skip
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        mt.compile(text, a="f32[M, 4]", b="f32[4, 5]")
    assert message in str(error.value) and error.value.span is not None


ONE_MATRIX = {
    "a batch of one matrix": ("x @ w", {"x": "f16[A, B, C, D]", "w": "f16[D, E]"}, ["A*B*C", "D", "E"]),
    "single rows": ("x @ w", {"x": "f16[B, 1, D]", "w": "f16[D, E]"}, ["B", "D", "E"]),
    "heads combined": ('einsum("bthd,hde->bte", x, w)', {"x": "f16[B, T, H, D]", "w": "f16[H, D, E]"}, ["B*T", "D*H", "E"]),
    "heads split": ('einsum("td,dhe->the", x, w)', {"x": "f16[T, D]", "w": "f16[D, H, E]"}, ["T", "E*H", "D"]),
    "queries of one key": ("q @ k.mT", {"q": "f16[H, G, 1, D]", "k": "f16[H, 1, S, D]"}, ["H", "G", "D", "S"]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ONE_MATRIX))
def test_one_product_of_two_matrices(name: str) -> None:
    text, types, extents = ONE_MATRIX[name]
    (kernel,) = mt.compile(text, **types).lower(target="cuda:90").compilation.value("kernels").kernels
    assert sum(isinstance(op, Dot) for op in kernel.body) == 1
    assert [str(a.extent) for a in kernel.axes] == extents


ROWS_APART = {  # an axis of rows of one product numbers the matrices of the other product
    "a sum": 'einsum("bmk,bkn->bmn", a, b) + einsum("bmk,mkn->bmn", a, c)',
    "two results": 'einsum("bmk,bkn->bmn", a, b), einsum("bmk,mkn->mbn", a, c)',
    "scores": 'softmax(einsum("bmk,bkn->bmn", a, b) + einsum("bmk,mkn->bmn", a, c)) @ b.mT',
    "values": 'einsum("bmn,bkn->bmk", softmax(a @ b), b) + einsum("bmn,mkn->bmk", softmax(a @ b), c)',
}


@pytest.mark.parametrize("name", list(ROWS_APART))
def test_products_with_rows_along_different_axes(name: str) -> None:
    """Relative positions in attention, for example. Each product has its own kernel, in which its rows have blocks."""
    shapes = [(3, 9, 8), (3, 8, 5), (9, 8, 5)]
    report = mt.compile(ROWS_APART[name], **typed(shapes, "f16")).check(*small(shapes, "f16"))
    assert report.ok, report


@pytest.mark.parametrize("axis, precision", [(1, "tf32x3"), (2, "ieee")])
def test_a_softmax_before_a_product_over_another_axis(axis: int, precision: str) -> None:
    """A softmax over the summed axis could share the loop of the product, so its batch of few rows stays."""
    f = mt.compile(f"softmax(x, axis={axis}) @ w.T", x="f32[192, 3, 768]", w="f32[128, 768]")
    plan = f.lower(target="cuda:90").compilation.plan
    assert [d.precision for k in plan.kernels for d in k.dots] == [precision]


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3"])
def test_precisions(precision: str) -> None:
    f = mt.compile(f'matmul(x, w, precision="{precision}")', x="f32[M, K]", w="f32[K, N]")
    x, w = np.random.default_rng(3).uniform(1, 2, (2, 33, 33)).astype(np.float32)
    assert f.check(x, w).ok
    ptx = f.lower(target="cuda:80")["ptx"]
    assert (".tf32" in ptx) == (precision != "ieee")


def test_16_bits_have_one_precision() -> None:
    f = mt.compile('matmul(x, w, precision="tf32")', x="bf16[M, K]", w="bf16[K, N]")
    assert "precision = ieee" in f.lower()["graph"]


# ---- splits of the summed axis -----------------------------------------------------------

DEEP = {
    "few rows": ("relu(x @ w + 1)", "f16[16, 8192]", "f16[8192, 512]", 16),
    "a batch": ("x @ w", "f16[4, 64, 8192]", "f16[4, 8192, 512]", 8),
    "an odd depth": ("x @ w", "f16[16, 8194]", "f16[8194, 512]", 13),
    "uneven parts": ("x @ w", "f16[1021, 23140]", "f16[23140, 1000]", 4),
    "scaled": ("(x * 2) @ w", "f16[16, 8192]", "f16[8192, 512]", 16),
    "many tiles": ("x @ w", "f16[4096, 8192]", "f16[8192, 512]", 1),
    "less depth": ("x @ w", "f16[16, 4096]", "f16[4096, 512]", 8),
    "little depth": ("x @ w", "f16[16, 512]", "f16[512, 512]", 1),
    "little depth in f32": ("x @ w", "f32[16, 4096]", "f32[4096, 512]", 32),
    "a factor that is a sum": ("(x - mean(x, axis=1, keepdims=True)) @ w", "f16[16, 8192]", "f16[8192, 512]", 16),
    "symbolic sizes": ("x @ w", "f16[16, K]", "f16[K, 512]", 1),
}  # fmt: skip


def _sizes(type: str) -> list[str]:
    return type[type.index("[") + 1 : -1].split(", ")


@pytest.mark.parametrize("name", list(DEEP))
def test_deep_products_are_split(name: str) -> None:
    text, x, w, parts = DEEP[name]
    graph = mt.compile(text, x=x, w=w).lower(target="cuda:90")["graph.simplified"]
    (line,) = [line for line in graph.splitlines() if "contract" in line]
    *batch, rows, columns = _sizes(x)[:-1] + _sizes(w)[-1:]
    assert f"[{', '.join([*batch, *([str(parts)] if parts > 1 else []), rows, columns])}] = contract" in line


def test_a_split_product_at_every_stage() -> None:
    f = mt.compile("relu(x @ w + b)", x="f32[3, 8192]", w="f32[8192, 17]", b="f32[17]")
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((3, 8192), (8192, 17), (17,)))
    report = f.check(x, w, b)
    assert report.ok, report


@pytest.mark.parametrize(("text", "split"), [("x @ w", True), ("x @ w.T", False), ("sum(w.T, axis=1)", True), ("sum(w, axis=0)", True),
                                             ("sum(w * 2, axis=1)", False)])  # fmt: skip
def test_sums_with_a_large_stride_are_split(text: str, split: bool) -> None:
    """If the sums are contiguous, one program computes many of them. Then there would be too few programs."""
    plan = mt.compile(text, x="f32[1, 4096]", w="f32[4096, 4096]").lower(target="cuda:90").compilation.plan
    assert len(plan.kernels) == 1 + split
