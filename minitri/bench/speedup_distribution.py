"""The distribution of speedups over many random programs, as text.

In: a `Row` for each program. The ratio of a program is the time of torch over the time of minitri: above 1, minitri is
faster. The time of torch is the shorter time of eager torch and torch.compile. Out: a table with a line for each class
of programs, and a table of first results. The report also has the rank correlation of predicted and measured times, and
the ten slowest programs with their text.

Left out: the measurement of the programs (random_run.py).
"""

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

from minitri.base.text_tables import table
from minitri.bench.result_tables import TORCH, Row, number, predictions, ratios, time_of

BOUNDS = (0.95, 0.9, 0.8)
WORST = 10  # programs that are printed


def distribution(rows: Sequence[Row], shrunk: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """Returns the whole report as text.

    `shrunk` has the smallest slow part of each program that was shrunk.
    """
    wrong = [r for r in rows if not r.ok]
    slow = sorted((r for r in rows if r.ok and ratio(r) < math.inf), key=ratio)[:WORST]
    head = f"{facts['device']}, torch {facts['torch']}, triton {facts['triton']}"
    counts = f"{len(rows)} programs of {facts['dtype']} from seed {facts['seed']}: {len(rows) - len(wrong)} right"
    return "\n".join([
        f"{head}\n{counts}\n", _classes(rows), "", _first_results(rows), "", *predictions(rows),
        *(f"\nWRONG {_text(r)}" for r in wrong), *(f"\n{_text(r)}" for r in slow),
        *(f"\nthe smallest part that is slow: {_text(r)}" for r in shrunk),
    ])  # fmt: skip


def ratio(row: Row) -> float:
    """Returns the time of torch over the time of minitri; inf if torch or minitri has no time."""
    return row.ratio(*TORCH) or math.inf


def _classes(rows: Sequence[Row]) -> str:
    """Returns a line for all programs, and a line for each class of programs.

    Each line shows the number of programs in a class, and their speedups.
    """
    words = sorted({word for r in rows for word in r.kind.split(", ")})
    head = ("torch/minitri", "programs", "mean", "compile/ours", *(f"< {b}" for b in BOUNDS), "least")
    lines: list[tuple[str, ...]] = [head]
    for word in ("all", *words):
        group = [r for r in rows if r.ok and word in ("all", *r.kind.split(", "))]
        over, compiled = ratios(group, *TORCH), ratios(group, "compile")
        if over and compiled:
            below = (f"{sum(x < b for x in over) / len(over):.0%}" for b in BOUNDS)
            means = (f"{geometric_mean(x):.2f}" for x in (over, compiled))
            lines.append((word, str(len(over)), *means, *below, f"{min(over):.2f}"))
    return table(lines)


def _first_results(rows: Sequence[Row]) -> str:
    lines: list[tuple[str, ...]] = [("first result (s)", "median", "95%", "longest")]
    for name in ("minitri", "compile"):
        if seconds := sorted(s for r in rows if name in r.peers and (s := r.peers[name].first)):
            chosen = (median(seconds), seconds[math.ceil(0.95 * len(seconds)) - 1], seconds[-1])
            lines.append((name, *(f"{s:.2f}" for s in chosen)))
    return table(lines)


def _text(row: Row) -> str:
    """Returns the text of a program with its times and its ratio."""
    times = "".join(f"{n} {time_of(p)}, " for n, p in row.peers.items())
    errors = ", ".join(f"{n} {number(p.error, '.1e')}" for n, p in row.peers.items())
    notes = "".join(f"\n    {n}: {p.note}" for n, p in row.peers.items() if p.note)
    predicted = number(row.predicted and row.predicted * 1e3, ".3f")
    first = f"{row.name}: {number(row.ratio(*TORCH), '.2f')} ({row.kind})"
    return f"{first}\n    ms: {times}predicted {predicted}\n    errors: {errors}{notes}\n{row.program}".rstrip()
