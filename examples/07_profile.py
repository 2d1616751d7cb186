"""(g) Timing and profiling any program: a warm-up, synchronised timing, a row for each kernel.

    python examples/07_profile.py [--stages]

`time_call(f, *arrays)` times whole calls, of anything. `profile(program, *arrays)` shows where
the time of a program goes. The first call compiles, so some calls are not counted (the
warm-up). On a GPU a call returns before the work is done, so events on the stream take the
time, and the L2 cache is cleared between calls. Without a GPU the clock on the wall times
Triton's interpreter: the table is the same, its figures say nothing about a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import agree, flags, gpu, normal, program, random, stages

from minitri.profile import profile, time_call


def cross_entropy(z: Any, y: Any) -> Any:
    z = z.astype(np.float64)
    m = z.max(axis=-1)
    return np.mean(m + np.log(np.exp(z - m[:, None]).sum(axis=-1)) - z[np.arange(len(z)), y])


def main() -> None:
    args = flags(__doc__)
    f = program("cross_entropy.mt")
    torch = gpu()
    rows, classes = (8192, 32000) if torch else (100, 333)

    z, y = normal(rows, classes), random.integers(0, classes, rows)
    print("against numpy:")
    for n, c in ((7, 33), (1, 1), (33, 1000)):
        a, b = normal(n, c), random.integers(0, c, n)
        agree(f"{n} rows of {c} classes", f(a, b), cross_entropy(a, b), 2e-6)

    arrays = (torch.from_numpy(z).cuda(), torch.from_numpy(y).cuda()) if torch else (z, y)
    print(f"\n{rows} rows of {classes} classes")
    print(f"a call: {time_call(f, *arrays)}\n")
    print(profile(f, *arrays))
    print("\nwithout fusion:")
    print(profile(f.configured(without=("fusion",)), *arrays, repeats=5))
    if args.stages:
        stages(f, normal(7, 33), random.integers(0, 33, 7))


if __name__ == "__main__":
    main()
