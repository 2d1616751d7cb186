"""A queue of requests in front of one worker process; a worker process that hangs or dies is replaced.

The method `ask` of the class `Desk` takes a request from any thread, and returns the answer. The worker process
(compile_worker.py) gets one request at a time, and has a limited time to answer the request. If the worker process
exceeds the time limit or dies, `Desk` ends the process with all its children and starts another process. A request that
a worker process could not finish is answered with an error. The method `ask` raises `Busy` if too many requests wait.

The file serve.py decides who is allowed to send requests.
"""

import sys
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

from minitri.base.json_child_process import Child, environment
from minitri.explore.compile_worker import failed

COMMAND = (sys.executable, "-m", "minitri.explore.compile_worker")


class Busy(Exception):
    """Raised for a request if too many earlier requests are still waiting."""


class Desk:
    """A worker process and the queue of requests in front of it.

    `seconds`: the time limit of one request in seconds.
    `queue`: the largest number of waiting requests.
    `newest`: whether a new request cancels all waiting requests. A cancelled request gets an error at once.
    """

    def __init__(self, seconds: float, queue: int = 4, newest: bool = False) -> None:
        self.seconds, self.queue, self.newest = seconds, queue, newest
        self.replaced = 0  # processes that were ended
        self._one_by_one, self._lock = ThreadPoolExecutor(1), Lock()
        self._asked: list[Future[dict[str, Any]]] = []  # the request that is being answered, and the waiting requests
        self._child: Child | None = None
        self._closed = False

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._asked = [a for a in self._asked if not a.done()]
            if self.newest:
                # The request that is being answered cannot be cancelled, so it stays in the list.
                self._asked = [a for a in self._asked if not a.cancel()]
            elif len(self._asked) > self.queue:
                raise Busy
            mine = self._one_by_one.submit(self._ask, request)
            self._asked.append(mine)
        try:
            return mine.result()
        except CancelledError:
            return failed("a newer program has come in")

    def close(self) -> None:
        self._closed = True
        self._one_by_one.shutdown(wait=False, cancel_futures=True)
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
