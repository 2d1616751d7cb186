"""A queue for one worker process: requests wait for their turn, and a process that hangs is replaced.

In: requests from any thread. Out: answers. The process (answer.py) gets one request at a time, and a limit of seconds
for it. If it exceeds them or dies, it is ended together with its children. Its request gets an error, and another
process takes its place. `Busy` if too many wait.

Left out: what a request is; who may ask (serve.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from minitri.explore.answer import failed

COMMAND = (sys.executable, "-m", "minitri.explore.answer")
LONGEST = 64 << 20  # bytes of an answer


class Busy(Exception):
    """Too many wait already."""


class Desk:
    """`seconds`: what one request may take; `queue`: how many may wait. `newest`: of those who wait only the
    last is served, since it is one person who types on."""

    def __init__(self, seconds: float, queue: int = 4, newest: bool = False) -> None:
        self.seconds, self.newest = seconds, newest
        self._last = 0  # the number of the newest request
        self.replaced = 0  # processes that were ended
        self._places = threading.BoundedSemaphore(queue + 1)
        self._turn, self._number = threading.Lock(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not self._places.acquire(blocking=False):
            raise Busy
        try:
            with self._number:
                self._last = mine = self._last + 1
            with self._turn:
                passed = self.newest and mine != self._last
                return failed("a newer program has come in") if passed else self._ask(request)
        finally:
            self._places.release()

    def start(self) -> None:
        """Has a process ready before the first request."""
        with self._turn:
            self._ready()

    def close(self) -> None:
        self._closed = True
        self._end()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        line = json.dumps(request).encode() + b"\n"
        for attempt in range(2):  # a process may have died while it had nothing to do
            process = self._ready()
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                return json.loads(self._read(process))
            except TimeoutError:
                self._replace()
                return failed(f"this takes more than {self.seconds:g} seconds here")
            except (OSError, EOFError, ValueError):
                died_at_work = process.poll() is None or attempt == 1
                self._replace()
                if died_at_work:
                    break
        return failed("the compiler did not survive this program")

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        """One line, as long as there is time."""
        assert process.stdout is not None
        deadline, read = time.monotonic() + self.seconds, bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not read.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece or len(read) > LONGEST:
                    raise EOFError
                read += piece
        return bytes(read)

    def _ready(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                env=_environment(), start_new_session=True,
            )  # fmt: skip
        return self._process

    def _replace(self) -> None:
        self._end()
        self.replaced += 1
        if not self._closed:
            self._ready()

    def _end(self) -> None:
        """Ends the process and all that it has started: they are a group of their own."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _environment() -> dict[str, str]:
    """Without what changes Triton, with one thread, and without a GPU: nothing is ever run."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("TRITON_", "MLIR_", "MINITRI_LOGS"))}
    path = os.pathsep.join(filter(None, sys.path))
    return kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
