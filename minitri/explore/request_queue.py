"""A queue of requests in front of one worker process; a worker process that hangs or dies is replaced.

In: requests from any thread. Out: answers. The worker process (compile_worker.py) gets one request at a time, and has a
limited time to answer the request. If the worker process exceeds the time limit or dies, `Desk` ends the process with
all its children and starts another process. If a worker process is ended or dies, the request that the process worked
on gets an error as its answer. The method `ask` raises `Busy` if too many requests wait.

Left out: what a request means (compile_worker.py), and who is allowed to send requests (serve.py).
"""

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
        self.replaced = 0  # processes that were ended
        self._waiting: list[object] = []
        self._at_work, self._change = False, threading.Condition()
        self._child: Child | None = None
        self._closed = False

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        mine = object()
        with self._change:
            if self.newest:
                self._waiting.clear()
            elif len(self._waiting) >= self.queue:
                raise Busy
            self._waiting.append(mine)
            self._change.notify_all()
            self._change.wait_for(lambda: mine not in self._waiting or not self._at_work)
            if mine not in self._waiting:
                return failed("a newer program has come in")
            self._waiting.remove(mine)
            self._at_work = True
        try:
            return self._ask(request)
        finally:
            with self._change:
                self._at_work = False
                self._change.notify_all()

    def close(self) -> None:
        self._closed = True
        self._end()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._ready().ask(request, self.seconds)
        except TimeoutError:
            reason = f"this takes more than {self.seconds:g} seconds here"
        except (OSError, EOFError, ValueError):
            reason = "the compiler did not survive this program"
        self._end()
        self.replaced += 1
        if not self._closed:
            self._ready()
        return failed(reason)

    def _ready(self) -> Child:
        if self._child is None or self._child.process.poll() is not None:
            # Without a GPU, and without variables that change Triton or print.
            self._child = Child(COMMAND, environment("TRITON_", "MLIR_", "MINITRI_LOGS", CUDA_VISIBLE_DEVICES=""))
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
