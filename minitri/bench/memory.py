"""Programs that move bytes, and the same as a user of torch would write them.

The shapes come from practice (rows of a transformer, a vocabulary of 128256), or are awkward: rows of 777, 4090 and
4100 elements, of 131072, and one read across.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from minitri.bench.case import Case, Input, program, torch

# ---- as written in torch ---------------------------------------------------------------


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


def library(name: str) -> Any:
    """A function of torch.nn.functional. It is looked up when it is called: torch may be missing."""
    return lambda *args, **keywords: getattr(torch.nn.functional, name)(*args, **keywords)


Way = Callable[..., Any]
EAGER: dict[str, Way] = {
    "add": lambda x, y: x + y,
    "gelu_by_hand": lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x))),
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
    "gelu_by_hand": partial(library("gelu"), approximate="tanh"),
    "softmax_of_rows": partial(library("softmax"), dim=-1),
    "softmax_of_columns": partial(library("softmax"), dim=0),
    "log_softmax_of_rows": partial(library("log_softmax"), dim=-1),
    "layer_norm": lambda x, g, b: torch.nn.functional.layer_norm(x, (x.shape[-1],), g, b, 1e-5),
    "rms_norm": lambda x, g: torch.nn.functional.rms_norm(x, (x.shape[-1],), g, 1e-6),
    "cross_entropy": library("cross_entropy"),
    "embedding": lambda w, idx: torch.nn.functional.embedding(idx, w),
    "moments": lambda x: torch.var_mean(x, dim=(0, 2), correction=0)[::-1],
}
"""The library's own function for a program, where there is one."""

# ---- the table -------------------------------------------------------------------------

SHAPES = {"f32": (16384, 4096), "bf16": (16384, 8192)}
LENGTHS = (777, 4090, 4100, 32768, 131072)  # of a softmax
ELEMENTS = {"f32": 1 << 26, "bf16": 1 << 27}


def cases() -> Iterator[Case]:
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
    """A program with its ways, in the dtype of its first input. The name ends with that and its shape."""
    dtype, size = inputs[0].dtype, "x".join(map(str, inputs[0].shape))
    return Case(f"{name} {dtype} {size}", program(of, dtype), inputs, EAGER[of], LIBRARY.get(of), picks)


def of_rows(t: str, shape: tuple[int, int]) -> Iterator[Case]:
    """What there is to do with rows of one length."""
    x, row, summed = Input(t, shape), Input(t, shape[1:]), Input(t, shape, positive=True)
    yield case("add", "add", x, x)
    yield case("gelu", "gelu_by_hand", x)
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
