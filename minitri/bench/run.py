"""Measures cases of the benchmark on a GPU, and prints tables of times and errors.

The function `main` takes names of cases, parts of names, or kinds of cases. If no name is given, all cases are
measured. `main` prints tables of times and errors on stdout, and returns the exit status. The exit status is 0 if
minitri's result was right in every case. If a path for JSON is given, `main` writes the measurements to this file.

The file alternating_timer.py describes how calls are timed. Every implementation of a case runs in one process, on the
same random inputs (measure_case.py). The column `best/ours` is the time of the fastest other implementation divided by
minitri's time. If `best/ours` is above 1, minitri is faster than all other implementations. The column "of copy" shows
the time for copying as many bytes as the case moves, divided by minitri's time. For a matrix product, no copy is timed,
so the column "of copy" shows minitri's rate in TFLOP/s instead. For each case without a matrix product, a memory copy
is timed in the same measurement as the implementations. Another rate of a copy is measured once, before all cases, and
is printed in the head of the table. All cases call torch.compile with dynamic=False. Square matrix products are also
measured with tuning: torch with max-autotune-no-cudagraphs, and minitri with measured schedules
(runtime/schedule_search.py). With `--tune`, all programs are also timed with schedules that were chosen by measuring.

Without a GPU, only a small table is printed, which shows the errors of results (measure_case.py). Times without a GPU
come from Triton's interpreter, so they say nothing about the speed on a GPU. The host's time of a call and the time to
a first result (call_costs.py) are measured if all cases are measured, or if `--host` is given. The GPU memory of a call
is measured for each case.
"""

import time
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from minitri.base.diagnostics import listed, misspelt
from minitri.bench import ablation, call_costs
from minitri.bench.alternating_timer import Run, alternating_times
from minitri.bench.cases import Case, ablated, cases
from minitri.bench.measure_case import COPY_BYTES, MOVING, compare, copy_rate, forget, gpu_facts, small_table
from minitri.bench.result_tables import Row, as_dict, report, write_json
from minitri.bench.roofline_plot import HELP, plot
from minitri.cli.terminal import progress, track
from minitri.hardware.targets import StageUnavailable


def main(
    names: Sequence[str] = (), json_path: str | None = None, plot_path: str | None = None, tune: bool = False,
    calls: bool = False, ablate: bool = False,
) -> int:  # fmt: skip
    """Runs the benchmark, prints its tables and returns the exit status.

    `tune`: whether every program also runs with measured schedules.
    `calls`: whether to measure the host time of a call, and the time to a first result. On a GPU, both times are
        also measured if `names` is empty.
    `ablate`: whether to run minitri alone, with one optimisation left out each time (ablation.py).
    """
    with_gpu = torch.cuda.is_available()
    chosen = [] if ablate else select(names)
    for asked, what, help in (
        (ablate, "what an optimisation is worth needs a GPU", "leave out `--ablate`"),
        (plot_path is not None, "a plot needs figures from a GPU, and there is no GPU here", HELP),
        (calls, "a call's host time needs a GPU", "leave out `--host`"),
    ):
        if asked and not with_gpu:
            raise StageUnavailable("MT0402", what, help=help)
    if ablate:
        return ablation.ablate(ablated(names), json_path, plot_path)
    write_json(json_path, {})  # raises an error before the measurements if the file cannot be written
    rows, facts = _on_gpu(chosen, json_path, tune, calls or not names) if with_gpu else small_table(chosen)
    found = {**facts, "cases": list(map(as_dict, rows))}
    write_json(json_path, found)
    if plot_path is not None and with_gpu:
        plot(found, plot_path)
    return 0 if all(r.ok for r in rows) else 1


def select(names: Sequence[str]) -> list[Case]:
    """Returns the cases that match at least one of `names`, or all cases if `names` is empty.

    An item of `names` is a kind of case, or a part of a case's name. Raises CompileError MT0402 if a name matches no
    case.
    """
    known = cases()
    found = {name: [c for c in known if name == c.kind or name in c.name] for name in names}
    for name in (name for name, own in found.items() if not own):
        groups = list(dict.fromkeys(word for c in known for word in (c.name.partition(" ")[0], c.kind)))
        help = f"cases begin with, or are of a kind of, {listed(groups)}"
        raise misspelt("MT0402", "no case is called", name, groups, help)
    return [c for c in known if not names or any(c in own for own in found.values())]


# ---- on a GPU --------------------------------------------------------------------------


def _on_gpu(chosen: Sequence[Case], json_path: str | None, tune: bool, calls: bool) -> tuple[list[Row], dict[str, Any]]:
    """Measures cases on the GPU, and returns their rows and facts about the run."""
    start = time.perf_counter()
    copy = copy_of_memory()
    facts = gpu_facts() | {"copy_bytes_per_second": copy_rate(alternating_times({"copy": [copy]}, MOVING)["copy"])}
    rows: list[Row] = []
    for case in track("bench", chosen, attrgetter("name")):
        rows.append(compare(case, "cuda", alternating_times, copy, tune))
        # after each case, in case of an interruption
        write_json(json_path, {**facts, "cases": list(map(as_dict, rows))})
        forget()
    print(report(rows, facts), flush=True)
    if calls:
        with progress("host time and first results"):
            tables = [call_costs.call_times(), call_costs.first_results()]
        print("", *tables, sep="\n")
        facts["host"] = [t._asdict() for t in tables]
    facts["seconds"] = time.perf_counter() - start
    return rows, facts


def copy_of_memory() -> Run:
    """Returns a function that copies `COPY_BYTES` bytes on the GPU. A copy of `COPY_BYTES` bytes does not fit into the
    caches of the GPU.
    """
    source = torch.empty(COPY_BYTES, dtype=torch.int8, device="cuda").fill_(1)
    return partial(torch.empty_like(source).copy_, source)
