"""(f) Embedding lookup times 1.414: an index that is itself a value.

    python examples/06_embedding.py [--stages]

`w[idx]` is a load whose row is another load: w[idx[b], d]. In the kernels' notation nothing else
is special about it, so the factor is part of the same kernel and the rows are never stored
unscaled. Negative indices count from the end, as in numpy; of the table, only the rows that
are picked are read.
"""

from __future__ import annotations

import numpy as np
from common import agree, flags, gpu, kernels, normal, program, random, rate, stages

from minitri.kernels.memory_traffic import traffic
from minitri.profile import time_call


def main() -> None:
    args = flags(__doc__)
    f = program("embedding.mt")

    low = f.lower(V=50_000, D=64, B=(7,))
    (one,) = traffic(low.compilation.value("kernels"), low.sizes)
    print(f"kernels: {kernels(f, V=33, D=7, B=(2, 3))}; 7 rows of a table of 50000: reads {dict(one.reads)} bytes")

    print("against numpy:")
    for rows, width, picked in ((33, 7, (5,)), (1, 1, (3,)), (1000, 129, (2, 3)), (10, 64, (0,)), (5, 3, ())):
        w, idx = normal(rows, width), np.asarray(random.integers(-rows, rows, picked))
        agree(f"{picked} of {rows} rows of {width}", f(w, idx), w[idx] * np.float32(1.414), 0.0)

    if torch := gpu():
        w = torch.randn(128256, 1024, device="cuda")
        idx = torch.randint(0, 128256, (65536,), device="cuda")
        bytes = 2 * idx.numel() * w.shape[1] * 4
        print("65536 rows of f32[128256, 1024] on the GPU:")
        eager = time_call(lambda a, i: torch.nn.functional.embedding(i, a) * 1.414, w, idx)
        print(f"  minitri {rate(time_call(f, w, idx).median, bytes)}")
        print(f"  torch   {rate(eager.median, bytes)}")
    if args.stages:
        stages(f, normal(33, 7), np.asarray(random.integers(0, 33, 5)))


if __name__ == "__main__":
    main()
