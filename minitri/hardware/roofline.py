"""Computes the least time that a program can take on the chip of its target.

    print(roofline(low.compilation))

The function `roofline` takes a compilation in which all sizes are known. The function can also take the measured times
of the kernels. It returns a `Roofline`. A `Roofline` counts bytes and operations three times: for the graph, for the
kernels, and for the tiles (predicted_work.py). A `Roofline` also holds the least time for moving the bytes and
computing the operations at the chip's peak rates. The least time is the time that the slowest unit (memory or an
arithmetic unit) takes at its peak rate. No kernel reaches the peak rates of a chip, so a formula predicts a more
realistic time for each kernel.

    launch + max(bytes / bandwidth, waves * operations / rate of each unit)

The predicted time contains a maximum because memory accesses and arithmetic overlap: the slower of the two determines
the time. `REACHED` says which share of each peak rate the fastest kernels of docs/log/benchmarks.json reach on an H200.
A wave is a group of grid programs that fills all multiprocessors once. If the last wave is only partly filled, the
factor `waves` is above 1. For example, 133 grid programs on 132 multiprocessors take as long as 264 grid programs,
because both numbers need two waves.

Source: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures", 2009. The predicted time ignores latency and the order of accesses. The predicted time assumes that a
cache serves all repeated reads.
"""

import math
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from minitri.base.text_tables import byte_size, table
from minitri.hardware.chips import Chip, Peak, chip_of, peak
from minitri.hardware.predicted_work import Work, graph_work, kernel_work, tile_work, together
from minitri.hardware.targets import INTERPRETER, Target
from minitri.pipeline import Compilation, Context
from minitri.tiles.ir import Program
from minitri.triton.cached_compile import compile_options
from minitri.triton.emit import EmittedKernel

LAUNCH = 3e-6  # seconds from the start of an empty kernel to the start of the next kernel
REACHED = {"memory": 0.89, "f16": 0.79, "tf32": 0.68, "f32": 0.7, "f64": 0.7, "special": 0.7}
HEAD = ("", "moves", "asks for", "FLOP", "computed", "FLOP/B", "bound by", "at least", "predicted")


@dataclass(eq=False)
class Measured(UserDict[str, float]):
    """Measured seconds, by the name of the kernel. The fields `kernels`, `target` and `sizes` say what was measured."""

    data: dict[str, float]
    target: Target
    sizes: Mapping[str, int]
    kernels: Mapping[str, EmittedKernel]

    def mismatch(self, compiled: Compilation) -> str:
        """Returns why the measured times are not valid for a compilation, or "" if the times are valid."""
        context = compiled.context
        if self.target != context.target:
            ran = "Triton's interpreter" if self.target == INTERPRETER else str(self.target)
            return f"they are of {ran}, and this is {context.target}"
        if dict(self.sizes) != dict(context.sizes):
            return "they are of a call with other sizes"
        both = compiled.value("triton"), self.kernels.values()
        ours, theirs = ([(replace(k, lines=()), compile_options(k, self.target)) for k in kernels] for kernels in both)
        if ours != theirs:
            return "they are of other kernels: of another schedule, other strides or other passes"
        return ""


class Row(NamedTuple):
    """One row of the roofline table: a kernel, or the program as a whole.

    `needed`: the bytes and operations that no implementation can avoid.
    `asked`: the bytes that the tile program of the kernel loads and stores, and the number of its operations.
    `measured`, `predicted`: the measured and the predicted time in seconds, each None if unknown.
    """

    name: str
    needed: Work
    asked: Work | None = None
    measured: float | None = None
    predicted: float | None = None

    def floor(self, chip: Peak) -> tuple[str, float]:
        """Returns the unit that limits the speed of the kernel or program, and the least time in seconds that this unit
        takes. The unit is "memory" or the name of an arithmetic unit. If nothing is read, written or computed, the
        returned unit is "".
        """
        units = {u: n / chip.rates[u] for u, n in self.needed.operations.items() if u in chip.rates}
        times = {"memory": self.needed.bytes / chip.bandwidth, **units}
        bound = max(times, key=lambda u: times[u])
        return bound if times[bound] else "", times[bound]


class Roofline(NamedTuple):
    graph: Row
    kernels: tuple[Row, ...]
    chip: Peak | None
    mismatch: str = ""  # why measured times are left out

    @property
    def total(self) -> Row:
        asked = together(k.asked for k in self.kernels if k.asked is not None)
        measured, predicted = (_sum(times) for times in zip(*((k.measured, k.predicted) for k in self.kernels)))
        return Row("all", together(k.needed for k in self.kernels), asked, measured, predicted)

    def __str__(self) -> str:
        rows = [self.graph, *self.kernels, *[self.total] * (len(self.kernels) > 1)]
        measured = any(r.measured is not None for r in rows)
        head = (*HEAD, *(("measured", "reached") if measured else ()))
        left_out = f"measured times are left out: {self.mismatch}\n" if self.mismatch else ""
        return f"{_title(self.chip)}\n{table([head, *(_cells(r, self.chip, measured) for r in rows)])}\n{left_out}"


def roofline(compiled: Compilation, measured: Mapping[str, float] | None = None) -> Roofline | None:
    """Returns the roofline of a compilation. Returns None if a size is unknown, or if the plan of the program
    lists no kernels. The plan lists no kernels if the program was read from the text of a tile stage.

    `measured` maps the names of kernels to measured seconds. If `measured` is a `Measured` object of another
    compilation, the measured seconds are ignored.
    """
    programs, sizes = compiled.value("tile.target"), compiled.context.sizes
    plan = programs.plan
    buffers = (*plan.inputs, *plan.outputs, *plan.temporaries)
    if not plan.kernels or any(s.name not in sizes for b in buffers for e in b.shape for s in e.symbols()):
        return None
    mismatch = measured.mismatch(compiled) if isinstance(measured, Measured) else ""
    needed, times = kernel_work(plan, sizes), {} if mismatch else measured or {}
    rows = [_row(p, needed[p.name], times.get(p.name), compiled.context) for p in programs]
    return Roofline(_graph(compiled, rows), tuple(rows), peak(compiled.context.target), mismatch)


def _row(program: Program, needed: Work, measured: float | None, context: Context) -> Row:
    asked = tile_work(program, context.sizes)
    programs = math.prod(a.tiles.evaluate(context.sizes) for a in program.grid)
    predicted = predicted_seconds(needed, asked, programs, chip_of(context.target))
    return Row(program.name, needed, asked, measured, predicted)


def predicted_seconds(needed: Work, asked: Work, programs: int, chip: Chip) -> float | None:
    """Returns the predicted time of one kernel, or None for a chip whose peak rates are not known.

    `needed`: the bytes that the kernel must move. Bytes that are loaded again count once, because a cache serves
        repeated loads.
    `asked`: the operations that the kernel's tiles compute. Operations for elements past the end of an axis count too.
    `programs`: the number of grid programs of the kernel.
    """
    if chip.peak is None:
        return None
    memory = needed.bytes / (chip.peak.bandwidth * REACHED["memory"])
    units = [n / (chip.peak.rates[u] * REACHED[u]) for u, n in asked.operations.items() if u in chip.peak.rates]
    computing = max(units, default=0.0) * waves(programs, chip)
    return LAUNCH + max(memory, computing)


def waves(programs: int, chip: Chip) -> float:
    """Returns the factor by which idle multiprocessors prolong the work: 1 if all multiprocessors are busy until the
    end.

    For example, the factor is 1 for 132 grid programs on 132 multiprocessors, because all multiprocessors are busy. If
    33 grid programs do the same work, only a quarter of 132 multiprocessors is busy, so the work takes 4 times as long.
    """
    if programs == 0:
        return 0.0
    whole_waves = -(-programs // chip.multiprocessors)
    return whole_waves * chip.multiprocessors / programs


def _sum(times: Sequence[float | None]) -> float | None:
    """Returns the sum of some times, or None if one time is unknown."""
    return None if None in times else sum(t for t in times if t is not None)


def _graph(compiled: Compilation, rows: list[Row]) -> Row:
    """Makes the row of the roofline table for the whole graph."""
    start = compiled.context.start
    # a program that was read from the text of kernels has no graph: the row is the sum over all kernels
    if start is not None and not start.stage.startswith("graph"):
        return Row("all", together(r.needed for r in rows))
    return Row("graph", graph_work(compiled.value("graph.simplified"), compiled.context.sizes))


def _title(chip: Peak | None) -> str:
    if chip is None:
        return "bytes and operations (of this target's chip no peak rates are known here)"
    rates = ", ".join(f"{chip.rates[u] / 1e12:.3g} TFLOP/s {u}" for u in ("f16", "f32"))
    return f"{chip.name}: {chip.bandwidth / 1e12:.3g} TB/s, {rates}"


def _cells(row: Row, chip: Peak | None, measured: bool) -> tuple[str, ...]:
    bound, floor = row.floor(chip) if chip else ("", 0.0)
    asked = (byte_size(row.asked.bytes), _count(row.asked.total)) if row.asked else ("", "")
    reached = (_time(row.measured), f"{floor / row.measured:.0%}" if chip and row.measured else "")
    return (
        row.name, byte_size(row.needed.bytes), asked[0], _count(row.needed.total), asked[1],
        f"{row.needed.intensity:,.{0 if row.needed.intensity >= 100 else 2}f}", bound, _time(floor if chip else None),
        _time(row.predicted), *(reached if measured else ()),
    )  # fmt: skip


def _count(number: float) -> str:
    """Formats a number with at most three digits and a unit prefix, such as `1.5 M`."""
    for unit in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} T"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"
