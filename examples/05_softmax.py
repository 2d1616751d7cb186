"""(e) Softmax of rows, numerically stable, in one kernel that reads its row once.

    python examples/05_softmax.py [--stages]

exp(x) overflows f32 beyond 88. Softmax does not change when a number is taken from the whole
row, so the row's largest element is: then exp is 1 at most. Two reductions (max, sum) over one
axis are one kernel: a program holds its rows in registers for both. A row of 33 elements sits in
64 lanes. What the lanes past the end hold must not count, so the masking pass gives them -inf
before the maximum and 0 before the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import agree, flags, gpu, kernels, normal, program, rate, stages

from minitri.profile import time_call

ROWS, COLUMNS = 16384, 4096  # for the GPU


def softmax(x: Any) -> Any:
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def main() -> None:
    args = flags(__doc__)
    f = program("softmax.mt")
    print(f"kernels: {kernels(f, M=7, N=33)}")

    print("against numpy:")
    for shape in ((7, 33), (1, 1), (3, 1000), (33, 129), (0, 5)):
        x = normal(*shape)
        agree(f"shape {shape}", f(x), softmax(x), 1e-6)
        agree(f"shape {shape}, values to 1e4", f(x * 1e4), softmax(x * np.float32(1e4)), 1e-6)
    x = normal(4, 33)
    x[:, ::2] = -np.inf
    agree("half of each row -inf", f(x), softmax(x), 1e-6)
    with np.errstate(all="ignore"):
        naive = np.exp(x * 1e4) / np.exp(x * 1e4).sum(axis=-1, keepdims=True)
    print(f"  without taking the maximum away: {np.isnan(naive).sum()} of {naive.size} elements are nan at 1e4")

    if torch := gpu():
        y = torch.randn(ROWS, COLUMNS, device="cuda")
        bytes = 2 * y.numel() * y.element_size()
        print(f"f32[{ROWS}, {COLUMNS}] on the GPU:")
        print(f"  minitri {rate(time_call(f, y).median, bytes)}")
        print(f"  torch   {rate(time_call(torch.softmax, y, -1).median, bytes)}")
    if args.stages:
        stages(f, normal(7, 33))


if __name__ == "__main__":
    main()
