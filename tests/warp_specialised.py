"""Shows how the installed Triton compiles the loop of a product for Hopper with warp specialisation.

    python tests/warp_specialised.py

In: nothing. Out: a line for each number of warps: an error, or whether warps have different roles (they then pass
registers to each other, `setmaxnreg` in PTX). It needs no GPU. docs/log/decisions.md describes the results.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TYPES = {"a": "tensordesc<fp16[128, 64]>", "b": "tensordesc<fp16[64, 128]>", "c": "tensordesc<fp16[128, 128]>"}


@triton.jit
def product(a, b, c):
    i = tl.program_id(0) * 128
    j = tl.program_id(1) * 128
    sums = tl.zeros((128, 128), tl.float32)
    for k in tl.range(0, 4096, 64, warp_specialize=True):
        sums = tl.dot(a.load([i, k]), b.load([k, j]), sums)
    c.store([i, j], sums.to(tl.float16))


def main() -> None:
    for warps in (4, 8):
        try:
            options = {"num_warps": warps, "num_stages": 3}
            made = triton.compile(ASTSource(product, TYPES, {}), target=GPUTarget("cuda", 90, 32), options=options)
            found = "parts of their own" if "setmaxnreg" in made.asm["ptx"] else "left out"
        except Exception as error:  # an error in Triton's passes
            found = f"{type(error).__name__}: {error}"
        print(f"Triton {triton.__version__}, {warps} warps: {found}")


if __name__ == "__main__":
    main()
