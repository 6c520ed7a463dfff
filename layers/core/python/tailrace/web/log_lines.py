"""The log of a server: text for people on a terminal, one JSON object per line elsewhere.

Requests only append to a queue. A thread renders and writes their lines, so that neither a slow
terminal nor a full pipe delays an answer.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self
from urllib.parse import unquote_to_bytes

import orjson

from tailrace import metrics
from tailrace.limits import LOG_QUEUE_LINES
from tailrace.settings import Settings
from tailrace.web.asgi import App, Message, Receive, Scope, Send
from tailrace.web.messages import RawHeaders
from tailrace.web.urls import StreamUrls

CLOCK: Final = "%H:%M:%S"

FLUSH_SECONDS: Final = 0.2
"""How long a line waits for others to be written with it."""

_CODES: Final = {201: "created", 204: "done", 101: "connected", 304: "not-modified"}
_ERROR: Final = b'"code":"'


class AnsweredRequest(NamedTuple):
    """A request that was answered."""

    method: str
    url: bytes
    """Without its host; what follows the `?` may hold credentials."""
    status: int
    headers: RawHeaders
    body: bytes
    """Of an answer of known length."""
    received: int
    """Bytes of the request's body."""
    seconds: float
    """From the head of the request to the answer; of a live read to its end."""
    ended: float
    """Wall-clock time."""


def name_operation(method: str, path: bytes, query: bytes, urls: StreamUrls) -> str:
    """Name what a request does, in a word."""
    if not path.startswith(urls.byte_prefixes):
        return "other"
    if method == "GET":
        if b"live=sse" in query:
            return "sse"
        return "long-poll" if b"live=long-poll" in query else "read"
    return _OPERATIONS.get(method, "other")


_OPERATIONS: Final = {"PUT": "create", "POST": "append", "DELETE": "delete", "HEAD": "head"}


def name_outcome(status: int, body: bytes) -> str:
    """Name how a request ended: the code of its error, or the kind of its success."""
    if status < 400:
        return _CODES.get(status, "ok")
    begin = body.find(_ERROR)
    if begin < 0:
        return f"status-{status}"
    begin += len(_ERROR)
    return body[begin : body.find(b'"', begin)].decode("ascii", "replace")


class AccessLog:
    """Counts requests, and writes a line for each; of the successes only a sample, if so set."""

    def __init__(self, settings: Settings, *, is_terminal: bool | None = None) -> None:
        self._urls = StreamUrls(settings.ds_path)
        self.as_json: Final = is_json(settings, is_terminal)
        self._sample = settings.log_sample if self.as_json else 1.0
        self._slow = settings.log_slow
        self._is_on = settings.log_level in ("debug", "info")
        self._queue: deque[AnsweredRequest] = deque()
        self._due = 0.0
        """Lines that are due for successful requests."""
        self._dropped = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="tailrace-log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(FLUSH_SECONDS * 10)

    def record(
        self,
        method: str,
        url: bytes,
        status: int,
        headers: RawHeaders,
        body: bytes,
        received: int,
        seconds: float,
    ) -> None:
        """Record a request when it has been answered."""
        metrics.count_answer(status, seconds)
        if not self._is_on:
            return
        # A live read takes as long as its client wants.
        if status < 400 and (seconds < self._slow or b"live=" in url):
            self._due += self._sample
            if self._due < 1:
                return
            self._due -= 1
        if len(self._queue) >= LOG_QUEUE_LINES:
            self._dropped += 1
            metrics.count("log_lines_dropped_total")
            return
        self._queue.append(
            AnsweredRequest(method, url, status, headers, body, received, seconds, time.time())
        )

    def _write(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(FLUSH_SECONDS)
            lines = bytearray()
            while self._queue:
                lines += self.render(self._queue.popleft())
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                logging.getLogger("tailrace").warning(
                    "%d lines of requests were not written: the log is too slow", dropped
                )
            write_all(lines)

    def render(self, entry: AnsweredRequest) -> bytes:
        path, _, query = entry.url.partition(b"?")
        operation = name_operation(entry.method, path, query, self._urls)
        outcome = name_outcome(entry.status, entry.body)
        mount = next((each for each in self._urls.byte_prefixes if path.startswith(each)), b"")
        name = unquote_to_bytes(path.removeprefix(mount)).decode(errors="backslashreplace")
        request_id = next((v for k, v in reversed(entry.headers) if k == b"x-request-id"), b"")
        milliseconds = round(entry.seconds * 1000, 2)
        if self.as_json:
            fields = {
                "time": _format_time(entry.ended),
                "level": "INFO" if entry.status < 500 else "ERROR",
                "message": f"{operation} {outcome}",
                "operation": operation,
                "method": entry.method,
                "stream" if operation != "other" else "path": name,
                "status": entry.status,
                "outcome": outcome,
                "bytes": len(entry.body) + entry.received,
                "ms": milliseconds,
                "request_id": request_id.decode("latin-1"),
            }
            return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        shown = "".join(each if each.isprintable() else "?" for each in name)
        at = datetime.fromtimestamp(entry.ended).strftime(CLOCK)  # noqa: DTZ006 - for people
        size = len(entry.body) + entry.received
        text = f"{at} {entry.status} {operation} {shown} {outcome} {milliseconds} ms {size} B"
        return f"{text} {request_id.decode('latin-1')}\n".encode(errors="replace")


class LoggedApp:
    """Records the requests that an ASGI application answers."""

    def __init__(self, app: App, log: AccessLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        # What serves a WebSocket may clear its scope.
        method, query = scope.get("method", "GET"), scope["query_string"]
        path = scope.get("raw_path") or scope["path"].encode()
        watched = _Watched(receive, send)
        try:
            received = watched.receive if scope["type"] == "http" else receive
            await self._app(scope, received, watched.send)
        finally:
            if watched.status:
                self._log.record(
                    method,
                    path + b"?" + query if query else path,
                    watched.status,
                    watched.headers,
                    watched.body,
                    watched.received,
                    time.perf_counter() - began,
                )


class _Watched:
    """The messages of a request, of which its line needs some."""

    __slots__ = ("_receive", "_send", "body", "headers", "received", "status")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.status = self.received = 0
        self.headers: RawHeaders = []
        self.body = b""

    async def receive(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind.endswith("response.start"):
            self.status, self.headers = message["status"], list(message["headers"])
        elif kind.endswith("response.body"):
            self.body = self.body or message.get("body", b"")
        elif kind == "websocket.accept":
            self.status = 101
        await self._send(message)


def is_json(settings: Settings, is_terminal: bool | None = None) -> bool:
    if settings.log_format != "auto":
        return settings.log_format == "json"
    return not (sys.stderr.isatty() if is_terminal is None else is_terminal)


def set_up_logging(settings: Settings) -> None:
    """Log to stderr, in the format that the settings ask for."""
    handler = logging.StreamHandler()
    if is_json(settings):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", CLOCK)
        )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])


class JsonFormatter(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _format_time(record.created),
            "level": record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(fields, default=str).decode()


def write_all(data: bytes | bytearray) -> None:
    """Write to stderr; what it does not take any more is lost."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(2, view) :]
    except OSError:
        pass


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
