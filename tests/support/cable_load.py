"""Clients of Action Cable that reconnect at random while messages are broadcast."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Sequence

from devtools.load.client import Address, Client, Connection
from devtools.load.frames import masked, unframed
from devtools.load.wire import HEAD_END, render
from tests.support.cable import EXTENDED, KEY, SECONDS, HasPort, pubsub, token

MESSAGE = re.compile(rb'"message":(\d+),"stream_id":"[^"]*","epoch":"([0-9a-f]+)","offset":(\d+)}$')
SID = re.compile(rb'"sid":"([^"]+)"')

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": EXTENDED,
}

CONCURRENCY = 10
"""Clients that connect at the same time: on the AWS path each occupies a function."""


class Wire(Connection):
    """The WebSocket of a client, without a library."""

    def __init__(self, listener: LoadClient, query: str) -> None:
        self._listener = listener
        self._query = query
        self._held = b""
        self._upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(render("GET", f"/cable?{self._query}", HANDSHAKE))

    def say(self, **command: object) -> None:
        self.transport.write(masked(json.dumps(command).encode()))

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._upgraded:
            _, mark, rest = self._held.partition(HEAD_END)
            if not mark:
                return
            self._upgraded, self._held = True, rest
        frames, self._held = unframed(self._held)
        for frame in frames:
            self._listener.hear(self, frame)


class LoadClient:
    """A client of one stream, in which the messages are numbers that begin at 1."""

    def __init__(self, address: Address, stream: str, heard: Callable[[], None]) -> None:
        self._address = address
        self._stream = stream
        self._identifier = pubsub(stream)
        self._heard = heard
        self._jid = token(stream) if random.random() < 0.5 else ""
        self._sid = ""
        self._epoch = ""
        self._wire: Wire | None = None
        self.offset = 0
        self.restored = 0
        self.faults: list[str] = []
        self.ready = asyncio.Event()

    async def connect(self) -> None:
        query = f"pi=0&jid={self._jid}&sid={self._sid}"
        self._wire = await self._address.connect(Wire(self, query))

    def drop(self) -> None:
        assert self._wire is not None
        wire, self._wire = self._wire, None
        wire.transport.abort()

    def hear(self, wire: Wire, frame: bytes) -> None:
        if wire is not self._wire:
            return
        message = MESSAGE.search(frame)
        if message is not None:
            number, epoch, offset = int(message[1]), message[2].decode(), int(message[3])
            if number != offset or offset != self.offset + 1 or self._epoch not in ("", epoch):
                self.faults.append(f"{self._stream}: {number} at {offset} after {self.offset}")
            self._epoch, self.offset = epoch, offset
            self._heard()
        elif b'"welcome"' in frame:
            self._welcome(wire, frame)
        elif b"confirm_history" in frame:
            self.ready.set()
        elif b'"ping"' not in frame and b"confirm_subscription" not in frame:
            self.faults.append(frame.decode())

    def _welcome(self, wire: Wire, frame: bytes) -> None:
        sid = SID.search(frame)
        assert sid is not None
        self._sid = sid[1].decode()
        place = {"epoch": self._epoch, "offset": self.offset}
        history = {"since": 1, "streams": {self._stream: place} if self._epoch else {}}
        resumed = b'"restored_ids"' in frame
        self.restored += resumed
        command = "history" if resumed else "subscribe"
        wire.say(command=command, identifier=self._identifier, history=history)


async def hear_all(
    server: HasPort, streams: Sequence[str], each: int, batches: Sequence[Sequence[str]], drops: int
) -> list[LoadClient]:
    """Broadcast batches of messages to `each` clients of every stream, of which `drops` reconnect
    with each batch."""
    address = Address("127.0.0.1", server.port)
    published = dict.fromkeys(streams, 0)
    wanted = sum(map(len, batches)) * each
    complete = asyncio.Event()
    heard = 0

    def count() -> None:
        nonlocal heard
        heard += 1
        if heard == wanted:
            complete.set()

    listeners = [LoadClient(address, name, count) for name in streams for _ in range(each)]
    for at in range(0, len(listeners), CONCURRENCY):
        some = listeners[at : at + CONCURRENCY]
        await asyncio.gather(*(one.connect() for one in some))
        await asyncio.gather(*(one.ready.wait() for one in some))

    async def come_back(some: Sequence[LoadClient]) -> None:
        for one in some:
            one.drop()
            await asyncio.sleep(0)
        await asyncio.sleep(random.uniform(0, 0.05))
        for one in some:
            await one.connect()

    publisher = await address.connect(Client())
    dropped = []
    for batch in batches:
        asked = []
        for name in batch:
            published[name] += 1
            asked.append({"stream": name, "data": str(published[name])})
        body = json.dumps(asked).encode()
        key = {"Authorization": f"Bearer {KEY}"}
        answering = asyncio.ensure_future(publisher.ask(render("POST", "/_broadcast", key, body)))
        idle = [one for one in random.sample(listeners, drops) if one.ready.is_set()]
        for one in idle:
            one.ready.clear()
        dropped.append(asyncio.create_task(come_back(idle)))
        assert (await answering).status == 201
    await asyncio.gather(*dropped)
    async with asyncio.timeout(SECONDS):
        await complete.wait()
    await asyncio.sleep(0.1)
    for one in listeners:
        one.drop()
    publisher.close()
    return listeners


def check(listeners: Sequence[LoadClient], drops: int, *, restores: bool = True) -> None:
    """`restores`: whether the server restores the sessions of clients that ask for history."""
    assert [fault for one in listeners for fault in one.faults] == []
    # Half of them have a token.
    restored = sum(one.restored for one in listeners)
    assert restored > drops / 10 if restores else restored == 0
