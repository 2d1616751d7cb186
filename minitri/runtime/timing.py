"""Measures how long a call takes.

The function `measure` takes a function to call, and a device. The returned `Timing` has the seconds of each repetition.
A call on a GPU returns before the work is done, so events on the CUDA stream measure the time. A call that finds its
inputs in the L2 cache would be unusually fast, so the cache is filled with other data before each repetition. The host
issues the call while the GPU is busy filling the cache, so only GPU time is measured. The timer fills the L2 cache by
reading. If the timer filled the cache by writing, the GPU would copy the written data to memory during the call. On a
CPU, a wall clock measures the time. On a GPU and on a CPU, a warm-up comes first, because the first call of a program
compiles the program.

On a GPU, the measured time does not include the time that the host needs for a call. To measure the host's time, call
the result of `program.bind(...)` on tiny arrays: the GPU then has almost nothing to do.
"""

import statistics
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

from minitri.base.text_tables import milliseconds
from minitri.runtime.gpu_launcher import finish_launchers

CACHE_BYTES = 256 << 20  # bytes: more than the L2 cache of any GPU


class Timing(NamedTuple):
    """The time of each repetition of a call in seconds, and the name of the device, such as "cuda:0" or "cpu"."""

    seconds: tuple[float, ...]
    device: str

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        spread = f"{milliseconds(low)} to {milliseconds(high)} in {len(self.seconds)} runs"
        return f"{milliseconds(self.median)} ({spread}, on {self.device})"


def time_call(function: Callable[..., Any], *args: Any, repeats: int = 20, warmup: int = 3, **keywords: Any) -> Timing:
    """Measures the time of `function(*args, **keywords)`.

    The call runs on a GPU if an argument is a CUDA tensor.
    """
    devices = (str(a.device) for a in (*args, *keywords.values()) if getattr(a, "is_cuda", False))
    return measure(lambda: function(*args, **keywords), next(devices, "cpu"), repeats, warmup)


def measure(run: Callable[[], Any], device: str, repeats: int = 20, warmup: int = 3) -> Timing:
    """Measures how long calls of `run` take on `device`. Raises ValueError if `repeats` is less than 1."""
    if repeats < 1:
        raise ValueError("nothing is measured in less than one repetition")
    for _ in range(warmup):
        run()
    finish_launchers()
    seconds = timeit.repeat(run, number=1, repeat=repeats) if device == "cpu" else _events(run, device, repeats)
    return Timing(tuple(seconds), device)


def _events(run: Callable[[], Any], device: str, repeats: int) -> list[float]:
    import torch

    with torch.cuda.device(device):
        other = torch.empty(CACHE_BYTES // 4, dtype=torch.float32, device=device)
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, end in marks:
            other.amax()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize(device)
        return [start.elapsed_time(end) * 1e-3 for start, end in marks]
