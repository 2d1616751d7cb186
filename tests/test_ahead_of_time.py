"""Programs are compiled to machine code on a machine without a GPU, and the code has no forbidden instructions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from short_profile import one_in

import minitri as mt
from minitri.hardware.chips import shared_bytes
from minitri.language.signatures import library_spans
from minitri.triton import compiled_stages

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.mt"))
TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
LIBRARY = {
    "relu": "relu(x)", "silu": "silu(x)", "softplus": "softplus(x)", "gelu": "gelu(x)",
    "gelu_tanh": "gelu(x, approximate='tanh')", "gelu_erf": "gelu_erf(x)", "softmax": "softmax(x)",
    "log_softmax": "log_softmax(x)", "logsumexp": "logsumexp(x, axis=0)", "layer_norm": "layer_norm(x, x[0], x[0])",
    "rms_norm": "rms_norm(x, x[0])", "attention": "attention(x, x, x)",
    "cross_entropy": "cross_entropy(x, argmax(x, axis=1))", "logaddexp": "logaddexp(x, x[0])",
    "heaviside": "heaviside(x, 0.5)", "isclose": "astype(isclose(x, x[0]), f32)", "allclose": "astype(allclose(x, x[0]), f32)",
    "nan_to_num": "nan_to_num(x)", "linspace": "x + linspace(0, 1, x.shape[1])", "vecdot": "vecdot(x, x[0])",
    "outer": "outer(x[0], x[0])", "dot": "dot(x, x.mT)", "inner": "inner(x, x)", "trace": "trace(x, offset=1)", "vector_norm": "vector_norm(x, axis=1, ord=3)",
    "nextafter": "nextafter(x, x * 2)", "next_half": "next_half(x, x * 2)", "argsort": "argsort(x)", "sort": "sort(x, axis=0, descending=True)", "count_nonzero": "count_nonzero(x, axis=1)",
    "std": "std(x, axis=1)", "zeros": "x + zeros(x.shape)", "ones": "x * ones(x.shape, f16)",
    "full_like": "full_like(x, 2)", "zeros_like": "zeros_like(x)", "ones_like": "x + ones_like(x)",
    "isin": "isin(x, x[0])", "median": "median(x, axis=1)", "quantile": "quantile(x, 0.3, axis=0)",
}  # fmt: skip


@pytest.mark.parametrize("path, target", one_in(4, EXAMPLES, TARGETS), ids=lambda v: getattr(v, "stem", v))
def test_examples(path: Path, target: str) -> None:
    low = mt.compile(path).lower(target=target)
    assert all(low[stage] for stage in low.stages)


def test_the_table_has_the_whole_library() -> None:
    assert set(library_spans()) <= set(LIBRARY)


@pytest.mark.parametrize(
    "name, declared", one_in(4, list(LIBRARY), ["f32[M, N]", "f32[100, 77]", "bf16[M, N]", "bf16[100, 77]"])
)
def test_library(name: str, declared: str) -> None:
    assert mt.compile(LIBRARY[name], x=declared).lower()["ptx"]


ONE_KERNEL = {
    "gelu": ("gelu(x)", {"x": "[M, N]"}),
    "gelu by hand": ("0.5*x*(1+tanh(0.79788456*(x+0.044715*x*x*x)))", {"x": "[M, N]"}),
    "softmax": ("softmax(x, axis=-1)", {"x": "[M, N]"}),
    "layer_norm": ("layer_norm(x, g, b)", {"x": "[M, N]", "g": "[N]", "b": "[N]"}),
    "relu(x @ w + b)": ("relu(x @ w + b)", {"x": "[M, K]", "w": "[K, N]", "b": "[N]"}),
}


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str, dtype: str) -> None:
    text, types = ONE_KERNEL[name]
    program = mt.compile(text, **{n: dtype + t for n, t in types.items()})
    # a larger f32 product has a second kernel, which copies w for tensor cores
    known = {"M": 100, "N": 777, "K": 129} if "K" in str(types) else {"M": 1000, "N": 777}
    for sizes in ({}, known):
        assert len(program.lower(**sizes).kernels) == 1


def test_f32_products_do_not_round_to_tf32() -> None:
    assert ".tf32" not in mt.compile("x @ w", x="f32[M, K]", w="f32[K, N]").lower()["ptx"]


def test_products_and_sums_are_not_contracted() -> None:
    assert "fma." not in mt.compile("x * y + z", x="f32[N]", y="f32[N]", z="f32[N]").lower()["ptx"]


def test_contiguous_loads_are_wide() -> None:
    ptx = mt.compile("x + y", x="f32[N]", y="f32[N]").lower(N=1 << 20)["ptx"]
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx


def test_torch_is_not_imported() -> None:
    text = (
        "import sys, minitri as mt\n"
        "low = mt.compile('softmax(x)', x='f32[M, N]').lower(M=1000, N=777)\n"
        "assert all(low[s] for s in low.stages)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


COMPUTED = {
    "both factors": ("(x * y) @ (w + u)", "100, 400", "400, 100"),
    "one factor": ("(x + y) @ w", "1000, 1000", "1000, 1000"),
    "cast": ("x.astype(f16) @ w", "1536, 1536", "1536, 1536"),
    "two products": ("(x * y) @ w + x @ u", "256, 512", "512, 256"),
    "few rows": ("x @ (w * u)", "16, 4096", "4096, 4096"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_blocks_of_computed_factors_fit_in_shared_memory(name: str) -> None:
    """A pipelined loop keeps blocks in shared memory for each array that a factor is computed from."""
    text, x, w = COMPUTED[name]
    shapes = {"x": f"{'f32' if name == 'cast' else 'f16'}[{x}]", "y": f"f16[{x}]", "w": f"f16[{w}]", "u": f"f16[{w}]"}
    low = mt.compile(text, **{n: t for n, t in shapes.items() if n in text.replace("astype", "")}).lower(
        target="cuda:90"
    )
    built = compiled_stages.build(low["triton"], low.compilation.value("triton"), low.compilation.context.target)
    assert max(b.metadata.shared for b in built) <= (shared_bytes(low.compilation.context.target) or 0)
