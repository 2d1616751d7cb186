"""(b) GELU in its tanh form, written by hand: nine operations, one kernel.

    python examples/02_gelu.py [--stages]

As numpy or an eager library runs it, each operation reads an array and writes one: nine passes
over memory. Fused, an element is read once, everything happens in registers, and the result is
written once. The ledger in the `kernels` stage lists each edge that fusion removed, and the bytes
that this saves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import agree, flags, gpu, kernels, normal, program, rate, stages

from minitri.profile import time_call

ROWS, COLUMNS = 16384, 4096  # for the GPU


def gelu(x: Any) -> Any:
    """The same in numpy, in f64."""
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def main() -> None:
    args = flags(__doc__)
    f = program("gelu.mt")

    print("one kernel, or one an operation:")
    apart = f.configured(without=("fusion",))
    print(f"  fused {kernels(f, S=(7, 33))}, without fusion {kernels(apart, S=(7, 33))}")
    print("against numpy:")
    for shape in ((7,), (33, 5), (2, 3, 129), (1, 1), (0, 4), ()):
        x = normal(*shape) * 3
        agree(f"shape {shape}", f(x), gelu(np.asarray(x)), 1e-6)

    torch = gpu()
    if torch is None:
        print("no GPU: the kernels ran in Triton's interpreter; nothing worth timing")
    else:
        x = torch.randn(ROWS, COLUMNS, device="cuda")
        bytes = 2 * x.numel() * x.element_size()
        print(f"f32[{ROWS}, {COLUMNS}] on the GPU:")
        print(f"  minitri, one kernel    {rate(time_call(f, x).median, bytes)}")
        print(f"  minitri, without fusion  {rate(time_call(apart, x).median, bytes)}")
        library = torch.nn.functional.gelu
        print(f"  torch's gelu           {rate(time_call(library, x, approximate='tanh').median, bytes)}")
    if args.stages:
        stages(f, normal(7, 33))


if __name__ == "__main__":
    main()
