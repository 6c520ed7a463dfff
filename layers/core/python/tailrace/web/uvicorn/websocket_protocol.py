"""The protocol of a WebSocket, for uvicorn: safe against hostile clients, and fast for broadcasts.

`StreamProtocol` has parsed the head of the handshake, and hands the connection over with it.
websockets parses the frames. Nothing is read from a client that does not read what is written to
it, or whose commands are queued: its data stays in its own buffers. A client whose handshake is
late, that reads nothing, or that answers no ping, is disconnected.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import http
import logging
import re
import struct
from hashlib import sha1
from typing import Any, ClassVar, Final, cast
from urllib.parse import unquote

import uvicorn
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from tailrace.errors import BadRequest, MethodNotAllowed, TailraceError
from tailrace.limits import (
    CABLE_CLOSING_SECONDS,
    CABLE_PONG_SECONDS,
    CABLE_QUEUED_COMMANDS,
    CABLE_STALL_SECONDS,
    HEADER_SECONDS,
)
from tailrace.web.asgi import WRITE_NOW
from tailrace.web.messages import (
    COMMON_HEADERS,
    VERSION_HEADER,
    RawHeaders,
    combine,
    render_headers,
)
from tailrace.web.statuses import error_response

_logger = logging.getLogger("tailrace.websocket")
_logger.setLevel(logging.WARNING)

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""The constant of RFC 6455 that proves that a server understands the handshake."""

_VERSION: Final = render_headers([VERSION_HEADER])

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_TEXT: Final = 0x81
"""The first byte of a frame that holds a whole text message."""

_PIECE: Final = 1 << 10
"""Bytes that are parsed at a time: they may hold 170 frames, each of which becomes an object."""

_PING_CHECKS: Final = CABLE_PONG_SECONDS // HEADER_SECONDS
"""Checks without anything received after which a client is pinged."""

_utf8 = codecs.getincrementaldecoder("utf-8")

Message = dict[str, Any]


class _Frames(Protocol):
    """Parses frames, and texts as they arrive."""

    _decoder: codecs.IncrementalDecoder | None = None
    """Decodes the message that is being received, if it is a text."""

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


class SocketProtocol(asyncio.Protocol):
    """A connection, from its handshake on.

    A text is encoded as a frame once for all connections that it is written to, since frames of a
    server are not masked, and ours are not compressed. Handshakes and messages are not logged,
    since they hold tokens."""

    _last_frames: ClassVar[tuple[str | tuple[str, ...], bytes]] = ("", b"")
    """The text or texts that were written last, and their frames."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._app = config.loaded_app
        self._server = server_state
        self._connections: set[Any] = server_state.connections
        self._loop = loop
        self._transport: asyncio.Transport
        self._frames = _Frames(Side.SERVER, max_size=config.ws_max_size, logger=_logger)
        self._accept = b""
        """Proves in the answer to the handshake that it was understood."""
        self._answered = False
        """Whether the handshake is complete, or was refused."""
        self._closing = False
        """Whether the last frame or response is sent: nothing else is."""
        self._disconnected = False
        self._response: Message = {}
        """The head of the response that refuses the handshake."""
        self._received: list[Message] = []
        """The messages that the application has yet to receive."""
        self._arrival: asyncio.Future[None] | None = None
        """Resolved when a message arrives for an application that waits."""
        self._writable: asyncio.Event | None = None
        """Set when the write buffer has room again; None while it has."""
        self._unread = memoryview(b"")
        """Received data that is not parsed yet."""
        self._message = bytearray()
        """The part of the next message that has arrived."""
        self._is_text = False
        self._timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        """Bytes in the write buffer at the last check."""
        self._stalled_checks = 0
        """Number of consecutive checks that found the write buffer full and no smaller."""
        self._silent_checks = 0
        """Number of consecutive checks that found nothing received."""

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)
        self._timer = self._loop.call_later(HEADER_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for timer in (self._timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._connections.discard(self)
        self._answered = self._disconnected = True
        self._deliver({"type": "websocket.disconnect", "code": 1005})
        # The transport does not resume writing after this.
        if self._writable is not None:
            self._writable.set()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self._parse_unread()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
        self._writable = None
        self._stalled_checks = 0
        self._parse_unread()

    def data_received(self, data: bytes) -> None:
        self._silent_checks = 0
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._parse_unread()

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops."""
        if self._answered and not self._closing and not self._transport.is_closing():
            self._send_close(1012, "")
        self._transport.close()

    # The handshake

    def begin(self, method: str, url: bytes, headers: RawHeaders, scope: Message) -> None:
        """Answer a handshake; `scope` has what ASGI wants to know about the connection."""
        try:
            if method != "GET":
                raise MethodNotAllowed(method, "GET")
            if not url.isascii():
                raise BadRequest("the target of a request must be ASCII")
            fields = combine(headers)
            self._accept = accept_of(fields)
            subprotocols = subprotocols_of(fields)
        except TailraceError as error:
            answer = error_response(error)
            self._refuse(answer.status, COMMON_HEADERS + answer.headers, answer.body)
            return
        raw_path, _, query = url.partition(b"?")
        scope |= {
            "type": "websocket",
            "http_version": "1.1",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
            "subprotocols": subprotocols,
            "extensions": {"websocket.http.response": {}},
            WRITE_NOW: self._write_now,
        }
        self._received.append({"type": "websocket.connect"})
        task = self._loop.create_task(self._run(scope))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    async def _run(self, scope: Message) -> None:
        try:
            await self._app(scope, self.receive, self.send)
        except ClientDisconnected:
            pass
        except Exception:
            _logger.exception("a WebSocket failed")
        if not self._answered:
            self._refuse(500, COMMON_HEADERS, b"")
        if self._writable is not None:
            # The write buffer of a client that does not read would be kept until it disconnects.
            self._transport.abort()
        elif self._close_timer is None:
            self._transport.close()

    def _refuse(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Answer the handshake by a response, and close the connection."""
        self._answered = self._closing = True
        phrase = http.HTTPStatus(status).phrase.encode()
        self._transport.write(
            b"HTTP/1.1 %d %b\r\n%b%bconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (
                status,
                phrase,
                render_headers(self._server.default_headers),
                render_headers(headers),
                len(body),
                body,
            )
        )
        self._transport.close()

    # Reading

    def _parse_unread(self) -> None:
        """Parse received data while more of it may be read."""
        while self._unread and self._is_reading():
            piece, self._unread = bytes(self._unread[:_PIECE]), self._unread[_PIECE:]
            self._frames.receive_data(piece)
            if self._frames.parser_exc is None:
                for frame in self._frames.events_received():
                    self._handle(cast("Frame", frame))
            # Pongs, and the frame that closes the connection after an error.
            self._flush_frames()
            if self._frames.parser_exc is not None:
                self._end()
        if self._transport.is_closing():
            self._unread = memoryview(b"")
        elif self._is_reading():
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _is_reading(self) -> bool:
        if not self._answered or self._writable is not None:
            return False
        queued = 0 if self._closing else len(self._received)
        return queued < CABLE_QUEUED_COMMANDS and not self._transport.is_closing()

    def _handle(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            # websockets has made the answer.
            self._flush_frames()
            self._end()
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            # Fragments are joined at once: a list of tiny ones would take far more memory.
            self._message += frame.data
            if frame.fin:
                message = bytes(self._message)
                self._message.clear()
                if not self._closing:
                    content = {"text": message.decode()} if self._is_text else {"bytes": message}
                    self._deliver({"type": "websocket.receive", **content})

    def _end(self) -> None:
        """End the connection after the last frame was written."""
        if not self._closing:
            self._deliver_disconnect()
        self._closing = True
        self._transport.close()

    def _deliver(self, message: Message) -> None:
        """Let the application receive a message."""
        self._received.append(message)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _deliver_disconnect(self) -> None:
        close = self._frames.close_rcvd or self._frames.close_sent
        code = 1005 if close is None else close.code
        self._deliver({"type": "websocket.disconnect", "code": code})

    async def receive(self) -> Message:
        while not self._received:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        message = self._received.pop(0)
        if not self._disconnected:
            self._parse_unread()
        return message

    # Writing

    async def send(self, message: Message) -> None:
        while self._writable is not None and not self._disconnected:
            await self._writable.wait()
        if self._disconnected or self._transport.is_closing():
            raise ClientDisconnected
        match message["type"]:
            case "websocket.accept":
                self._send_acceptance(message.get("subprotocol"))
            case "websocket.send" if not self._closing:
                self._transport.write(encode_frame(message["text"]))
            case "websocket.close" if not self._answered:
                self._refuse(403, COMMON_HEADERS, b"")
            case "websocket.close" if not self._closing:
                self._send_close(message["code"], message["reason"])
                # The application need not wait for the client to confirm that.
                self._deliver_disconnect()
                self._close_timer = self._loop.call_later(
                    CABLE_CLOSING_SECONDS, self._transport.close
                )
            case "websocket.http.response.start":
                self._response = message
            case "websocket.http.response.body":
                head = self._response
                self._refuse(head["status"], head["headers"], message["body"])
        # The handshake may be complete now, or a close frame sent: either lets more be read.
        self._parse_unread()

    def _send_acceptance(self, subprotocol: str | None) -> None:
        headers: RawHeaders = [*self._server.default_headers, VERSION_HEADER]
        if subprotocol:
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        self._answered = True
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: %b\r\n%b\r\n" % (self._accept, render_headers(headers))
        )

    def _send_close(self, code: int, reason: str) -> None:
        self._closing = True
        if self._frames.state is State.OPEN:
            self._frames.send_close(code, reason)
        self._flush_frames()

    def _flush_frames(self) -> None:
        """Write the control frames that websockets has made."""
        data = b"".join(self._frames.data_to_send())
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _write_now(self, text: str | tuple[str, ...]) -> bool:
        if self._closing or self._writable is not None or self._transport.is_closing():
            return False
        last, data = SocketProtocol._last_frames
        if last is not text:
            texts = (text,) if isinstance(text, str) else text
            data = b"".join(map(encode_frame, texts))
            SocketProtocol._last_frames = text, data
        self._transport.write(data)
        return True

    # Disconnecting

    def _check(self) -> None:
        """Abort the connection if its handshake is late, or its client reads or answers nothing."""
        unsent = self._transport.get_write_buffer_size()
        is_full = self._transport.is_closing() or self._writable is not None
        # Nothing is added to a full buffer: if it is no smaller, the client has read nothing.
        stalled = is_full and 0 < self._unsent <= unsent
        self._stalled_checks = self._stalled_checks + 1 if stalled else 0
        self._unsent = unsent
        stalled_seconds = self._stalled_checks * HEADER_SECONDS
        # While nothing is read, an answer to a ping may be among it.
        self._silent_checks = self._silent_checks + 1 if self._is_reading() else 0
        if not self._answered or stalled_seconds >= CABLE_STALL_SECONDS:
            self._transport.abort()
            return
        if self._silent_checks == _PING_CHECKS and not self._closing:
            self._frames.send_ping(b"")
            self._flush_frames()
        elif self._silent_checks == 2 * _PING_CHECKS and not self._closing:
            self._send_close(1011, "no answer to a ping")
            self._transport.close()
        self._timer = self._loop.call_later(HEADER_SECONDS, self._check)


def accept_of(fields: dict[bytes, bytes]) -> bytes:
    """The accepting value for the fields of a handshake; BadRequest: they are not those of one."""
    key = fields.get(b"sec-websocket-key", b"")
    try:
        is_key = len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        is_key = False
    has_body = b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"
    if not is_key or has_body or fields.get(b"sec-websocket-version") != b"13":
        raise BadRequest("the request is not the handshake of a WebSocket, version 13")
    return base64.b64encode(sha1(key + _GUID).digest())  # noqa: S324 - as RFC 6455 has it


def subprotocols_of(fields: dict[bytes, bytes]) -> list[str]:
    """The subprotocols that a client offers; BadRequest: the list is not one of tokens."""
    value = fields.get(b"sec-websocket-protocol", b"").decode("latin-1")
    offered = [token for each in value.split(",") if (token := each.strip(" \t"))]
    if not all(map(_TOKEN.fullmatch, offered)):
        raise BadRequest("the subprotocols are not a list of tokens")
    return offered


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
