"""Requests that take too long to arrive: real connections, and a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
import websockets
from uvicorn.server import ServerState

from tailrace.app import Application
from tailrace.limits import BODY_BYTES_PER_SECOND, BODY_SECONDS, HEADER_SECONDS
from tailrace.settings import Settings
from tailrace.web.asgi import Receive, Scope, Send
from tailrace.web.uvicorn.protocol import StreamProtocol, stream_protocol
from tests.support.wire import TEXT, Answer, chunked, request, target

PATIENCE = 120
"""Seconds after which a test gives up; nothing depends on their number."""

MAX_BODY = 2 * BODY_BYTES_PER_SECOND
KEEP_ALIVE = 5
PATH = target("slow")

soon_idle = pytest.mark.parametrize("keep_alive", [KEEP_ALIVE])


@dataclass(eq=False)
class Timer:
    at: float
    callback: Callable[..., object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """The event loop for connections: the running one with the clock of the test."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = 0.0
        self._timers: list[Timer] = []
        self.timers_set = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object]) -> Timer:
        self.timers_set += 1
        self._timers.append(Timer(self._now + delay, callback))
        return self._timers[-1]

    def pass_(self, seconds: float) -> None:
        end = self._now + seconds
        while due := [each for each in self._timers if each.at <= end and not each.cancelled]:
            first = min(due, key=lambda each: each.at)
            self._timers.remove(first)
            self._now = first.at
            first.callback()
        self._now = end


class Client:
    """A connection, and the server's side of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sent = 0
        self.server_side: StreamProtocol | None = None
        self.received = 0
        self.arrived = asyncio.Event()

    @property
    def port(self) -> int:
        port: int = self._writer.get_extra_info("sockname")[1]
        return port

    async def send(self, data: bytes) -> None:
        """Send data, and wait until the server has received all of it."""
        self._writer.write(data)
        self._sent += len(data)
        async with asyncio.timeout(PATIENCE):
            while self.received < self._sent:
                self.arrived.clear()
                await self.arrived.wait()

    @property
    def refused(self) -> bool:
        assert self.server_side is not None
        return self.server_side._refused or self.server_side.transport.is_closing()

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            pairs = [line.split(b": ", 1) for line in head[1:-2]]
            headers = httpx.Headers([(name, value) for name, value in pairs])
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split(b" ")[1]), headers, body)

    async def rest(self) -> bytes:
        """Read until the server closes the connection."""
        return await asyncio.wait_for(self._reader.read(), PATIENCE)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


Connect = Callable[[], Awaitable[Client]]


async def beside(scope: Scope, receive: Receive, send: Send) -> None:
    """An application beside the streams that reads bodies and accepts WebSockets."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        heard = await receive()
        await send({"type": "websocket.send", "text": heard["text"]})
        return
    if scope["path"] != "/early":
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def keep_alive() -> int:
    """Much longer than a request may take, so that no request meets this time-out."""
    return 600


@pytest.fixture
async def time() -> Time:
    return Time()


@pytest.fixture
def clients() -> dict[int, Client]:
    """Clients by their own port."""
    return {}


@pytest.fixture
async def port(
    tmp_path: Path, keep_alive: int, time: Time, clients: dict[int, Client]
) -> AsyncIterator[int]:
    settings = Settings(data=str(tmp_path), long_poll_timeout=1000.0, max_body_bytes=MAX_BODY)
    application = Application(settings)
    await application.start()
    bound: Any = stream_protocol(application.fast_lane())

    class Counting(bound):  # type: ignore[misc]
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            client = clients.get(self.transport.get_extra_info("peername")[1])
            if client is not None:
                client.server_side = self
                client.received += len(data)
                client.arrived.set()

    config = uvicorn.Config(
        beside,
        http=Counting,
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=keep_alive,
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: Counting(config=config, server_state=state, app_state={}, _loop=time),
        "127.0.0.1",
        0,
    )
    async with server:
        yield server.sockets[0].getsockname()[1]
    await application.stop()


@pytest.fixture
async def connect(port: int, clients: dict[int, Client]) -> AsyncIterator[Connect]:
    async def connect() -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        clients[client.port] = client
        return client

    yield connect
    for client in clients.values():
        await client.close()


@pytest.fixture
async def client(connect: Connect) -> Client:
    """A connection that has created the stream."""
    client = await connect()
    await client.send(request("PUT", PATH, TEXT))
    assert (await client.answer()).status == 201
    return client


async def content(connect: Connect) -> bytes:
    reader = await connect()
    await reader.send(request("GET", PATH))
    return (await reader.answer()).body


async def assert_too_slow(client: Client, time: Time, after: float) -> None:
    """Assert that the request is refused after this time, and not before."""
    time.pass_(after - 0.01)
    assert not client.refused
    time.pass_(0.02)
    await assert_refused(client)


async def assert_refused(client: Client) -> None:
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "REQUEST_TOO_SLOW")
    assert answer.headers["connection"] == "close"
    assert await client.rest() == b""


# Heads


@pytest.mark.parametrize("sent", [b"G", b"GET /v1/str", request("GET", PATH)[:-2]])
async def test_an_incomplete_head_is_refused_in_time(
    connect: Connect, time: Time, sent: bytes
) -> None:
    client = await connect()
    await client.send(sent)
    await assert_too_slow(client, time, HEADER_SECONDS)


async def test_an_endless_head_is_refused_in_time(connect: Connect, time: Time) -> None:
    client = await connect()
    await client.send(b"GET / HTTP/1.1\r\n")
    for _ in range(HEADER_SECONDS - 1):
        time.pass_(1)
        await client.send(b"x: y\r\n")
    await assert_too_slow(client, time, 1)


async def test_a_later_head_of_a_connection_has_its_own_time(client: Client, time: Time) -> None:
    await client.send(request("GET", PATH) + b"GET /v1")
    assert (await client.answer()).status == 200
    await assert_too_slow(client, time, HEADER_SECONDS)


async def test_a_head_in_pieces_within_the_time_is_served(client: Client, time: Time) -> None:
    for piece in (b"GET ", PATH.encode(), b" HTTP/1.1\r\n", b"host: a\r\n", b"\r\n"):
        await client.send(piece)
        time.pass_((HEADER_SECONDS - 1) / 4)
    assert (await client.answer()).status == 200


# Bodies


@pytest.mark.parametrize("where", [PATH, "/beside"])
@pytest.mark.parametrize("sent", [b"", b"some"])
async def test_a_missing_body_is_refused_in_time(
    client: Client, connect: Connect, time: Time, where: str, sent: bytes
) -> None:
    await client.send(request("POST", where, TEXT | {"content-length": "500"}) + sent)
    await assert_too_slow(client, time, BODY_SECONDS + len(sent) / BODY_BYTES_PER_SECOND)
    assert await content(connect) == b""


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_a_trickling_body_is_refused_in_time(
    client: Client, connect: Connect, time: Time, where: str
) -> None:
    """Data keeps arriving, but far below the required rate."""
    await client.send(request("POST", where, TEXT | {"content-length": "500"}))
    for _ in range(BODY_SECONDS - 1):
        time.pass_(1)
        await client.send(b"x")
    await assert_too_slow(client, time, 1)
    assert await content(connect) == b""


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_the_time_for_a_body_grows_with_the_bytes_received(
    client: Client, time: Time, where: str
) -> None:
    length = {"content-length": str(BODY_BYTES_PER_SECOND + 1)}
    await client.send(request("POST", where, TEXT | length) + b"x" * BODY_BYTES_PER_SECOND)
    time.pass_(BODY_SECONDS + 0.99)
    await client.send(b"x")
    assert (await client.answer()).status in (200, 204)


async def test_a_fast_endless_body_is_refused_in_time(
    client: Client, connect: Connect, time: Time
) -> None:
    """Bytes beyond the largest body give no more time."""
    await client.send(request("POST", "/beside", TEXT | {"transfer-encoding": "chunked"}))
    seconds = BODY_SECONDS + MAX_BODY // BODY_BYTES_PER_SECOND
    for _ in range(seconds - 1):
        await client.send(chunked(b"x" * BODY_BYTES_PER_SECOND).removesuffix(b"0\r\n\r\n"))
        time.pass_(1)
    await assert_too_slow(client, time, 1)
    assert await content(connect) == b""


async def test_a_body_that_is_missing_after_100_continue_is_refused_in_time(
    client: Client, time: Time
) -> None:
    expects = TEXT | {"expect": "100-continue", "content-length": "5"}
    await client.send(request("POST", PATH, expects))
    assert (await client.answer()).status == 100
    await assert_too_slow(client, time, BODY_SECONDS)


async def test_a_request_that_was_answered_before_its_body_gets_no_second_answer(
    connect: Connect, time: Time
) -> None:
    client = await connect()
    await client.send(request("POST", "/early", {"content-length": "500"}))
    assert (await client.answer()).status == 200
    time.pass_(BODY_SECONDS - 0.01)
    assert not client.refused
    time.pass_(0.02)
    assert await client.rest() == b""


# Requests that are not slow


@pytest.fixture
async def waiting(client: Client) -> Client:
    """A connection whose first request is a long-poll that waits."""
    await client.send(request("GET", target("slow", live="long-poll", offset="-1")))
    return client


async def publish(connect: Connect) -> None:
    writer = await connect()
    await writer.send(request("POST", PATH, TEXT, b"news"))
    assert (await writer.answer()).status == 204


async def test_waiting_for_an_answer_is_not_slow(
    waiting: Client, connect: Connect, time: Time
) -> None:
    time.pass_(3600)
    await publish(connect)
    assert (await waiting.answer()).body == b"news"
    await waiting.send(request("GET", PATH))
    assert (await waiting.answer()).status == 200


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_the_time_for_a_pipelined_body_begins_when_it_is_read(
    client: Client, connect: Connect, time: Time, where: str
) -> None:
    """Nothing is read before the answer to the long-poll is sent."""
    await client.send(
        request("GET", target("slow", live="long-poll", offset="-1"))
        + request("POST", where, TEXT | {"content-length": "4"}, b"da")
    )
    time.pass_(3600)
    await publish(connect)
    assert (await client.answer()).body == b"news"
    time.pass_(BODY_SECONDS / 2)
    await client.send(b"ta")
    assert (await client.answer()).status in (200, 204)


async def test_a_slow_pipelined_head_is_refused_after_the_answer_before_it(
    client: Client, connect: Connect, time: Time
) -> None:
    await client.send(request("GET", target("slow", live="long-poll", offset="-1")) + b"GET /")
    time.pass_(3600)
    await publish(connect)
    assert (await client.answer()).body == b"news"
    time.pass_(HEADER_SECONDS)
    await assert_refused(client)


@soon_idle
async def test_an_upgraded_connection_has_no_time_out(port: int, time: Time) -> None:
    async with websockets.connect(
        f"ws://127.0.0.1:{port}/socket", proxy=None, open_timeout=None
    ) as socket:
        time.pass_(KEEP_ALIVE + 1)
        await socket.send("still here")
        assert await socket.recv() == "still here"


# Idle connections


@soon_idle
@pytest.mark.parametrize("sent", [b"\r\n", request("GET", "/beside")])
async def test_an_idle_connection_is_closed_without_an_answer(
    connect: Connect, time: Time, sent: bytes
) -> None:
    client = await connect()
    await client.send(sent)
    if b"GET" in sent:
        assert (await client.answer()).status == 200
    time.pass_(KEEP_ALIVE - 0.01)
    assert not client.refused
    time.pass_(0.02)
    assert await client.rest() == b""


@soon_idle
async def test_empty_lines_do_not_keep_an_idle_connection(connect: Connect, time: Time) -> None:
    client = await connect()
    for _ in range(KEEP_ALIVE):
        await client.send(b"\r\n")
        time.pass_(1)
    assert await client.rest() == b""


async def test_requests_set_no_timers_of_their_own(client: Client, time: Time) -> None:
    for _ in range(100):
        raw = request("POST", PATH, TEXT, b"x" * 20)
        await client.send(raw[:-10])
        await client.send(raw[-10:])
        assert (await client.answer()).status == 204
    # One for the connection, which the first incomplete body replaces.
    assert time.timers_set == 2
