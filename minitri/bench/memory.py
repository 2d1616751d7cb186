"""Programs that move bytes, and the same as a user of torch would write them.

The shapes come from practice (rows of a transformer, a vocabulary of 128256), or are awkward: rows of 777, 4090 and
4100 elements, of 131072, and one read across.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from minitri.bench.case import Case, Input, torch

# ---- programs --------------------------------------------------------------------------

ADD = """
def add(x: {t}[M, N], y: {t}[M, N]) -> {t}[M, N]:
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
COLUMN_SOFTMAX = """
def softmax_of_columns(x: {t}[M, N]) -> {t}[M, N]:
    return softmax(x, axis=0)
"""
LOG_SOFTMAX = """
def log_softmax_of_rows(x: {t}[M, N]) -> {t}[M, N]:
    return log_softmax(x, axis=-1)
"""
LAYER_NORM = """
def layer_norm(x: {t}[*B, N], g: {t}[N], b: {t}[N], eps: float = 1e-5) -> {t}[*B, N]:
    m = mean(x, axis=-1, keepdims=True)
    v = mean((x - m)**2, axis=-1, keepdims=True)
    return (x - m) * rsqrt(v + eps) * g + b
"""
RMS_NORM = """
def rms_norm(x: {t}[M, N], g: {t}[N], eps: float = 1e-6) -> {t}[M, N]:
    return x * rsqrt(mean(x * x, axis=-1, keepdims=True) + eps) * g
"""
ROW_SUM = """
def row_sum(x: {t}[M, N]) -> {t}[M]:
    return sum(x, axis=1)
"""
COLUMN_SUM = """
def column_sum(x: {t}[M, N]) -> {t}[N]:
    return sum(x, axis=0)
"""
TOTAL_SUM = """
def total_sum(x: {t}[M, N]) -> {t}[]:
    return sum(x)
"""
TRANSPOSE = """
def transposed(x: {t}[M, N]) -> {t}[N, M]:
    return x.T
"""
TRANSPOSE_ADD = """
def transpose_and_add(x: {t}[M, N], y: {t}[N, M]) -> {t}[N, M]:
    return x.T + y
"""
CUMSUM = """
def running_sum(x: {t}[M, N]) -> {t}[M, N]:
    return cumulative_sum(x, axis=1)
"""
MASKED_CUMSUM = """
def masked_running_sum(x: {t}[M, N], m: bool[M, N]) -> {t}[M, N]:
    return cumulative_sum(where(m, x, 0), axis=1)
"""
CROSS_ENTROPY = """
def cross_entropy(z: {t}[N, C], y: i64[N]) -> {t}[]:
    return mean(logsumexp(z, axis=-1) - take_along_axis(z, y[:, None], axis=-1)[:, 0])
"""
EMBEDDING = """
def embedding(w: {t}[V, D], idx: i64[N]) -> {t}[N, D]:
    return w[idx]
"""
ARGMAX = """
def argmax_of_rows(x: {t}[M, N]) -> i64[M]:
    return argmax(x, axis=1)
"""
MOMENTS = """
def moments(x: {t}[B, C, D]):
    return mean(x, axis=(0, 2)), var(x, axis=(0, 2))
"""
RESIDUAL = """
def residual_bias_gelu(x: {t}[B, T, D], r: {t}[B, T, D], b: {t}[D], s: {t}[T, 1], c: {t}[B, 1, D]) -> {t}[B, T, D]:
    return r + s * gelu(x + b + c, approximate="tanh")
"""
CHAIN = """
def chain(x: {t}[M, N], y: {t}[M, N]):
    a = x * 1.5 + y
    b = abs(a) + 0.25 * x
    c = sqrt(b * b + 1)
    d = maximum(c - y, 0)
    return a * d + 2, d * 0.5 - c
"""

# ---- as written in torch ---------------------------------------------------------------


def add(x: Any, y: Any) -> Any:
    return x + y


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def softmax(x: Any, dim: int = -1) -> Any:
    e = torch.exp(x - x.amax(dim=dim, keepdim=True))
    return e / e.sum(dim=dim, keepdim=True)


def log_softmax(x: Any) -> Any:
    shifted = x - x.amax(dim=-1, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim=-1, keepdim=True))


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


def transposed(x: Any) -> Any:
    return x.T.contiguous()


def transpose_and_add(x: Any, y: Any) -> Any:
    return x.T + y


def running_sum(x: Any) -> Any:
    return x.cumsum(dim=1)


def masked_running_sum(x: Any, m: Any) -> Any:
    return torch.where(m, x, 0).cumsum(dim=1)


def cross_entropy(z: Any, y: Any) -> Any:
    return (torch.logsumexp(z, dim=-1) - z.gather(1, y[:, None])[:, 0]).mean()


def embedding(w: Any, idx: Any) -> Any:
    return w[idx]


def argmax(x: Any) -> Any:
    return x.argmax(dim=1)


def moments(x: Any) -> Any:
    return x.mean(dim=(0, 2)), x.var(dim=(0, 2), correction=0)


def residual(x: Any, r: Any, b: Any, s: Any, c: Any) -> Any:
    return r + s * torch.nn.functional.gelu(x + b + c, approximate="tanh")


def chain(x: Any, y: Any) -> Any:
    a = x * 1.5 + y
    b = a.abs() + 0.25 * x
    c = torch.sqrt(b * b + 1)
    d = torch.clamp_min(c - y, 0)
    return a * d + 2, d * 0.5 - c


# ---- the library's own -----------------------------------------------------------------


def library_gelu(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def library_softmax(x: Any, dim: int = -1) -> Any:
    return torch.softmax(x, dim=dim)


def library_log_softmax(x: Any) -> Any:
    return torch.log_softmax(x, dim=-1)


def library_layer_norm(x: Any, g: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), g, b, 1e-5)


def library_rms_norm(x: Any, g: Any) -> Any:
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), g, 1e-6)


def library_embedding(w: Any, idx: Any) -> Any:
    return torch.nn.functional.embedding(idx, w)


def library_cross_entropy(z: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(z, y)


def library_moments(x: Any) -> Any:
    v, m = torch.var_mean(x, dim=(0, 2), correction=0)
    return m, v


# ---- the table -------------------------------------------------------------------------

Way = Callable[..., Any]
SHAPES = {"f32": (16384, 4096), "bf16": (16384, 8192)}
LENGTHS = (777, 4090, 4100, 32768, 131072)  # of a softmax
ELEMENTS = {"f32": 1 << 26, "bf16": 1 << 27}


def cases() -> Iterator[Case]:
    for t, shape in SHAPES.items():
        yield from of_rows(t, shape)
        yield cross_entropy_of(t, (8192 if t == "bf16" else 4096, 128256))
        yield _embedding(t, (128256, 4096 if t == "bf16" else 2048))
    for t, elements in ELEMENTS.items():
        for n in LENGTHS:
            yield _case("softmax", SOFTMAX, t, (Input(t, (elements // n, n)),), softmax, library_softmax)
    yield from _awkward()


def _case(
    name: str,
    program: str,
    t: str,
    inputs: tuple[Input, ...],
    eager: Way,
    library: Way | None = None,
    picks: bool = False,
) -> Case:
    size = "x".join(map(str, inputs[0].shape))
    return Case(f"{name} {t} {size}", program.format(t=t), inputs, eager, library, picks)


def of_rows(t: str, shape: tuple[int, int]) -> Iterator[Case]:
    """What there is to do with rows of one length."""
    x, row = Input(t, shape), Input(t, shape[1:])
    summed = (Input(t, shape, positive=True),)
    yield _case("add", ADD, t, (x, x), add)
    yield _case("gelu", GELU, t, (x,), gelu, library_gelu)
    yield _case("softmax", SOFTMAX, t, (x,), softmax, library_softmax)
    yield _case("layernorm", LAYER_NORM, t, (x, row, row), layer_norm, library_layer_norm)
    yield _case("rmsnorm", RMS_NORM, t, (x, row), rms_norm, library_rms_norm)
    yield _case("row sum", ROW_SUM, t, summed, row_sum)
    yield _case("column sum", COLUMN_SUM, t, summed, column_sum)
    yield _case("total sum", TOTAL_SUM, t, summed, total_sum)
    yield _case("transpose", TRANSPOSE, t, (x,), transposed)
    yield _case("cumsum", CUMSUM, t, (x,), running_sum)


def cross_entropy_of(t: str, shape: tuple[int, int]) -> Case:
    labels = Input("i64", shape[:1], below=shape[1])
    return _case("cross-entropy", CROSS_ENTROPY, t, (Input(t, shape), labels), cross_entropy, library_cross_entropy)


def _embedding(t: str, shape: tuple[int, int]) -> Case:
    picked = Input("i64", (65536,), below=shape[0])
    return _case("embedding", EMBEDDING, t, (Input(t, shape), picked), embedding, library_embedding, picks=True)


def _awkward() -> Iterator[Case]:
    f32, wide, tall = Input("f32", SHAPES["f32"]), Input("bf16", (16384, 8192)), Input("bf16", (8192, 16384))
    yield Case("column softmax f32 16384x4096", COLUMN_SOFTMAX.format(t="f32"), (f32,),
               partial(softmax, dim=0), partial(library_softmax, dim=0))  # fmt: skip
    cube, row = Input("f32", (8, 4096, 1000)), Input("f32", (1000,))
    yield Case("layernorm f32 8x4096x1000", LAYER_NORM.format(t="f32"), (cube, row, row), layer_norm,
               library_layer_norm)  # fmt: skip
    yield Case("mean and var f32 64x256x4096", MOMENTS.format(t="f32"), (Input("f32", (64, 256, 4096)),), moments,
               library_moments)  # fmt: skip
    yield Case("argmax f32 16384x4096", ARGMAX.format(t="f32"), (f32,), argmax)
    mask = Input("bool", f32.shape, below=2)
    yield Case("masked cumsum f32 16384x4096", MASKED_CUMSUM.format(t="f32"), (f32, mask), masked_running_sum)
    x, b, s, c = (Input("bf16", shape) for shape in ((16, 1024, 8192), (8192,), (1024, 1), (16, 1, 8192)))
    yield Case("residual gelu bf16 16x1024x8192", RESIDUAL.format(t="bf16"), (x, x, b, s, c), residual)
    yield Case("log_softmax f32 512x262144", LOG_SOFTMAX.format(t="f32"), (Input("f32", (512, 1 << 18)),), log_softmax,
               library_log_softmax)  # fmt: skip
    yield Case("transpose and add bf16 8192x16384", TRANSPOSE_ADD.format(t="bf16"), (tall, wide), transpose_and_add)
    yield Case("chain of 12 f32 16384x4096", CHAIN.format(t="f32"), (f32, f32), chain)
