"""uvicorn's WebSocket protocol with a fast lane for what goes to many."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from tailrace.cable.local.socket import WRITE_NOW

_quiet = logging.getLogger("tailrace.websocket")
_quiet.setLevel(logging.WARNING)

_TEXT = 0x81
"""The first byte of a frame that is a whole text."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """A text is made a frame once, however many connections it is written to: the frames of a
    server are neither masked nor, here, compressed.

    The log says nothing of who connects and what is sent, for there are tokens in it."""

    _framed: tuple[str, bytes] = ("", b"")
    """The last text and its frame."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _quiet
        self.conn.logger = _quiet
        self.conn.debug = False

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast(dict[str, Any], self.scope)[WRITE_NOW] = self._write_now

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # It would be logged that the application has not answered.
            self.handshake_complete = True

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        # What a client that does not read has not taken by now would be kept until it goes.
        if not self.writable.is_set():
            self.transport.abort()

    def _write_now(self, text: str) -> bool:
        if self.disconnected or self.close_sent or not self.writable.is_set():
            return False
        last, frame = SocketProtocol._framed
        if last is not text:
            frame = framed(text)
            SocketProtocol._framed = text, frame
        self.transport.write(frame)
        return True


def framed(text: str) -> bytes:
    payload = text.encode()
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", _TEXT, length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", _TEXT, 126, length)
    else:
        head = struct.pack("!BBQ", _TEXT, 127, length)
    return head + payload
