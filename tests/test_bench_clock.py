"""The clock of the benchmark, with a simulated host and GPU whose times are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from minitri.bench import alternating_timer
from minitri.bench.alternating_timer import LEAST, MOST_SPINS, SPIN, Pace, Run, alternating_times

US, MS = 1e-6, 1e-3
PACE = Pace(25 * MS)


class HostClock:
    """Stands for the module `time`: every clock of it shows the time of a simulated host."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __getattr__(self, name: str) -> Callable[[], float]:
        return lambda: self.machine.host


class Machine:
    """A host that queues work and a GPU that runs it later. `log` lists the queued work in order.

    `times` is `alternating_times` with this machine in place of `torch.cuda` and of the host's clock.
    """

    def __init__(self) -> None:
        self.host = self.gpu = self.heat = 0.0
        self.log: list[str] = []

    def work(self, host: float, gpu: float) -> None:
        self.host += host
        self.gpu = max(self.gpu, self.host) + gpu

    def times(self, peers: Mapping[str, Sequence[Run]], pace: Pace = PACE) -> dict[str, float | Exception]:
        torch_here, clock = SimpleNamespace(cuda=self), HostClock(self)
        with patch.object(alternating_timer, "torch", torch_here), patch.object(alternating_timer, "time", clock):
            return alternating_times(peers, pace)

    def _sleep(self, cycles: int) -> None:
        self.log.append("spin")
        self.work(2 * US, SPIN)

    def Event(self, enable_timing: bool) -> MachineEvent:
        assert enable_timing
        return MachineEvent(self)

    def synchronize(self) -> None:
        self.log.append("wait")
        self.host = self.gpu = max(self.host, self.gpu)

    def peer(self, name: str, gpu: float | Callable[[], float], host: float = 5 * US, kernels: int = 1, sets: int = 1
             ) -> list[Run]:  # fmt: skip
        """Calls that launch `kernels` kernels. `gpu` and `host` are the seconds of each kernel."""

        def call(which: int) -> str:
            self.log.append(f"{name}{which}")
            for _ in range(kernels):
                self.work(host, gpu() if callable(gpu) else gpu)
            return name

        return [lambda which=which: call(which) for which in range(sets)]

    @property
    def called(self) -> list[str]:
        return [entry for entry in self.log if entry not in ("spin", "mark", "wait")]

    @property
    def turns(self) -> str:
        return "".join(name for name, _ in groupby(entry[0] for entry in self.called))


class MachineEvent:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def record(self) -> None:
        self.machine.log.append("mark")
        self.machine.work(1 * US, 0.0)
        self.at = self.machine.gpu

    def elapsed_time(self, end: MachineEvent) -> float:
        return (end.at - self.at) / MS


def test_the_median_is_the_time_of_the_gpu() -> None:
    m = Machine()
    found = m.times({"a": m.peer("a", 10 * US), "b": m.peer("b", 3 * MS)})
    assert found["a"] == pytest.approx(10 * US) and found["b"] == pytest.approx(3 * MS)


@pytest.mark.parametrize(("host", "kernels"), [(5 * US, 12), (45 * US, 1), (130 * US, 1), (30 * US, 40)])
def test_a_slow_host_is_not_timed(host: float, kernels: int) -> None:
    m = Machine()
    found = m.times({"a": m.peer("a", 2 * US, host, kernels)})
    assert found["a"] == pytest.approx(2 * US * kernels)


def test_without_the_spin_a_slow_host_would_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "_sleep", lambda self, cycles: None)
    m = Machine()
    found = m.times({"a": m.peer("a", 2 * US, 5 * US, 12)})
    assert isinstance(found["a"], float) and found["a"] > 50 * US


def test_every_timed_call_follows_a_spin_and_is_between_two_marks() -> None:
    m = Machine()
    m.times({"a": m.peer("a", 1 * MS)})
    spins = [k for k, entry in enumerate(m.log) if entry == "spin"]
    assert len(spins) >= 2 * 40
    assert all(m.log[k : k + 4] == ["spin", "mark", "a0", "mark"] for k in spins)


@pytest.mark.parametrize("host, gpu, spins", [
    (5 * US, 1 * MS, 1), (130 * US, 2 * US, 2), (130 * US, 120 * US, 1), (130 * US, 1 * MS, 1), (390 * US, 10 * US, 6),
])  # fmt: skip
def test_the_gpu_spins_for_as_long_as_the_host_needs(host: float, gpu: float, spins: int) -> None:
    """All peers have the same spin, since a chip that idles computes faster. Long calls need no longer spin."""
    m = Machine()
    found = m.times({"a": m.peer("a", 1 * MS), "b": m.peer("b", gpu, host)})
    assert found == {"a": pytest.approx(1 * MS), "b": pytest.approx(gpu)}
    assert {len(list(group)) for entry, group in groupby(m.log) if entry == "spin"} == {spins}


def test_a_host_that_waits_for_the_gpu_is_timed() -> None:
    m = Machine()
    m.times({"a": m.peer("a", 10 * US, 20 * MS)})
    assert {len(list(group)) for entry, group in groupby(m.log) if entry == "spin"} == {MOST_SPINS}


def test_a_host_that_is_slow_only_at_first_does_not_count() -> None:
    m = Machine()
    slow = m.peer("a", 10 * US, 2 * MS)
    quick = m.peer("a", 10 * US)
    m.times({"a": [lambda: (slow if len(m.called) < 3 else quick)[0]()]})
    assert {len(list(group)) for entry, group in groupby(m.log) if entry == "spin"} == {1}


def test_peers_run_in_order_and_then_in_reverse() -> None:
    m = Machine()
    m.times({name: m.peer(name, 1 * MS) for name in "abc"})
    assert m.turns == "abcabcba"  # first the host times; then two runs of c are neighbours
    assert m.called.count("a0") == pytest.approx(m.called.count("c0"), rel=0.3)


def test_a_chip_that_gets_slower_is_fair_to_all() -> None:
    """The chip ends 2.7 times as slow as it began. With the same order twice, equal peers would differ by 1.46."""
    m = Machine()

    def slower() -> float:
        return MS * (1 + m.gpu / 0.5)

    found = m.times({name: m.peer(name, slower) for name in "abcd"})
    times = [t for t in found.values() if isinstance(t, float)]
    assert len(times) == 4 and 1 + m.gpu / 0.5 > 2.5
    assert max(times) / min(times) < 1.06


@pytest.mark.parametrize(("warm_up", "expected"), [(100 * MS, 1.2 * MS), (0.0, 1.0 * MS)])
def test_a_chip_is_timed_after_it_reached_its_power_limit(warm_up: float, expected: float) -> None:
    """After a tenth of a second of calls the chip is a fifth slower. Without a warm-up it would be timed before that."""
    m = Machine()

    def call() -> float:
        m.heat += MS
        return 1.2 * MS if m.heat > 0.08 else MS

    found = m.times({"a": m.peer("a", call)}, Pace(warm_up, 30 * MS))
    assert found["a"] == pytest.approx(expected)


WARM = 23  # calls of a millisecond, each after a spin, within 25 ms
TIMED = 46  # within 50 ms


def test_a_warm_up_runs_the_timed_calls_long_enough() -> None:
    m = Machine()
    m.times({"a": m.peer("a", 1 * MS), "b": m.peer("b", 1 * MS)})
    counted = [text.count("spin mark a0 mark") for text in " ".join(m.log).split("wait")]
    assert [n for n in counted if n] == [WARM + TIMED] * 2


def test_a_peer_that_is_still_warm_has_no_second_warm_up() -> None:
    m = Machine()
    m.times({"a": m.peer("a", 1 * MS)})
    assert m.log.count("spin") == WARM + 2 * TIMED


def test_slow_calls_during_the_warm_up_do_not_count() -> None:
    m = Machine()
    calls = 0

    def call() -> float:
        nonlocal calls
        calls += 1
        return 1 * MS if calls > 9 + 9 + 60 else 3 * MS  # calls for host time and length, then most of the warm-up

    assert m.times({"a": m.peer("a", call)}, Pace(200 * MS))["a"] == pytest.approx(1 * MS)
    assert calls == 9 + 9 + 65 + 2 * 17  # at 3.1 ms each: 65 in 200 ms, 17 in 50 ms


def test_sets_of_inputs_alternate() -> None:
    m = Machine()
    m.times({"a": m.peer("a", 1 * MS, sets=4), "b": m.peer("b", 1 * MS)})
    turns = [list(group) for name, group in groupby(m.called, key=lambda entry: entry[0]) if name == "a"]
    assert len(turns) == 3  # the measurement of the host time, and two of the call
    for calls in (turn[9:] for turn in turns[1:]):  # after the calls that measure the length
        assert len(calls) > 50 and all(len(set(calls[k : k + 4])) == 4 for k in range(len(calls) - 3))


def test_results_stay_until_their_set_comes_again() -> None:
    """Otherwise a call would write to memory that is in the cache because of the call before."""
    m, alive, most = Machine(), 0, 0

    class Result:
        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            m.work(5 * US, 1 * MS)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    m.times({"a": [Result] * 4, "b": [Result] * 4})
    assert most == 5 and alive == 0


def test_long_calls_are_repeated_a_few_times_and_short_ones_for_a_while() -> None:
    m = Machine()
    m.times({"a": m.peer("a", 100 * MS)}, Pace(0.0))
    assert m.log.count("spin") == 2 * LEAST
    m = Machine()
    m.times({"a": m.peer("a", 20 * US)}, Pace(0.0))
    assert m.log.count("spin") * (SPIN + 20 * US) == pytest.approx(2 * PACE.timed, rel=0.05)
    m = Machine()
    m.times({"a": m.peer("a", 20 * US, 130 * US)}, Pace(0.0))
    assert m.log.count("spin") / 2 * (2 * SPIN + 130 * US) == pytest.approx(2 * PACE.timed, rel=0.05)


def test_a_peer_that_fails_is_not_called_again() -> None:
    m, left = Machine(), iter(range(30))

    def fails() -> None:
        m.log.append("f0")
        m.work(5 * US, 1 * MS)
        if next(left, None) is None:
            raise RuntimeError("out of memory")

    found = m.times({"a": m.peer("a", MS), "f": [fails], "b": m.peer("b", MS)})
    assert isinstance(found["f"], RuntimeError) and found["f"].__traceback__ is None
    assert m.turns == "afbafba" and found["a"] == found["b"] == pytest.approx(1 * MS)


# ---- torch ---------------------------------------------------------------------------------


class Event:
    """A replacement of torch.cuda.Event without a GPU. Its times are milliseconds."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at: int | None = None

    def record(self) -> None:
        self.at = 7

    def elapsed_time(self, end: Event) -> float:
        assert self.at is not None and end.at is not None
        return 2.5


def test_cuda_uses_only_functions_that_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", asked.append)  # an AttributeError if torch has no `_sleep`
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: asked.append("synchronize"))
    assert alternating_times({"a": [lambda: None]}, PACE) == {"a": pytest.approx(2.5 * MS)}
    assert set(asked) == {alternating_timer.SPIN_CYCLES, "synchronize"}


@pytest.mark.gpu
def test_spins_and_small_kernels_on_a_gpu() -> None:
    """Compares one spin with two. The time of many small kernels is less than the time to launch them."""
    x = torch.zeros(1024, device="cuda")

    def spins(n: int) -> Run:
        return lambda: [torch.cuda._sleep(1_000_000) for _ in range(n)]

    def small() -> None:
        for _ in range(10):
            x.add_(1)

    peers: dict[str, Sequence[Run]] = {"one": [spins(1)], "two": [spins(2)], "small": [small]}
    found = alternating_times(peers, PACE)
    one, two, many = (found[name] for name in peers)
    assert isinstance(one, float) and isinstance(two, float) and isinstance(many, float)
    assert 1.7 < two / one < 2.3 and 5 * US < many < 100 * US
