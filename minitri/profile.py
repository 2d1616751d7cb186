"""Where the time of a program goes: one row a kernel.

    print(profile(program, x, w))

    relu_matmul on cuda:0: 0.412 ms a call, 2 kernels
    kernel  launches  programs  warps      time     bytes    GB/s  share
    k0             1       512      8  0.288 ms  100.7 MB   349.5  69.7%
    k1             1     16384      4  0.125 ms   67.1 MB   536.9  30.3%

In: a program and arrays to call it with. Out: a `Profile`. Each kernel is launched by itself on the program's own
inputs and temporaries, again and again. No kernel reads its own results, so that changes nothing. runtime/timing.py has
the warm-up, the synchronisation and the clocks. Bytes are the bytes that a kernel cannot avoid
(kernels/memory_traffic.py): if GB/s is near the memory's rate, nothing is left to gain. The title has the time of whole
calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minitri.base.tables import byte_size, milliseconds, table
from minitri.hardware.roofline import Measured
from minitri.kernels.memory_traffic import traffic
from minitri.program import Program
from minitri.runtime.binding import Call
from minitri.runtime.devices import target_of
from minitri.runtime.launch import Executable, Launch, on_device
from minitri.runtime.timing import Timing, measure, time_call

__all__ = ["KernelTime", "Profile", "Timing", "profile", "time_call"]

HEAD = ("kernel", "launches", "programs", "warps", "time", "bytes", "GB/s", "share")


@dataclass(frozen=True, slots=True)
class KernelTime:
    """`programs`: how many run in a launch; `bytes`: what it must read and write, 0 where nobody says: in a text of tiles."""

    name: str
    programs: int
    warps: int
    timing: Timing
    bytes: int

    @property
    def launches(self) -> int:
        """A kernel without programs, of an empty array, is not launched."""
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
        """The part of all kernels' time that one takes."""
        seconds = sum(k.seconds for k in self.kernels)
        return kernel.seconds / seconds if seconds else 0.0

    def __str__(self) -> str:
        where = "Triton's interpreter on the CPU" if self.device == "cpu" else self.device
        count = f"{len(self.kernels)} kernel{'' if len(self.kernels) == 1 else 's'}"
        title = f"{self.program} on {where}: {milliseconds(self.total.median)} a call, {count}"
        return f"{title}\n{table([HEAD, *map(self._row, self.kernels)])}"

    def _row(self, k: KernelTime) -> tuple[str, ...]:
        return (
            k.name, str(k.launches), str(k.programs), str(k.warps), milliseconds(k.seconds), byte_size(k.bytes) if k.bytes or not k.programs else "-",
            f"{k.bandwidth / 1e9:.3g}" if k.bandwidth < 1e11 else f"{k.bandwidth / 1e9:.0f}", f"{self.share(k):.1%}",
        )  # fmt: skip


def profile(program: Program, *arrays: Any, repeats: int = 20, warmup: int = 3, **named: Any) -> Profile:
    """Times each kernel of `program(*arrays, **named)`, and whole calls."""
    run, call = program.prepare(*arrays, **named)
    device = "cpu" if run.interpreted or call.model is None else call.model.device
    kernels = _kernels(run, call, device, repeats, warmup)
    total = measure(lambda: program(*arrays, **named), device, repeats, warmup)
    seconds = {k.name: k.seconds for k in kernels}
    measured = Measured(seconds, target_of(device), call.sizes, {s.kernel.name: s.kernel for s in run.steps})
    return Profile(program.name, device, kernels, total, measured)


def _kernels(run: Executable, call: Call, device: str, repeats: int, warmup: int) -> tuple[KernelTime, ...]:
    """In order, so that each finds the temporaries that those before it have written."""
    moved = {t.kernel: t.total for t in traffic(run.plan, call.sizes)}
    with on_device(call.model):
        launches = run.launches(call, run.memory(call))
        return tuple(_row(x, measure(x, device, repeats, max(1, warmup)), moved) for x in launches)


def _row(launch: Launch, timing: Timing, moved: Mapping[str, int]) -> KernelTime:
    kernel = launch.step.kernel
    return KernelTime(kernel.name, launch.programs, kernel.warps, timing, moved.get(kernel.name, 0))
