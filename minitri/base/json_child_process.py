"""Starts a child process that answers requests in JSON. The caller can kill a child process that is too slow.

    child = Child(["python", "-m", "minitri.explore.compile_worker"], environment)
    child.ask({"text": "x + 1"}, seconds=6)
    serve(answer, sys.stdin)                    in the child: calls `answer` for each request

The class `Child` takes the command line of a child process, and starts the process. The method `ask` of `Child` sends a
request and returns the answer. Each request and each answer is one line of JSON. The method `ask` raises TimeoutError
if the answer takes too long. If the child process has died, `ask` raises EOFError or OSError. The child runs in its own
process group, so `end` also kills the processes that the child has started. The class `Child` has no queue of requests,
because the caller sends one request at a time.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

MAX_ANSWER_BYTES = 64 << 20


class Child:
    """A running child process.

    With `keep_stderr`, the method `end` returns the text that the child wrote to standard error.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], keep_stderr: bool = False) -> None:
        self.errors = tempfile.TemporaryFile() if keep_stderr else open(os.devnull, "w+b")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self.reader = ThreadPoolExecutor(1)  # waits for the answers, so that `ask` can stop waiting

    def ask(self, request: Any, seconds: float) -> Any:
        """Sends a request and returns the answer. The request and the answer are any JSON values.

        Raises TimeoutError if the answer takes more than `seconds`, and ValueError if the answer is not JSON. Raises
        EOFError if the answer is too long. Raises EOFError or OSError if the child process has died.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.reader.submit(self.process.stdout.readline, MAX_ANSWER_BYTES).result(seconds)
        if not answer.endswith(b"\n"):
            raise EOFError
        return json.loads(answer)

    def end(self) -> str:
        """Kills the child and all processes that the child has started.

        Returns the text that the child wrote to standard error. A second call of `end` does nothing and returns "".
        """
        if self.errors.closed:
            return ""
        with contextlib.suppress(OSError), self.process:  # at its end, closes the pipes and waits
            os.killpg(self.process.pid, signal.SIGKILL)
        with self.errors:
            self.errors.seek(0)
            return self.errors.read().decode("utf-8", "replace")


def environment(*without: str, **more: str) -> dict[str, str]:
    """Returns the environment variables for a child process, made from the variables of this process.

    In the child, numpy uses one thread, and Python imports modules from the same folders as in this process.
    Environment variables whose names begin with a prefix in `without` are left out. The keyword arguments, as in
    `environment(NAME="value")`, are added as environment variables.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    path = os.pathsep.join(filter(None, sys.path))
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def serve(answer: Callable[[Any], Any], requests: TextIO, first: Any = None) -> None:
    """Answers the requests of the parent process.

    A request is a line of JSON in `requests`, and its answer is a line of JSON on standard output. Any text that the
    child process prints, except the answers, goes to standard error. If `first` is not None, the function calls
    `answer(first)` before the first request. The result of `answer(first)` is not sent to the parent. The call
    `answer(first)` loads the modules that every request needs.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if first is not None:
        answer(first)
    for line in requests:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()
