"""An origin behind the edge that does what a test tells it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came; a name in `headers` is found in either case."""

    method: str
    target: str
    headers: Message
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Exchange(BaseHTTPRequestHandler):
    """A request, and how to answer it."""

    protocol_version = "HTTP/1.1"
    server: _Server
    asked: Asked

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.asked = Asked(self.command, self.path, self.headers, self._body())
        self.server.origin.answer(self)

    def send(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        has_length = status not in (204, 304)
        length = {"content-length": str(len(body))} if has_length else {}
        self._send_head(status, {**length, **headers})
        if has_length and self.asked.method != "HEAD":
            self.wfile.write(body)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self._send_head(status, {**headers, "transfer-encoding": "chunked"})

    def write(self, data: bytes) -> None:
        """One chunk, at once; an empty one ends the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, *_: object) -> None:
        """Keeps the test's output clean."""

    def _body(self) -> bytes:
        if "transfer-encoding" not in self.headers:
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length + 2)[:length]
        self.rfile.readline()
        return body

    def _send_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


Answer = Callable[[Exchange], None]


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True
    origin: FakeOrigin

    def handle_error(self, *_: object) -> None:
        """A peer that went away is no error of the test's."""


class FakeOrigin:
    """Answers each path as told, and remembers what it was asked."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), Exchange)
        self._server.origin = self
        self._answers: dict[str, Answer] = {}
        self._asked: list[Asked] = []
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return self._server.server_port

    def on(self, path: str, answer: Answer) -> None:
        self._answers[path] = answer

    def asked(self, path: str) -> list[Asked]:
        return [asked for asked in self._asked if asked.path == path]

    def answer(self, exchange: Exchange) -> None:
        self._asked.append(exchange.asked)
        answer = self._answers.get(exchange.asked.path)
        if answer is None:
            exchange.send(404, {}, b"nothing here")
        else:
            answer(exchange)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
