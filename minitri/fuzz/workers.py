"""Worker processes: they are fed seeds, and watched.

In: how many workers, what they run on, a function that says which seed is next (None: no more).
Out: their answers as they come. A worker that dies or says nothing for too long is an answer as
well (`kind` "crash" or "hang"), and another takes its place.

Left out: what a worker does with a seed (worker.py), and what is made of the answers (session.py).
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

LIMIT = 300.0  # seconds that one program may take
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "minitri.fuzz.worker")

Next = Callable[[], int | None]
Answer = dict[str, Any]


class Worker:
    """One process. `seed`: what it works on; None if it has been told that there is no more."""

    def __init__(self, on: str, seed: int) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*COMMAND, on], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=_environment()
        )
        self.read = b""
        self.seed: int | None = None
        self.start(seed)

    def start(self, seed: int | None) -> None:
        self.seed, self.deadline = seed, time.monotonic() + LIMIT
        assert self.process.stdin is not None
        try:
            if seed is None:
                self.process.stdin.close()
            else:
                self.process.stdin.write(f"{seed}\n".encode())
                self.process.stdin.flush()
        except OSError:
            pass  # it has died: reading from it will say so

    def take(self) -> Answer | None:
        """What the process has said since it was last asked; None if that is no whole line yet."""
        assert self.process.stdout is not None
        piece = os.read(self.process.stdout.fileno(), 1 << 16)
        if not piece:
            return self.dead("crash")
        self.read += piece
        if not self.read.endswith(b"\n"):
            return None
        line, self.read = self.read, b""
        return json.loads(line)

    def dead(self, kind: str) -> Answer:
        """The answer of a worker that gives none; it is ended if it has not ended by itself."""
        if kind == "hang":
            self.process.kill()
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode("utf-8", "replace").strip().splitlines()[:20]
        said = f"no answer within {LIMIT:g} s" if kind == "hang" else f"the process ended with {code}"
        return {"seed": self.seed, "stages": 0, "pairs": 0, "kind": kind, "said": "\n".join([said, *last])}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def answers(jobs: int, on: str, following: Next) -> Iterator[Answer | None]:
    """Answers as they come, and None now and then while there are none. Closing it ends the processes."""
    workers: list[Worker] = []
    try:
        for _ in range(jobs):
            seed = following()
            if seed is not None:
                workers.append(Worker(on, seed))
        while any(w.seed is not None for w in workers):
            ready = _ready([w for w in workers if w.seed is not None])
            for worker in ready:
                answer = worker.take()
                if answer is not None:
                    yield answer
                    _go_on(workers, worker, answer, on, following)
            for worker in [w for w in workers if w.seed is not None and time.monotonic() > w.deadline]:
                answer = worker.dead("hang")
                yield answer
                _go_on(workers, worker, answer, on, following)
            if not ready:
                yield None
    finally:
        for worker in workers:
            worker.close()


def _ready(workers: list[Worker]) -> list[Worker]:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select(timeout=0.5)]


def _go_on(workers: list[Worker], worker: Worker, answer: Answer, on: str, following: Next) -> None:
    """The next seed, for the same process if it is alive."""
    seed = following()
    if answer.get("kind") in ("crash", "hang") or answer.get("lost"):
        worker.close()
        workers.remove(worker)
        if seed is not None:
            workers.append(Worker(on, seed))
    else:
        worker.start(seed)


def _environment() -> dict[str, str]:
    """Without TRITON_*, which would change what is tested, and one thread each."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("TRITON_")}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
