"""The pass pack-operands: which factors of large products are copied for tensor cores, how, and that results stay."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from short_profile import every_second

import minitri as mt
from minitri.base.dims import Dim
from minitri.graph.ir import Apply, Concat, Contract, Node, View
from minitri.optimize import factor_layouts, pack_operands
from minitri.pipeline import Compilation

LARGE = {"M": 2048, "K": 4096, "N": 3072}
RAGGED = {"M": 2048, "K": 4090, "N": 1777}
BF16 = {"x": "bf16[M, K]", "w": "bf16[K, N]"}
F32 = {"x": "f32[M, K]", "w": "f32[K, N]"}
TF32 = 'matmul(x, w, precision="tf32")'
CASES: dict[str, tuple[str, dict[str, str], dict[str, int], str]] = {  # the last text: which of x and w are copied
    "fits": ("x @ w", BF16, LARGE, ""),
    "both transposed": ("x.T @ w.T", {"x": "bf16[K, M]", "w": "bf16[N, K]"}, LARGE, ""),
    "odd depth": ("x @ w", BF16, LARGE | {"K": 4090}, "x"),
    "an even depth": ("x @ w", BF16, LARGE | {"M": 4096, "K": 4090, "N": 1024}, ""),
    "odd depth, used less often": ("x @ w", BF16, LARGE | {"M": 4096, "K": 4091, "N": 1024}, "x"),
    "a computed factor, used less often": ("x.astype(bf16) @ w", {"x": "f32[M, K]", "w": "bf16[K, N]"}, LARGE | {"N": 1024}, "x"),
    "even columns, used less often": ("x @ w", BF16, {"M": 1024, "K": 8192, "N": 2046}, "w"),
    "odd columns": ("x @ w", BF16, LARGE | {"N": 1777}, "w"),
    "both odd": ("x @ w", BF16, RAGGED, "xw"),
    "odd rows of weights, one tile of rows": ("x @ w.T", {"x": "bf16[M, K]", "w": "bf16[N, K]"}, {"M": 64, "K": 8195, "N": 1024}, "xw"),
    "odd rows of weights, few rows": ("x @ w.T", {"x": "bf16[M, K]", "w": "bf16[N, K]"}, {"M": 63, "K": 8195, "N": 1024}, "x"),
    "odd depth, two tiles of columns": ("x @ w.T", {"x": "bf16[M, K]", "w": "bf16[N, K]"}, {"M": 8192, "K": 777, "N": 256}, "xw"),
    "odd depth, one tile of columns": ("x @ w", BF16, {"M": 32768, "K": 777, "N": 128}, ""),
    "odd depth, small": ("x @ w", BF16, {"M": 512, "K": 511, "N": 511}, "xw"),
    "odd and short depth, small": ("x @ w", BF16, {"M": 2048, "K": 127, "N": 511}, ""),
    "every other element": ("x[:, :, 1] @ w", {"x": "f32[M, K, 2]", "w": "f32[K, N]"}, {"M": 1204, "K": 4100, "N": 1024}, "xw"),
    "every other element, few columns": ("x[:, :, 1] @ w", {"x": "f32[M, K, 2]", "w": "f32[K, N]"}, {"M": 8192, "K": 4100, "N": 127}, "w"),
    "odd rows of a transposed factor": ("x.T @ w", {"x": "bf16[K, M]", "w": "bf16[K, N]"}, LARGE | {"M": 2047}, "x"),
    "tf32": (TF32, F32, LARGE, "xw"),
    "tf32, transposed": (TF32.replace("w,", "w.T,"), {"x": "f32[M, K]", "w": "f32[N, K]"}, LARGE, "xw"),
    "f32": ("x @ w", F32, RAGGED, "xw"),
    "f32, contiguous along the depth": ("x @ w.T", {"x": "f32[M, K]", "w": "f32[N, K]"}, LARGE, ""),
    "f32, small": ("x @ w", F32, {"M": 256, "K": 1024, "N": 512}, ""),
    "f32, odd rows used less often": ("x @ w", F32, {"M": 1024, "K": 1023, "N": 512}, "w"),
    "f32, both transposed": ("x.T @ w", {"x": "f32[K, M]", "w": "f32[K, N]"}, {"M": 1024, "K": 1024, "N": 512}, "w"),
    "IEEE": ('matmul(x, w, precision="ieee")', F32, RAGGED, ""),
    "IEEE, transposed": ('matmul(x.T, w.T, precision="ieee")', {"x": "f32[K, M]", "w": "f32[N, K]"}, LARGE, "w"),
    "dequantised": ("x @ (w.astype(bf16) * 0.5)", {"x": "bf16[M, K]", "w": "i8[K, N]"}, LARGE, "w"),
    "dequantised for many rows": ("x @ (w.astype(bf16) * 0.5)", {"x": "bf16[M, K]", "w": "i8[K, N]"}, LARGE | {"M": 1280}, "w"),
    "dequantised for fewer rows": ("x @ (w.astype(bf16) * 0.5)", {"x": "bf16[M, K]", "w": "i8[K, N]"}, LARGE | {"M": 1279}, ""),
    "dequantised with more operations": ("x @ (tanh(w.astype(bf16)) * 0.5)", {"x": "bf16[M, K]", "w": "i8[K, N]"}, LARGE | {"M": 129}, "w"),
    "a cast of f32 weights, two tiles of rows": ("x @ (w * 0.5).astype(bf16)", {"x": "bf16[M, K]", "w": "f32[K, N]"}, LARGE | {"M": 129}, "w"),
    "a cast of f32 weights, one tile of rows": ("x @ (w * 0.5).astype(bf16)", {"x": "bf16[M, K]", "w": "f32[K, N]"}, LARGE | {"M": 128}, ""),
    "a scale of 8 bits": ("x @ (w.astype(bf16) * s)", {"x": "bf16[M, K]", "w": "bf16[K, N]", "s": "i8[N]"}, LARGE | {"M": 129}, "w"),
    "both computed, the first one rarely used": ("x.astype(bf16) @ w.astype(bf16)", {"x": "f32[M, K]", "w": "i8[K, N]"}, LARGE | {"M": 256}, "w"),
    "dequantised, small": ("x @ (w.astype(bf16) * 0.5)", {"x": "bf16[M, K]", "w": "i8[K, N]"}, {"M": 256, "K": 1024, "N": 1024}, ""),
    "a cast": ("x.astype(bf16) @ w", {"x": "f32[M, K]", "w": "bf16[K, N]"}, LARGE, "x"),
    "a padded factor": ("pad(x[:, 2:], ((0, 0), (1, 1))) @ w", BF16, {"M": 345, "K": 4096, "N": 2048}, "x"),
    "a padded factor, used less often": ("pad(x[:, 2:], ((0, 0), (1, 1))) @ w", BF16, {"M": 4096, "K": 4096, "N": 504}, "x"),
    "a concatenation": ("stack((x, y)) @ w", BF16 | {"y": "bf16[M, K]"}, {"M": 512, "K": 1024, "N": 1024}, "x"),
    "a concatenation, one tile of columns": ("stack((x, y)) @ w", BF16 | {"y": "bf16[M, K]"}, {"M": 4096, "K": 1024, "N": 128}, ""),
    "a stack in f32": ("stack((x, y)) @ w", F32 | {"y": "f32[M, K]"}, {"M": 204, "K": 11008, "N": 1024}, "xw"),
    "f32, halves of rows swapped": ("concat((-x[:, 2048:], x[:, :2048]), axis=1) @ w.T", {"x": "f32[M, K]", "w": "f32[N, K]"}, {"M": 2048, "K": 4096, "N": 512}, "x"),
    "f32, halves of rows swapped, one tile of columns": ("concat((-x[:, 2048:], x[:, :2048]), axis=1) @ w.T", {"x": "f32[M, K]", "w": "f32[N, K]"}, {"M": 8192, "K": 4096, "N": 128}, ""),
    "f32, rows in odd pieces": ("reshape(permute_dims(x, (1, 0, 2)), (M, 4 * K)) @ reshape(w, (N, 4 * K)).T", {"x": "f32[4, M, K]", "w": "f32[N, 4, K]"}, {"M": 2048, "K": 1023, "N": 512}, "x"),
    "f32, rows in aligned pieces": ("reshape(permute_dims(x, (1, 0, 2)), (M, 4 * K)) @ reshape(w, (N, 4 * K)).T", {"x": "f32[4, M, K]", "w": "f32[N, 4, K]"}, {"M": 2048, "K": 1024, "N": 512}, ""),
    "a padded running sum": ("x @ pad(cumulative_sum(w, axis=1), ((0, 0), (1, 0)))", F32, {"M": 128, "K": 64, "N": 511}, "w"),
    "a running sum": ("x @ cumulative_sum(w, axis=1)", F32, {"M": 128, "K": 64, "N": 512}, ""),
    "a softmax beside an array": ("concat((softmax(x, axis=1), x), axis=1) @ reshape(w, (2 * K, N))", {"x": "f32[M, K]", "w": "f32[2, K, N]"}, {"M": 64, "K": 64, "N": 64}, "x"),
    "odd rows, little work": ("x @ w.T", BF16 | {"w": "bf16[N, K]"}, {"M": 2048, "K": 1501, "N": 512}, "xw"),
    "even rows, little work": ("x @ w.T", BF16 | {"w": "bf16[N, K]"}, {"M": 2048, "K": 1500, "N": 512}, "w"),
    "odd columns after a reduction": ("(x / (sum(x * x, axis=1, keepdims=True) + 1)) @ w", BF16, RAGGED, "w"),
    "f32, few odd rows": ("x @ w", F32, {"M": 64, "K": 4093, "N": 2048}, "w"),
    "f32, each element used 64 times": ("x @ w", {"x": "f32[256, M, K]", "w": "f32[256, K, N]"}, {"M": 64, "K": 768, "N": 256}, ""),
    "f32, each element used 8192 times": ("x @ w", {"x": "f32[2, M, K]", "w": "f32[2, K, N]"}, {"M": 8192, "K": 768, "N": 1024}, "w"),
    "f32, the smaller factor": ("x.mT @ w", {"x": "f32[4, K, M]", "w": "f32[4, K, N]"}, {"M": 64, "K": 4096, "N": 8192}, "w"),
    "f32, a computed first factor": ("(x * x) @ w", F32, {"M": 24576, "K": 100, "N": 128}, "w"),
    "f32, a second factor after a reduction": ("x.mT @ (w / max(w))", F32 | {"x": "f32[K, M]"}, {"M": 4095, "K": 120, "N": 4095}, "w"),
    "few rows": ("x @ (w.astype(bf16) * 0.5)", {"x": "bf16[M, K]", "w": "i8[K, N]"}, LARGE | {"M": 16}, ""),
    "little depth, odd rows": ("x @ w", BF16, {"M": 20480, "K": 250, "N": 777}, "w"),
    "little depth": ("x @ w", BF16, {"M": 20480, "K": 250, "N": 778}, ""),
    "very little depth": ("x @ w", BF16, {"M": 20480, "K": 63, "N": 777}, ""),
    "small": ("x @ w", BF16, {"M": 1000, "K": 2050, "N": 3000}, ""),
    "a batch": ("x @ w", {"x": "bf16[4, M, K]", "w": "bf16[4, K, N]"}, RAGGED, "xw"),
    "a batch times one matrix": ("x @ w", {"x": "bf16[4, M, K]", "w": "bf16[K, N]"}, LARGE, ""),
    "a batch times one odd matrix": ("x @ w", {"x": "bf16[4, M, K]", "w": "bf16[K, N]"}, RAGGED, "xw"),
    "a batch times one transposed odd matrix": ("x @ w.T", {"x": "bf16[4, M, K]", "w": "bf16[N, K]"}, LARGE | {"K": 4089}, "xw"),
    "one matrix times a batch": ("x @ w", {"x": "bf16[M, K]", "w": "bf16[4, K, N]"}, LARGE | {"N": 300}, "w"),
    "one odd matrix times a batch": ("x @ w", {"x": "bf16[M, K]", "w": "bf16[4, K, N]"}, RAGGED | {"N": 1776}, "x"),
    "a factor that is a product": ("x @ (v @ w)", BF16 | {"x": "bf16[M, L]", "v": "bf16[L, K]"}, RAGGED | {"L": 4090}, "xw"),
}  # fmt: skip


def packed(name: str, **more: Any) -> mt.Lowered:
    text, types, sizes, _ = CASES[name]
    return mt.compile(text, **types).lower(target="cuda:90", **sizes, **more)


def copied(node: Node) -> bool:
    """Whether a factor is a view of a copy, or of a padded copy."""
    while isinstance(node, (View, Concat)):
        node = node.x if isinstance(node, View) else node.parts[0]
    return isinstance(node, Apply) and node.op == "cast" and node.args[0].dtype == node.dtype


@pytest.mark.parametrize("name", [n for n in CASES if n != "a factor that is a product"])
def test_factors_that_are_copied(name: str) -> None:
    (node,) = [n for n in packed(name).compilation.value("graph.simplified").nodes() if isinstance(n, Contract)]
    assert "".join(letter for letter, factor in (("x", node.a), ("w", node.b)) if copied(factor)) == CASES[name][3]


def test_a_factor_computed_by_a_product_is_not_copied() -> None:
    """The first product's own kernel stores the factor. The factors of the other product are packed."""
    products = [n for n in packed("a factor that is a product").compilation.value("graph.simplified").nodes() if isinstance(n, Contract)]  # fmt: skip
    assert [(copied(n.a), copied(n.b)) for n in products] == [(True, True), (False, False)]


def test_a_padded_running_sum_is_stored_once() -> None:
    """The kernel of the sum stores the padded sum, for the product and for the other kernel that reads it."""
    text = "def f(x: f32[8, 64, 512], c: f32[128, 64]):\n    y = pad(cumulative_sum(x[..., :-1], axis=-1), ((0, 0), (0, 0), (1, 0)))\n    return c @ y, std(y, axis=2)\n"
    plan = mt.compile(text).lower(target="h200").compilation.plan
    assert [tuple(map(int, b.shape)) for b in plan.temporaries] == [(8, 64, 512)]


@pytest.mark.parametrize("name", ["a batch times one odd matrix", "one odd matrix times a batch"])
def test_a_factor_shared_by_a_batch_is_copied_once(name: str) -> None:
    shapes = [len(t.shape) for t in packed(name).compilation.plan.temporaries]
    assert shapes == {"a batch times one odd matrix": [3, 2], "one odd matrix times a batch": [2]}[name]


@pytest.mark.parametrize("name", ["odd depth", "both odd", "odd rows of a transposed factor", "a batch"])
def test_rows_of_copies_begin_at_multiples_of_16_bytes(name: str) -> None:
    plan = packed(name).compilation.plan
    assert plan.temporaries and all(int(t.shape[-1]) * t.dtype.bytes % 16 == 0 for t in plan.temporaries)


def test_a_copy_is_a_kernel_and_the_ledger_says_why() -> None:
    plan = packed("both odd").compilation.plan
    assert len(plan.kernels) == 3
    assert sum(d.rule == "a copy that a tensor core can read" for d in plan.ledger) == 2


def test_the_other_factor_is_padded_while_it_is_loaded() -> None:
    """Its depth must be equal, but that needs no copy."""
    (node,) = [n for n in packed("odd depth").compilation.value("graph.simplified").nodes() if isinstance(n, Contract)]
    assert isinstance(node.b, Concat) and int(node.a.shape[-1]) == int(node.b.shape[-2]) == 4096


@pytest.mark.parametrize("start, kernels", [(1, 2), (2, 2), (8, 1)])
def test_the_start_of_a_slice_decides_whether_it_is_copied(start: int, kernels: int) -> None:
    f = mt.compile(
        f"x[:, {start}:] @ w", x=f"bf16[2048, {4096 + start + -start % 8}]", w=f"bf16[{4096 + -start % 8}, 3072]"
    )
    assert len(f.lower(target="cuda:90").kernels) == kernels


def test_rows_of_an_array_with_one_axis_are_rows() -> None:
    f = mt.compile("reshape(x, (8192, 8192)) @ w", x="bf16[67108864]", w="bf16[8192, 256]")
    assert len(f.lower(target="cuda:90").kernels) == 1


@pytest.mark.parametrize("name", ["fits", "both odd"])
def test_without_it_and_for_the_interpreter_nothing_is_copied(name: str) -> None:
    text, types, sizes, _ = CASES[name]
    f = mt.compile(text, **types)
    assert len(f.configured(without=["pack-operands"]).lower(target="cuda:90", **sizes).kernels) == 1
    assert len(f.lower(target="interpreter", **sizes).kernels) == 1


def test_factors_of_symbolic_sizes_are_not_copied() -> None:
    assert len(mt.compile("x @ w", **BF16).lower(target="cuda:90").kernels) == 1


def test_the_strides_of_a_call_decide_whether_it_is_copied() -> None:
    """The rows start at odd addresses, although their length is even."""

    context = mt.compile("x @ w", **BF16).lower(target="cuda:90", **LARGE).compilation.context
    wide = replace(context, layouts={"x": (Dim.of(4099), Dim.of(1))})
    assert len(Compilation(context).plan.kernels) == 1 and len(Compilation(wide).plan.kernels) == 2


def test_shared_values_are_visited_once() -> None:
    """A regression: each path from a product to its weights was followed."""
    squares = "\n".join(["    y = y * y"] * 60)
    text = f"def f(x: f16[256, 4096], w: i8[4096, 4096]):\n    y = w.astype(f16)\n{squares}\n    return x @ y\n"
    assert mt.compile(text).lower(target="cuda:90")["graph.simplified"]


TURNED = "def f(x: bf16[K, M], b: bf16[M], y: bf16[K, N]):\n    return (x + b).mT @ y\n"


@pytest.mark.parametrize(
    ("rows", "columns", "copy"), [(200, 256, (30001, 200)), (200, 257, (30008, 200)), (201, 256, (201, 30008))]
)
def test_a_transposed_sum_is_copied_as_it_lies_in_memory(rows: int, columns: int, copy: tuple[int, int]) -> None:
    """The depth is odd. It is padded only if a factor has rows along the depth, or odd rows."""
    low = mt.compile(TURNED).lower(K=30001, M=rows, N=columns, target="cuda:90")
    shapes = [tuple(map(int, b.shape)) for b in low.compilation.value("kernels").temporaries]
    assert copy in shapes


@pytest.mark.parametrize(
    "sizes", [{"K": 35, "M": 24, "N": 16}, {"K": 35, "M": 24, "N": 19}, {"K": 33, "M": 19, "N": 8}]
)
def test_a_transposed_sum_at_every_stage(sizes: dict[str, int], of_any_size: None) -> None:
    rng = np.random.default_rng(0)
    shapes = ((sizes["K"], sizes["M"]), (sizes["M"],), (sizes["K"], sizes["N"]))
    x, b, y = (rng.normal(size=shape).astype(mt.base.types.bf16.numpy) for shape in shapes)
    x[0, 0], x[-1, -1] = np.inf, np.nan
    report = mt.compile(TURNED).check(x, b, y)
    assert report.ok, report
    assert any(r.by == "pack-operands" for r in report.rows)


SHARED = """
def f(x: bf16[M, K], v: bf16[K, L], w: bf16[K, N], b: bf16[K]):
    y = tanh(x)
    return y @ v, y @ w, relu(x + b)
"""


def test_all_products_with_a_factor_read_its_copy() -> None:
    """The product with few columns would compute tanh itself. The kernel of the copy also computes the third result."""
    low = mt.compile(SHARED).lower(M=8192, K=1024, L=64, N=4096, target="cuda:90")
    kernels = low.compilation.value("kernels").kernels
    assert len(kernels) == 3
    assert low["kernels"].count("= tanh ") == 1


@pytest.mark.parametrize(("text", "copies", "precisions"), [
    ("def f(x: f32[M, M], w: f32[M, M], y: f32[M, M]):\n    return x @ w, y @ w.mT\n", 1, ["tf32x3", "tf32x3"]),
    ("def f(x: f32[M, M], w: f32[M, M], y: f32[M, M]):\n    return x @ (w * 2), y @ (w * 2).mT\n", 1, ["tf32x3", "tf32x3"]),
    ("def f(x: bf16[M, M], b: bf16[M]):\n    z = x + b\n    return z.mT @ z\n", 1, ["ieee"]),
    ("def f(x: bf16[M, M], b: bf16[M], w: bf16[M, M], g: bf16[M, M]):\n    h = relu(x + b)\n    return h @ w, h.mT @ g\n", 1, ["ieee"] * 2),
])  # fmt: skip
def test_products_with_a_transposed_factor(text: str, copies: int, precisions: list[str]) -> None:
    """Products of f32 arrays read no copy that is contiguous along the wrong axis. No array is copied twice."""
    low = mt.compile(text).lower(M=4096, target="cuda:90")
    assert len(low.compilation.value("kernels").temporaries) == copies
    assert re.findall(r"precision = (\w+)", low["kernels"]) == precisions


def test_few_rows_read_weights_of_8_bits() -> None:
    """The product with many rows reads converted weights. The product with few rows does not wait for them."""
    f = mt.compile(
        "x @ w.astype(bf16), u @ w.astype(bf16)", x="bf16[8192, 4096]", u="bf16[8, 4096]", w="i8[4096, 4096]"
    )
    kernels = f.lower(target="cuda:90").compilation.value("kernels").kernels
    assert sum(b.dtype.name == "i8" for k in kernels for b in k.buffers) == 2


@pytest.mark.parametrize("narrow", [1, 5, 16])
def test_a_shared_copy_at_every_stage(narrow: int, of_any_size: None) -> None:
    rng = np.random.default_rng(0)
    shapes = ((21, 35), (35, narrow), (35, 19), (35,))
    report = mt.compile(SHARED).check(*(rng.normal(size=shape).astype(mt.base.types.bf16.numpy) for shape in shapes))
    assert report.ok, report


SMALL = {"M": 21, "K": 35, "N": 19}


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "REUSE REUSE_OF_COMPUTED REUSE_OF_CONVERTED REUSE_OF_SINGLE WORTH WORTH_COMPUTED WORTH_OF_SINGLE"
    for constant in ("DEPTH", "DEPTH_OF_SINGLE", *names.split()):
        monkeypatch.setattr(pack_operands, constant, 1)
    monkeypatch.setattr(factor_layouts, "LONG_ROW", 1)


@pytest.mark.parametrize("name", every_second(list(CASES)))
def test_every_stage(name: str, of_any_size: None) -> None:
    """Results are numpy's, also with a GPU's schedules. Infinities and nan stay in their rows."""
    text, types, _, _ = CASES[name]
    rng, sizes = np.random.default_rng(0), SMALL | {"L": 33}
    given = []
    for letter, t in types.items():
        shape = [int(d) if d.isdigit() else sizes[d] for d in t[:-1].split("[")[1].split(", ")]
        dtype = mt.base.types.DTYPES[t.split("[")[0]]
        value = (rng.integers(-9, 9, shape) if dtype.is_integer else rng.normal(size=shape)).astype(dtype.numpy)
        if letter == "x" and not dtype.is_integer:
            value[..., 0, 0], value[..., -1, -1] = np.inf, np.nan
        given.append(value)
    report = mt.compile(text, **types).check(*given)
    assert report.ok, report
    assert any(r.by == "pack-operands" for r in report.rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", list(CASES))
def test_on_a_gpu(name: str) -> None:
    """Compared with the same products without copies, at sizes at which factors are copied."""
    text, types, sizes, _ = CASES[name]
    given = []
    for t in types.values():
        shape = [int(d) if d.isdigit() else sizes[d] for d in t[:-1].split("[")[1].split(", ")]
        dtype = getattr(torch, mt.base.types.DTYPES[t.split("[")[0]].triton)
        random = (
            torch.randn(shape, device="cuda") if dtype.is_floating_point else torch.randint(-9, 9, shape, device="cuda")
        )
        given.append(random.to(dtype))
    f = mt.compile(text, **types)
    wanted = f.configured(without=["pack-operands"])(*given).double()
    for _ in range(2):
        error = torch.linalg.vector_norm(f(*given).double() - wanted) / torch.linalg.vector_norm(wanted)
        assert error < 3e-3
