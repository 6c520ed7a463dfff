"""A live reader of server-sent events."""

from __future__ import annotations

import asyncio

from devtools.load.client import Connection
from devtools.load.wire import HEAD_END, ChunkDecoder, Event, EventDecoder


class SseTail(Connection):
    """The decoded events of an SSE response, and None at its end."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._opening = b""
        self._opened = False
        self._chunks = ChunkDecoder()
        self._decoder = EventDecoder()
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._opened:
            self._opening += data
            head, found, data = self._opening.partition(HEAD_END)
            if not found:
                return
            self._opened = True
            if head[9:12] != b"200":
                self.events.put_nowait(Event("refused", head[:300].decode(errors="replace")))
                return
        for event in self._decoder.feed(self._chunks.feed(data)):
            self.events.put_nowait(event)
        if self._chunks.ended:
            self.events.put_nowait(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.events.put_nowait(None)
