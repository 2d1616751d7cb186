"""Measures where the time of a program goes, and prints one row for each kernel.

    print(profile(program, x, w))

    relu_matmul on cuda:0: 0.412 ms a call, 2 kernels
    kernel  launches  programs  warps      time     bytes    GB/s  share
    k0             1       512      8  0.288 ms  100.7 MB   349.5  69.7%
    k1             1     16384      4  0.125 ms   67.1 MB   536.9  30.3%

The function `profile` takes a program and the arrays of a call, and returns a `Profile`. Each kernel is launched many
times without the other kernels, on the inputs and temporaries of the call. No kernel overwrites the data that it reads,
so repeated launches of a kernel compute the same results. The file runtime/timing.py describes how a launch is timed.
The title of the printed table shows the time of whole calls.

The column `bytes` counts the bytes that a kernel must read and write (kernels/memory_traffic.py). If the column `GB/s`
is close to the bandwidth of the memory, the kernel cannot become much faster.
"""

from typing import Any

from minitri.base.nodes import Record
from minitri.base.text_tables import byte_size, milliseconds, table
from minitri.base.tracebacks import hides_frames
from minitri.hardware.roofline import Measured
from minitri.kernels.memory_traffic import traffic
from minitri.notebook.card_html import card, counted
from minitri.program import Program
from minitri.runtime.launch import Bound, launcher, target_of
from minitri.runtime.timing import Timing, measure, time_call

__all__ = ["KernelTime", "Profile", "Timing", "profile", "time_call"]

HEAD = ("kernel", "launches", "programs", "warps", "time", "bytes", "GB/s", "share")


class KernelTime(Record):
    """The measured times of one kernel.

    `programs`: the number of grid programs of one launch.
    `bytes`: the bytes that one launch must read and write. 0 for a program that was read from a tile stage, because
        the bytes are then unknown.
    """

    name: str
    programs: int
    warps: int
    timing: Timing
    bytes: int

    @property
    def launches(self) -> int:
        """How often a call launches the kernel: once, or 0 times if the grid is empty. The grid is empty if an array
        has no elements.
        """
        return int(self.programs > 0)

    @property
    def seconds(self) -> float:
        return self.timing.median * self.launches

    @property
    def bandwidth(self) -> float:
        """The bytes that the kernel reads and writes, per second."""
        return self.bytes / self.seconds if self.seconds else 0.0


class Profile(Record):
    program: str
    device: str
    kernels: tuple[KernelTime, ...]
    total: Timing
    measured: Measured  # seconds by kernel, as `Program.explain` takes them

    def share(self, kernel: KernelTime) -> float:
        """The time of a kernel as a fraction of the time of all kernels, from 0 to 1."""
        return kernel.seconds / (sum(k.seconds for k in self.kernels) or 1)

    def __str__(self) -> str:
        return f"{self.program} {self._summary}\n{table(self._rows)}"

    def _repr_html_(self) -> str:
        return card(self.program, facts=self._summary, rows=self._rows)

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [HEAD, *map(self._row, self.kernels)]

    @property
    def _summary(self) -> str:
        where = "Triton's interpreter on the CPU" if self.device == "cpu" else self.device
        return f"on {where}: {milliseconds(self.total.median)} a call, {counted(len(self.kernels), 'kernel')}"

    def _row(self, k: KernelTime) -> tuple[str, ...]:
        moved = byte_size(k.bytes) if k.bytes or not k.programs else "-"
        rate = f"{k.bandwidth / 1e9:{'.3g' if k.bandwidth < 1e11 else '.0f'}}"
        counts = (str(k.launches), str(k.programs), str(k.warps))
        return (k.name, *counts, milliseconds(k.seconds), moved, rate, f"{self.share(k):.1%}")


@hides_frames
def profile(program: Program, *arrays: Any, repeats: int = 20, warmup: int = 3, **named: Any) -> Profile:
    """Measures the time of each kernel of `program(*arrays, **named)`, and the time of whole calls.

    `repeats`: the number of measurements of each kernel. The median of the measurements is reported.
    `warmup`: the number of runs of each kernel before its measurement.

    Raises the same errors as the call `program(*arrays, **named)`.
    """
    run, call = program.prepare(*arrays, **named)
    moved = {t.kernel: t.total for t in traffic(run.plan, call.sizes)}
    kernels: list[KernelTime] = []
    for launch in Bound(run, call).launches:  # in order: each finds the temporaries that it reads
        k, timing = launch.step.kernel, measure(launcher([launch], call), call.device, repeats, max(1, warmup))
        kernels.append(KernelTime(k.name, launch.programs, k.program.warps, timing, moved.get(k.name, 0)))
    total = measure(lambda: program(*arrays, **named), call.device, repeats, warmup)
    seconds = {k.name: k.seconds for k in kernels}
    measured = Measured(seconds, target_of(call.device), call.sizes, {s.kernel.name: s.kernel for s in run.steps})
    return Profile(program.name, call.device, tuple(kernels), total, measured)
