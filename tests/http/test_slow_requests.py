"""Requests that take too long to arrive: real connections, and limits of less than a second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
import websockets
from uvicorn.server import ServerState

from tailrace.http import protocol
from tailrace.http.asgi import Application, Receive, Scope, Send
from tailrace.http.protocol import StreamProtocol, stream_protocol
from tailrace.settings import Settings
from tests.http.wire import TEXT, Answer, chunked, request, target

HEAD = BODY = 0.3
RATE = 1000
KEEP_ALIVE = 1
LATE = 2.0
"""How much later than it should a look may come on a busy machine."""

PATH = target("slow")

soon_idle = pytest.mark.parametrize("keep_alive", [KEEP_ALIVE])


class Client:
    """A connection inside the test's own loop, which the server's protocol shares."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def drip(self, data: bytes, piece: int, pause: float) -> None:
        """Sends piece by piece until the server hangs up."""
        for at in range(0, len(data), piece):
            if self._reader.at_eof() or self._writer.is_closing():
                return
            try:
                await self.send(data[at : at + piece])
            except ConnectionError:
                return
            await asyncio.sleep(pause)

    async def answer(self) -> Answer:
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 10)).split(b"\r\n")
        pairs = [line.split(b": ", 1) for line in head[1:-2]]
        headers = httpx.Headers([(name, value) for name, value in pairs])
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split(b" ")[1]), headers, body)

    async def rest(self) -> bytes:
        """All there is until the server hangs up."""
        return await asyncio.wait_for(self._reader.read(), 10)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


Connect = Callable[[], Awaitable[Client]]


async def beside(scope: Scope, receive: Receive, send: Send) -> None:
    """An application beside the streams: it reads all of a body, or speaks over a WebSocket."""
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
    """Much longer than a request may take, so that nobody happens to look in time."""
    return 60


@pytest.fixture
async def port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_alive: int
) -> AsyncIterator[int]:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", HEAD)
    monkeypatch.setattr(protocol, "BODY_SECONDS", BODY)
    monkeypatch.setattr(protocol, "BODY_RATE", RATE)
    settings = Settings(data=str(tmp_path / "data"), long_poll_timeout=1.0, max_body_bytes=1024)
    application = Application(settings)
    await application.start()
    config = uvicorn.Config(
        beside,
        http=stream_protocol(application.routes),
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=keep_alive,
    )
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=state, app_state={}
        ),
        "127.0.0.1",
        0,
    )
    async with server:
        yield server.sockets[0].getsockname()[1]
    await application.stop()


@pytest.fixture
async def connect(port: int) -> AsyncIterator[Connect]:
    opened: list[Client] = []

    async def connect() -> Client:
        opened.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        return opened[-1]

    yield connect
    for client in opened:
        await client.close()


@pytest.fixture
async def client(connect: Connect) -> Client:
    """A connection that has created the stream."""
    client = await connect()
    await client.send(request("PUT", PATH, TEXT))
    assert (await client.answer()).status == 201
    client.began = time.monotonic()
    return client


async def content(connect: Connect) -> bytes:
    reader = await connect()
    await reader.send(request("GET", PATH))
    return (await reader.answer()).body


async def assert_too_slow(client: Client, least: float) -> None:
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "REQUEST_TOO_SLOW")
    assert answer.headers["connection"] == "close"
    assert least - 0.05 < client.seconds < least + LATE
    assert await client.rest() == b""


# Heads


@pytest.mark.parametrize("sent", [b"G", b"GET /v1/str", request("GET", PATH)[:-2]])
async def test_a_head_that_is_not_finished(connect: Connect, sent: bytes) -> None:
    client = await connect()
    await client.send(sent)
    await assert_too_slow(client, HEAD)


async def test_a_head_that_goes_on_and_on(connect: Connect) -> None:
    client = await connect()
    dripping = asyncio.ensure_future(
        client.drip(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200, 1, 0.01)
    )
    await assert_too_slow(client, HEAD)
    await dripping


async def test_a_later_head_on_a_connection(client: Client) -> None:
    await client.send(request("GET", PATH) + b"GET /v1")
    assert (await client.answer()).status == 200
    await assert_too_slow(client, HEAD)


async def test_a_head_in_pieces_that_is_quick_enough(client: Client) -> None:
    for piece in (b"GET ", PATH.encode(), b" HTTP/1.1\r\n", b"host: a\r\n", b"\r\n"):
        await client.send(piece)
        await asyncio.sleep(0.02)
    assert (await client.answer()).status == 200


# Bodies


@pytest.mark.parametrize("where", [PATH, "/beside"])
@pytest.mark.parametrize("sent", [b"", b"some"])
async def test_a_body_that_does_not_arrive(
    client: Client, connect: Connect, where: str, sent: bytes
) -> None:
    await client.send(request("POST", where, TEXT | {"content-length": "500"}) + sent)
    await assert_too_slow(client, BODY)
    assert await content(connect) == b""


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_a_body_that_trickles(client: Client, connect: Connect, where: str) -> None:
    """Something keeps arriving, but at a twentieth of the least rate."""
    for last in (False, False, True):
        await client.send(request("POST", where, TEXT | {"content-length": "500"}))
        dripping = asyncio.ensure_future(client.drip(b"x" * 500, 1, 0.02))
        try:
            await assert_too_slow(client, BODY)
            break
        except ConnectionResetError:
            # A byte that came after the server had hung up made the system forget its answer.
            if last:
                raise
            client = await connect()
        finally:
            await dripping
    assert await content(connect) == b""


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_what_has_arrived_of_a_body_buys_time(client: Client, where: str) -> None:
    await client.send(request("POST", where, TEXT | {"content-length": "1000"}) + b"x" * 999)
    await asyncio.sleep(BODY + 0.3)
    await client.send(b"x")
    assert (await client.answer()).status in (200, 204)


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_a_fast_body_without_an_end(client: Client, connect: Connect, where: str) -> None:
    """What is beyond the largest body buys no time."""
    await client.send(request("POST", where, TEXT | {"transfer-encoding": "chunked"}))
    endless = chunked(b"x" * 1000).removesuffix(b"0\r\n\r\n") * 1000
    dripping = asyncio.ensure_future(client.drip(endless, 2000, 0.01))
    await assert_too_slow(client, BODY + 1024 / RATE)
    await dripping
    assert await content(connect) == b""


async def test_a_client_that_asks_first_and_then_says_nothing(client: Client) -> None:
    expects = TEXT | {"expect": "100-continue", "content-length": "5"}
    await client.send(request("POST", PATH, expects))
    assert (await client.answer()).status == 100
    await assert_too_slow(client, BODY)


async def test_a_request_that_was_answered_early_gets_no_second_answer(connect: Connect) -> None:
    client = await connect()
    await client.send(request("POST", "/early", {"content-length": "500"}))
    assert (await client.answer()).status == 200
    assert await client.rest() == b""
    assert client.seconds > BODY - 0.05


# What is not slow


async def test_whoever_waits_for_an_answer_is_not_slow(client: Client) -> None:
    await client.send(request("GET", target("slow", live="long-poll", offset="now")))
    assert (await client.answer()).status == 204
    assert client.seconds > 0.9
    await client.send(request("GET", PATH))
    assert (await client.answer()).status == 200


@pytest.mark.parametrize("where", [PATH, "/beside"])
async def test_a_body_behind_a_wait_has_time_when_it_is_read(client: Client, where: str) -> None:
    """While the answer before it is waited for, nothing is read."""
    await client.send(
        request("GET", target("slow", live="long-poll", offset="now"))
        + request("POST", where, TEXT | {"content-length": "4"}, b"da")
    )
    assert (await client.answer()).status == 204
    await asyncio.sleep(BODY / 2)
    await client.send(b"ta")
    assert (await client.answer()).status in (200, 204)


async def test_a_slow_head_behind_a_wait_does_not_overtake_the_answer(client: Client) -> None:
    await client.send(request("GET", target("slow", live="long-poll", offset="now")) + b"GET /")
    assert (await client.answer()).status == 204
    assert client.seconds > 0.9
    assert (await client.answer()).status == 408
    assert await client.rest() == b""


@soon_idle
async def test_an_upgraded_connection_is_not_watched(port: int) -> None:
    async with websockets.connect(f"ws://127.0.0.1:{port}/socket", proxy=None) as socket:
        await asyncio.sleep(KEEP_ALIVE + 0.5)
        await socket.send("still here")
        assert await socket.recv() == "still here"


# Idle connections


@soon_idle
@pytest.mark.parametrize("sent", [b"", b"\r\n", request("GET", "/beside")])
async def test_an_idle_connection_ends_without_an_answer(connect: Connect, sent: bytes) -> None:
    client = await connect()
    await client.send(sent)
    if b"GET" in sent:
        assert (await client.answer()).status == 200
    assert await client.rest() == b""
    assert KEEP_ALIVE - 0.05 < client.seconds < KEEP_ALIVE + LATE


@soon_idle
async def test_empty_lines_do_not_keep_a_connection(connect: Connect) -> None:
    client = await connect()
    dripping = asyncio.ensure_future(client.drip(b"\r\n" * 300, 2, 0.05))
    assert await client.rest() == b""
    assert client.seconds < KEEP_ALIVE + LATE
    dripping.cancel()


async def test_requests_set_no_timers_of_their_own(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timers: list[float] = []
    look_in = StreamProtocol._look_in

    def counted(self: StreamProtocol, seconds: float) -> Any:
        set_timers.append(seconds)
        look_in(self, seconds)

    monkeypatch.setattr(StreamProtocol, "_look_in", counted)
    for _ in range(200):
        raw = request("POST", PATH, TEXT, b"x" * 20)
        await client.send(raw[:-10])
        await asyncio.sleep(0.001)
        await client.send(raw[-10:])
        assert (await client.answer()).status == 204
    # An unfinished body brings the look forward, and those after it find it near enough.
    assert len(set_timers) <= 2 + 2 * client.seconds / BODY < 100
