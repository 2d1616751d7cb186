"""Measures products with 8-bit weights on a GPU: the compiler's choice of a schedule against all possible ones.

    python tests/sweep_dequantised_product_cost.py [ROWS …]          without any: 8 to 1024

In: nothing. Out: a line for each product with microseconds of torch.compile, of the compiler's choice
(minitri/optimize/dequantised_product_cost.py), and of the five fastest choices (parts, rows of a tile). `!!` marks a
product whose time is at least a tenth above the fastest. It needs a GPU and stores nothing.
"""

from __future__ import annotations

import sys
from functools import partial
from unittest import mock

import torch

import minitri as mt
from minitri.bench.alternating_timer import Pace, alternating_times
from minitri.bench.cases import Input, program
from minitri.bench.measure_case import forget, rotated, tensor
from minitri.bench.torch_twin import torch_twin
from minitri.hardware.chips import H200
from minitri.optimize import dequantised_product_cost
from minitri.optimize.product_cost import PACES, Choice

ROWS = (8, 32, 64, 128, 256, 512, 1024)
WEIGHTS = ((4096, 4096), (4096, 1024), (1024, 4096), (4096, 11008), (11008, 4096), (8192, 8192))
WORSE = 1.1


def choices(m: int, depth: int, columns: int) -> list[Choice]:
    """The choices with 32 to 800 programs."""
    found = [Choice(p, pace, 0.0) for p in (1, 2, 4, 8, 16) for pace in PACES["transposed"]
             if depth % (p * dequantised_product_cost.UNIT) == 0 and depth // p >= dequantised_product_cost.PART and pace.rows <= max(16, 2 * m - 1)]  # fmt: skip
    return [
        c
        for c in found
        if 32 <= c.parts * -(-m // c.pace.rows) * -(-columns // dequantised_product_cost.COLUMNS) <= 800
    ]


def chosen(choice: Choice, sets: list[tuple[object, ...]]) -> list[object]:
    with mock.patch.object(
        dequantised_product_cost,
        "choose",
        lambda *_, most=dequantised_product_cost.MOST: choice._replace(parts=min(choice.parts, most)),
    ):
        ours = mt.compile(program("dequantised"))
        return [ours.bind(*given) for given in sets]


def main() -> None:
    for depth, columns in WEIGHTS:
        for m in map(int, sys.argv[1:] or ROWS):
            weights = Input("i8", (depth, columns), below=127, signed=True)
            given = Input("f16", (m, depth)), weights, Input("f16", (columns,), positive=True)
            sets = rotated([tensor(i, "cuda") for i in given])[:6]
            compiled = torch.compile(torch_twin(program("dequantised")), dynamic=False)
            peers = {"compile": [partial(compiled, *s) for s in sets]}
            own = dequantised_product_cost.choose(H200, 1, m, columns, depth)._replace(time=0.0)
            for choice in {own, *choices(m, depth, columns)}:
                peers[choice] = chosen(choice, sets)
            times = alternating_times(peers, Pace(0.03, 0.03))
            best = sorted(
                (t, (c.parts, c.pace.rows)) for c, t in times.items() if c != "compile" and isinstance(t, float)
            )
            mark = "!!" if times[own] > WORSE * best[0][0] else "  "
            shown = "  ".join(f"{t * 1e6:.1f} {c}" for t, c in best[:5])
            print(
                f"{mark} {m}x{depth}x{columns}  compile {times['compile'] * 1e6:.1f}  ours {times[own] * 1e6:.1f} {(own.parts, own.pace.rows)}  | {shown}",
                flush=True,
            )
            forget()


if __name__ == "__main__":
    main()
