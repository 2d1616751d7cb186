"""Tests the explorer's server with thousands of requests. Makes a table of docs/learn/explorer.md.

    python tests/serving.py                 measures, writes docs/log/serving.json; tests/documents.py fills in the table

In: random programs, texts with errors of all kinds, and programs that need more time or memory than the limits.
Out, for each kind of request: how many answers have stages and how many a diagnostic, the times from request to
answer, and how many worker processes were replaced. A `Fault` ends the run: an answer of another kind, a traceback,
or a process that does not answer the next request. tests/test_serve.py runs a part of it every time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import hostile

from minitri.explore.serve import EXAMPLES, Server, listening
from minitri.testing import random_program

FIGURES = Path(__file__).parent.parent / "docs" / "log" / "serving.json"
SIMPLE = {"text": "def f(x: f32[N]):\n    return x + 1\n"}
COUNT = 10_000

# Each exceeds a limit: time, memory, depth, or the size of a tile.
HOSTILE = [
    *[f"def f(x: f32[N]):\n    return {t}\n" for t in (
        "(" * 5000 + "x" + ")" * 5000, "x" + " + x" * 6000, "-" * 9000 + "x", "x ** " * 3000 + "x", "x * " + "9" * 5000,
        "x[" * 400 + "0" + "]" * 400, "reshape(x, (" + "1, " * 4000 + "))", "sum(x, axis=" + "(" * 900 + "0" + ")" * 900 + ")",
        "x @ " * 900 + "x", "concat((" + "x, " * 4000 + "))", "x" + ".T" * 9000, "zeros((2**62, 2**62))", "eye(2**40) @ eye(2**40)",
        "arange(10**18)[None] + x", "pad(x, (10**15, 10**15))", "x\x00", "\ud83d", "\u202ex", "__import__('os').system('true')",
        "open('/etc/passwd')", "x.__class__", "exec('1')", "lambda: x", "[x for _ in range(10**9)]", "x if x else x",
    )],
    *[f"def f(x: f32[{d}]):\n    return exp(x)\n" for d in (
        "N**N**N", "(N + M) * " * 200 + "1", "2**2**2**2**2", "N" * 5000, "-5", "10**30", "1048576, 1048576", "*B, *B", "N // 0", "N % 0", "",
    )],
    "".join(f"def f{k}(x):\n    return f{k + 1}(x) + f{k + 1}(x)\n\n" for k in range(40)) + "def f40(x):\n    return x\n\ndef main(x: f32[N]):\n    return f0(x)\n",
    "def f(x: f32[N]):\n    return f(x)\n", "def f(" + "x: f32[N], " * 3000 + "):\n    return x\n", "def f(x: f32[N]):\n" + "    x = x * x\n" * 2000 + "    return x\n",
    "def f(x: f32[N]):\n" + "    x = concat((x, x))\n" * 60 + "    return x\n", "", "\n" * 19_000, "#" * 19_000, "def" * 6000, "\t" * 9000 + "x", "x" * 19_999, "\ufeff", "'" * 10_000,
    "def f(x: f32[N]):\n    return x\n" * 700, "\x00" * 500,
]  # fmt: skip
# For requests of all stages: kernels that Triton's compiler needs long for.
LARGE = [
    "def f(x: f32[4096, 4096]):\n    return cumulative_sum(exp(x), axis=0)\n",
    "def f(x: f32[N]):\n    return " + " + ".join(f"sin(x * {k})" for k in range(300)) + "\n",
]


class Fault(AssertionError):
    """The server gave no valid answer."""


# ---- sending requests ------------------------------------------------------------------------


@contextmanager
def running(**options: Any) -> Iterator[Server]:
    """A server in its own thread, made by `listening`."""
    server = listening(**options)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(
    server: Server, body: Any = None, *, method: str = "POST", path: str | None = None, **headers: str
) -> tuple[int, dict[str, Any] | str, dict[str, str]]:
    """Status, answer and headers of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    path = path if path is not None else f"/{server.token}/" + ("explore" if method == "POST" else "")
    data = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
    usual = {"Content-Type": "application/json"} if method == "POST" else {}
    given = {**usual, **{n.replace("_", "-"): v for n, v in headers.items()}}
    try:
        connection.request(method, path, body=data, headers=given)
        response = connection.getresponse()
        text = response.read().decode()
        json_ = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(text) if json_ else text, dict(response.getheaders())
    finally:
        connection.close()


def asked(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    status, found, _ = send(server, request)
    assert status == 200 and isinstance(found, dict)
    return found


# ---- the requests ----------------------------------------------------------------------------


def random_requests(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Well-typed programs."""
    yield from ({"text": random_program(k).text} for k in range(seed, seed + count))


def hostile_requests(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Texts of every kind of tests/hostile.py."""
    for k in range(seed, seed + count):
        given = hostile.made(list(hostile.KINDS)[k % len(hostile.KINDS)], k)
        yield {"text": given.text, "types": dict(given.types)}


def greedy_requests() -> Iterator[dict[str, Any]]:
    yield from ({"text": text} for text in HOSTILE)


# ---- the outcomes ----------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of one kind of requests. `times` are seconds from request to answer."""

    kind: str
    stages: int = 0
    diagnostics: int = 0
    replaced: int = 0
    times: list[float] = field(default_factory=list)

    def quantile(self, part: float) -> float:
        return sorted(self.times)[min(len(self.times) - 1, int(part * len(self.times)))]


def tried(server: Server, kind: str, requests: Iterable[dict[str, Any]]) -> Outcome:
    """Sends each request, then a simple one, which a running process must answer. Raises a Fault if an answer is
    wrong.
    """
    outcome, replaced = Outcome(kind), server.quick.replaced
    for request in requests:
        start = time.perf_counter()
        status, found, _ = send(server, request)
        outcome.times.append(time.perf_counter() - start)
        outcome.stages += _has_stages(request, status, found)
        outcome.diagnostics += "programs" not in found
    if "programs" not in asked(server, SIMPLE):
        raise Fault(f"no answer after {kind}")
    outcome.replaced = server.quick.replaced - replaced
    return outcome


def _has_stages(request: dict[str, Any], status: int, found: Any) -> bool:
    error = found.get("error", {}) if isinstance(found, dict) else {}
    said = json.dumps(error)
    if "Traceback" in said or "failed inside" in said or not ("programs" in found or "code" in error or status == 413):
        raise Fault(f"{request['text'][:200]!r}: {said[:300]}")
    return "programs" in found


def measured(count: int) -> Iterator[Outcome]:
    with running() as server:
        server.rate = 1e9  # there is one sender, which must not be slowed down
        tried(server, "warm", EXAMPLES)
        yield tried(server, "the examples, ten times", EXAMPLES * 10)
        yield tried(server, "random programs", random_requests(count, 0))
        yield tried(server, "hostile texts", hostile_requests(count, 0))
        yield tried(server, "programs that ask for too much", greedy_requests())


# ---- the table -------------------------------------------------------------------------------


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| requests | | stages | a diagnostic | median | 95 of 100 within | longest | processes replaced |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for r in rows:
        times = " | ".join(f"{1000 * r[part]:,.0f} ms" for part in ("median", "p95", "longest"))
        lines.append(f"| {r['kind']} | {r['stages'] + r['diagnostics']:,} | {r['stages']:,} | {r['diagnostics']:,} | {times} | {r['replaced']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def known() -> str:
    """The table of the latest measurement."""
    return table(json.loads(FIGURES.read_text(encoding="utf-8")))


def _row(outcome: Outcome) -> dict[str, Any]:
    row = {k: v for k, v in asdict(outcome).items() if k != "times"}
    return row | {n: round(outcome.quantile(p), 4) for n, p in (("median", 0.5), ("p95", 0.95), ("longest", 1.0))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Random and hostile programs for the served explorer.")
    parser.add_argument("--count", type=int, default=COUNT, help="of random programs, and of hostile texts")
    count = parser.parse_args().count
    rows = []
    for outcome in measured(count):
        rows.append(_row(outcome))
        print(json.dumps(rows[-1]), flush=True)
    if count >= COUNT:
        FIGURES.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    print(f"on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
