"""Load clients: raw protocols on an event loop, with verified responses and precise times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from devtools.load.wire import HEAD_END, ChunkDecoder, Event, EventDecoder, Response, ResponseParser

CONNECTS_AT_ONCE = 64
PATIENCE = 300.0
MARK = b"~"
"""Occurs exactly once in every message and nowhere in the framing, so that counting it counts
messages however the bytes are cut."""


class WrongAnswer(Exception):
    """The server sent a wrong response."""


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def close(self) -> None:
        self.transport.close()


C = TypeVar("C", bound=Connection)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    async def connect(self, connection: C) -> C:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, self.host, self.port)
        return connection

    async def connect_all(self, connections: Sequence[Connection]) -> None:
        """Open connections, a few at a time, so that no listen queue overflows."""
        for at in range(0, len(connections), CONNECTS_AT_ONCE):
            some = connections[at : at + CONNECTS_AT_ONCE]
            await asyncio.gather(*(self.connect(connection) for connection in some))


class Client(Connection):
    """A simple client, for set-up, checks and writers that are not measured."""

    def __init__(self) -> None:
        self._parser = ResponseParser(keep_body=True)
        self._answer: asyncio.Future[Response] | None = None
        self.lost = False

    async def ask(self, request: bytes, *expected: int) -> Response:
        """Send a request; the status must be one of `expected`, if there are any."""
        if self.lost:
            raise ConnectionError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation.
            async with asyncio.timeout(PATIENCE):
                response = await self._answer
        finally:
            self._answer = None
        if expected and response.status not in expected:
            raise WrongAnswer(
                f"{request[:100]!r} got {response.status}, not {expected}: {response.body[:200]!r}"
            )
        return response

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser.feed(data) and self._answer is not None and not self._answer.done():
            body = parser.take_body()
            self._answer.set_result(Response(parser.status, parser.head, body, parser.length))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the connection was closed: {exc}"))


class Caller(Connection):
    """Sends the next request as soon as it has the response to the last one."""

    def __init__(
        self,
        requests: Sequence[bytes],
        status: int,
        lengths: Sequence[int] | None = None,
        keep_heads: bool = False,
    ) -> None:
        self._requests = requests
        self._status = status
        self._lengths = lengths
        self._parser = ResponseParser(keep_body=False)
        self._at = 0
        self._stopping = False
        self.answered = 0
        self.received = 0
        self.heads: list[bytes] | None = [] if keep_heads else None
        self.idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        self.transport.write(self._requests[0])

    def stop(self) -> None:
        self._stopping = True

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if not parser.feed(data):
            return
        at = self._at
        if parser.status != self._status or (
            self._lengths is not None and parser.length != self._lengths[at]
        ):
            self._fail(f"status {parser.status}, {parser.length} bytes: {parser.head[:300]!r}")
            return
        self.answered += 1
        self.received += parser.length
        if self.heads is not None:
            self.heads.append(parser.head)
        if self._stopping:
            self.idle.set_result(None)
            return
        at += 1
        self._at = at = 0 if at == len(self._requests) else at
        self.transport.write(self._requests[at])

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was closed: {exc}")

    def _fail(self, reason: str) -> None:
        if not self.idle.done():
            self.idle.set_exception(WrongAnswer(reason))


class Window:
    """The measured time, and the CPU time of this process in it."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()
        self.elapsed = 0.0
        self.load_busy = 0.0

    def close(self) -> None:
        self.elapsed = time.perf_counter() - self._began
        self.load_busy = (time.process_time() - self._cpu) / self.elapsed


@dataclass(frozen=True, slots=True)
class Pace:
    """The results of a closed loop in its window; `answered` counts all requests."""

    requests_per_second: float
    bytes_per_second: float
    answered: list[int]
    load_busy: float


async def closed_loop(
    address: Address, callers: Sequence[Caller], warm_up: float, seconds: float
) -> Pace:
    await address.connect_all(callers)
    idle = [caller.idle for caller in callers]
    try:
        for caller in callers:
            caller.start()
        await _sleep_unless_done(idle, warm_up)
        window, requests, received = Window(), *_totals(callers)
        await _sleep_unless_done(idle, seconds)
        window.close()
        more_requests, more_received = _totals(callers)
        for caller in callers:
            caller.stop()
        await asyncio.wait_for(asyncio.gather(*idle), PATIENCE)
    finally:
        for caller in callers:
            caller.close()
    return Pace(
        (more_requests - requests) / window.elapsed,
        (more_received - received) / window.elapsed,
        [caller.answered for caller in callers],
        window.load_busy,
    )


def _totals(callers: Sequence[Caller]) -> tuple[int, int]:
    answered = sum(caller.answered for caller in callers)
    return answered, sum(caller.received for caller in callers)


async def _sleep_unless_done(futures: Sequence[asyncio.Future[None]], seconds: float) -> None:
    """Sleep, but raise at once if a caller has failed."""
    done, _ = await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for future in done:
        future.result()


class Waiter(Connection):
    """Holds one long-poll, and records when its response is complete."""

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self._on_answer = on_answer
        self._parser = ResponseParser(keep_body=True)
        self.answered_at = 0.0

    def wait(self, request: bytes) -> None:
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._parser.feed(data):
            self.answered_at = time.perf_counter()
            self._on_answer()

    def answer(self) -> tuple[int, bytes]:
        return self._parser.status, self._parser.take_body()


class Audience:
    """The messages that all readers of a fan-out have received together."""

    def __init__(self, sent_at: list[float] | None = None) -> None:
        self.sent_at = sent_at
        self.delays: list[float] = []
        self.delivered = 0
        self.failure: str | None = None
        self._goal = -1
        self._reached: asyncio.Future[None] | None = None

    def arrived(self, first: int, count: int) -> None:
        self.delivered += count
        if self.sent_at is not None:
            now = time.perf_counter()
            self.delays += [now - sent for sent in self.sent_at[first : first + count]]
        reached = self._reached
        if self.delivered >= self._goal and reached is not None and not reached.done():
            reached.set_result(None)

    def fail(self, reason: str) -> None:
        self.failure = reason
        if self._reached is not None and not self._reached.done():
            self._reached.set_exception(WrongAnswer(reason))

    async def reach(self, deliveries: int) -> None:
        """Wait until this many messages have been delivered in total."""
        if self.failure:
            raise WrongAnswer(self.failure)
        if self.delivered >= deliveries:
            return
        self._goal = deliveries
        self._reached = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(self._reached, PATIENCE)
        except TimeoutError:
            raise WrongAnswer(
                f"{self.delivered} of {deliveries} deliveries after {PATIENCE:.0f} s"
            ) from None
        finally:
            self._reached = None


class SseReader(Connection):
    """Counts messages without decoding them; optionally keeps the bytes, to check them later."""

    def __init__(self, request: bytes, audience: Audience, keep: bool = False) -> None:
        self._request = request
        self._audience = audience
        self._keep = keep
        self._opening: bytes | None = b""
        self._closing = False
        self.kept: list[bytes] = []
        self.count = 0
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._keep:
            self.kept.append(data)
        if self._opening is not None:
            self._open(data)
            return
        count = data.count(MARK)
        if count:
            first = self.count
            self.count = first + count
            self._audience.arrived(first, count)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closing:
            return
        reason = f"an SSE reader was disconnected: {exc}"
        self._audience.fail(reason)
        if not self.ready.done():
            self.ready.set_exception(WrongAnswer(reason))

    def close(self) -> None:
        self._closing = True
        super().close()

    def events(self) -> list[Event]:
        body = b"".join(self.kept).partition(HEAD_END)[2]
        return EventDecoder().feed(ChunkDecoder().feed(body))

    def _open(self, data: bytes) -> None:
        opening = (self._opening or b"") + data
        self._opening = opening
        head, found, events = opening.partition(HEAD_END)
        if found and head[9:12] != b"200":
            self._audience.fail(f"an SSE reader got {head[:300]!r}")
            self.ready.set_exception(WrongAnswer(f"an SSE reader got {head[:300]!r}"))
        elif b"event: control" in events and b"upToDate" in events:
            self._opening = None
            self.ready.set_result(None)


async def open_readers(
    address: Address, request: bytes, audience: Audience, count: int
) -> list[SseReader]:
    """Open readers, and wait until all are up to date; the first one keeps its bytes."""
    readers = [SseReader(request, audience, keep=index == 0) for index in range(count)]
    await address.connect_all(readers)
    await asyncio.wait_for(asyncio.gather(*(reader.ready for reader in readers)), PATIENCE)
    return readers
