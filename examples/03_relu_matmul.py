"""(c) relu(x @ W): one kernel, in which the product is never stored, against two.

    python examples/03_relu_matmul.py [--stages]

A product accumulates in registers. What follows it, here relu, can work on the accumulator
before it is stored. Without fusion the product is written to a temporary, read again and
written once more. The tables count what each kernel must read and write, in bytes:

    one kernel    reads x, W              writes out
    two kernels   reads x, W              writes t0
                  reads t0                writes out
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minitri as mt
from common import agree, flags, gpu, normal, program, stages
from minitri.kernel.traffic import traffic
from minitri.profile import profile
from minitri.table import table


def show_traffic(f: mt.Program, m: int, k: int, n: int) -> int:
    """Reads and writes of each kernel by buffer, and their sum."""
    low = f.lower(M=m, K=k, N=n)
    entries = traffic(low.compilation.value("kernels"), low.sizes)
    rows = [("  kernel", "reads", "writes", "bytes")]
    for t in entries:
        rows.append((f"  {t.kernel}", words(t.reads), words(t.writes), str(t.total)))
    print(table(rows))
    return sum(t.total for t in entries)


def words(bytes: Any) -> str:
    return " + ".join(f"{name} {count}" for name, count in bytes.items())


def main() -> None:
    args = flags(__doc__)
    one = program("relu_matmul.mt")
    two = one.configured(without=("fuse",))
    m, k, n = (4096, 4096, 4096) if gpu() else (100, 70, 33)

    print(f"reads and writes of f16[{m}, {k}] @ f16[{k}, {n}], fused:")
    fused = show_traffic(one, m, k, n)
    print("without fusion:")
    apart = show_traffic(two, m, k, n)
    saved = apart - fused
    print(f"  fusion saves {saved} bytes: the product, {m} x {n} of f16, written and read")
    assert saved == 2 * m * n * 2

    print("against numpy:")
    for a, b, c in ((7, 5, 3), (100, 70, 33), (1, 129, 1), (17, 16, 65), (0, 3, 4), (3, 0, 4)):
        x, w = normal(a, b, dtype=np.float16), normal(b, c, dtype=np.float16)
        expected = np.maximum(x.astype(np.float64) @ w.astype(np.float64), 0)
        agree(f"({a}, {b}) @ ({b}, {c}), one kernel", one(x, w), expected, 5e-4)
        agree(f"({a}, {b}) @ ({b}, {c}), two", two(x, w), expected, 5e-4)

    print("time:")
    x, w = normal(m, k, dtype=np.float16), normal(k, n, dtype=np.float16)
    if torch := gpu():
        x, w = torch.from_numpy(x).cuda(), torch.from_numpy(w).cuda()
    for f in (one, two):
        print(profile(f, x, w, repeats=10))
    if args.stages:
        stages(one, normal(7, 5, dtype=np.float16), normal(5, 3, dtype=np.float16))


if __name__ == "__main__":
    main()
