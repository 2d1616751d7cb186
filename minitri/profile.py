"""Where the time of a program goes: one row a kernel.

    print(profile(program, x, w))

    relu_matmul on cuda:0: 0.412 ms a call, 2 kernels
    kernel  launches  programs  warps      time     bytes    GB/s  share
    k0             1       512      8  0.288 ms  100.7 MB   349.5  69.7%
    k1             1     16384      4  0.125 ms   67.1 MB   536.9  30.3%

In: a program and arrays to call it with. Out: a `Profile`. Each kernel is launched many times by itself, on the inputs and
temporaries of the call. No kernel reads its own results, so repeated launches compute the same. runtime/timing.py has
the warm-up, the synchronisation and the clocks. The title has the time of whole calls.

The column of bytes counts what a kernel must move (kernels/memory_traffic.py). If its GB/s is near the rate of the
memory, the kernel cannot become much faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minitri.base.text_tables import byte_size, milliseconds, table
from minitri.base.tracebacks import hides_frames
from minitri.hardware.roofline import Measured
from minitri.kernels.memory_traffic import traffic
from minitri.notebook.html import card, counted
from minitri.program import Program
from minitri.runtime.binding import Call
from minitri.runtime.device_transfer import target_of
from minitri.runtime.launch import Executable, Launch, on_device
from minitri.runtime.timing import Timing, measure, time_call

__all__ = ["KernelTime", "Profile", "Timing", "profile", "time_call"]

HEAD = ("kernel", "launches", "programs", "warps", "time", "bytes", "GB/s", "share")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The times of one kernel.

    programs   number of programs in a launch
    bytes      what a launch must read and write; 0 if it is not known, as for a program that begins at tiles
    """

    name: str
    programs: int
    warps: int
    timing: Timing
    bytes: int

    @property
    def launches(self) -> int:
        """0 for a kernel of an empty array, which has no programs; else 1."""
        return 1 if self.programs else 0

    @property
    def seconds(self) -> float:
        return self.timing.median * self.launches

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    program: str
    device: str
    kernels: tuple[KernelTime, ...]
    total: Timing
    measured: Measured  # seconds by kernel, as `Program.explain` takes them

    def share(self, kernel: KernelTime) -> float:
        """The time of a kernel as a fraction of the time of all kernels, from 0 to 1."""
        seconds = sum(k.seconds for k in self.kernels)
        return kernel.seconds / seconds if seconds else 0.0

    def __str__(self) -> str:
        return f"{self.program} {self._summary}\n{table([HEAD, *map(self._row, self.kernels)])}"

    def _repr_html_(self) -> str:
        return card(self.program, facts=self._summary, rows=[HEAD, *map(self._row, self.kernels)])

    @property
    def _summary(self) -> str:
        where = "Triton's interpreter on the CPU" if self.device == "cpu" else self.device
        return f"on {where}: {milliseconds(self.total.median)} a call, {counted(len(self.kernels), 'kernel')}"

    def _row(self, k: KernelTime) -> tuple[str, ...]:
        return (
            k.name, str(k.launches), str(k.programs), str(k.warps), milliseconds(k.seconds), byte_size(k.bytes) if k.bytes or not k.programs else "-",
            f"{k.bandwidth / 1e9:.3g}" if k.bandwidth < 1e11 else f"{k.bandwidth / 1e9:.0f}", f"{self.share(k):.1%}",
        )  # fmt: skip


@hides_frames
def profile(program: Program, *arrays: Any, repeats: int = 20, warmup: int = 3, **named: Any) -> Profile:
    """Times each kernel of `program(*arrays, **named)`, and whole calls.

    repeats   measured runs of each; the median counts
    warmup    runs before them that are not measured
    Raises what a call of the program raises.
    """
    run, call = program.prepare(*arrays, **named)
    kernels = _kernels(run, call, repeats, warmup)
    total = measure(lambda: program(*arrays, **named), call.device, repeats, warmup)
    seconds = {k.name: k.seconds for k in kernels}
    measured = Measured(seconds, target_of(call.device), call.sizes, {s.kernel.name: s.kernel for s in run.steps})
    return Profile(program.name, call.device, kernels, total, measured)


def _kernels(run: Executable, call: Call, repeats: int, warmup: int) -> tuple[KernelTime, ...]:
    """Times kernels in the order of a call, so that each one finds the temporaries that it reads."""
    moved = {t.kernel: t.total for t in traffic(run.plan, call.sizes)}
    with on_device(call.model):
        launches = run.launches(call, run.memory(call))
        return tuple(_row(x, measure(x, call.device, repeats, max(1, warmup)), moved) for x in launches)


def _row(launch: Launch, timing: Timing, moved: Mapping[str, int]) -> KernelTime:
    kernel = launch.step.kernel
    return KernelTime(kernel.name, launch.programs, kernel.warps, timing, moved.get(kernel.name, 0))
