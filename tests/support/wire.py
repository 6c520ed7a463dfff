"""A minimal HTTP client for tests, which sends and receives exact bytes."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx

from tailrace import __version__

SECONDS = 10.0
"""How long an answer may take before a test fails."""

COMMON_HEADERS = {
    "x-tailrace-version": __version__,
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "cross-origin",
    "access-control-allow-origin": "*",
}
"""Headers of every answer."""

TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
CLOSE = {"stream-closed": "true"}

START = f"{0:016d}_{0:016d}"
MOST = 2**53 - 1
"""The largest number a header may hold."""

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


def place(offset: str) -> str:
    """An offset as that of any stream: without the epoch, which is random."""
    assert re.fullmatch("[0-9]{16}_[0-9]{16}", offset)
    return "0000" + offset[4:]


class Hangup(ConnectionError):
    """The connection ended within an answer."""


class Answer(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def offset(self) -> str:
        return self.headers["stream-next-offset"]

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(error_of(self)["code"])


def error_of(answer: Answer | httpx.Response) -> dict[str, Any]:
    """Parse the error that an answer describes, and check its form."""
    body = answer.body if isinstance(answer, Answer) else answer.content
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(body)
    value = json.loads(body)
    assert value.keys() == {"error"}
    error: dict[str, Any] = value["error"]
    assert error.keys() >= {"code", "message"}
    assert error["code"].isupper()
    assert error["message"]
    return error


def producer(name: str, epoch: int, seq: int) -> dict[str, str]:
    return {"producer-id": name, "producer-epoch": str(epoch), "producer-seq": str(seq)}


def request(
    method: str,
    target: str,
    headers: Headers = (),
    body: bytes | None = None,
    *,
    version: str = "1.1",
) -> bytes:
    """Encode a request; header values may hold any byte as latin-1."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in pairs}
    if "host" not in names:
        pairs.insert(0, ("Host", "localhost"))
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        pairs.append(("Content-Length", str(len(body))))
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def chunked(*pieces: bytes) -> bytes:
    """Encode a chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def target(path: str, mount: str = "/v1/stream", **query: str) -> str:
    """The request target of a stream."""
    parameters = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    return f"{mount}/{path}" + (f"?{parameters}" if parameters else "")


class Connection:
    """One TCP connection to a server."""

    def __init__(self, port: int, seconds: float = SECONDS, *, receive_bytes: int = 0) -> None:
        self.seconds = seconds
        self._socket = socket.socket()
        if receive_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self._socket.settimeout(seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.connect(("127.0.0.1", port))
            if self._socket.getsockname() == self._socket.getpeername():
                raise ConnectionRefusedError("no server listens: the socket connected to itself")
        except OSError:
            self._socket.close()
            raise
        self._read = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(
        self, method: str, target: str, headers: Headers = (), body: bytes | None = None
    ) -> Answer:
        self.send(request(method, target, headers, body))
        return self.answer(method)

    def answer(self, method: str = "GET") -> Answer:
        """Read the next answer; `method` is that of its request."""
        status, headers = self.head()
        if method == "HEAD" or status in (204, 304) or status < 200:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self.chunks())
        if "content-length" in headers:
            return Answer(status, headers, self._take(int(headers["content-length"])))
        return Answer(status, headers, self.rest())

    def head(self) -> tuple[int, httpx.Headers]:
        """Read the status and headers of the next answer, and leave its body to be read."""
        lines = self._until(b"\r\n\r\n").split(b"\r\n")
        version, status, *_ = lines[0].split(b" ")
        assert version in (b"HTTP/1.0", b"HTTP/1.1"), lines[0]
        pairs = [line.split(b": ", 1) for line in lines[1:-2]]
        return int(status), httpx.Headers([(name, value) for name, value in pairs])

    def chunk(self) -> bytes:
        """Read the next chunk of a chunked body; empty at its end."""
        size = int(self._until(b"\r\n"), 16)
        data = self._take(size)
        assert self._take(2) == b"\r\n"
        return data

    def chunks(self) -> bytes:
        return b"".join(iter(self.chunk, b""))

    def rest(self) -> bytes:
        """Read until the server closes the connection."""
        while self._receive():
            pass
        read, self._read = self._read, b""
        return read

    def quiet(self, seconds: float) -> bool:
        """Whether nothing arrives for a while."""
        return not self._read and not select.select([self._socket], [], [], seconds)[0]

    def ended(self, seconds: float = 2.0) -> bool:
        """Whether the server closes the connection, and sends nothing before."""
        if self._read:
            return False
        self._socket.settimeout(seconds)
        try:
            return not self._receive()
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(self.seconds)

    def stop_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self) -> bool:
        data = self._socket.recv(1 << 16)
        self._read += data
        return bool(data)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._read:
            if not self._receive():
                raise Hangup(f"after {self._read[:200]!r}")
        data, _, self._read = self._read.partition(mark)
        return data + mark

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            if not self._receive():
                raise Hangup(f"after {len(self._read)} of {size} bytes")
        data, self._read = self._read[:size], self._read[size:]
        return data


def eventually(check: Callable[[], bool], *, seconds: float = 5.0) -> None:
    """Wait until a check holds."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)
