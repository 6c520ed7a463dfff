"""A runner for the command line, and a small server with planned answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tailrace.cli import main
from tests.support.sleeps import replace_sleep

Run = Callable[..., Result]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Dropped(Answer):
    """The connection is closed without an answer."""


@dataclass
class Wire:
    """Planned answers in order, and the requests; an unplanned request gets a 418."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def will(self, status: int = 200, body: bytes = b"", **headers: str) -> Wire:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["X-Tailrace-Version"] = "0"
        self.answers.append(Answer(status, named, body))
        return self

    def will_drop(self) -> Wire:
        self.answers.append(Dropped())
        return self

    @property
    def targets(self) -> list[tuple[str, str]]:
        return [(request.method, request.path) for request in self.requests]


@pytest.fixture
def wire() -> Iterator[Wire]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            planned.requests.append(
                Request(self.command, self.path, dict(self.headers.items()), body)
            )
            answer = planned.answers.pop(0) if planned.answers else Answer(418)
            if isinstance(answer, Dropped):
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    planned = Wire(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield planned
    server.shutdown()
    thread.join()
    server.server_close()


def runner(url: str) -> Run:
    def run(*args: str, stdin: bytes | None = None, **env: str) -> Result:
        return CliRunner(env={"TAILRACE_URL": url, "TAILRACE_TOKEN": None, **env}).invoke(
            main, args, input=stdin, prog_name="tailrace", catch_exceptions=False
        )

    return run


@pytest.fixture
def run(wire: Wire) -> Run:
    """The command line, with the small server as its `--url`."""
    return runner(wire.url)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the sleeps of the test's thread instead of sleeping."""
    waited: list[float] = []
    replace_sleep(monkeypatch, waited.append)
    return waited
