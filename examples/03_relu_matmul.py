"""(c) relu(x @ W): one kernel, in which the product is never stored, against two.

    python examples/03_relu_matmul.py [--stages]

A product accumulates in registers. What follows it, here relu, can work on the accumulator
before it is stored. In two kernels the product is written, read again and written once more. The
tables count what each kernel must read and write, in bytes:

    one kernel    reads x, W              writes out
    two kernels   reads x, W              writes the product
                  reads the product       writes out

With the compiler's own fusion off (`without=("fusion",)`, `--without fusion`) there is a third: sums
are f32 until the program says otherwise, so the product and relu of it are stored as f32 and the
last kernel rounds to f16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import agree, flags, gpu, normal, program, stages

import minitri as mt
from minitri.base.text_tables import table
from minitri.kernels.memory_traffic import Traffic, traffic
from minitri.profile import profile

RELU = """
def relu_alone(y: f16[M, N]) -> f16[M, N]:
    return relu(y)
"""


def show_traffic(title: str, *programs: mt.Lowered) -> int:
    """Reads and writes of each kernel by buffer, and their sum."""
    entries: list[tuple[str, Traffic]] = []
    for low in programs:
        plan = low.compilation.value("kernels")
        entries += [(plan.name, t) for t in traffic(plan, low.sizes)]
    rows = [(f"  {name} {t.kernel}", words(t.reads), words(t.writes), str(t.total)) for name, t in entries]
    total = sum(t.total for _, t in entries)
    print(f"{title}: {total} bytes")
    print(table([("  kernel", "reads", "writes", "bytes"), *rows]))
    return total


def words(bytes: Any) -> str:
    return " + ".join(f"{name} {count}" for name, count in bytes.items())


def main() -> None:
    args = flags(__doc__)
    one = program("relu_matmul.mt")
    product, relu = program("matmul.mt"), mt.compile(RELU)
    m, k, n = (4096, 4096, 4096) if gpu() else (100, 70, 33)

    print(f"f16[{m}, {k}] @ f16[{k}, {n}], bytes read and written")
    fused = show_traffic("one kernel", one.lower(M=m, K=k, N=n))
    apart = show_traffic("two kernels", product.lower(M=m, K=k, N=n), relu.lower(M=m, N=n))
    show_traffic("fusion off", one.lower(M=m, K=k, N=n, without=("fusion",)))
    print(f"fusion saves {apart - fused} bytes: the product, {m} x {n} of f16, written and read")
    assert apart - fused == 2 * (m * n * 2)

    print("against numpy:")
    for a, b, c in ((7, 5, 3), (100, 70, 33), (1, 129, 1), (17, 16, 65), (0, 3, 4), (3, 0, 4)):
        x, w = normal(a, b, dtype=np.float16), normal(b, c, dtype=np.float16)
        expected = np.maximum(x.astype(np.float64) @ w.astype(np.float64), 0)
        agree(f"({a}, {b}) @ ({b}, {c}), one kernel", one(x, w), expected, 5e-4)
        agree(f"({a}, {b}) @ ({b}, {c}), two", relu(product(x, w)), expected, 5e-4)

    print("time:")
    x, w = normal(m, k, dtype=np.float16), normal(k, n, dtype=np.float16)
    if torch := gpu():
        x, w = torch.from_numpy(x).cuda(), torch.from_numpy(w).cuda()
    print(profile(one, x, w, repeats=10))
    print(profile(product, x, w, repeats=10))
    print(profile(relu, product(x, w), repeats=10))
    if args.stages:
        stages(one, normal(7, 5, dtype=np.float16), normal(5, 3, dtype=np.float16))


if __name__ == "__main__":
    main()
