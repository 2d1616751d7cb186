"""Gathers with an affine index become views if they stay in the array; f64 products include their scale."""

from __future__ import annotations

import numpy as np
import pytest
from short_profile import every_second

import minitri as mt
from minitri.cli.inputs import make_inputs

STAGES = ("graph", "graph.simplified", "kernels", "tile", "tile.masked", "tile.target", "triton")
VIEWS = {  # with symbolic sizes
    "windows": ("x[arange(N - 2)[:, None] + arange(3)]", "f32[N]"),
    "windows with a step": ("x[2 * arange(N)[:, None] + arange(2)]", "f32[2 * N]"),
    "the whole axis": ("x[arange(N)]", "f32[N]"),
    "backwards": ("x[N - 1 - arange(N)]", "f32[N]"),
    "from the end": ("x[arange(N) - N]", "f32[N]"),
    "backwards from the end": ("x[-1 - arange(N)]", "f32[N]"),
    "negated": ("x[-arange(N) - 1]", "f32[N]"),
    "two index arrays": ("x[arange(M)[:, None], arange(3)]", "f32[M, 3]"),
    "a diagonal": ("x[arange(N), arange(N)]", "f32[N, N]"),
    "next to a slice": ("x[:, arange(N - 1) + 1]", "f32[M, N]"),
    "take": ("take(x, arange(M - 1) + 1, axis=0)", "f32[M, N]"),
    "take_along_axis": ("take_along_axis(x, 0 * arange(M)[:, None] + arange(3), axis=1)", "f32[M, 3]"),
    "of a computed value": ("exp(x)[arange(N - 1) + 1] * x[:-1]", "f32[N]"),
}
GATHERS = {  # that leave the array, or may leave it
    "past the end": ("x[arange(N) + 1]", "f32[N]"),
    "before the start": ("x[arange(N) - N - 1]", "f32[N]"),
    "around the start": ("x[arange(N) - 1]", "f32[N]"),
    "every second": ("x[arange(N) * 2]", "f32[N]"),
    "another size": ("x[arange(M)] + sum(y)", "f32[N]"),
    "past 64 bits": ("x[arange(2) * 2**62 * 4 + arange(2)]", "f32[N]"),
    "from data": ("x[(y > 0) * 1 + arange(M)]", "f32[N]"),
    "one of two from data": ("z[arange(M), (y > 0) * 1]", "f32[N]"),
}
SIZES = ({"M": 3, "N": 5}, {"M": 1, "N": 2}, {"M": 3, "N": 1}, {"M": 0, "N": 0}, {"M": 7, "N": 33})


def program(text: str, type: str) -> mt.Program:
    more = {name: t for name, t in {"y": "f32[M]", "z": "f32[M, 2]"}.items() if name in text.replace("exp", "")}
    return mt.compile(text, x=type, **more)


def run_everywhere(f: mt.Program) -> None:
    for k, sizes in enumerate(SIZES):
        own = {n: s for n, s in sizes.items() if any(n in type for _, type in f.parameters)}
        arrays = make_inputs(f.function, {}, own, k).arrays
        expected = f.numpy(*arrays)
        for stage in STAGES:
            np.testing.assert_allclose(f.run(stage, *arrays), expected, rtol=1e-6, err_msg=f"{stage} {sizes}")
        assert f.check(*arrays).ok


@pytest.mark.parametrize("name", every_second(list(VIEWS)))
def test_an_index_of_axes_is_a_view(name: str) -> None:
    f = program(*VIEWS[name])
    graph = f.lower()["graph.simplified"]
    assert "gather" not in graph and "where" not in graph
    assert "other = nan" not in f.lower()["tile.masked"]
    run_everywhere(f)


@pytest.mark.parametrize("name", GATHERS)
def test_an_index_that_may_leave_the_array_is_a_gather(name: str) -> None:
    f = program(*GATHERS[name])
    assert "gather" in f.lower()["graph.simplified"]
    run_everywhere(f)


def test_bounds_of_several_index_arrays_are_not_checked_if_they_are_known() -> None:
    graph = program(*GATHERS["one of two from data"]).lower()["graph.simplified"]
    assert "index = [d0, @0]" in graph


CONVOLUTION = """def convolution(x: f32[B, C, H, W], k: f32[O, C, 3, 3]) -> f32[B, O, H - 2, W - 2]:
    rows = arange(H - 2)[:, None, None, None] + arange(3)[:, None]
    columns = arange(W - 2)[:, None, None] + arange(3)
    return einsum("bchwij,ocij->bohw", x[:, :, rows, columns], k)
"""


def test_a_convolution_is_one_product_of_views() -> None:
    f = mt.compile(CONVOLUTION)
    sizes = {"B": 2, "C": 3, "O": 4, "H": 7, "W": 6}
    low = f.lower(**sizes)
    assert low["kernels"].count("kernel k") == 1 and "dot" in low["kernels"] and "where" not in low["kernels"]
    x, k = make_inputs(f.function, {}, sizes, 1).arrays
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    np.testing.assert_allclose(f(x, k), np.einsum("bchwij,ocij->bohw", windows, k), rtol=1e-4, atol=1e-5)
    assert f.check(x, k).ok


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("text", ["alpha * A @ B", "(A + 1.0) @ B * alpha", "A @ (B * C)", "-A @ B + C"])
def test_a_scaled_product_is_one_kernel(dtype: str, text: str) -> None:
    used = {"A": "[M, K]", "B": "[K, N]", "C": "[N]"}
    types = {name: dtype + t for name, t in used.items() if name in text}
    f = mt.compile(text, **types, **({"alpha": "float"} if "alpha" in text else {}))
    low = f.configured(without=("pack-operands", "split-k")).lower(M=512, N=512, K=512)
    assert low["kernels"].count("\nkernel ") == 1
    assert ".visible .entry" in low["ptx"]
    sizes = {n: s for n, s in {"M": 17, "N": 5, "K": 33}.items() if any(n in type for _, type in f.parameters)}
    assert f.check(*make_inputs(f.function, {}, sizes).arrays).ok


def test_an_f64_product_of_converted_halves_is_two_kernels() -> None:
    low = mt.compile("A.astype(f64) @ B", A="f16[M, K]", B="f64[K, N]").lower(M=512, N=512, K=512)
    assert low["kernels"].count("\nkernel ") == 2 and ".visible .entry" in low["ptx"]


NARROW = [  # f64 products whose factors are converted through bool or fewer than 32 bits
    "logical_not(x) @ y",
    "where(x > 0, x, 2.5) @ y",
    "where(x > 0, 1.0, 2.0).astype(f64) @ y",
    "y.mT @ where(x != 0, 1.5, 2.5).mT",
    "x.astype(i8) @ y",
    "(x > 0) @ where(y > 0, y, 1)",
]


@pytest.mark.parametrize("text, dtype", every_second(NARROW, ["i32", "i64", "f16", "f32", "f64"]))
def test_no_f64_product_computes_its_factors_from_narrow_values(text: str, dtype: str) -> None:
    f = mt.compile(text, x=f"{dtype}[M, K]", y="f64[K, K]")
    kernels = f.lower(M=17, K=33)["kernels"].partition("\nledger")[0].split("\nkernel ")
    makers = [k for k in kernels if " dot " in k]
    assert len(makers) == 1 and not any(f": {narrow}[" in makers[0] for narrow in ("bool", "i8", "f16"))
    assert f.check(*make_inputs(f.function, {}, {"M": 17, "K": 33}).arrays).ok


@pytest.mark.gpu
@pytest.mark.parametrize("text", NARROW)
def test_f64_products_of_narrow_values_run_on_a_gpu(text: str) -> None:
    import torch

    f = mt.compile(text, x="f32[M, K]", y="f64[K, K]")
    assert f.check(
        *(torch.asarray(a, device="cuda") for a in make_inputs(f.function, {}, {"M": 17, "K": 33}).arrays)
    ).ok
