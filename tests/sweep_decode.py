"""Measures attention of few queries and many keys (decoding) on a GPU: time by parts, block of keys, warps and stages.

    python tests/sweep_decode.py [--heads 8] [--rows 8] [--keys 32768] [--d 128]

In: the sizes. Out: a line for each choice, the fastest last, with a row for each of its kernels. For comparison: the
time to copy as many bytes as the keys and values have. It needs a GPU and stores nothing. The compiler decides the
number of parts in minitri/optimize/split_kv.py; this script sets it.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from typing import Any
from unittest import mock

import minitri as mt
from minitri.optimize import split_kv
from minitri.profile import profile

PROGRAM = """
def decode(q: bf16[B, H, G, D], k: bf16[B, H, S, D], v: bf16[B, H, S, D]) -> bf16[B, H, G, D]:
    return softmax(q @ k.mT * D**-0.5, axis=-1) @ v
"""


def program(keys: int, warps: int, stages: int) -> Any:
    options = mt.Options(blocks={"r": keys}, warps=warps, stages=stages)
    return mt.compile(PROGRAM).configured(options=options)


def main() -> None:
    import torch
    from triton.testing import do_bench

    parser = argparse.ArgumentParser()
    for name, default in (("heads", 8), ("rows", 8), ("keys", 32768), ("d", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    q, k, v = (
        torch.randn(1, given.heads, length, given.d, device="cuda", dtype=torch.bfloat16)
        for length in (given.rows, given.keys, given.keys)
    )
    copied = torch.empty(k.numel(), device="cuda", dtype=torch.bfloat16)
    print(f"as many bytes copied: {do_bench(lambda: copied.copy_(k.flatten())):.4f} ms")
    wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    found: list[tuple[float, str, tuple[int, int, int, int]]] = []
    for choice in itertools.product((16, 32, 64, 128), (32, 64, 128), (1, 2, 4, 8), (2, 3, 4, 5)):
        label = "{:4} parts, {:3} keys, {} warps, {} stages".format(*choice)
        with mock.patch.object(split_kv, "_wanted", lambda programs, depth, parts=choice[0]: parts):
            f = program(*choice[1:])
            try:
                error = (f(q, k, v).double() - wanted).abs().max().item()
                ms = do_bench(functools.partial(f, q, k, v))
            except Exception as problem:  # too much shared memory
                print(f"{label}: {type(problem).__name__}")
                continue
        found.append((ms, f"{label}: {ms:.4f} ms, error {error:.1e}", choice))
        print(found[-1][1], flush=True)
    found.sort()
    print("best", *(text for _, text, _ in found[:5]), sep="\n  ")
    with mock.patch.object(split_kv, "_wanted", lambda programs, depth: found[0][2][0]):
        print(profile(program(*found[0][2][1:]), q, k, v))


if __name__ == "__main__":
    main()
