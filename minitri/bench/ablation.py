"""Measures the effect of each optimisation: runs the cases of the benchmark without this optimisation.

    minitri bench --ablate --json ablation.json

The function `measure` takes a case and names of optimisations, and returns a list of `Cell`s. If the generated code for
the case stays the same without an optimisation, `measure` returns no `Cell` for this optimisation. A `Cell` holds three
ratios: one for the time of a call, one for its memory, and one for the time to a first result. Each ratio of a `Cell`
is the time or memory without the optimisation, divided by the time or memory with the optimisation. For example, a time
ratio of 1.25 means that the optimisation saves a fifth of the time, because 1 / 1.25 is 0.8.

A case has one version with all optimisations, and one version for each optimisation that is left out. The calls of all
versions of a case alternate (alternating_timer.py), and all versions get the same inputs. The result of each version is
compared with the reference, which torch computes in f64. If leaving out an optimisation does not change the generated
code, the benchmark does not measure the code again.
"""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import starmap
from operator import attrgetter
from typing import Any

import torch

import minitri as mt
from minitri.base.nodes import Record
from minitri.base.text_tables import table
from minitri.base.types import items_of
from minitri.bench import call_costs
from minitri.bench.alternating_timer import Calls, Clock, Pace, Times, alternating_times
from minitri.bench.cases import INTERPRETED, Case
from minitri.bench.measure_case import forget, make_ready, rotated, tensor, time_together, within
from minitri.bench.result_tables import Row, number, write_json
from minitri.bench.roofline_plot import heat_map
from minitri.cli.terminal import track
from minitri.optimize.pass_table import OPTIONAL
from minitri.program import Program
from minitri.runtime import timing

WHOLE = ""  # the version with all optimisations


def ablate(chosen: Sequence[Case], json_path: str | None = None, plot_path: str | None = None) -> int:
    """Measures the cases on this machine's GPU and prints the tables.

    Returns the exit status, which is 0 if every version of every case ran and gave a right result.
    """
    found = Ablation(torch.cuda.get_device_name(), OPTIONAL)
    mt.compile("x + x")(torch.ones(8, device="cuda"))  # the time of imports must not count in a first result
    for case in track("ablation", chosen, attrgetter("name")):
        where = (wall_times, "cpu") if case.kind == INTERPRETED else (alternating_times, "cuda")
        found.cells += measure(case, OPTIONAL, *where)
        write_json(json_path, asdict(found))
    print(f"{found.device}\n\n{found}\n\n{found.matrix()}")
    if plot_path is not None:
        heat_map(asdict(found), plot_path)
    return int(any(c.note for c in found.cells))


class Cell(Record):
    """The effect of one optimisation on one benchmark case.

    `time`, `memory`, `first`: the measured value without the optimisation, divided by the value with all optimisations.
        0.0 if not measured.
    `note`: the reason why the version without the optimisation failed, or why its result is wrong. "" for a right
        result.
    """

    case: str
    without: str
    time: float = 0.0
    memory: float = 0.0
    first: float = 0.0
    note: str = ""

    @property
    def best(self) -> float:
        """The largest of the three ratios `time`, `memory` and `first`.

        `best` is inf if the version without the optimisation fails or gives a wrong result.
        """
        return float("inf") if self.note else max(self.time, self.memory, self.first)


@dataclass(slots=True)
class Ablation:
    """The measured effects of optimisations. Each `Cell` is the result of one case without one optimisation."""

    device: str
    optimisations: Sequence[str]
    cells: list[Cell] = field(default_factory=list)

    def of(self, name: str) -> list[Cell]:
        """Returns the `Cell`s of the optimisation `name` in all cases, sorted by `best` in descending order."""
        return sorted((c for c in self.cells if c.without == name), key=lambda c: -c.best)

    def __str__(self) -> str:
        head = ("without", "cases", "time", "memory", "first result", "most on")
        return table([head, *(self._line(name) for name in self.optimisations)])

    def _line(self, name: str) -> tuple[str, ...]:
        cells = self.of(name)
        most = [max((getattr(c, what) for c in cells), default=None) for what in ("time", "memory", "first")]
        return (name, str(len(cells)), *(number(ratio, ".2f") for ratio in most), cells[0].case if cells else "-")

    def matrix(self) -> str:
        """Returns a table of ratios: the time of a call without one optimisation, divided by the time with all
        optimisations.

        The table has a row for each optimisation and a column for each case.
        """
        cases = list(dict.fromkeys(c.case for c in self.cells))
        found = {(c.without, c.case): "wrong" if c.note else f"{c.time:.2f}" for c in self.cells}
        rows = [(name, *(found.get((name, case), "") for case in cases)) for name in self.optimisations]
        head = ("time without / with", *(str(k) for k, _ in enumerate(cases, 1)))
        return "\n".join([table([head, *rows]), *(f"{k}: {case}" for k, case in enumerate(cases, 1))])


def measure(case: Case, optimisations: Sequence[str], clock: Clock, device: str) -> list[Cell]:
    """Measures the effect of each optimisation on one case. Returns a `Cell` for each optimisation that changes the
    generated code of the case.

    The function `clock` times all versions together, so that the versions alternate.
    """
    gc.collect()  # reference cycles keep the arrays of earlier cases
    forget()
    arrays = [tensor(i, device) for i in case.inputs]
    reference = items_of(case.eager(*[a.double() if a.is_floating_point() else a for a in arrays]))
    row, sets = Row(case.name, within(case), flops=case.flops), rotated(arrays)
    versions = versions_of(case, optimisations, arrays)
    with call_costs.empty_caches():
        ready = make_ready({n: partial(starmap, v.bind, sets) for n, v in versions.items()}, row.peers, reference)
        memory = {n: call_costs.peak(partial(versions[n], *arrays)) for n in ready}
    time_together(row, ready, clock, None)
    return [_cell(row, name, memory) for name in versions if name != WHOLE]


def wall_times(peers: Mapping[str, Calls], pace: Pace) -> Times:
    """Returns the median time of nine calls of each version, in seconds, by the host's clock."""
    return {name: timing.measure(calls[0], "cpu", repeats=9, warmup=0).median for name, calls in peers.items()}


def versions_of(case: Case, optimisations: Sequence[str], arrays: Sequence[Any]) -> dict[str, Program]:
    """Returns a dict of compiled versions of a case. One version has all optimisations, and each other version lacks
    one optimisation.

    If the generated code is the same without an optimisation, the dict has no version for this optimisation.
    """
    whole = mt.compile(case.program)
    target = "cuda:90" if arrays[0].is_cuda else "interpreter"  # what a call with these arrays runs on
    text = whole.lower(*arrays, target=target)["triton"]
    versions = {name: whole.configured(without=[name]) for name in optimisations}
    changed = {n: v for n, v in versions.items() if v.lower(*arrays, target=target)["triton"] != text}
    return {WHOLE: whole, **changed}


def _cell(row: Row, name: str, memory: Mapping[str, int]) -> Cell:
    whole, version = row.peers[WHOLE], row.peers[name]
    note = version.note or whole.note
    if not note and (version.error or 0.0) > row.within:
        note = f"error {version.error:.1e} instead of {row.within:.0e}"
    if note or not (version.seconds and whole.seconds and version.first and whole.first):
        return Cell(row.name, name, note=note)
    time, first = version.seconds / whole.seconds, version.first / whole.first
    return Cell(row.name, name, time, memory[name] / max(memory[WHOLE], 1), first)
