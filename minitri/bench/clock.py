"""How long calls take on a GPU: peers alternate, inputs rotate, and two events enclose each call.

In: for each peer its calls, one for each set of inputs; and a pace: the time of the warm-up and of the measurement.
Out: for each peer the median of its seconds, or why there is none.

    turns        a b c, then c b a    so a chip that gets slower does not harm the later peers
    one turn     spin mark call mark, spin mark call mark, …    more spins where a host takes long to queue a call
    warm-up      the first calls of a turn do not count. A kernel that computes reaches the chip's power limit. Its
                 clock then falls for about a tenth of a second, and stays there while calls and spins follow evenly

Sets of inputs rotate, and a result is kept until its set is used again. There are enough sets (comparison.py) to push
inputs and results of a call out of the L2 cache before its next use. Nothing is cleared. Zeros written over the cache
would still be in it when the call begins. A kernel that mostly reads would pay for writing them back.

While the GPU spins, without touching memory, the host queues the call: its own time is not in the figure.

Left out: what a call costs the host (host.py).
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

from minitri.bench.case import torch

Run = Callable[[], Any]
Calls = Sequence[Run]  # of one peer: the same on each set of inputs
Times = Mapping[str, "float | Exception"]

SPIN_CYCLES = 200_000
SPIN = 100e-6  # seconds of these at 2 GHz
SLACK = 1.5  # times the host's time for a call: it queues a spin and two marks as well
MOST_SPINS = 20  # a host that takes longer waits for the GPU itself, and no spin hides that
LEAST = 5  # repetitions in a turn


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of calls and their spins in each turn: of the warm-up, and of the measurement."""

    warm_up: float
    timed: float = 50e-3


Clock = Callable[[Mapping[str, Calls], Pace], Times]


class Cuda:
    """The current stream of the current GPU: what is put there happens in order, after the host went on."""

    def spin(self) -> None:
        """Keeps the GPU busy for about `SPIN` seconds, without touching memory."""
        torch.cuda._sleep(SPIN_CYCLES)

    def mark(self) -> Any:
        """An event of the moment when all before it is done."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Has the host wait until the stream is empty."""
        torch.cuda.synchronize()

    def seconds(self, start: Any, end: Any) -> float:
        """Between two marks that have been reached."""
        return start.elapsed_time(end) * 1e-3

    def now(self) -> float:
        """The host's clock, in seconds."""
        return time.perf_counter()


def in_turns(peers: Mapping[str, Calls], pace: Pace, device: Cuda) -> dict[str, float | Exception]:
    """Two turns for each peer, the second ones in reverse order: who ends the first ones is still warm. One that fails
    has no more turns. As many spins for all as the slowest host needs: a chip that rests longer computes faster."""
    each = {name: _Peer(calls, device) for name, calls in peers.items()}
    for peer in each.values():
        peer.attempt(peer.count)
    spins = max((peer.spins for peer in each.values()), default=1)
    before = None
    for name in (*each, *reversed(each)):
        each[name].attempt(each[name].turn, replace(pace, warm_up=0.0) if name == before else pace, spins)
        before = name
    return {name: peer.result for name, peer in each.items()}


class _Peer:
    """Calls, and what was found about them. `length`, about the seconds of a call, the host's where it is the slower one,
    stays: both turns weigh the same in the median."""

    def __init__(self, calls: Calls, device: Cuda) -> None:
        self.calls, self.device, self.length, self.spins = calls, device, 0.0, 1
        self.seconds: list[float] = []
        self.failed: Exception | None = None

    def count(self) -> None:
        """How often the GPU has to spin for the host to have the next call in time."""
        whole, host = _lengths(self.calls, self.device)
        computing = 3 * (whole - host)  # what is left of three calls when the host has queued them
        self.spins = min(max(math.ceil((SLACK * host - computing) / SPIN), 1), MOST_SPINS)

    def turn(self, pace: Pace, spins: int) -> None:
        if not self.length:  # found now: the chip may be slower than when hosts were timed
            self.length = max(_lengths(self.calls, self.device)[0], 1e-6)
        period = spins * SPIN + self.length
        warm = math.ceil(pace.warm_up / period)
        repetitions = max(LEAST, math.ceil(pace.timed / period))
        self.seconds += _turn(self.calls, warm, repetitions, spins, self.device)

    def attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """Runs `count` or `turn`, unless one of them has failed."""
        if self.failed is None:
            try:
                step(*arguments)
            except Exception as error:
                self.failed = error.with_traceback(None)  # whose frames would keep arrays

    @property
    def result(self) -> float | Exception:
        return statistics.median(self.seconds) if self.failed is None else self.failed


def _lengths(calls: Calls, device: Cuda) -> tuple[float, float]:
    """Seconds of a call among others, and of the host to queue it: the least of three times three."""
    rotation = cycle(calls)
    found = [_together(list(islice(rotation, 3)), device) for _ in range(3)]
    whole, host = (min(seconds) / 3 for seconds in zip(*found))
    return whole, host


def _together(calls: Calls, device: Cuda) -> tuple[float, float]:
    device.wait()
    start, before = device.mark(), device.now()
    for call in calls:
        call()
    end, host = device.mark(), device.now() - before
    device.wait()
    return device.seconds(start, end), host


def _turn(calls: Calls, warm: int, timed: int, spins: int, device: Cuda) -> list[float]:
    """Seconds of `timed` calls that follow `warm` others like them."""
    kept = deque[Any](maxlen=len(calls))
    marks: list[tuple[Any, Any]] = []
    for call in islice(cycle(calls), warm + timed):
        for _ in range(spins):
            device.spin()
        start = device.mark()
        result = call()
        marks.append((start, device.mark()))
        kept.append(result)
    device.wait()
    return [device.seconds(*pair) for pair in marks[warm:]]
