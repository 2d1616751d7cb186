"""The served explorer: who may ask, how much, and what becomes of programs that hang, crash or ask for too much."""

from __future__ import annotations

import html
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import hostile
import pytest

from minitri.explore import serve
from minitri.explore.answer import NAME, answer
from minitri.explore.desk import Busy, Desk
from minitri.explore.examples import EXAMPLES
from minitri.explore.serve import LARGEST, Server, listening
from minitri.testing import random_program

ROOT = Path(__file__).parent.parent
SIMPLE = {"text": "def f(x: f32[N]):\n    return x + 1\n"}

# Each asks for more than it gets: time, memory, depth, a tile without end.
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
# For all stages: kernels that Triton's compiler takes long over.
LARGE = [
    {"text": "def f(x: f32[4096, 4096]):\n    return cumulative_sum(exp(x), axis=0)\n"},
    {"text": "def f(x: f32[N]):\n    return " + " + ".join(f"sin(x * {k})" for k in range(300)) + "\n"},
]


@contextmanager
def running(**options: Any) -> Iterator[Server]:
    server = listening(**options)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as made:
        made.rate = 1e9
        made.quick.seconds = 60  # a busy machine is slow
        yield made


def send(
    server: Server, body: Any = None, *, method: str = "POST", path: str | None = None, **headers: str
) -> tuple[int, dict[str, Any] | str, dict[str, str]]:
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


# ---- who may ask ---------------------------------------------------------------------------


def test_it_listens_to_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert re.fullmatch(rf"http://127\.0\.0\.1:{server.server_port}/[\w-]{{32}}/", server.address)
    with running() as other:
        assert other.token != server.token


def test_the_page_has_an_editor_and_a_policy(server: Server) -> None:
    status, page, headers = send(server, method="GET")
    assert status == 200 and isinstance(page, str) and 'id="data"' in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and html.unescape(page).count(policy.removesuffix("; frame-ancestors 'none'")) == 1
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert not [n for n in headers if n.lower().startswith("access-control")]


def refused(status: int, found: tuple[int, Any, dict[str, str]]) -> None:
    given, body, headers = found
    assert given == status, body
    assert set(body) == {"error"} and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert not [n for n in headers if n.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:{port}", ""]
)
def test_another_host_is_refused(server: Server, host: str) -> None:
    for method in ("GET", "POST"):
        refused(403, send(server, SIMPLE, method=method, Host=host.format(port=server.server_port)))


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1",
        "file://",
        "http://127.0.0.1:{port}.evil.example",
    ],
)
def test_another_origin_is_refused(server: Server, origin: str) -> None:
    for method in ("GET", "POST"):
        refused(403, send(server, SIMPLE, method=method, Origin=origin.format(port=server.server_port)))


def test_its_own_names_are_taken(server: Server) -> None:
    for name in ("127.0.0.1", "localhost"):
        own = f"{name}:{server.server_port}"
        assert send(server, SIMPLE, Host=own, Origin=f"http://{own}", Sec_Fetch_Site="same-origin")[0] == 200
    refused(403, send(server, SIMPLE, Sec_Fetch_Site="cross-site"))


def test_without_the_token_there_is_nothing(server: Server) -> None:
    for path in ("/", "/explore", "/wrong/", "/wrong/explore", f"/{server.token}", f"/{server.token}/../", "/%00/"):
        for method in ("GET", "POST"):
            refused(404, send(server, SIMPLE, method=method, path=path))
    refused(404, send(server, method="GET", path=f"/{server.token}/explore"))


def test_other_methods_are_refused(server: Server) -> None:
    for method in ("PUT", "OPTIONS", "DELETE", "TRACE", "CONNECT", "PATCH"):
        refused(501, send(server, method=method))


def test_requests_are_json_of_a_known_and_small_size(server: Server) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        refused(415, send(server, SIMPLE, Content_Type=kind))
    refused(413, send(server, "x" * (LARGEST + 1)))
    refused(413, send(server, "{}", Content_Length="9" * 12))
    for length in ("-1", "1e3", "٣"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as raw:
            head = f"POST /{server.token}/explore HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n"
            raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode())
            assert raw.recv(64).split()[1] in (b"411", b"400")
    for body in ("", "[", "[1]", "3", "[" * 30_000, b"\xff\xfe", '"text"'):
        refused(400, send(server, body))


@pytest.mark.parametrize("request_", [
    {}, {"text": 3}, {"text": "x", "types": []}, {"text": "x", "types": {"x": 3}}, {"text": "x", "sizes": {"M": "3"}},
    {"text": "x", "sizes": {"M": True}}, {"text": "x", "sizes": {"target": 3}}, {"text": "x", "sizes": {"M": [1] * 99}},
    {"text": "x", "target": 3}, {"text": "x", "target": "cuda:1"}, {"text": "x", "entry": 3},
])  # fmt: skip
def test_wrong_requests_are_diagnostics(request_: dict[str, Any]) -> None:
    assert set(answer(request_)) == {"error"}


def test_a_text_is_never_the_name_of_a_file() -> None:
    for text in ("examples/softmax.mt", str(ROOT / "examples" / "softmax.mt")):
        assert answer({"text": text})["error"]["code"].startswith("MT0")


# ---- what is answered ----------------------------------------------------------------------


def test_our_stages_or_a_diagnostic_with_its_place(server: Server) -> None:
    found = asked(server, {**SIMPLE, "sizes": {"N": 7}})
    (program,) = found["programs"]
    texts = [s["name"] for s in program["stages"] if "text" in s]
    assert texts == ["ast", "graph", "graph.simplified", "kernels", "tile", "tile.masked", "triton"] and program[
        "sizes"
    ] == {"N": 7}
    text = "def f(x: f32[N]):\n    return x + yy\n"
    error = asked(server, {"text": text})["error"]
    assert (error["code"], error["line"], error["column"]) == ("MT0101", 2, 16)
    assert text[error["start"] : error["end"]] == "yy" and "^^" in error["text"] and NAME in error["text"]


def test_all_stages(server: Server) -> None:
    (program,) = asked(server, {**SIMPLE, "all": True})["programs"]
    assert {"ttir", "ptx", "sass"} <= {s["name"] for s in program["stages"] if "text" in s} and program["player"]


def test_our_stages_are_there_at_once(server: Server) -> None:
    """Processor time, since others use this machine too: the 95th percentile of the examples, the best of five rounds."""
    rounds: list[float] = []
    for _ in range(5):
        times: list[float] = []
        for example in EXAMPLES:
            start = worked(server)
            assert "programs" in asked(server, example)
            times.append(worked(server) - start)
        rounds.append(sorted(times)[round(0.95 * (len(times) - 1))])
    assert min(rounds) < 0.3, rounds


def worked(server: Server) -> float:
    """Seconds that a processor has worked for the server and for the process that answers."""
    process = server.quick._process
    assert process is not None
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_examples_are_those_of_the_folder() -> None:
    for example in EXAMPLES:
        assert example["text"] == (ROOT / "examples" / f"{example['name']}.mt").read_text()


def test_the_page_begins_with_the_program_that_is_named() -> None:
    with running(first={"text": "def named(x: f32[N]):\n    return x\n"}) as other:
        page = send(other, method="GET")[1]
        assert isinstance(page, str) and "<title>named" in page
    with running(first={"text": "def broken("}) as other:
        assert send(other, method="GET")[0] == 200


# ---- too much ------------------------------------------------------------------------------


def test_too_many_requests() -> None:
    with running() as other:
        other._bucket, other.rate = 3.5, 0.0
        states = [send(other, method="GET", path="/nothing")[0] for _ in range(6)]
        assert states == [404] * 3 + [429] * 3


def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "CONNECTIONS", 2)
    with running() as other:
        held = [socket.create_connection(("127.0.0.1", other.server_port)) for _ in range(2)]  # accepted in this order
        with socket.create_connection(("127.0.0.1", other.server_port), timeout=60) as one_more:
            assert one_more.recv(1) == b""
        for connection in held:
            connection.close()


def snippet(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr("minitri.explore.desk.COMMAND", (sys.executable, "-c", code))


def test_a_process_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    child = (
        "import subprocess, sys; subprocess.Popen(['sleep', '321']); sys.stdin.readline(); import time; time.sleep(99)"
    )
    snippet(monkeypatch, child)
    desk = Desk(0.5)
    assert "more than 0.5 seconds" in desk.ask({})["error"]["message"]
    assert desk.replaced == 1
    assert desk._process is not None and desk._process.poll() is None
    first = desk._process.pid
    desk.close()
    while _group_lives(first):  # what it had started goes as well; the kernel takes a moment
        time.sleep(0.001)


def _group_lives(group: int) -> bool:
    """Whether a process of a group has not ended."""
    said = subprocess.run(["ps", "-eo", "pgid,stat"], capture_output=True, text=True, check=True).stdout.splitlines()[
        1:
    ]
    return any(line.split()[0] == str(group) and not line.split()[1].startswith("Z") for line in said)


@pytest.mark.parametrize(
    "code",
    [
        "import os, sys; sys.stdin.readline(); os._exit(3)",
        "print('no JSON', flush=True); import time; time.sleep(999)",
        "raise SystemExit",
    ],
)
def test_a_process_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    snippet(monkeypatch, code)
    desk = Desk(60)
    assert "did not survive" in desk.ask({})["error"]["message"]
    desk.close()


def test_only_some_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is served and one waits, until the other four have been sent away."""
    busy, end = list[int](), Event()

    def outcome(number: int) -> str:
        try:
            return str(desk.ask({"n": number})["n"])
        except Busy:
            busy.append(number)
            if len(busy) == 4:
                end.set()
            return "busy"

    def at_work(request: dict[str, Any]) -> dict[str, Any]:
        assert end.wait(60)
        return request

    desk = Desk(1, queue=1)
    monkeypatch.setattr(desk, "_ask", at_work)
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(outcome, range(6)))
    assert outcomes.count("busy") == 4 and all(o in ("busy", str(n)) for n, o in enumerate(outcomes))


def test_the_newest_of_those_who_wait_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = Event(), Event()

    def at_work(request: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        assert end.wait(60)
        return request

    desk = Desk(30, newest=True)
    monkeypatch.setattr(desk, "_ask", at_work)
    with ThreadPoolExecutor(4) as pool:
        asked_ = [pool.submit(desk.ask, {"n": 0})]
        assert begun.wait(60)
        for k in range(1, 4):
            asked_.append(pool.submit(desk.ask, {"n": k}))
            while desk._last <= k:  # threads may start in another order on a busy machine
                time.sleep(0.001)
        end.set()
        answers = [a.result() for a in asked_]
    assert answers[0] == {"n": 0} and answers[3] == {"n": 3}
    assert all("newer program" in a["error"]["message"] for a in answers[1:3])


def test_memory_has_a_limit() -> None:
    code = ("import resource, minitri.explore.answer as a; a._document = lambda r: bytearray(8 << 30); "
            "resource.setrlimit(resource.RLIMIT_DATA, (a.MEMORY, a.MEMORY)); print(a.answer({'text': 'x'})['error']['message'])")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "more memory" in done.stdout, done.stderr


# ---- random and hostile programs -----------------------------------------------------------


def survives(server: Server, requests: Iterator[dict[str, Any]]) -> None:
    """Sends each, and then a simple one: it must be answered by a process that lives."""
    for request in requests:
        status, found, _ = send(server, request)
        assert isinstance(found, dict) and (status == 413 or "programs" in found or "code" in found["error"]), found
        said = json.dumps(found.get("error", ""))
        assert "Traceback" not in said and "failed inside" not in said, (request["text"][:200], said)
    assert "programs" in asked(server, SIMPLE)


def random_requests(count: int, seed: int) -> Iterator[dict[str, Any]]:
    for k in range(seed, seed + count):
        if k % 2:
            yield {"text": random_program(k).text}
        else:
            kind = list(hostile.KINDS)[k % len(hostile.KINDS)]
            given = hostile.made(kind, k)
            yield {"text": given.text, "types": dict(given.types)}


def test_random_programs(server: Server) -> None:
    survives(server, random_requests(120, seed=random.Random(7).randrange(10**6)))


def test_hostile_programs(server: Server) -> None:
    assert len(HOSTILE) >= 50
    survives(server, ({"text": text} for text in HOSTILE))


@pytest.mark.slow
def test_ten_thousand_random_programs(server: Server) -> None:
    survives(server, random_requests(10_000, seed=0))


@pytest.mark.slow
def test_large_kernels_at_all_stages() -> None:
    with running() as other:
        other.full.seconds = 20
        for request in LARGE:
            found = asked(other, {**request, "all": True})
            assert "programs" in found or "more than 20 seconds" in found["error"]["message"]
            assert "programs" in asked(other, SIMPLE)
