"""Connections that listen, over real sockets: what the server has for each of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tailrace.app import Application
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.web.uvicorn.listener import Listener
from tailrace.web.uvicorn.protocol import stream_protocol
from tests.support.wire import TEXT, request, target

PATIENCE = 120
"""Seconds after which a test gives up; nothing depends on their number."""

READERS = 40
PLAIN = "text/plain"


@dataclass
class Served:
    application: Application
    state: ServerState
    port: int
    clients: list[Client]

    async def listen(self, *headers: tuple[str, str]) -> Client:
        """Open a reader of stream `a`, and wait until it is at the tail."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        client.send(request("GET", target("a", live="sse", offset="now"), headers))
        await client.until(b"upToDate")
        await until(lambda: len(self.listeners) == len(self.state.connections))
        return client

    @property
    def listeners(self) -> list[Listener]:
        return [each for each in self.state.connections if isinstance(each, Listener)]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def until(self, text: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(text), PATIENCE)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self._reader.read(), PATIENCE)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the server does it by itself
            await asyncio.sleep(0.001)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    settings = Settings(data=str(tmp_path), body_memory=1 << 20, max_body_bytes=1 << 20)
    application = Application(settings)
    await application.start()
    await application.streams.create("a", Create(content_type=PLAIN))

    async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
        raise AssertionError("only streams are served here")

    bound = stream_protocol(application.fast_lane())
    config = uvicorn.Config(nothing, http=bound, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: bound(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(application.stop)
        await stack.enter_async_context(server)
        served = Served(application, state, server.sockets[0].getsockname()[1], [])
        yield served
        for client in served.clients:
            await client.close()
        await until(lambda: not state.connections)


def tasks() -> list[str]:
    """The tasks for connections, and those that follow a stream."""
    names = [str(task.get_coro().__qualname__) for task in asyncio.all_tasks()]  # type: ignore[union-attr]
    return [each for each in names if each.startswith(("Exchange.", "Listener.", "Follower."))]


async def test_readers_that_wait_have_no_tasks(served: Served) -> None:
    clients = [await served.listen() for _ in range(READERS)]
    await until(lambda: tasks() == ["Follower._run"])
    assert len(served.listeners) == READERS
    await served.application.streams.append("a", Append(b"news", PLAIN))
    for client in clients:
        await client.until(b"data:news\n\n")
    assert tasks() == ["Follower._run"]
    for client in clients:
        await client.close()
    await until(lambda: not served.state.connections)
    await until(lambda: tasks() == [])


async def test_a_stopping_server_ends_events_that_wait(served: Served) -> None:
    clients = [await served.listen() for _ in range(2)]
    for each in list(served.state.connections):
        each.shutdown()
    served.application.streams.drain()
    for client in clients:
        assert (await client.rest()).endswith(b"0\r\n\r\n")
    await until(lambda: not served.state.connections)


async def test_a_client_that_sends_too_much_meanwhile_is_disconnected(served: Served) -> None:
    quiet, loud = await served.listen(), await served.listen()
    memory = served.application.fast_lane().memory
    memory.reserve(1 << 20)
    loud.send(request("POST", target("a"), TEXT, b"x"))
    await loud.rest()
    memory.release(1 << 20)
    assert len(served.listeners) == 1
    await served.application.streams.append("a", Append(b"news", PLAIN))
    await quiet.until(b"data:news\n\n")
    await quiet.close()
    await until(lambda: not served.state.connections)
    assert memory.used == 0


async def test_requests_of_a_client_that_disconnects_are_forgotten(served: Served) -> None:
    client = await served.listen()
    memory = served.application.fast_lane().memory
    client.send(request("POST", target("a"), TEXT, b"x"))
    await until(lambda: memory.used > 0)
    await client.close()
    # Nothing is read from the connection any more, so its end is noticed by a write.
    async with asyncio.timeout(PATIENCE):
        while served.state.connections:
            await served.application.streams.append("a", Append(b"news", PLAIN))
            await asyncio.sleep(0.001)
    assert memory.used == 0
