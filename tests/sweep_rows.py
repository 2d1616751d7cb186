"""Reductions over rows of odd and of long lengths on a GPU, beside what torch has: what `minitri bench` measures of a few
shapes, of many.

    python tests/sweep_rows.py [WORD …]          cases in whose names a word occurs; none: all

In: nothing. Out: a line a case, `!!` before those below 0.95 of the best peer. Needs a GPU; nothing is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from minitri.bench import memory
from minitri.bench.case import Case, Input, torch
from minitri.bench.report import PEERS

BELOW = 0.95


def cases() -> Iterator[Case]:
    for n in memory.LENGTHS:
        for t, elements in memory.ELEMENTS.items():
            yield from _of_rows(t, elements // n, n)


def _of_rows(t: str, m: int, n: int) -> Iterator[Case]:
    x, row, summed = Input(t, (m, n)), Input(t, (n,)), Input(t, (m, n), positive=True)
    labels = Input("i64", (m,), below=n)
    table: tuple[tuple[str, str, tuple[Input, ...], Any, Any], ...] = (
        ("layernorm", memory.LAYER_NORM, (x, row, row), memory.layer_norm, memory.library_layer_norm),
        ("rmsnorm", memory.RMS_NORM, (x, row), memory.rms_norm, memory.library_rms_norm),
        ("log_softmax", memory.LOG_SOFTMAX, (x,), memory.log_softmax, memory.library_log_softmax),
        ("cross-entropy", memory.CROSS_ENTROPY, (x, labels), memory.cross_entropy, memory.library_cross_entropy),
        ("argmax", memory.ARGMAX, (x,), memory.argmax, None),
        ("row sum", memory.ROW_SUM, (summed,), memory.row_sum, None),
        ("column sum", memory.COLUMN_SUM, (summed,), memory.column_sum, None),
        ("total sum", memory.TOTAL_SUM, (summed,), memory.total_sum, None),
        ("cumsum", memory.CUMSUM, (x,), memory.running_sum, None),
        ("transpose", memory.TRANSPOSE, (x,), memory.transposed, None),
        ("gelu", memory.GELU, (x,), memory.gelu, memory.library_gelu),
    )
    for name, program, inputs, eager, library in table:
        yield Case(f"{name} {t} {m}x{n}", program.format(t=t), inputs, eager, library)


def main() -> None:
    from minitri.bench.clock import Cuda, in_turns
    from minitri.bench.comparison import compare
    from minitri.bench.run import copy_of_memory

    clock, copy = partial(in_turns, device=Cuda()), copy_of_memory()
    for case in cases():
        if sys.argv[1:] and not any(word in case.name for word in sys.argv[1:]):
            continue
        row = compare(case, "cuda", clock, copy)
        best, compiled, own = row.ratio(*PEERS) or 0.0, row.ratio("compile") or 0.0, row.best("minitri") or 1.0
        mark, wrong = "!!" if best < BELOW else "  ", "" if row.ok else "  WRONG"
        print(
            f"{mark} {case.name:32} {own * 1e3:.3f} ms  best/ours {best:.2f}  compile/ours {compiled:.2f}"
            f"  of copy {row.floor / own:.2f}{wrong}",
            flush=True,
        )
        torch.compiler.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
