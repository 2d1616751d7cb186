"""Worker processes: they are fed seeds, and watched, so that a crash or a hang of the interpreter is a finding.

    python -m minitri.fuzz.workers cpu        one of them

In: how many workers, what they run on, a function that says which seed is next (None: no more). Out: their answers as
they come. A worker that dies or says nothing for too long is an answer as well (`kind` "crash" or "hang"), and another
takes its place. Each worker has a thread, which waits for its answers.

A process reads seeds, one a line, from standard input. It writes one line of JSON for each to standard output, which
nothing else may write to: whatever is printed goes to standard error. A process that has lost its GPU says so ("lost")
and ends. Left out: what is made of the answers (session.py).
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

from minitri.base.child_process import Child, environment
from minitri.fuzz.files import written
from minitri.fuzz.trial import Outcome, is_lost, trial

LIMIT = 300.0  # seconds that one program may take
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "minitri.fuzz.workers")

Next = Callable[[], int | None]
Answer = dict[str, Any]


def answers(jobs: int, on: str, following: Next) -> Iterator[Answer | None]:
    """Answers as they come, and None now and then while there are none. Closing it ends the processes."""
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
        """One worker: seed after seed, in one process as long as that is alive."""
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
        """A new process, without TRITON_*, which would change what is tested."""
        with self.lock:
            self.children.append(Child((*COMMAND, self.on), environment("TRITON_"), heard=True))
            return self.children[-1]


def _answer(child: Child, seed: int) -> Answer:
    """What the process says of a seed, or how it has ended."""
    try:
        return child.ask(seed, LIMIT)
    except TimeoutError:
        kind, said = "hang", f"no answer within {LIMIT:g} s"
    except (OSError, EOFError, ValueError):
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(timeout=5)  # it may be about to end
        kind, said = "crash", f"the process ended with {child.process.returncode}"
    last = child.end().strip().splitlines()[:20]
    return {"seed": seed, "stages": 0, "pairs": 0, "kind": kind, "said": "\n".join([said, *last])}


# ---- the process --------------------------------------------------------------------------------


def answer(seed: int, outcome: Outcome) -> dict[str, Any]:
    """What the other process receives: figures, and the failure as the text of its file."""
    made: dict[str, Any] = {"seed": seed, "stages": outcome.stages, "pairs": outcome.pairs, "lost": is_lost(outcome)}
    made |= {"refused": outcome.refused} if outcome.refused else {}
    if outcome.case is not None:
        kind = (outcome.case.relation or outcome.case.guilty).replace(": ", "-").replace(" ", "-")
        name = f"seed-{seed}-{kind}.mt"
        made |= {"kind": kind, "said": outcome.case.said, "file": name, "text": written(outcome.case, name)}
    return made


def main(on: str, seeds: TextIO) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in seeds:
        seed = int(line)
        outcome = trial(seed, on)
        out.write(json.dumps(answer(seed, outcome)) + "\n")
        out.flush()
        if is_lost(outcome):
            return


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin)
