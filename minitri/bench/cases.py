"""The table of benchmark cases: programs, and the same computations in torch.

Programs that move memory have shapes from practice, such as the rows of a transformer or a vocabulary of 128256.
Others have awkward shapes: rows of 777, 4090, 4100 and 131072 elements, and a matrix that is read by columns.

Attention is written as its definition. Its cases are full attention, causal attention, a window of 512, one long
sequence, and one query against a long cache with grouped heads. The reference computes the scores of some queries
at a time, so that the longest case fits into memory. Implementations besides eager and compiled torch are the
kernels of cuDNN and FlashAttention-2, through `scaled_dot_product_attention`, and compiled flex_attention. If a
machine lacks an implementation, the report says so.

Matrix products are square or have shapes from practice. These are one row or few rows (a model that generates one
token at a time), long and flat shapes, sides that are no multiple of a block, batches, transposed factors, exact
f32, and TF32. Each product is measured alone and inside a layer, with a bias and an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import matmul
from typing import Any

from minitri.bench.case import Case, Input, program, torch


def cases() -> tuple[Case, ...]:
    """All cases; groups whose cases take a short time come first."""
    return (*of_memory(), *of_attention(), *of_products())


# ---- programs that move bytes -------------------------------------------------------------------


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


def chain(x: Any, y: Any) -> Any:
    a = x * 1.5 + y
    b = a.abs() + 0.25 * x
    c = torch.sqrt(b * b + 1)
    d = torch.clamp_min(c - y, 0)
    return a * d + 2, d * 0.5 - c


def functional(name: str) -> Any:
    """The function of torch.nn.functional with this name. It is looked up when it is called: torch may be missing."""
    return lambda *args, **keywords: getattr(torch.nn.functional, name)(*args, **keywords)


Way = Callable[..., Any]
EAGER: dict[str, Way] = {
    "add": lambda x, y: x + y,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x))),
    "softmax_of_rows": softmax,
    "softmax_of_columns": partial(softmax, dim=0),
    "log_softmax_of_rows": log_softmax,
    "layer_norm": layer_norm,
    "rms_norm": lambda x, g: x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6) * g,
    "row_sum": lambda x: x.sum(dim=1),
    "column_sum": lambda x: x.sum(dim=0),
    "total_sum": lambda x: x.sum(),
    "transposed": lambda x: x.T.contiguous(),
    "transpose_and_add": lambda x, y: x.T + y,
    "running_sum": lambda x: x.cumsum(dim=1),
    "masked_running_sum": lambda x, m: torch.where(m, x, 0).cumsum(dim=1),
    "cross_entropy": lambda z, y: (torch.logsumexp(z, dim=-1) - z.gather(1, y[:, None])[:, 0]).mean(),
    "embedding": lambda w, idx: w[idx],
    "argmax_of_rows": lambda x: x.argmax(dim=1),
    "moments": lambda x: (x.mean(dim=(0, 2)), x.var(dim=(0, 2), correction=0)),
    "residual_bias_gelu": lambda x, r, b, s, c: r + s * torch.nn.functional.gelu(x + b + c, approximate="tanh"),
    "chain": chain,
}
"""Each program of programs.mt as written in torch."""
LIBRARY: dict[str, Way] = {
    "gelu_tanh": partial(functional("gelu"), approximate="tanh"),
    "softmax_of_rows": partial(functional("softmax"), dim=-1),
    "softmax_of_columns": partial(functional("softmax"), dim=0),
    "log_softmax_of_rows": partial(functional("log_softmax"), dim=-1),
    "layer_norm": lambda x, g, b: torch.nn.functional.layer_norm(x, (x.shape[-1],), g, b, 1e-5),
    "rms_norm": lambda x, g: torch.nn.functional.rms_norm(x, (x.shape[-1],), g, 1e-6),
    "cross_entropy": functional("cross_entropy"),
    "embedding": lambda w, idx: torch.nn.functional.embedding(idx, w),
    "moments": lambda x: torch.var_mean(x, dim=(0, 2), correction=0)[::-1],
}
"""The library's own function for a program, where there is one."""

SHAPES = {"f32": (16384, 4096), "bf16": (16384, 8192)}
LENGTHS = (777, 4090, 4100, 32768, 131072)  # of the rows of a softmax
ELEMENTS = {"f32": 1 << 26, "bf16": 1 << 27}


def of_memory() -> Iterator[Case]:
    for t, shape in SHAPES.items():
        yield from of_rows(t, shape)
        yield cross_entropy_of(t, (8192 if t == "bf16" else 4096, 128256))
        table, picked = Input(t, (128256, 4096 if t == "bf16" else 2048)), Input("i64", (65536,), below=128256)
        yield case("embedding", "embedding", table, picked, picks=True)
    for t, elements in ELEMENTS.items():
        for n in LENGTHS:
            yield case("softmax", "softmax_of_rows", Input(t, (elements // n, n)))
    yield from _awkward()


def case(name: str, of: str, *inputs: Input, picks: bool = False) -> Case:
    """A case of the function `of` of programs.mt, in the dtype of its first input. The case's name ends with that
    dtype and shape.
    """
    dtype, size = inputs[0].dtype, "x".join(map(str, inputs[0].shape))
    return Case(f"{name} {dtype} {size}", program(of, dtype), inputs, EAGER[of], LIBRARY.get(of), picks)


def of_rows(t: str, shape: tuple[int, int]) -> Iterator[Case]:
    """The cases of one dtype and one shape of rows."""
    x, row, summed = Input(t, shape), Input(t, shape[1:]), Input(t, shape, positive=True)
    yield case("add", "add", x, x)
    yield case("gelu", "gelu_tanh", x)
    yield case("softmax", "softmax_of_rows", x)
    yield case("layernorm", "layer_norm", x, row, row)
    yield case("rmsnorm", "rms_norm", x, row)
    yield case("row sum", "row_sum", summed)
    yield case("column sum", "column_sum", summed)
    yield case("total sum", "total_sum", summed)
    yield case("transpose", "transposed", x)
    yield case("cumsum", "running_sum", x)


def cross_entropy_of(t: str, shape: tuple[int, int]) -> Case:
    return case("cross-entropy", "cross_entropy", Input(t, shape), Input("i64", shape[:1], below=shape[1]))


def _awkward() -> Iterator[Case]:
    f32, wide, tall = Input("f32", SHAPES["f32"]), Input("bf16", (16384, 8192)), Input("bf16", (8192, 16384))
    yield case("column softmax", "softmax_of_columns", f32)
    row = Input("f32", (1000,))
    yield case("layernorm", "layer_norm", Input("f32", (8, 4096, 1000)), row, row)
    yield case("mean and var", "moments", Input("f32", (64, 256, 4096)))
    yield case("argmax", "argmax_of_rows", f32)
    yield case("masked cumsum", "masked_running_sum", f32, Input("bool", f32.shape, below=2))
    x, b, s, c = (Input("bf16", shape) for shape in ((16, 1024, 8192), (8192,), (1024, 1), (16, 1, 8192)))
    yield case("residual gelu", "residual_bias_gelu", x, x, b, s, c)
    yield case("log_softmax", "log_softmax_of_rows", Input("f32", (512, 1 << 18)))
    yield case("transpose and add", "transpose_and_add", tall, wide)
    yield case("chain of 12", "chain", f32, f32)


# ---- attention ----------------------------------------------------------------------------------


WINDOW = 512  # as in programs.mt
AT_ONCE = 2048  # queries whose scores the reference computes at a time


def of_attention() -> Iterator[Case]:
    for d in (64, 128):
        yield attention_case("full", 4, 16, 4096, d)
    for name in ("causal", "window"):
        yield attention_case(name, 4, 16, 4096, 128)
    yield attention_case("full", 1, 16, 32768, 128)
    yield _decode(heads=8, group=8, keys=32768, d=128)


def attention_case(mask: str, batch: int, heads: int, length: int, d: int) -> Case:
    x = Input("bf16", (batch, heads, length, d))
    peers = {name: partial(_dot_product, backend, mask) for name, backend in BACKENDS.items() if mask != "window"}
    peers["flex"] = partial(_flex, mask)
    flops = 4 * batch * heads * d * _pairs(mask, length)
    name = f"attention {mask} bf16 {batch}x{heads}x{length}x{d}"
    beside = {} if mask == "full" else {"full": program("attention_full")}
    return Case(name, program(f"attention_{mask}"), (x, x, x), partial(attention_by_definition, mask), partial(_library, mask), flops=flops, kind="attention",
                peers=peers, beside=beside)  # fmt: skip


def _decode(heads: int, group: int, keys: int, d: int) -> Case:
    q, k = Input("bf16", (1, heads, group, d)), Input("bf16", (1, heads, keys, d))
    eager, library, flex = (partial(function, "full") for function in (attention_by_definition, _library, _flex))
    name = f"decode bf16 {heads}x{group} queries {keys}x{d}"
    return Case(name, program("decode"), (q, k, k), eager, library, kind="decode", peers={"flex": flex})


def _pairs(mask: str, length: int) -> int:
    """The number of pairs of a query and a key that the mask allows."""
    if mask == "full":
        return length**2
    seen = min(WINDOW, length) if mask == "window" else length
    return seen * (seen + 1) // 2 + (length - seen) * seen


def _seen(mask: str, back: Any) -> Any:
    return back >= 0 if mask == "causal" else (back >= 0) & (back < WINDOW)


def attention_by_definition(mask: str, q: Any, k: Any, v: Any) -> Any:
    """Attention by its definition, for some of the queries at a time."""
    parts = [_rows(mask, q[..., i : i + AT_ONCE, :], k, v, i) for i in range(0, q.shape[-2], AT_ONCE)]
    return torch.cat(parts, -2)


def _rows(mask: str, q: Any, k: Any, v: Any, first: int) -> Any:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask != "full":
        here = torch.arange(first, first + q.shape[-2], device=q.device)
        seen = _seen(mask, here[:, None] - torch.arange(k.shape[-2], device=q.device))
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v


def _library(mask: str, q: Any, k: Any, v: Any) -> Any:
    """torch's own choice of a kernel for attention."""
    attend = torch.nn.functional.scaled_dot_product_attention
    if mask != "window":
        return attend(q, k, v, is_causal=mask == "causal")
    rows, keys = (torch.arange(x.shape[-2], device=q.device) for x in (q, k))
    return attend(q, k, v, attn_mask=_seen(mask, rows[:, None] - keys))


BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


def _dot_product(backend: str, mask: str, q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, backend)):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")


def _flex(mask: str, q: Any, k: Any, v: Any) -> Any:
    return _compiled_flex(mask, q.shape[-2], k.shape[-2], str(q.device))(q, k, v)


@cache
def _compiled_flex(mask: str, rows: int, keys: int, device: str) -> Callable[..., Any]:
    """Compiled flex_attention. It is compiled only once, so the compilation is not timed."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    seen = None
    if mask != "full":
        seen = create_block_mask(lambda b, h, i, j: _seen(mask, i - j), None, None, rows, keys, device=device)
    return torch.compile(partial(flex_attention, block_mask=seen), dynamic=False)


# ---- products -----------------------------------------------------------------------------------


SQUARES = (1024, 2048, 4096, 8192)
ROWS = (16, 64, 256, 1024, 4096)  # of the matrix that is multiplied by dequantised weights
FACTORS = (  # rows, depth, columns
    (1, 4096, 4096), (1, 16384, 4096), (16, 4096, 4096), (16, 4096, 16384), (16, 8192, 1024), (128, 4096, 4096),
    (128, 16384, 512), (1000, 4096, 4096), (1000, 1000, 1000), (8192, 4096, 512), (8192, 512, 16384), (8192, 1024, 4096),
    (8192, 16384, 1024), (1000, 2050, 3000), (4100, 4090, 777),
)  # fmt: skip


def linear(x: Any, w: Any, b: Any) -> Any:
    return torch.relu(x @ w + b)


def library_linear(x: Any, w: Any, b: Any) -> Any:
    return torch.relu_(torch.addmm(b, x, w))


def of_columns(function: Any, x: Any, w: Any, *b: Any) -> Any:
    return function(x.T, w, *b)


def by_rows(function: Any, x: Any, w: Any, *b: Any) -> Any:
    return function(x, w.T, *b)


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return torch.nn.functional.gelu(x @ w1 + b1) @ w2 + b2 + x


def dequantised(x: Any, w: Any, scale: Any) -> Any:
    return x @ (w.to(x.dtype) * scale)


def of_products() -> Iterator[Case]:
    for n in SQUARES:
        x, b = Input("bf16", (n, n)), Input("bf16", (n,))
        bare = Case(f"matmul bf16 {n}", program("matmul_of_f32", "bf16"), (x, x), matmul)
        layer = Case(f"relu(x@w+b) bf16 {n}", program("linear", "bf16"), (x, x, b), linear, library_linear)
        yield replace(bare, flops=2 * n**3, kind="square products", tuned=True)
        yield replace(layer, flops=2 * n**3, kind="square products, relu(x@w+b)", tuned=True)
    for m, k, n in FACTORS:
        yield from _family(f"bf16 {m}x{k}x{n}", "bf16", (m, k), (k, n))
    yield from _family("bf16 64x512x512x512", "bf16", (64, 512, 512), (64, 512, 512))
    yield from _family("f32 2048x2048x2048", "f32", (2048, 2048), (2048, 2048))
    for name, side in (("x.T", of_columns), ("w.T", by_rows)):
        of = (f"matmul_{side.__name__}", f"linear_{side.__name__}")
        yield from _family(f"{name} bf16 4096", "bf16", (4096, 4096), (4096, 4096), of, side)
    yield from _family("tf32 4096", "f32", (4096, 4096), (4096, 4096), ("matmul_in_tf32", "linear_in_tf32"), tf32=True)
    m, k, h = 8192, 2048, 8192
    given = tuple(Input("bf16", shape) for shape in ((m, k), (k, h), (h,), (h, k), (k,)))
    yield Case(f"mlp bf16 {m}x{k}x{h}", program("mlp"), given, mlp, flops=4 * m * k * h, kind="layers")
    for m in ROWS:
        # Weights have both signs. The numbers decide how much power a chip takes, and so how fast it is.
        weights = Input("i8", (4096, 4096), below=127, signed=True)
        given = Input("f16", (m, 4096)), weights, Input("f16", (4096,), positive=True)
        yield Case(f"dequantised f16 {m}x4096x4096", program("dequantised"), given, dequantised, flops=2 * m * 4096**2,
                   kind="dequantised weights")  # fmt: skip


def _family(
    name: str, dtype: str, x: tuple[int, ...], w: tuple[int, ...], of: Sequence[str] = ("matmul_of_f32", "linear"),
    side: Any = None, tf32: bool = False,
) -> Iterator[Case]:  # fmt: skip
    """A product and a layer of one shape; `of` names their programs. `side` transposes a factor before the product."""
    given, b = (Input(dtype, x), Input(dtype, w)), Input(dtype, (w[-1],))
    flops = 2 * x[-2] * x[-1] * w[-1] * (x[0] if len(x) > 2 else 1)
    first, second = (partial(side, matmul), partial(side, linear)) if side else (matmul, linear)
    library = library_linear if len(x) == 2 and side is None else None
    products = Case(f"product {name}", program(of[0], dtype), given, first, kind="products of many shapes")
    layers = Case(f"layer {name}", program(of[1], dtype), (*given, b), second, library, kind="layers of many shapes")
    yield from (replace(case, flops=flops, tf32=tf32) for case in (products, layers))
