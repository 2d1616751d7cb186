"""Measures reductions over rows of odd and of long lengths on a GPU, compared with torch.

    python tests/sweep_rows.py [WORD …]          cases whose names contain a word; without any: all cases

In: nothing. Out: a line for each case, as in `minitri bench`, with many more shapes. `!!` marks a case that is slower
than 0.95 of the fastest peer. It needs a GPU and stores nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from minitri.bench import cases as table
from minitri.bench.cases import Case
from minitri.bench.result_tables import PEERS

BELOW = 0.95
NAMES = (
    "add", "gelu", "softmax", "layernorm", "rmsnorm", "row sum", "column sum", "total sum", "transpose", "cumsum",
    "cross-entropy", "argmax", "log_softmax",
)  # fmt: skip
LENGTHS = (777, 4090, 4100, 32768, 131072)
ELEMENTS = {"f32": 1 << 26, "bf16": 1 << 27}


def cases() -> Iterator[Case]:
    for n in LENGTHS:
        sizes = [f"{dtype} {elements // n}x{n}" for dtype, elements in ELEMENTS.items()]
        for row in table.TABLE["benchmark"]:
            if row["name"] in NAMES:
                yield from table.cases_of(**{**row, "cases": sizes})


def main() -> None:
    from minitri.bench.alternating_timer import alternating_times
    from minitri.bench.measure_case import compare, forget
    from minitri.bench.run import copy_of_memory

    copy = copy_of_memory()
    for case in cases():
        if sys.argv[1:] and not any(word in case.name for word in sys.argv[1:]):
            continue
        row = compare(case, "cuda", alternating_times, copy)
        best, compiled, own = row.ratio(*PEERS) or 0.0, row.ratio("compile") or 0.0, row.best("minitri") or 1.0
        mark, wrong = "!!" if best < BELOW else "  ", "" if row.ok else "  WRONG"
        print(
            f"{mark} {case.name:32} {own * 1e3:.3f} ms  best/ours {best:.2f}  compile/ours {compiled:.2f}"
            f"  of copy {row.floor / own:.2f}{wrong}",
            flush=True,
        )
        forget()


if __name__ == "__main__":
    main()
