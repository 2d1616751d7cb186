"""(d) Matrix multiplication: block sizes by measurement, programs in groups, against cuBLAS.

    python examples/04_matmul.py             the best schedule of a short list
    python examples/04_matmul.py --tune      what was tried, and how long each took
    python examples/04_matmul.py --stages

Each program makes one tile of the result. It walks along the contraction axis, a block at a
time, and needs a row of tiles of x and a column of tiles of w. In which order tiles are made
matters: programs that run at the same time share what they read through the L2 cache. Row by
row, neighbours share tiles of x alone; in groups of some rows, they share both:

    row by row        groups of 2 rows
     0  1  2  3        0  2  4  6
     4  5  6  7        1  3  5  7
     8  9 10 11        8 10 12 14
    12 13 14 15        9 11 13 15

Programs 0 ... 3 read 1 row and 4 columns of tiles on the left, 2 rows and 2 columns on the right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import agree, flags, gpu, normal, program, stages

import minitri as mt
from minitri.profile import time_call


def tile_of(number: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    """The tile that a program makes, as in the generated source (`group`, `first`, `height`)."""
    first = number // (group * columns) * group
    height = min(rows - first, group)
    place = number % (group * columns)
    return first + place % height, place // height


def show_order(rows: int, columns: int, group: int) -> None:
    order = np.empty((rows, columns), int)
    for number in range(rows * columns):
        order[tile_of(number, rows, columns, group)] = number
    print(f"  groups of {group}: the first {columns} programs read {operands(rows, columns, group)} tiles a step")
    for row in order:
        print("   " + " ".join(f"{n:3}" for n in row))


def operands(rows: int, columns: int, group: int) -> int:
    """Tiles of x and of w that as many programs as there are columns read, at each step."""
    made = [tile_of(n, rows, columns, group) for n in range(columns)]
    return len({row for row, _ in made}) + len({column for _, column in made})


def inputs(torch: Any) -> tuple[Any, Any]:
    if torch is None:
        return normal(100, 70, dtype=np.float16), normal(70, 130, dtype=np.float16)
    x, w = torch.randn(2, 4096, 4096, device="cuda", dtype=torch.float16)
    return x, w


def compare(f: mt.Program, x: Any, w: Any, torch: Any) -> None:
    """Time and rate, of cuBLAS too where there is one."""
    flops = 2 * x.shape[0] * x.shape[1] * w.shape[1]
    peers = {"minitri": f} | ({"cuBLAS": torch.matmul} if torch is not None else {})
    for name, peer in peers.items():
        seconds = time_call(peer, x, w).median
        print(f"  {name:8} {seconds * 1e3:8.3f} ms  {flops / seconds / 1e9:8.1f} GFLOP/s")
    if torch is None:
        print("  no GPU: that is Triton's interpreter; with a GPU cuBLAS is timed beside it")


def main() -> None:
    args = flags(__doc__, ("--tune", "show the schedules that were tried"))
    f = program("matmul.mt")

    print("the order of programs:")
    show_order(4, 6, 1)
    show_order(4, 6, 2)

    torch = gpu()
    x, w = inputs(torch)
    print(f"tuning f16[{x.shape[0]}, {x.shape[1]}] @ f16[{w.shape[0]}, {w.shape[1]}]:")
    best = mt.tune(f, x, w, effort="full", repeats=20 if torch else 2, show=args.tune)
    print(f"  chosen: {best}")
    fast = f.configured(options=best)
    compare(fast, x, w, torch)

    print("against numpy, with that schedule:")
    for a, b, c in ((7, 5, 3), (100, 70, 33), (1, 300, 1), (129, 17, 65), (0, 3, 4)):
        x, w = normal(a, b, dtype=np.float16), normal(b, c, dtype=np.float16)
        expected = x.astype(np.float64) @ w.astype(np.float64)
        agree(f"({a}, {b}) @ ({b}, {c})", fast(x, w), expected, 5e-4)
    if args.stages:
        stages(f, normal(7, 5, dtype=np.float16), normal(5, 3, dtype=np.float16))


if __name__ == "__main__":
    main()
