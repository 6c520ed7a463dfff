"""The outbox of a WebSocket, and disconnect frames."""

from __future__ import annotations

import asyncio
from typing import Any

from tailrace.limits import CABLE_QUEUE_BYTES
from tailrace.protocols.action_cable.in_process import outbox
from tailrace.protocols.action_cable.in_process.outbox import Outbox
from tailrace.protocols.action_cable.in_process.socket import Socket
from tailrace.web.uvicorn.websocket import encode_frame


class Line:
    """A WebSocket that accepts a message only when the test allows it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.open = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(self, message: Any) -> None:
        await self.open.wait()
        self.sent.append(message)


async def test_a_slow_client_gets_the_reason_instead_of_the_queue() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    pump = asyncio.create_task(socket._pump())
    socket.push("first")
    await asyncio.sleep(0)
    for _ in range(12):
        socket.push("x" * (CABLE_QUEUE_BYTES // 10))
    line.open.set()
    await asyncio.wait_for(pump, 120)
    texts = [each.get("text") for each in line.sent]
    told = '{"type":"disconnect","reason":"too_slow","reconnect":true}'
    assert texts == ["first", told, None]
    assert line.sent[-1] == {"type": "websocket.close", "code": 1000, "reason": "Too slow"}


async def test_one_message_may_be_of_any_size() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    pump = asyncio.create_task(socket._pump())
    large = "x" * (2 * CABLE_QUEUE_BYTES)
    socket.push(large)
    line.open.set()
    await asyncio.wait_for(socket.drain(), 120)
    assert [each["text"] for each in line.sent] == [large]
    pump.cancel()


async def test_a_disconnected_client_gets_the_queue_first() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    pump = asyncio.create_task(socket._pump())
    socket.push("first")
    socket.end("server_restart", reconnect=True)
    socket.push("too late")
    socket.end("remote", reconnect=False)
    line.open.set()
    await asyncio.wait_for(pump, 120)
    assert [each.get("text") for each in line.sent] == [
        "first",
        '{"type":"disconnect","reason":"server_restart","reconnect":true}',
        None,
    ]


async def test_direct_writes_do_not_overtake_the_queue() -> None:
    written: list[str] = []
    is_open = False

    def write_now(text: str) -> bool:
        if is_open:
            written.append(text)
        return is_open

    async def send(text: str) -> None:
        await asyncio.sleep(0.001)
        written.append(text)

    box = Outbox(lambda: None, write_now)
    pump = asyncio.create_task(box.pump(send))
    for i in range(10):
        is_open = i not in (3, 4)
        box.push(str(i))
        if i > 6:
            await asyncio.sleep(0.005)
    await box.drain()
    assert written == [str(i) for i in range(10)]
    box.finish("last")
    await asyncio.wait_for(pump, 120)
    assert written[-1] == "last"


async def test_a_finished_outbox_does_not_block() -> None:
    box = outbox.Outbox(lambda: None)
    box.push("x")
    box.finish("", at_once=True)
    await asyncio.wait_for(box.drain(), 120)


def test_frames_are_those_of_a_server() -> None:
    for length in (0, 125, 126, 65_535, 65_536):
        frame = encode_frame("é" * (length // 2) + "x" * (length % 2))
        assert frame[0] == 0x81
        start = {0: 2, 125: 2, 126: 4, 65_535: 4, 65_536: 10}[length]
        assert len(frame) == start + length
        if start > 2:
            assert int.from_bytes(frame[2:start]) == length
