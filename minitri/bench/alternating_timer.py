"""Times calls on a GPU: implementations alternate, each call gets new inputs, and two events record when a call starts
and ends.

The function `alternating_times` takes the calls of each implementation, one call for each set of inputs. The argument
`pace` of `alternating_times` sets the durations of the warm-up and the measurement. `alternating_times` returns the
median time of a call of each implementation, in seconds. If an implementation raises an exception, `alternating_times`
returns the exception instead of a time.

    order        a b c, then c b a: if the chip slows down, the later implementations do not suffer more
    measurement  spin mark call mark, spin mark call mark, …; more spins if the host is slow to queue a call
    warm-up      the first calls of a measurement do not count. A kernel that computes a lot reaches the chip's
                 power limit: its clock rate falls for about a tenth of a second, and then stays the same

The calls of an implementation use the sets of inputs in a cycle: the first set follows the last set. The timer keeps
each result in memory until the next call with the same set of inputs. Before a set of inputs is used again, calls with
the other sets have pushed this set and its result out of the L2 cache (measure_case.py). The timer does not clear the
L2 cache by writing zeros to it, because the GPU would write the zeros back to memory during the call. Copying zeros
from the cache to memory would slow down a kernel that mostly reads.

Before each call, the GPU waits in a loop ("spins"), without touching memory. While the GPU spins, the host queues the
call, so the measured time of the call does not include the host's time. The file call_costs.py measures the host's time
of a call.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

import torch

from minitri.runtime.gpu_launcher import finish_launchers

Run = Callable[[], Any]
Calls = Sequence[Run]  # the calls of one implementation: one call for each set of inputs
Times = Mapping[str, "float | Exception"]

SPIN_CYCLES = 200_000
SPIN = 100e-6  # seconds that a spin takes at 2 GHz
SLACK = 1.5  # the host also queues a spin and two marks for each call
MOST_SPINS = 20  # a host that needs more spins is waiting for the GPU, so more spins would not help
LEAST = 5  # least number of calls in a measurement


class Pace(NamedTuple):
    """How long the warm-up and the measurement of a call last, in seconds.

    Both times include the pauses between calls, in which the GPU waits in a loop.
    """

    warm_up: float
    timed: float = 50e-3


Clock = Callable[[Mapping[str, Calls], Pace], Times]


def alternating_times(peers: Mapping[str, Calls], pace: Pace) -> dict[str, float | Exception]:
    """Returns the median time of a call of each implementation, in seconds, or the exception that the implementation
    raised.

    All implementations are measured in the given order, and then once more in reverse order. The last implementation is
    measured twice in succession, the second time without a warm-up. After an implementation has failed, it is not
    measured again. Before each call, the GPU waits in a spin loop, which is equally long for all implementations. If
    one implementation had longer pauses between its calls than the others, the chip would compute faster for this
    implementation. Before each call, the GPU is kept busy at least as long as the CPU needs to queue a call of any
    implementation.
    """
    finish_launchers()
    each = {name: _Peer(calls) for name, calls in peers.items()}
    for peer in each.values():
        peer.attempt(peer.find_spins)
    spins = max((peer.spins for peer in each.values()), default=1)
    turns = [*each, *reversed(each)]
    for before, name in zip([None, *turns], turns):
        each[name].attempt(each[name].measure, pace._replace(warm_up=0.0) if name == before else pace, spins)
    return {name: peer.result for name, peer in each.items()}


class _Peer:
    """The calls of one implementation, and its measured times."""

    def __init__(self, calls: Calls) -> None:
        # `length` is roughly the time of a call on the host or on the GPU, whichever is longer.
        self.calls, self.length, self.spins = calls, 0.0, 1
        self.seconds: list[float] = []
        self.failed: Exception | None = None

    def find_spins(self) -> None:
        """Computes how many spins (waiting loops on the GPU) last until the host has queued a call."""
        whole, host = _call_seconds(self.calls)
        computing = 3 * (whole - host)  # how long the GPU still runs when the host has queued three calls
        self.spins = min(max(math.ceil((SLACK * host - computing) / SPIN), 1), MOST_SPINS)

    def measure(self, pace: Pace, spins: int) -> None:
        if not self.length:  # timed only now: the chip may have slowed down since `find_spins`
            self.length = max(_call_seconds(self.calls)[0], 1e-6)
        period = spins * SPIN + self.length
        warm = math.ceil(pace.warm_up / period)
        repetitions = max(LEAST, math.ceil(pace.timed / period))
        self.seconds += _timed_calls(self.calls, warm, repetitions, spins)

    def attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """Calls `step` (`find_spins` or `measure`), and stores the exception that it raises, if any. Does nothing if an
        earlier step of this implementation has failed.
        """
        if self.failed is None:
            try:
                step(*arguments)
            except Exception as error:
                self.failed = error.with_traceback(None)  # the frames of the traceback would keep arrays alive

    @property
    def result(self) -> float | Exception:
        return statistics.median(self.seconds) if self.failed is None else self.failed


def _call_seconds(calls: Calls) -> tuple[float, float]:
    """Returns how long a call takes, and how long the host takes to queue the call."""
    rotation, found = cycle(calls), list[tuple[float, float]]()
    for _ in range(3):
        torch.cuda.synchronize()
        start, before = _mark(), time.perf_counter()
        for call in islice(rotation, 3):
            call()
        end, host = _mark(), time.perf_counter() - before
        torch.cuda.synchronize()
        found.append((start.elapsed_time(end) * 1e-3, host))
    whole, host = (min(seconds) / 3 for seconds in zip(*found))  # the shortest batch of three calls
    return whole, host


def _timed_calls(calls: Calls, warm: int, timed: int, spins: int) -> list[float]:
    """Returns the seconds of each timed call, after some warm-up calls."""
    kept = deque[Any](maxlen=len(calls))
    marks: list[tuple[Any, Any]] = []
    for call in islice(cycle(calls), warm + timed):
        for _ in range(spins):
            torch.cuda._sleep(SPIN_CYCLES)  # touches no memory
        start = _mark()
        result = call()
        marks.append((start, _mark()))
        kept.append(result)
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e-3 for start, end in marks[warm:]]


def _mark() -> Any:
    """Records a CUDA event on the current stream, and returns the event."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
