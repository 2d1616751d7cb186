"""Worker processes: each gets one seed after another, and is watched while it runs.

In: the number of workers, the processor that they run on ("cpu" or "gpu"), and the seeds. Out: the answers of the
workers in the order in which they arrive. If a worker dies or gives no answer for too long, the answer has the `kind`
"crash" or "hang", and a new worker starts.

A thread waits for each answer. Left out: what a worker does with a seed (worker.py), and how answers are counted
(session.py).
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from minitri.base.json_child_process import Child, environment

LIMIT = 300.0  # seconds that one program may take
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "minitri.fuzz.worker")

Answer = dict[str, Any]


def answers(jobs: int, on: str, seeds: Iterator[int]) -> Iterator[Answer | None]:
    """Yields answers of the workers when they arrive, and None at least twice a second while there are no answers.

    Closing the generator `answers` ends the worker processes.
    """
    workers = [_Worker(on) for _ in range(jobs)]
    idle, busy = list(workers), dict[Future[Answer], _Worker]()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                while idle and (seed := next(seeds, None)) is not None:
                    worker = idle.pop()
                    busy[pool.submit(worker.answer, seed)] = worker
                if not busy:
                    return
                done, _ = wait(busy, 0.5, FIRST_COMPLETED)
                idle += [busy.pop(future) for future in done]
                yield from [future.result() for future in done] or [None]
        finally:
            for worker in workers:
                worker.end()


class _Worker:
    """A worker process, which starts with the first seed, and again after a crash or a hang."""

    def __init__(self, on: str) -> None:
        self.on = on
        self.child: Child | None = None
        self.ended = False

    def answer(self, seed: int) -> Answer:
        """Returns the process's answer for a seed, or how the process ended."""
        if self.child is None:  # environment variables TRITON_* would change what is tested
            self.child = Child((*COMMAND, self.on), environment("TRITON_"), keep_stderr=True)
        child = self.child
        if self.ended:
            child.end()
        try:
            found = child.ask(seed, LIMIT)
        except TimeoutError:
            return self._failure(child, seed, "hang", f"no answer within {LIMIT:g} s")
        except (OSError, EOFError, ValueError):
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=5)  # its exit status may be a moment late
            return self._failure(child, seed, "crash", f"the process ended with {child.process.returncode}")
        if found.get("lost"):
            child.end()
            self.child = None
        return found

    def _failure(self, child: Child, seed: int, kind: str, said: str) -> Answer:
        self.child = None
        last = child.end().strip().splitlines()[:20]
        return {"seed": seed, "stages": 0, "pairs": 0, "refused": 0, "kind": kind, "said": "\n".join([said, *last])}

    def end(self) -> None:
        self.ended = True
        if self.child is not None:
            self.child.end()
