"""uvicorn's WebSocket protocol for clients that may be hostile, with a fast lane to many of them.

uvicorn parses the head of a handshake; it is not parsed again here. From then on nothing is read
from a client that does not take what is written to it, or whose commands wait: what it sends stays
in its own buffers. One that neither completes its handshake nor takes anything is let go.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import struct
from collections.abc import Generator
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol, State
from websockets.server import ServerProtocol

from tailrace.errors import BadRequest
from tailrace.limits import CABLE_STALL_SECONDS, CABLE_WAITING_COMMANDS, HEAD_SECONDS
from tailrace.web.asgi import WRITE_NOW
from tailrace.web.statuses import error_response

_quiet = logging.getLogger("tailrace.websocket")
_quiet.setLevel(logging.WARNING)

_TEXT: Final = 0x81
"""The first byte of a frame that is a whole text."""

_PIECE: Final = 1 << 10
"""Bytes that are parsed at once: they may hold 170 frames, each of which becomes an object."""

_utf8 = codecs.getincrementaldecoder("utf-8")


class _Frames(ServerProtocol):
    """The frames of a connection whose head is parsed elsewhere."""

    _decoder: codecs.IncrementalDecoder | None = None
    """Of the message that is being received, if it is a text."""

    def parse(self) -> Generator[None]:
        return Protocol.parse(self)

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        if frame.opcode is Opcode.TEXT:
            self._decoder = _utf8()
        elif frame.opcode is Opcode.BINARY:
            self._decoder = None
        elif frame.opcode is not Opcode.CONT:
            return
        # Raised here it ends the connection with 1007 before the frames behind it are looked at.
        if self._decoder is not None:
            self._decoder.decode(frame.data, frame.fin)


class SocketProtocol(WebSocketsSansIOProtocol):
    """A text is made a frame once, however many connections it is written to: the frames of a
    server are neither masked nor, here, compressed.

    The log says nothing of who connects and what is sent, for there are tokens in it."""

    _framed: tuple[str, bytes] = ("", b"")
    """The last text and its frame."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _quiet
        self.conn = _Frames(max_size=self.config.ws_max_size, logger=_quiet)
        self.conn.debug = False
        self._unread = memoryview(b"")
        """Received, and not parsed yet."""
        self._message = bytearray()
        """What has arrived of the next message."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = 0
        """Bytes that waited to be taken when that was last looked at."""
        self._stuck = 0
        """How often in a row none of them had been taken."""

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._look_in)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_on()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = 0
        self._read_on()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            self._begin(data)
        else:
            self._unread = memoryview(bytes(self._unread) + data)
        self._read_on()

    def shutdown(self) -> None:
        is_ending = self.handshake_complete and self.conn.state is not State.OPEN
        if is_ending or self.transport.is_closing():
            # It has been told, and cannot be told twice.
            self.transport.close()
        else:
            super().shutdown()

    # The handshake

    def _begin(self, head: bytes) -> None:
        try:
            request = parse_head(head)
        except ValueError:
            self._refuse(BadRequest("the request is not the handshake of a WebSocket"))
        else:
            self.handle_connect(request)

    def _refuse(self, error: BadRequest) -> None:
        answer = error_response(error)
        fields = [(name.decode(), value.decode()) for name, value in answer.headers]
        fields += [("connection", "close"), ("content-length", str(len(answer.body)))]
        phrase = HTTPStatus(answer.status).phrase
        self.conn.send_response(Response(answer.status, phrase, Headers(fields), answer.body))
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast("dict[str, Any]", self.scope)[WRITE_NOW] = self._write_now

    # Reading

    def _read_on(self) -> None:
        """Parse what was received, as far as it is the client's turn."""
        while self._unread and self._is_reading():
            piece, self._unread = bytes(self._unread[:_PIECE]), self._unread[_PIECE:]
            self.conn.receive_data(piece)
            if self.conn.parser_exc is None:
                self.handle_events()
            else:
                self.handle_parser_exception()
        if self.transport.is_closing():
            self._unread = memoryview(b"")
        elif self._is_reading():
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _is_reading(self) -> bool:
        if not self.handshake_complete or not self.writable.is_set():
            return False
        waiting = 0 if self.close_sent else self.queue.qsize()
        return waiting < CABLE_WAITING_COMMANDS and not self.transport.is_closing()

    def handle_text(self, event: Frame) -> None:
        self.curr_msg_data_type = "text"
        self.handle_cont(event)

    def handle_bytes(self, event: Frame) -> None:
        self.curr_msg_data_type = "bytes"
        self.handle_cont(event)

    def handle_cont(self, event: Frame) -> None:
        # Joined as they come: a list of fragments would outgrow the message by far.
        self._message += event.data
        if not event.fin:
            return
        message = bytes(self._message)
        self._message.clear()
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            self.queue.put_nowait({"type": "websocket.receive", "text": message.decode()})
        else:
            self.queue.put_nowait({"type": "websocket.receive", "bytes": message})

    async def receive(self) -> Any:
        message = await self.queue.get()
        if not self.disconnected:
            self._read_on()
        return message

    # Writing

    async def send(self, message: Any) -> None:
        await self.writable.wait()
        if self.disconnected or self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # It would be logged that the application has not answered.
            self.handshake_complete = True
        # From its first message on, and again after its last, more is read than before.
        self._read_on()

    def _write_now(self, text: str) -> bool:
        if self.close_sent or not self.writable.is_set() or self.transport.is_closing():
            return False
        last, frame = SocketProtocol._framed
        if last is not text:
            frame = framed(text)
            SocketProtocol._framed = text, frame
        self.transport.write(frame)
        return True

    # Letting go

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        # What a client that does not read has not taken by now would be kept until it goes.
        if not self.writable.is_set():
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        if self._is_reading():
            super().keepalive_timeout()
        else:
            # The client may have answered: nobody has read it.
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()

    def _look_in(self) -> None:
        """Abort the connection when its handshake is late, or its client takes nothing."""
        waiting = self.transport.get_write_buffer_size()
        is_full = self.transport.is_closing() or not self.writable.is_set()
        # While it is full nothing is added: if there is no less, nothing was taken.
        self._stuck = self._stuck + 1 if is_full and 0 < self._waiting <= waiting else 0
        self._waiting = waiting
        if not self.handshake_complete or self._stuck * HEAD_SECONDS >= CABLE_STALL_SECONDS:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._look_in)


def parse_head(head: bytes) -> Request:
    """The request of a handshake, as uvicorn writes it after it has parsed it; ValueError: it
    cannot be one."""
    line, *lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ")
    headers = Headers()
    for each in lines:
        name, _, value = each.partition(": ")
        headers[name] = value.strip(" \t")
    if "transfer-encoding" in headers or set(headers.get_all("content-length")) - {"0"}:
        raise ValueError("a handshake has no body")
    if not path.isascii() or not "".join(headers).isascii():
        raise ValueError("a target and the names of fields are ASCII")
    return Request(path, headers, method)


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
