"""A queue in front of one worker process, which is replaced if it hangs.

In: requests from any thread. Out: answers. The process (compile_worker.py) gets one request at a time, with a limit in
seconds. If the process exceeds the limit or dies, `Desk` ends the process with all its children and starts another
process. The request of the ended process gets an error as its answer. `ask` raises `Busy` if too many requests wait.

Left out: the meaning of a request, and the decision who may send requests (serve.py).
"""

import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from minitri.base.json_child_process import Child, environment
from minitri.explore.compile_worker import failed

COMMAND = (sys.executable, "-m", "minitri.explore.compile_worker")


class Busy(Exception):
    """Raised if too many requests wait already."""


class Desk:
    """A worker process and the queue of requests in front of it.

    seconds   the longest time that one request may take
    queue     how many requests may wait
    newest    whether only the newest request waits, and each older request gets an error at once; this suits one person
              who types
    """

    def __init__(self, seconds: float, queue: int = 4, newest: bool = False) -> None:
        self.seconds, self.queue, self.newest = seconds, queue, newest
        self._last = 0  # the number of the newest request
        self.replaced = 0  # processes that were ended
        self._inside, self._at_work, self._change = 0, False, threading.Condition()
        self._child: Child | None = None
        self._closed = False

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._change:
            if self._inside > self.queue and not self.newest:
                raise Busy
            self._inside += 1
            self._last = mine = self._last + 1
            passed = lambda: self.newest and mine != self._last  # noqa: E731
            self._change.notify_all()
            self._change.wait_for(lambda: passed() or not self._at_work)
            if passed():
                self._inside -= 1
                return failed("a newer program has come in")
            self._at_work = True
        try:
            return self._ask(request)
        finally:
            with self._change:
                self._inside, self._at_work = self._inside - 1, False
                self._change.notify_all()

    def close(self) -> None:
        self._closed = True
        self._end()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        for attempt in range(2):  # a process may have died while it had nothing to do
            child = self._ready()
            try:
                return child.ask(request, self.seconds)
            except TimeoutError:
                self._replace()
                return failed(f"this takes more than {self.seconds:g} seconds here")
            except (OSError, EOFError, ValueError):
                died_at_work = child.process.poll() is None or attempt == 1
                self._replace()
                if died_at_work:
                    break
        return failed("the compiler did not survive this program")

    def _ready(self) -> Child:
        if self._child is None or self._child.process.poll() is not None:
            self._child = Child(COMMAND, _environment())
        return self._child

    def _replace(self) -> None:
        self._end()
        self.replaced += 1
        if not self._closed:
            self._ready()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


def _environment() -> dict[str, str]:
    """Returns the environment of the worker process: without a GPU, and without variables that change Triton."""
    path = os.pathsep.join(filter(None, sys.path))
    return environment("TRITON_", "MLIR_", "MINITRI_LOGS", PYTHONPATH=path, CUDA_VISIBLE_DEVICES="")
