"""Programs around a matrix product, and the same as a user of torch would write them.

Squares, and shapes from practice: one row and few rows (a model that writes token by token), long and flat shapes,
ragged ones, batches, transposed factors, exact f32 and TF32. Each comes alone and with the operations that a layer
applies to its product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from minitri.bench.case import Case, Input, program, torch

SQUARES = (1024, 2048, 4096, 8192)
ROWS = (16, 64, 256, 1024, 4096)  # by dequantised weights
SHAPES = (  # rows, depth, columns
    (1, 4096, 4096), (1, 16384, 4096), (16, 4096, 4096), (16, 4096, 16384), (16, 8192, 1024), (128, 4096, 4096),
    (128, 16384, 512), (1000, 4096, 4096), (1000, 1000, 1000), (8192, 4096, 512), (8192, 512, 16384), (8192, 1024, 4096),
    (8192, 16384, 1024), (1000, 2050, 3000), (4100, 4090, 777),
)  # fmt: skip


def matmul(x: Any, w: Any) -> Any:
    return x @ w


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


def cases() -> Iterator[Case]:
    for n in SQUARES:
        x, b = Input("bf16", (n, n)), Input("bf16", (n,))
        bare = Case(f"matmul bf16 {n}", program("matmul_of_f32", "bf16"), (x, x), matmul)
        layer = Case(f"relu(x@w+b) bf16 {n}", program("linear", "bf16"), (x, x, b), linear, library_linear)
        yield replace(bare, flops=2 * n**3, kind="square products", tuned=True)
        yield replace(layer, flops=2 * n**3, kind="square products, relu(x@w+b)", tuned=True)
    for m, k, n in SHAPES:
        yield from _pair("bf16", f"{m}x{k}x{n}", (m, k), (k, n))
    yield from _pair("bf16", "64x512x512x512", (64, 512, 512), (64, 512, 512))
    yield from _pair("f32", "2048x2048x2048", (2048, 2048), (2048, 2048))
    for name, side in (("x.T", of_columns), ("w.T", by_rows)):
        bare, layer = program(f"matmul_{side.__name__}"), program(f"linear_{side.__name__}")
        yield from _family(f"{name} bf16 4096", bare, layer, "bf16", (4096, 4096), (4096, 4096), side)
    bare, layer = program("matmul_in_tf32"), program("linear_in_tf32")
    yield from _family("tf32 4096", bare, layer, "f32", (4096, 4096), (4096, 4096), tf32=True)
    m, k, h = 8192, 2048, 8192
    given = tuple(Input("bf16", shape) for shape in ((m, k), (k, h), (h,), (h, k), (k,)))
    yield Case(f"mlp bf16 {m}x{k}x{h}", program("mlp"), given, mlp, flops=4 * m * k * h, kind="layers")
    for m in ROWS:
        # Of either sign, as weights are: what numbers a chip multiplies decides how much power it takes, and how fast it is.
        weights = Input("i8", (4096, 4096), below=127, signed=True)
        given = Input("f16", (m, 4096)), weights, Input("f16", (4096,), positive=True)
        yield Case(f"dequantised f16 {m}x4096x4096", program("dequantised"), given, dequantised, flops=2 * m * 4096**2,
                   kind="dequantised weights")  # fmt: skip


def _pair(dtype: str, name: str, x: tuple[int, ...], w: tuple[int, ...]) -> Iterator[Case]:
    yield from _family(f"{dtype} {name}", program("matmul_of_f32", dtype), program("linear", dtype), dtype, x, w)


def _family(
    name: str, bare: str, layer: str, dtype: str, x: tuple[int, ...], w: tuple[int, ...], side: Any = None, tf32: bool = False
) -> Iterator[Case]:  # fmt: skip
    """A product and a layer of one shape. `side`: what is done to the factors first."""
    given, b = (Input(dtype, x), Input(dtype, w)), Input(dtype, (w[-1],))
    flops = 2 * x[-2] * x[-1] * w[-1] * (x[0] if len(x) > 2 else 1)
    first, second = (partial(side, matmul), partial(side, linear)) if side else (matmul, linear)
    library = library_linear if len(x) == 2 and side is None else None
    products = Case(f"product {name}", bare, given, first, kind="products of many shapes")
    layers = Case(f"layer {name}", layer, (*given, b), second, library, kind="layers of many shapes")
    yield from (replace(case, flops=flops, tf32=tf32) for case in (products, layers))
