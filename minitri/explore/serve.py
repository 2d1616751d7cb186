"""Serves the explorer's page, with a live editor, only to the user of this machine.

    minitri explore --serve

The server answers requests over HTTP to 127.0.0.1. It sends the page, and an answer for each program that the editor
sends. The answer is the data of the page, or the error of the program. Before the server reads a request, it checks the
headers Host and Origin, the token, the body, and the number of requests:

`Host`: the header must be a name of this server, because an attacker can make other host names lead to this machine.
`Origin`: if a request has this header, it must name this server.
Token: the path of the page contains a secret of this user.
Body: the content type of a POST request must be JSON, because an HTML form on another page cannot send this type. The
    header Content-Length must say that the body has at most `LARGEST` bytes.
Number of requests: there are limits for the requests per second and for the open connections.

The address of the server stays the same, so that a link to a program stays valid. The address consists of the port 8748
and a token. The token is in the user's cache folder, which no other user can read. Each port has its own token. With
`--port 0`, or if the port 8748 is taken, the server uses any free port and a new token. If the operating system chooses
the server's port, the token is not saved, because another process can get the same port later.

The server sends no CORS headers, and answers requests for only two paths. Separate processes (request_queue.py) compile
programs, with limits of time and memory, and never run a kernel.
"""

import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from minitri import __version__
from minitri.base import json_disk_cache
from minitri.base.toml_tables import table_beside
from minitri.explore.completions import completions
from minitri.explore.page import page
from minitri.explore.request_queue import Busy, Desk
from minitri.hardware.targets import TARGETS

EXAMPLES = table_beside(__file__, "examples.toml")["examples"]
ADDRESS, PORT = "127.0.0.1", 8748
QUICK, FULL = 6.0, 90.0  # the most seconds for minitri's own stages, and for all stages
LARGEST = 64 << 10  # the most bytes of a request
CONNECTIONS = 32
RATE, BURST = 20.0, 60.0  # requests a second
HEADERS = {
    "Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}  # fmt: skip


class Refused(Exception):
    """A rejected request: an HTTP status and a short reason that contains nothing of the request."""


def _require(held: bool, status: int, reason: str) -> None:
    if not held:
        raise Refused(status, reason)


def _kept_token(port: int) -> str:
    """Returns the token that earlier runs on this port used, or a new token."""
    kept = json_disk_cache.get("explorer token", port)  # in the cache folder, which belongs to this user alone
    if isinstance(kept, str) and re.fullmatch(r"[\w-]{32}", kept, re.ASCII):
        return kept
    token = secrets.token_urlsafe(24)
    json_disk_cache.put("explorer token", port, token)
    return token


class Server(ThreadingHTTPServer):
    """The HTTP server of the explorer.

    `address` is the URL of the page.
    """

    daemon_threads = True
    allow_reuse_port = False  # two servers cannot share a port
    request_queue_size = CONNECTIONS

    def __init__(self, port: int = 0, first: Mapping[str, Any] | None = None) -> None:
        self.quick, self.full = Desk(QUICK), Desk(FULL, newest=True)  # if the port is taken, both are closed
        super().__init__((ADDRESS, port), Handler)
        self.token = _kept_token(port) if port else secrets.token_urlsafe(24)
        self.address = f"http://{ADDRESS}:{self.server_port}/{self.token}/"
        self.first = dict(first or EXAMPLES[0])
        self.names = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self.rate = RATE
        self._bucket, self._filled, self._lock = BURST, time.monotonic(), threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Closes a connection if there are `CONNECTIONS` other connections already."""
        if not self._slots.acquire(blocking=False):
            return self.shutdown_request(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error of a connection that the browser has closed."""

    def take(self) -> bool:
        """Checks whether the rate limit allows one more request."""
        with self._lock:
            now = time.monotonic()
            self._bucket = min(BURST, self._bucket + (now - self._filled) * self.rate)
            self._filled = now
            allowed = self._bucket >= 1
            self._bucket -= allowed
            return allowed

    def server_close(self) -> None:
        super().server_close()
        self.quick.close()
        self.full.close()


class Handler(BaseHTTPRequestHandler):
    """The handler of one HTTP connection."""

    timeout = 15  # seconds after which a silent connection is closed
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"minitri/{__version__}", ""

    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        self._answer("", self._page)

    def do_POST(self) -> None:
        self._answer("explore", lambda: self._send(200, self._asked(self._json())))

    def _answer(self, name: str, work: Callable[[], None]) -> None:
        """Calls `work` to answer a request, or sends an error if the server refuses the request."""
        try:
            self._require_own()
            self._require_path(name)
            work()
        except Refused as refused:
            self.close_connection = True
            status, reason = refused.args
            self._send(status, {"error": {"message": reason}})

    # ---- who may ask -----------------------------------------------------------------

    def _require_own(self) -> None:
        """Rejects three kinds of requests: for another host, from another page, and above the rate limit."""
        hosts, origins = self.headers.get_all("Host") or [], self.headers.get_all("Origin") or []
        _require(len(hosts) == 1 and hosts[0] in self.server.names, 403, "this host is not served")
        own = not origins or (len(origins) == 1 and origins[0] in {f"http://{n}" for n in self.server.names})
        own = own and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        _require(own, 403, "requests of other pages are refused")
        _require(self.server.take(), 429, "too many requests: wait a moment")

    def _require_path(self, name: str) -> None:
        """Rejects a request unless its path is `/TOKEN/name`."""
        known = hmac.compare_digest(self.path.encode("utf-8", "replace"), f"/{self.server.token}/{name}".encode())
        _require(known, 404, "open the address that `minitri explore --serve` has printed")

    # ---- the two paths ---------------------------------------------------------------

    def _page(self) -> None:
        """Sends the page, which contains the first program, to the browser."""
        first = self.server.first
        document = self._asked(first)
        if "error" in document:
            document = self._asked(first := EXAMPLES[0])
        _require("error" not in document, 503, "the compiler has too little time here: load this page again")
        targets = [t for t in TARGETS if t != "interpreter"]
        live = {"first": first, "examples": EXAMPLES, "targets": targets, "completions": completions()}
        made, policy = page(document, live)
        self._send(200, made, {"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"})

    def _asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        desk = self.server.full if request.get("all") is True else self.server.quick
        try:
            return desk.ask(request)
        except Busy:
            raise Refused(503, "other programs are being compiled: wait a moment") from None

    def _json(self) -> dict[str, Any]:
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        _require(kind == "application/json", 415, "send JSON")
        length = self.headers.get("Content-Length", "")
        told = length.isascii() and length.isdigit() and not self.headers.get("Transfer-Encoding")
        _require(told, 411, "say how long the request is")
        _require(len(length) <= 9 and int(length) <= LARGEST, 413, f"a request has at most {LARGEST:,} bytes")
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(400, "this is not JSON") from None
        _require(isinstance(found, dict), 400, "a request is a JSON object")
        return found

    # ---- answers ---------------------------------------------------------------------

    def _send(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:
        kind, text = ("text/html", body) if isinstance(body, str) else ("application/json", json.dumps(body))
        data = text.encode("utf-8", "surrogatepass")
        self.send_response(status)
        length = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(data))}
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {**HEADERS, **(headers or {}), **length, **closing}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers a request that the HTTP library rejects. The answer repeats no part of the request."""
        self.close_connection = True
        self._send(code, {"error": {"message": "this is not a request that is answered here"}})

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing, because requests contain programs of the user."""


def listening(port: int | None = 0, first: Mapping[str, Any] | None = None) -> Server:
    """Returns a server that already accepts connections.

    When a browser opens the page, the page shows the program in the request `first`.

    `port`: the number of the port. 0 stands for any free port. With `port` None, the server uses the usual port, or any
        free port if the usual port is taken.
    """
    try:
        server = Server(PORT if port is None else port, first)
    except (OSError, OverflowError) as error:
        if port is None:
            return listening(0, first)
        raise OSError(f"cannot listen on port {port}: {getattr(error, 'strerror', None) or error}") from None
    threading.Thread(target=server.quick.ask, args=({},), daemon=True).start()  # starts the process
    return server
