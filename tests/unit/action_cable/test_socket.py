"""The outbox of a WebSocket, and disconnect frames."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tailrace.auth.authorizer import Authorizer
from tailrace.limits import CABLE_QUEUE_BYTES
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.encoders import SOCKET
from tailrace.protocols.action_cable.core.session import Session
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.outbox import Outbox
from tailrace.protocols.action_cable.in_process.socket import Socket
from tailrace.settings import Settings
from tailrace.web.uvicorn.websocket_protocol import encode_frame
from tests.support.streams import Clock, serving


class Line:
    """A WebSocket that accepts a message only when the test allows it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.open = asyncio.Event()
        self.closed = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(self, message: Any) -> None:
        await self.open.wait()
        self.sent.append(message)
        if message["type"] == "websocket.close":
            self.closed.set()

    async def texts(self) -> list[str | None]:
        """All that was sent until the socket was closed."""
        self.open.set()
        await asyncio.wait_for(self.closed.wait(), 120)
        return [each.get("text") for each in self.sent]


async def test_a_slow_client_gets_the_reason_instead_of_the_queue() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    socket.push("first")
    await asyncio.sleep(0)
    for _ in range(12):
        socket.push("x" * (CABLE_QUEUE_BYTES // 10))
    told = '{"type":"disconnect","reason":"too_slow","reconnect":true}'
    assert await line.texts() == ["first", told, None]
    assert line.sent[-1] == {"type": "websocket.close", "code": 1000, "reason": "Too slow"}


async def test_one_message_may_be_of_any_size() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    large = "x" * (2 * CABLE_QUEUE_BYTES)
    socket.push(large)
    line.open.set()
    await asyncio.wait_for(socket.drain(), 120)
    assert [each["text"] for each in line.sent] == [large]


async def test_a_disconnected_client_gets_the_queue_first() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    socket.push("first")
    socket.end("server_restart", reconnect=True)
    socket.push("too late")
    socket.end("remote", reconnect=False)
    told = '{"type":"disconnect","reason":"server_restart","reconnect":true}'
    assert await line.texts() == ["first", told, None]
    assert line.sent[-1]["reason"] == "Server restart"


class SlowOutbox(Outbox):
    """A connection that has room at times."""

    def __init__(self) -> None:
        super().__init__("s", SOCKET)
        self.written: list[str] = []
        self.has_room = True
        self.closed = asyncio.Event()

    def _write_now(self, text: str) -> bool:
        if self.has_room:
            self.written.append(text)
        return self.has_room

    async def _write(self, text: str) -> None:
        await asyncio.sleep(0.001)
        self.written.append(text)

    async def _close(self) -> None:
        self.closed.set()


async def test_direct_writes_do_not_overtake_the_queue() -> None:
    box = SlowOutbox()
    for i in range(10):
        box.has_room = i not in (3, 4)
        box.push(str(i))
        if i > 6:
            await asyncio.sleep(0.005)
    await box.drain()
    assert box.written == [str(i) for i in range(10)]
    box.end("remote", reconnect=False)
    await asyncio.wait_for(box.closed.wait(), 120)
    assert box.written[-1] == '{"type":"disconnect","reason":"remote","reconnect":false}'


async def test_a_finished_outbox_does_not_block() -> None:
    line = Line()
    socket = Socket("s", line.receive, line.send)
    socket.push("x")
    socket.end("too_slow", reconnect=True, at_once=True)
    await asyncio.wait_for(socket.drain(), 120)
    assert line.sent == []


async def test_a_client_that_is_gone_is_served_no_longer(tmp_path: Path) -> None:
    """Even if the conversation does not notice: it may be sending a long history."""

    async def fail(_: Any) -> None:
        raise ConnectionError

    async with serving(tmp_path / "data", Clock()) as streams:
        socket = Socket("s", Line().receive, fail)
        channels = Channels(Authorizer(Settings()), Settings())
        conversation = Conversation(Hub(streams, Settings()), socket, Session("s", None, channels))
        await asyncio.wait_for(socket.converse(conversation, conversation.begin), 120)


def test_frames_are_those_of_a_server() -> None:
    for length in (0, 125, 126, 65_535, 65_536):
        frame = encode_frame("é" * (length // 2) + "x" * (length % 2))
        assert frame[0] == 0x81
        start = {0: 2, 125: 2, 126: 4, 65_535: 4, 65_536: 10}[length]
        assert len(frame) == start + length
        if start > 2:
            assert int.from_bytes(frame[2:start]) == length


async def test_several_texts_are_one_write() -> None:
    written: list[str | tuple[str, ...]] = []

    def write(text: str | tuple[str, ...]) -> bool:
        written.append(text)
        return len(written) < 2

    sent = asyncio.Queue[Any]()
    socket = Socket("s", sent.get, sent.put, write)
    texts = ("1", "2")
    socket.push_all(())
    socket.push_all(texts)
    assert written == [texts]
    assert written[0] is texts
    # There is no room: they wait one by one, in order.
    socket.push_all(texts)
    assert [(await sent.get())["text"] for _ in texts] == ["1", "2"]
