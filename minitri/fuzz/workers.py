"""Worker processes: each process gets one seed after another, and is replaced if it crashes or hangs.

In: the number of workers, the processor that they run on ("cpu" or "gpu"), and the seeds. Out: the answers of the
workers in the order in which they arrive. If a worker dies, the answer has the `kind` "crash". If a worker gives no
answer for too long, the answer has the `kind` "hang". After a crash or a hang, a new worker starts.

While a worker checks a program, a thread waits for the answer. Left out: what a worker does with a seed (worker.py),
and how answers are counted (session.py).
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
    idle, busy = list[Child](), dict[Future[Answer], Child]()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                while len(busy) < jobs and (seed := next(seeds, None)) is not None:
                    worker = idle.pop() if idle else _started(on)
                    busy[pool.submit(_answer, worker, seed)] = worker
                if not busy:
                    return
                done, _ = wait(busy, 0.5, FIRST_COMPLETED)
                finished = [busy.pop(future) for future in done]
                idle += [worker for worker in finished if worker.process.poll() is None]
                yield from [future.result() for future in done] or [None]
        finally:
            for worker in (*idle, *busy.values()):
                worker.end()


def _started(on: str) -> Child:
    """Starts a worker without the environment variables TRITON_*, which would change what is tested."""
    return Child((*COMMAND, on), environment("TRITON_"), keep_stderr=True)


def _answer(worker: Child, seed: int) -> Answer:
    """Returns the worker's answer for a seed, or how the worker ended."""
    try:
        found = worker.ask(seed, LIMIT)
    except TimeoutError:
        return _failure(worker, seed, "hang", f"no answer within {LIMIT:g} s")
    except (OSError, EOFError, ValueError):
        with suppress(subprocess.TimeoutExpired):
            worker.process.wait(timeout=5)  # its exit status may be a moment late
        return _failure(worker, seed, "crash", f"the process ended with {worker.process.returncode}")
    if found.get("lost"):
        worker.end()
    return found


def _failure(worker: Child, seed: int, kind: str, said: str) -> Answer:
    last = worker.end().strip().splitlines()[:20]
    return {"seed": seed, "stages": 0, "pairs": 0, "refused": 0, "kind": kind, "said": "\n".join([said, *last])}
