"""Worker processes: each gets one seed after another, and is watched while it runs.

In: the number of workers, what they run on, and a function that returns the next seed or None. Out: their answers
as they come. If a worker dies or gives no answer for too long, the answer has the `kind` "crash" or "hang", and a
new worker starts.

Each worker has a thread that waits for its answers. Left out: what a worker does with a seed (worker.py), and how
answers are counted (session.py).
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from minitri.base.child_process import Child, environment

LIMIT = 300.0  # seconds that one program may take
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "minitri.fuzz.worker")

Next = Callable[[], int | None]
Answer = dict[str, Any]


def answers(jobs: int, on: str, following: Next) -> Iterator[Answer | None]:
    """Yields answers as they come, and None at least twice a second while there are none.

    Closing the generator ends the worker processes.
    """
    workers = _Workers(on, following)
    threads = [threading.Thread(target=workers.work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        while any(t.is_alive() for t in threads) or not workers.found.empty():
            try:
                yield workers.found.get(timeout=0.5)
            except queue.Empty:
                yield None
    finally:
        workers.end()


class _Workers:
    """What the threads share: the seeds, the answers, the processes. `lock` guards the seeds and the processes."""

    def __init__(self, on: str, following: Next) -> None:
        self.on, self.following = on, following
        self.found: queue.Queue[Answer] = queue.Queue()
        self.children: list[Child] = []
        self.lock, self.ended = threading.Lock(), False

    def work(self) -> None:
        """Runs one worker: it asks for seed after seed, and starts a new process if the old one has ended."""
        child: Child | None = None
        while (seed := self._next()) is not None:
            child = child or self._child()
            answer = _answer(child, seed)
            if answer.get("kind") in ("crash", "hang") or answer.get("lost"):
                child.end()
                child = None
            self.found.put(answer)

    def end(self) -> None:
        with self.lock:
            self.ended = True
            for child in self.children:
                child.end()

    def _next(self) -> int | None:
        with self.lock:
            return None if self.ended else self.following()

    def _child(self) -> Child:
        """A new process, without environment variables TRITON_*, which would change what is tested."""
        with self.lock:
            self.children.append(Child((*COMMAND, self.on), environment("TRITON_"), keep_stderr=True))
            return self.children[-1]


def _answer(child: Child, seed: int) -> Answer:
    """The process's answer for a seed, or how the process ended."""
    try:
        return child.ask(seed, LIMIT)
    except TimeoutError:
        kind, said = "hang", f"no answer within {LIMIT:g} s"
    except (OSError, EOFError, ValueError):
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(timeout=5)  # its exit status may be a moment late
        kind, said = "crash", f"the process ended with {child.process.returncode}"
    last = child.end().strip().splitlines()[:20]
    return {"seed": seed, "stages": 0, "pairs": 0, "refused": 0, "kind": kind, "said": "\n".join([said, *last])}
