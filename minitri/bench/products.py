"""Programs around a matrix product, and the same as a user of torch would write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minitri.bench.case import Case, Input, torch

MATMUL = """
def matmul_of_bf16(x: bf16[M, K], w: bf16[K, N]) -> bf16[M, N]:
    return x @ w
"""
LINEAR = """
def linear(x: bf16[M, K], w: bf16[K, N], b: bf16[N]) -> bf16[M, N]:
    return relu(x @ w + b)
"""


def matmul(x: Any, w: Any) -> Any:
    return x @ w


def linear(x: Any, w: Any, b: Any) -> Any:
    return torch.relu(x @ w + b)


def library_linear(x: Any, w: Any, b: Any) -> Any:
    return torch.relu_(torch.addmm(b, x, w))


def cases() -> Iterator[Case]:
    for n in (2048, 4096, 8192):
        x, b = Input("bf16", (n, n)), Input("bf16", (n,))
        yield Case(f"matmul bf16 {n}", MATMUL, (x, x), matmul, flops=2 * n**3)
        yield Case(f"relu(x@w+b) bf16 {n}", LINEAR, (x, x, b), linear, library_linear, flops=2 * n**3)
