"""Measures the cases and prints the tables.

In: parts of names of cases, or their kinds (none: all cases), perhaps a path for JSON. Out: tables of times and of
errors on stdout, and 0 if every program of ours ran and was right.

clock.py says how times are measured. Every peer of a case runs in this one process, on the same random inputs
(comparison.py). `best/ours` is the time of the best peer over ours: above 1, ours is faster. `of copy` is the time of a
copy of the same bytes over ours. The rate of a copy of 2 GiB is measured together with the peers; the rate in the head
is measured before all cases. Products show TFLOP/s. torch.compile runs with dynamic=False. Square products also run
tuned: max-autotune-no-cudagraphs, and ours with measured schedules (runtime/schedule_search.py). With `--tune` all of
ours do.

Without a GPU nothing here can be fast or slow: a small table (comparison.py) says so. The host's time of a call and a
first result are measured with all cases, or with `--host` (host.py). Memory is measured with each case.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import minitri as mt
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.bench import ablation, host
from minitri.bench.case import Case, torch
from minitri.bench.cases import cases
from minitri.bench.clock import Cuda, Run, in_turns
from minitri.bench.comparison import COPY_BYTES, MOVING, compare, copy_rate, forget, small_table
from minitri.bench.plot import plot
from minitri.bench.report import Row, as_dict, report, write_json
from minitri.hardware.targets import StageUnavailable

Keep = Callable[[Mapping[str, Any]], None]


def main(
    names: Sequence[str] = (),
    json_path: str | None = None,
    plot_path: str | None = None,
    tune: bool = False,
    calls: bool = False,
    ablate: bool = False,
) -> int:
    """Runs the benchmark and prints its tables.

    tune    every program of ours also runs with measured schedules
    calls   the host time of a call, and a first result, are measured whatever the cases are
    ablate  ours alone, with one optimisation left out at a time (ablation.py)
    """
    with_gpu = torch is not None and torch.cuda.is_available()
    if ablate:
        if not with_gpu:
            raise StageUnavailable("MT0402", "what an optimisation is worth needs a GPU", help="leave out `--ablate`")
        return ablation.ablate(ablation.cases_of(names), json_path, plot_path)
    chosen = select(names)
    if plot_path is not None and not with_gpu:
        raise StageUnavailable("MT0402", "there is nothing to draw without a GPU", help="`--json` works without one")
    if calls and not with_gpu:
        raise StageUnavailable("MT0402", "a call's host time needs a GPU", help="leave out `--host`")

    def keep(found: Mapping[str, Any]) -> None:
        if json_path is not None:
            write_json(json_path, found)

    keep({})  # what cannot be written is known before anything is measured
    calls = calls or not names
    rows, facts = _on_gpu(chosen, keep, tune, calls) if with_gpu else small_table(chosen)
    found = {**facts, "cases": [as_dict(r) for r in rows]}
    keep(found)
    if plot_path is not None and with_gpu:
        plot(found, plot_path)
    return 0 if all(r.ok for r in rows) else 1


def select(names: Sequence[str]) -> list[Case]:
    """The cases whose kind is one of these, or in whose names one occurs; CompileError MT0402 if one names none."""
    known = cases()
    for name in names:
        if not any(_is(c, name) for c in known):
            groups = list(dict.fromkeys(word for c in known for word in (c.name.partition(" ")[0], c.kind)))
            help = suggest(name, groups) or f"cases begin with, or are of a kind of, {listed(groups)}"
            raise CompileError("MT0402", f"no case is called `{name[:40]}`", help=help)
    return [c for c in known if not names or any(_is(c, name) for name in names)]


def _is(case: Case, name: str) -> bool:
    return name == case.kind or name in case.name


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- on a GPU --------------------------------------------------------------------------


def _on_gpu(chosen: Sequence[Case], keep: Keep, tune: bool, calls: bool) -> tuple[list[Row], dict[str, Any]]:
    """`keep` takes what is known so far: a run that is cut off has not been for nothing."""
    import triton

    start = time.perf_counter()
    facts: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    clock, copy = partial(in_turns, device=Cuda()), copy_of_memory()
    rate = copy_rate(clock({"copy": [copy]}, MOVING)["copy"])
    facts |= {"triton": triton.__version__, "minitri": mt.__version__, "copy_bytes_per_second": rate}
    rows: list[Row] = []
    for k, case in enumerate(chosen, 1):
        _progress(f"[{k}/{len(chosen)}] {case.name}")
        rows.append(compare(case, "cuda", clock, copy, tune))
        keep({**facts, "cases": [as_dict(r) for r in rows]})
        forget()
    print(report(rows, facts), flush=True)
    if calls:
        _progress("host time and first results")
        tables = host.tables()
        print("", *tables, sep="\n")
        facts["host"] = [asdict(t) for t in tables]
    facts["seconds"] = time.perf_counter() - start
    return rows, facts


def copy_of_memory() -> Run:
    """A copy that no cache holds."""
    source = torch.empty(COPY_BYTES, dtype=torch.int8, device="cuda").fill_(1)
    return partial(torch.empty_like(source).copy_, source)
