"""Minimal HTTP/1.1 for load tests: rendered requests, incremental responses, SSE."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HEAD_END = b"\r\n\r\n"


def render(
    method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> bytes:
    """Render a complete request, so that sending it takes one write."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + HEAD_END + (body or b"")


@dataclass(slots=True)
class Response:
    status: int
    head: bytes
    body: bytes
    length: int

    def header(self, name: str) -> str | None:
        return header_of(self.head, name)

    def json(self) -> Any:
        return json.loads(self.body)


def header_of(head: bytes, name: str) -> str | None:
    wanted = name.lower().encode()
    for line in head.split(b"\r\n")[1:]:
        field, _, value = line.partition(b":")
        if field.lower() == wanted:
            return value.strip().decode()
    return None


class ChunkDecoder:
    """Decodes `Transfer-Encoding: chunked`, however the data is split."""

    __slots__ = ("_held", "_missing", "ended")

    def __init__(self) -> None:
        self._held = b""
        self._missing = 0
        self.ended = False

    def feed(self, data: bytes) -> list[bytes]:
        if self._held:
            data, self._held = self._held + data, b""
        pieces: list[bytes] = []
        at = 0
        while at < len(data):
            if self._missing > 2:
                piece = data[at : at + self._missing - 2]
                pieces.append(piece)
                self._missing -= len(piece)
                at += len(piece)
            elif self._missing:
                skipped = min(self._missing, len(data) - at)
                self._missing -= skipped
                at += skipped
            else:
                line_end = data.find(b"\r\n", at)
                if line_end < 0 or (data[at : at + 1] == b"0" and len(data) < line_end + 4):
                    self._held = data[at:]
                    break
                size = int(data[at:line_end].partition(b";")[0], 16)
                at = line_end + 2
                if size == 0:
                    self.ended = True
                    break
                self._missing = size + 2
        return pieces


class ResponseParser:
    """Parses one response at a time, because no connection has two requests in flight."""

    __slots__ = ("_chunks", "_held", "_keep", "_missing", "_pieces", "head", "length", "status")

    def __init__(self, keep_body: bool) -> None:
        self._keep = keep_body
        self._pieces: list[bytes] = []
        self._held = b""
        self._chunks: ChunkDecoder | None = None
        self._missing = -1
        self.status = 0
        self.head = b""
        self.length = 0

    def feed(self, data: bytes) -> bool:
        """Returns True when the response is complete, with `status`, `head` and `length` set."""
        if self._missing < 0:
            if self._held:
                data, self._held = self._held + data, b""
            end = data.find(HEAD_END)
            if end < 0:
                self._held = data
                return False
            self._start(data[:end])
            data = data[end + 4 :]
            if not data:
                return self._done_if(self._chunks is None and self._missing == 0)
        if self._chunks is not None:
            for piece in self._chunks.feed(data):
                self._take(piece)
            return self._done_if(self._chunks.ended)
        self._missing -= len(data)
        if self._missing < 0:
            raise ValueError(f"{-self._missing} bytes more than announced: {self.head!r}")
        self._take(data)
        return self._done_if(self._missing == 0)

    def take_body(self) -> bytes:
        return b"".join(self._pieces)

    def _start(self, head: bytes) -> None:
        self.head = head
        self.status = int(head[9:12])
        self.length = 0
        self._pieces = []
        self._chunks = None
        self._missing = 0
        if self.status in (204, 304):
            return
        lowered = head.lower()
        at = lowered.find(b"\r\ncontent-length:")
        if at >= 0:
            line_end = lowered.find(b"\r\n", at + 2)
            self._missing = int(lowered[at + 17 : line_end if line_end > 0 else None])
        elif b"transfer-encoding: chunked" in lowered:
            self._chunks = ChunkDecoder()

    def _take(self, piece: bytes) -> None:
        self.length += len(piece)
        if self._keep:
            self._pieces.append(piece)

    def _done_if(self, complete: bool) -> bool:
        if complete:
            self._missing = -1
        return complete


@dataclass(slots=True)
class Event:
    kind: str
    data: str


class EventDecoder:
    """Splits the text of an SSE response into events."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, pieces: Iterable[bytes]) -> list[Event]:
        *blocks, self._held = (self._held + b"".join(pieces)).split(b"\n\n")
        return [event for event in map(_event, blocks) if event is not None]


def _event(block: bytes) -> Event | None:
    kind, data = "", []
    for line in block.decode().split("\n"):
        field, _, value = line.partition(":")
        if field == "event":
            kind = value.strip()
        elif field == "data":
            data.append(value)
    return Event(kind, "\n".join(data)) if kind else None
