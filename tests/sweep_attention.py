"""Measures attention on a GPU with many schedules: blocks, warps, stages and tensor descriptors, compared with torch.

    python tests/sweep_attention.py [--d 128] [--t 4096] [--mask causal] [--dtype bfloat16]

In: the sizes and the mask. Out: a line for each schedule with its time and its error, the fastest last. It needs a GPU
and stores nothing. The varied blocks are those of the rows and of the keys; their axes are found in the kernel.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import Any

import minitri as mt

MASKS = {
    "none": "{s}",
    "causal": "where(arange(T)[:, None] >= arange(S), {s}, -inf)",
    "window": "where((arange(T)[:, None] >= arange(S)) & (arange(T)[:, None] - arange(S) < 512), {s}, -inf)",
}
HOW = {
    "pointers": {"descriptors": False}, "descriptors": {"descriptors": True},
    "descriptors in 128 registers": {"descriptors": True, "registers": 128},
}  # fmt: skip
NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}


def program(mask: str, dtype: str) -> Any:
    scores = MASKS[mask].format(s="q @ k.mT * D**-0.5")
    kinds = ", ".join(f"{n}: {dtype}[B, H, {length}, D]" for n, length in (("q", "T"), ("k", "S"), ("v", "S")))
    return mt.compile(f"def f({kinds}):\n    return softmax({scores}, axis=-1) @ v\n")


def main() -> None:
    import torch
    from triton.testing import do_bench

    parser = argparse.ArgumentParser()
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--t", type=int, default=4096)
    parser.add_argument("--mask", choices=list(MASKS), default="none")
    parser.add_argument("--dtype", choices=list(NAMES), default="bfloat16")
    given = parser.parse_args()
    q, k, v = (torch.randn(4, 16, given.t, given.d, device="cuda", dtype=getattr(torch, given.dtype)) for _ in range(3))
    f = program(given.mask, NAMES[given.dtype])
    (tiles,) = f.lower(B=4, H=16, T=given.t, S=given.t, D=given.d).compilation.value("tile").programs
    rows, keys = tiles.grid[-1].name, next(a.name for a in tiles.axes if a.role == "loop")
    if given.mask != "window":
        causal = given.mask == "causal"
        best = do_bench(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))
        print(f"torch {best:.3f} ms")
    few = [x[:1, :1].float().cpu().numpy() for x in (q, k, v)]
    wanted = program(given.mask, "f32").numpy(*few) if given.t <= 4096 else None
    found: list[tuple[float, str]] = []
    for m, n, warps, stages, how in itertools.product((64, 128), (32, 64, 128), (4, 8), (2, 3, 4), HOW):
        tuned = f.configured(options=mt.Options({rows: m, keys: n}, warps, stages, **HOW[how]))
        label = f"{m:4} x {n:4}, {warps} warps, {stages} stages, by {how}"
        try:
            out = tuned(q, k, v)
            ms = do_bench(functools.partial(tuned, q, k, v))
        except Exception as error:  # too much shared memory
            print(f"{label}: {type(error).__name__}")
            continue
        off = abs(out[:1, :1].float().cpu().numpy() - wanted).max() if wanted is not None else float("nan")
        found.append((ms, f"{label}: {ms:.3f} ms, error {off:.1e}"))
        print(found[-1][1], flush=True)
    print("best", *(text for _, text in sorted(found)[:3]), sep="\n  ")


if __name__ == "__main__":
    main()
