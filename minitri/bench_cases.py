"""What is measured: the table of cases, and each program as a user of torch would write it.

A case is a program of the language, what to call it with, the same `as written` in torch
(eager: a kernel an operation; also what torch.compile gets, and in f64 the reference), and the
library's own op where there is one. A case is a row here and nothing elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

try:
    import torch as _torch
except ImportError:  # the table against numpy does without
    _torch = None
torch: Any = _torch


@dataclass(frozen=True, slots=True)
class Input:
    """`below`: random integers 0 … below-1; else floats, normal or (`positive`) from 0 to 1."""

    dtype: str
    shape: tuple[int, ...]
    below: int = 0
    positive: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """`picks`: of its first input only as much as the output holds is read. `flops`: of a product."""

    name: str
    program: str
    inputs: tuple[Input, ...]
    eager: Callable[..., Any]
    library: Callable[..., Any] | None = None
    picks: bool = False
    flops: int = 0


# ---- as written ------------------------------------------------------------------------


def add(x: Any, y: Any) -> Any:
    return x + y


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def softmax(x: Any) -> Any:
    e = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return e / e.sum(dim=-1, keepdim=True)


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    m = x.mean(dim=-1, keepdim=True)
    v = ((x - m) ** 2).mean(dim=-1, keepdim=True)
    return (x - m) * torch.rsqrt(v + 1e-5) * g + b


def rms_norm(x: Any, g: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6) * g


def row_sum(x: Any) -> Any:
    return x.sum(dim=1)


def column_sum(x: Any) -> Any:
    return x.sum(dim=0)


def total_sum(x: Any) -> Any:
    return x.sum()


def embedding(w: Any, idx: Any) -> Any:
    return w[idx]


def matmul(x: Any, w: Any) -> Any:
    return x @ w


def linear(x: Any, w: Any, b: Any) -> Any:
    return torch.relu(x @ w + b)


# ---- the library's own -----------------------------------------------------------------


def library_gelu(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def library_softmax(x: Any) -> Any:
    return torch.softmax(x, dim=-1)


def library_layer_norm(x: Any, g: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), g, b, 1e-5)


def library_rms_norm(x: Any, g: Any) -> Any:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), g, 1e-6)


def library_embedding(w: Any, idx: Any) -> Any:
    return torch.nn.functional.embedding(idx, w)


def library_linear(x: Any, w: Any, b: Any) -> Any:
    return torch.relu_(torch.addmm(b, x, w))


# ---- programs --------------------------------------------------------------------------

ADD = """
def add(x: f32[M, N], y: f32[M, N]) -> f32[M, N]:
    return x + y
"""
GELU = """
def gelu_by_hand(x: {t}[M, N]) -> {t}[M, N]:
    return 0.5*x*(1+tanh(0.79788456*(x+0.044715*x*x*x)))
"""
SOFTMAX = """
def softmax_of_rows(x: {t}[M, N]) -> {t}[M, N]:
    e = exp(x - max(x, axis=-1, keepdims=True))
    return e / sum(e, axis=-1, keepdims=True)
"""
LAYER_NORM = """
def layer_norm(x: bf16[M, N], g: bf16[N], b: bf16[N], eps: float = 1e-5) -> bf16[M, N]:
    m = mean(x, axis=-1, keepdims=True)
    v = mean((x - m)**2, axis=-1, keepdims=True)
    return (x - m) * rsqrt(v + eps) * g + b
"""
RMS_NORM = """
def rms_norm(x: bf16[M, N], g: bf16[N], eps: float = 1e-6) -> bf16[M, N]:
    return x * rsqrt(mean(x * x, axis=-1, keepdims=True) + eps) * g
"""
ROW_SUM = """
def row_sum(x: bf16[M, N]) -> bf16[M]:
    return sum(x, axis=1)
"""
COLUMN_SUM = """
def column_sum(x: bf16[M, N]) -> bf16[N]:
    return sum(x, axis=0)
"""
TOTAL_SUM = """
def total_sum(x: bf16[M, N]) -> bf16[]:
    return sum(x)
"""
EMBEDDING = """
def embedding(w: bf16[V, D], idx: i64[N]) -> bf16[N, D]:
    return w[idx]
"""
MATMUL = """
def matmul_of_bf16(x: bf16[M, K], w: bf16[K, N]) -> bf16[M, N]:
    return x @ w
"""
LINEAR = """
def linear(x: bf16[M, K], w: bf16[K, N], b: bf16[N]) -> bf16[M, N]:
    return relu(x @ w + b)
"""

NARROW, WIDE = (16384, 4096), (16384, 8192)


def cases() -> tuple[Case, ...]:
    """Short ones first: what is cut off when time runs out are extras of the long ones."""
    x32, x16, row = Input("f32", NARROW), Input("bf16", WIDE), Input("bf16", WIDE[1:])
    summed = (Input("bf16", WIDE, positive=True),)
    lookup = (Input("bf16", (128256, 4096)), Input("i64", (65536,), below=128256))
    return (
        Case("add f32 16384x4096", ADD, (x32, x32), add),
        Case("gelu f32 16384x4096", GELU.format(t="f32"), (x32,), gelu, library_gelu),
        Case("gelu bf16 16384x8192", GELU.format(t="bf16"), (x16,), gelu, library_gelu),
        Case("softmax f32 16384x4096", SOFTMAX.format(t="f32"), (x32,), softmax, library_softmax),
        Case("softmax bf16 16384x8192", SOFTMAX.format(t="bf16"), (x16,), softmax, library_softmax),
        Case("layernorm bf16 16384x8192", LAYER_NORM, (x16, row, row), layer_norm, library_layer_norm),
        Case("rmsnorm bf16 16384x8192", RMS_NORM, (x16, row), rms_norm, library_rms_norm),
        Case("row sum bf16 16384x8192", ROW_SUM, summed, row_sum),
        Case("column sum bf16 16384x8192", COLUMN_SUM, summed, column_sum),
        Case("total sum bf16 16384x8192", TOTAL_SUM, summed, total_sum),
        Case("embedding bf16 65536x4096", EMBEDDING, lookup, embedding, library_embedding, picks=True),
        *_products(2048), *_products(4096), *_products(8192),
    )  # fmt: skip


def _products(n: int) -> Iterable[Case]:
    x, b = Input("bf16", (n, n)), Input("bf16", (n,))
    yield Case(f"matmul bf16 {n}", MATMUL, (x, x), matmul, flops=2 * n**3)
    yield Case(f"relu(x@w+b) bf16 {n}", LINEAR, (x, x, b), linear, library_linear, flops=2 * n**3)
