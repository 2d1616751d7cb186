"""A child process that answers each line of JSON with a line of JSON, and may be given up.

    child = Child(["python", "-m", "minitri.explore.answer"], environment)
    child.ask({"text": "x + 1"}, seconds=6)

In: a command and requests. Out: answers; TimeoutError if one takes too long, EOFError if the process has died.
The child and whatever it starts are a group of their own, and end together. Left out: who asks, and in which
order.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST = 64 << 20  # bytes of an answer


class Child:
    """`heard`: what the process writes to standard error is kept, and `end` gives it back."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], heard: bool = False) -> None:
        self.errors = tempfile.TemporaryFile() if heard else open(os.devnull, "w+b")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def ask(self, request: Any, seconds: float) -> Any:
        """The answer to a request. TimeoutError, EOFError, OSError, or ValueError if the answer is not JSON."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self._line(time.monotonic() + seconds))

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        read = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not read.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                piece = os.read(self.process.stdout.fileno(), 1 << 16)
                if not piece or len(read) > LONGEST:
                    raise EOFError
                read += piece
        return bytes(read)

    def end(self) -> str:
        """Ends the process and all that it has started, once. Out: what it has written to standard error."""
        if self.errors.closed:
            return ""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.errors.seek(0)
        complaint = self.errors.read().decode("utf-8", "replace")
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                pipe.close() if pipe is not None else None
        return complaint


def environment(*without: str, **more: str) -> dict[str, str]:
    """The environment of this process except names that begin in some way, with one thread for numpy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **more}
