"""Reading from WebSockets: limits, time-outs, and disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tailrace.limits import (
    CABLE_FRAME_BYTES,
    CABLE_PONG_SECONDS,
    CABLE_QUEUED_COMMANDS,
    CABLE_STALL_SECONDS,
    HEADER_SECONDS,
)
from tailrace.web.messages import RawHeaders
from tailrace.web.uvicorn.websocket_protocol import SocketProtocol, subprotocols_of

HEADERS = [
    (b"connection", b"upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
]
HIGH_WATER = 64 << 10


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    return bytes([0x80 * fin | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload


class Transport:
    """A client that reads nothing until it is allowed to."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self._is_full = False
        self._reading = True
        self.closing = self.aborted = False
        self.waiting = 0

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: bytes) -> None:
        self.waiting += len(data)
        if self.waiting > HIGH_WATER and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()

    def take(self, size: int) -> None:
        self.waiting -= size
        if self.waiting < HIGH_WATER / 4 and self._is_full:
            self._is_full = False
            self.protocol.resume_writing()

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A loop whose time the test advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        self._due.append(timer := Timer(self.now + seconds, call))
        return timer

    def create_task(self, work: Any) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    def pass_s(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._due if each.at <= end]:
            first = min(due, key=lambda each: each.at)
            self._due.remove(first)
            self.now = first.at
            if not first.cancelled:
                first.call()
        self.now = end


class Line:
    """A connection that its application accepts at once, unless told otherwise."""

    def __init__(self, *, accepts: bool = True) -> None:
        self.commands: list[Any] = []
        self.listens = asyncio.Event()
        self._accepts = accepts
        config = uvicorn.Config(
            self._application,
            ws_max_size=CABLE_FRAME_BYTES,
            ws_per_message_deflate=False,
            ws_ping_interval=None,
            interface="asgi3",
            proxy_headers=False,
            log_config=None,
        )
        config.load()
        self.timers, self.transport = Timers(), Transport()
        self.protocol = SocketProtocol(config, ServerState(), self.timers)  # type: ignore[arg-type]
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    async def shake(self, headers: RawHeaders = HEADERS) -> None:
        self.protocol.begin("GET", b"/cable", headers, {})
        for _ in range(5):
            await asyncio.sleep(0)

    async def _application(self, _: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        if self._accepts:
            await send({"type": "websocket.accept"})
        await self.listens.wait()
        while True:
            self.commands.append(await receive())


# The handshake


async def test_nothing_is_read_before_the_handshake_is_complete() -> None:
    line = Line(accepts=False)
    await line.shake()
    assert not line.transport.is_reading()
    assert not line.transport.waiting


async def test_a_handshake_that_is_never_answered_ends_the_connection() -> None:
    line = Line(accepts=False)
    await line.shake()
    line.timers.pass_s(HEADER_SECONDS - 1)
    assert not line.transport.aborted
    line.timers.pass_s(1)
    assert line.transport.aborted


async def test_a_complete_handshake_may_last() -> None:
    line = Line()
    await line.shake()
    assert line.transport.is_reading()
    line.transport.take(line.transport.waiting)
    line.timers.pass_s(2 * HEADER_SECONDS)
    assert not line.transport.aborted


@pytest.mark.parametrize(
    "field",
    [
        (b"content-length", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        (b"sec-websocket-protocol", b"a,,b c"),
    ],
)
async def test_a_head_that_is_no_handshake_is_refused(field: tuple[bytes, bytes]) -> None:
    line = Line()
    await line.shake([*HEADERS, field])
    assert line.transport.closing
    assert not line.commands


def test_subprotocols_may_be_in_several_fields() -> None:
    assert subprotocols_of({b"sec-websocket-protocol": b"a, b,,\tc"}) == ["a", "b", "c"]
    assert subprotocols_of({}) == []


# Reading


async def test_pings_are_not_read_while_the_client_reads_no_pongs() -> None:
    line = Line()
    await line.shake()
    ping = frame(9, b"x" * 125)
    line.protocol.data_received(ping * 4000)
    assert line.transport.waiting < HIGH_WATER + 4096
    assert not line.transport.is_reading()
    for _ in range(20):
        line.transport.take(line.transport.waiting)
    assert line.transport.is_reading()
    pong = len(ping) - 4
    line.protocol.data_received(ping)
    assert line.transport.waiting == pong


async def test_few_commands_wait_and_none_is_lost() -> None:
    line = Line()
    await line.shake()
    line.protocol.data_received(b"".join(frame(1, b"%d" % i) for i in range(5000)))
    assert len(line.protocol._received) <= CABLE_QUEUED_COMMANDS + 170
    assert not line.transport.is_reading()
    line.listens.set()
    for _ in range(10_000):
        await asyncio.sleep(0)
    assert [each["text"] for each in line.commands] == [str(i) for i in range(5000)]
    assert line.transport.is_reading()


async def test_fragments_take_no_more_memory_than_their_message() -> None:
    line = Line()
    await line.shake()
    line.protocol.data_received(frame(1, b"{", fin=False))
    for _ in range(100):
        line.protocol.data_received(frame(0, fin=False) * 100)
    assert len(line.protocol._message) == 1
    assert line.protocol._received == []


# Letting go


async def test_a_client_that_takes_nothing_is_let_go() -> None:
    line = Line()
    await line.shake()
    line.protocol.data_received(frame(9, b"x" * 125) * 4000)
    line.timers.pass_s(CABLE_STALL_SECONDS)
    assert not line.transport.aborted
    line.timers.pass_s(HEADER_SECONDS)
    assert line.transport.aborted


async def test_a_client_that_takes_something_is_not_let_go() -> None:
    line = Line()
    await line.shake()
    line.transport.write(b"x" * (1 << 20))
    for _ in range(20):
        line.timers.pass_s(CABLE_STALL_SECONDS - 1)
        line.transport.take(1000)
    assert not line.transport.aborted


async def test_a_closed_connection_does_not_wait_for_its_client_for_ever() -> None:
    line = Line()
    await line.shake()
    line.transport.write(b"x" * 1000)
    line.protocol.data_received(frame(8, b"\3\350"))
    assert line.transport.closing
    line.timers.pass_s(CABLE_STALL_SECONDS + HEADER_SECONDS)
    assert line.transport.aborted


async def test_a_client_that_answers_no_ping_is_let_go() -> None:
    line = Line()
    await line.shake()
    line.transport.take(line.transport.waiting)
    for _ in range(20):
        line.timers.pass_s(2 * CABLE_PONG_SECONDS - HEADER_SECONDS)
        assert line.transport.waiting == 2, "a ping"
        line.transport.take(2)
        line.protocol.data_received(frame(10))
    assert not line.transport.closing
    line.timers.pass_s(2 * CABLE_PONG_SECONDS)
    assert line.transport.closing


async def test_an_answer_to_a_ping_that_nobody_reads_is_waited_for() -> None:
    line = Line()
    await line.shake()
    line.protocol.data_received(frame(1, b"x") * (CABLE_QUEUED_COMMANDS + 1))
    line.transport.take(line.transport.waiting)
    line.timers.pass_s(300)
    assert not line.transport.closing
    line.listens.set()
    for _ in range(100):
        await asyncio.sleep(0)
    line.timers.pass_s(2 * CABLE_PONG_SECONDS + HEADER_SECONDS)
    assert line.transport.closing


async def test_a_connection_that_is_being_closed_can_be_shut_down() -> None:
    line = Line()
    await line.shake()
    line.protocol.data_received(frame(8, b"\3\350"))
    line.protocol.shutdown()
    assert line.transport.closing
