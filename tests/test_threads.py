"""Threads on a machine without a GPU: Triton's interpreter excludes compilers by a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

import minitri as mt
from minitri.triton.language_lock import LanguageLock

SECONDS = 60.0


def together(*work: Callable[[], None]) -> list[BaseException]:
    """The exceptions of threads that run at the same time."""
    raised: list[BaseException] = []

    def run(each: Callable[[], None]) -> None:
        try:
            each()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(t.is_alive() for t in threads)
    return raised


def test_calls_and_compilers_at_the_same_time() -> None:
    """Afterwards Triton's language functions are unchanged."""
    f = mt.compile("softmax(x)", x="f32[M, N]")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    wanted = f(x)

    def call() -> None:
        for _ in range(25):
            assert np.array_equal(f(x), wanted)

    def compile_() -> None:
        for n in range(3):
            assert "tt.func" in f.lower(M=8, N=500 + n, target="cuda:90")["ttir"]

    assert together(call, call, compile_, call) == []
    assert "tt.func" in f.lower(M=8, N=557, target="cuda:90")["ttir"]


def test_the_interpreter_runs_alone_and_compilers_run_together() -> None:
    lock, inside, seen = LanguageLock(), list[str](), list[tuple[str, ...]]()
    two = threading.Barrier(2, timeout=SECONDS)

    def interpret() -> None:
        for _ in range(20):
            with lock.interpreted(), lock.interpreted():
                inside.append("interpreter")
                seen.append(tuple(inside))
                inside.remove("interpreter")

    def compile_() -> None:
        for _ in range(5):
            with lock.compiled():
                inside.append("compiler")
                two.wait()  # both compilers wait here at the same time, or the test does not end
                seen.append(tuple(inside))
                two.wait()
                inside.remove("compiler")

    assert together(interpret, compile_, compile_, interpret) == []
    assert all(len(there) == 1 for there in seen if "interpreter" in there)
    assert ("compiler", "compiler") in seen
