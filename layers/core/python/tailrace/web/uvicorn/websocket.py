"""uvicorn's WebSocket protocol, made safe against hostile clients, and fast for broadcasts.

uvicorn has parsed the head of the handshake, so it is not parsed again. After it nothing is read
from a client that does not read what is written to it, or whose commands are queued: its data stays
in its own buffers. A client whose handshake is late, or that reads nothing, is disconnected.
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
from tailrace.limits import CABLE_QUEUED_COMMANDS, CABLE_STALL_SECONDS, HEADER_SECONDS
from tailrace.web.asgi import WRITE_NOW
from tailrace.web.statuses import error_response

_logger = logging.getLogger("tailrace.websocket")
_logger.setLevel(logging.WARNING)

_TEXT: Final = 0x81
"""The first byte of a frame that holds a whole text message."""

_PIECE: Final = 1 << 10
"""Bytes that are parsed at a time: they may hold 170 frames, each of which becomes an object."""

_utf8 = codecs.getincrementaldecoder("utf-8")


class _Frames(ServerProtocol):
    """Parses the frames of a connection whose handshake has been parsed by uvicorn."""

    _decoder: codecs.IncrementalDecoder | None = None
    """Decodes the message that is being received, if it is a text."""

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
        # An error here closes the connection with 1007 before the next frames are parsed.
        if self._decoder is not None:
            self._decoder.decode(frame.data, frame.fin)


class SocketProtocol(WebSocketsSansIOProtocol):
    """Encodes a text as a frame once for all connections that it is written to, since frames of a
    server are not masked, and ours are not compressed.

    Handshakes and messages are not logged, since they hold tokens."""

    _last_frame: tuple[str, bytes] = ("", b"")
    """The text that was written last, and its frame."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _logger
        self.conn = _Frames(max_size=self.config.ws_max_size, logger=_logger)
        self.conn.debug = False
        self._unread = memoryview(b"")
        """Received data that is not parsed yet."""
        self._message = bytearray()
        """The part of the next message that has arrived."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        """Bytes in the write buffer at the last check."""
        self._stalled_checks = 0
        """Number of consecutive checks that found the write buffer full and no smaller."""

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEADER_SECONDS, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._parse_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_checks = 0
        self._parse_unread()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            self._begin(data)
        else:
            self._unread = memoryview(bytes(self._unread) + data)
        self._parse_unread()

    def shutdown(self) -> None:
        is_ending = self.handshake_complete and self.conn.state is not State.OPEN
        if is_ending or self.transport.is_closing():
            # A second close frame must not be sent.
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
        headers = [(name.decode(), value.decode()) for name, value in answer.headers]
        headers += [("connection", "close"), ("content-length", str(len(answer.body)))]
        phrase = HTTPStatus(answer.status).phrase
        self.conn.send_response(Response(answer.status, phrase, Headers(headers), answer.body))
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            cast("dict[str, Any]", self.scope)[WRITE_NOW] = self._write_now

    # Reading

    def _parse_unread(self) -> None:
        """Parse received data while more of it may be read."""
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
        queued = 0 if self.close_sent else self.queue.qsize()
        return queued < CABLE_QUEUED_COMMANDS and not self.transport.is_closing()

    def handle_text(self, event: Frame) -> None:
        self.curr_msg_data_type = "text"
        self.handle_cont(event)

    def handle_bytes(self, event: Frame) -> None:
        self.curr_msg_data_type = "bytes"
        self.handle_cont(event)

    def handle_cont(self, event: Frame) -> None:
        # Fragments are joined at once: a list of tiny ones would take far more memory.
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
            self._parse_unread()
        return message

    # Writing

    async def send(self, message: Any) -> None:
        await self.writable.wait()
        if self.disconnected or self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            # Otherwise uvicorn logs that the application has not answered.
            self.handshake_complete = True
        # The handshake may be complete now, or a close frame sent: either lets more be read.
        self._parse_unread()

    def _write_now(self, text: str) -> bool:
        if self.close_sent or not self.writable.is_set() or self.transport.is_closing():
            return False
        last, frame = SocketProtocol._last_frame
        if last is not text:
            frame = encode_frame(text)
            SocketProtocol._last_frame = text, frame
        self.transport.write(frame)
        return True

    # Disconnecting

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        # The write buffer of a client that does not read would be kept until it disconnects.
        if not self.writable.is_set():
            self.transport.abort()

    def keepalive_timeout(self) -> None:
        if self._is_reading():
            super().keepalive_timeout()
        else:
            # The pong may be among the data that is not read.
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()

    def _check_progress(self) -> None:
        """Abort the connection if its handshake is late, or its client reads nothing."""
        unsent = self.transport.get_write_buffer_size()
        is_full = self.transport.is_closing() or not self.writable.is_set()
        # Nothing is added to a full buffer: if it is no smaller, the client has read nothing.
        stalled = is_full and 0 < self._unsent <= unsent
        self._stalled_checks = self._stalled_checks + 1 if stalled else 0
        self._unsent = unsent
        stalled_seconds = self._stalled_checks * HEADER_SECONDS
        if not self.handshake_complete or stalled_seconds >= CABLE_STALL_SECONDS:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._check_progress)


def parse_head(head: bytes) -> Request:
    """Parse the request of a handshake in the form in which uvicorn passes it on.

    ValueError: it is not the request of a handshake."""
    line, *lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ")
    headers = Headers()
    for field in lines:
        name, _, value = field.partition(": ")
        headers[name] = value.strip(" \t")
    if "transfer-encoding" in headers or set(headers.get_all("content-length")) - {"0"}:
        raise ValueError("a handshake with a body")
    if not path.isascii() or not "".join(headers).isascii():
        raise ValueError("a target or the name of a field is not ASCII")
    return Request(path, headers, method)


def encode_frame(text: str) -> bytes:
    payload = text.encode()
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", _TEXT, length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", _TEXT, 126, length)
    else:
        head = struct.pack("!BBQ", _TEXT, 127, length)
    return head + payload
