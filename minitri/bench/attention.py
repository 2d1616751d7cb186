"""Attention from its definition, the same as a user of torch would write it, and torch's own functions.

    full, causal, a window of 512, one long sequence, and one query against a long cache with grouped heads

In: nothing. Out: cases. The reference materialises the scores, a part of the queries at a time, so that the
longest fits. Peers beside eager and compiled torch: cuDNN's and FlashAttention-2's kernels through
`scaled_dot_product_attention`, and flex_attention compiled; a peer that a machine does not have is a
line of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from minitri.bench.case import Case, Input, program, torch

WINDOW = 512  # as in programs.mt
ROWS = 2048  # queries whose scores the reference holds at once
KIND = "attention"


def cases() -> Iterator[Case]:
    for d in (64, 128):
        yield _case("full", 4, 16, 4096, d)
    for name in ("causal", "window"):
        yield _case(name, 4, 16, 4096, 128)
    yield _case("full", 1, 16, 32768, 128)
    yield _decode(heads=8, group=8, keys=32768, d=128)


def _case(mask: str, batch: int, heads: int, length: int, d: int) -> Case:
    x = Input("bf16", (batch, heads, length, d))
    peers = {name: partial(_dot_product, backend, mask) for name, backend in BACKENDS.items() if mask != "window"}
    peers["flex"] = partial(_flex, mask)
    flops = 4 * batch * heads * d * _pairs(mask, length)
    name = f"attention {mask} bf16 {batch}x{heads}x{length}x{d}"
    beside = {} if mask == "full" else {"full": program("attention_full")}
    return Case(name, program(f"attention_{mask}"), (x, x, x), partial(by_hand, mask), partial(_library, mask), flops=flops, kind=KIND,
                peers=peers, beside=beside)  # fmt: skip


def _decode(heads: int, group: int, keys: int, d: int) -> Case:
    q, k = Input("bf16", (1, heads, group, d)), Input("bf16", (1, heads, keys, d))
    eager, library, flex = (partial(function, "full") for function in (by_hand, _library, _flex))
    name = f"decode bf16 {heads}x{group} queries {keys}x{d}"
    return Case(name, program("decode"), (q, k, k), eager, library, kind="decode", peers={"flex": flex})


def _pairs(mask: str, length: int) -> int:
    """Of queries and keys that see each other."""
    if mask == "full":
        return length**2
    seen = min(WINDOW, length) if mask == "window" else length
    return seen * (seen + 1) // 2 + (length - seen) * seen


def _seen(mask: str, back: Any) -> Any:
    return back >= 0 if mask == "causal" else (back >= 0) & (back < WINDOW)


# ---- as written in torch ---------------------------------------------------------------


def by_hand(mask: str, q: Any, k: Any, v: Any) -> Any:
    """A part of the queries at a time."""
    parts = [_rows(mask, q[..., i : i + ROWS, :], k, v, i) for i in range(0, q.shape[-2], ROWS)]
    return torch.cat(parts, -2)


def _rows(mask: str, q: Any, k: Any, v: Any, first: int) -> Any:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask != "full":
        here = torch.arange(first, first + q.shape[-2], device=q.device)
        seen = _seen(mask, here[:, None] - torch.arange(k.shape[-2], device=q.device))
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ v


# ---- what torch has --------------------------------------------------------------------


def _library(mask: str, q: Any, k: Any, v: Any) -> Any:
    """What torch takes by itself."""
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
    """Compiled once: a peer is timed without it."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    seen = None
    if mask != "full":
        seen = create_block_mask(lambda b, h, i, j: _seen(mask, i - j), None, None, rows, keys, device=device)
    return torch.compile(partial(flex_attention, block_mask=seen), dynamic=False)
