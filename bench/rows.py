"""The measurements. All of them verify the responses: a broken server must not look fast."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import NamedTuple, Self

from bench.servers import Server
from bench.streams import (
    BINARY,
    MESSAGE_BYTES,
    append,
    message,
    next_offset,
    read,
    streams_at,
    temporary,
)
from devtools.load import wrk
from devtools.load.client import (
    PATIENCE,
    Address,
    Audience,
    Caller,
    Client,
    SseReader,
    Waiter,
    Window,
    WrongAnswer,
    closed_loop,
    open_readers,
)
from devtools.load.wire import header_of

MICROSECONDS = "µs"
TIMES = "\N{MULTIPLICATION SIGN}"
READERS = 1000
BATCH = 100
CATCH_UP_MESSAGES = 1000
MEGABYTE = 1_000_000
SETTLE_SECONDS = 1.0
PAUSE_SECONDS = 0.002
PARK_SECONDS_PER_WAITER = 0.001
"""How long a long-poll has to arrive and wait before the append is sent."""


@dataclass(frozen=True, slots=True)
class Span:
    warm_up: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table."""

    title: str
    unit: str
    more_is_better: bool = True


class Measured(NamedTuple):
    """One figure per metric, and the CPU share of the load generator."""

    figures: list[float]
    load_busy: float = 0.0


Measure = Callable[[Server, Span], Awaitable[Measured]]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; it yields one figure per metric."""

    name: str
    metrics: tuple[Metric, ...]
    measure: Measure
    fresh_server: bool = False
    needs_wrk: bool = False

    def matches(self, pattern: str) -> bool:
        return pattern in self.name or fnmatch(self.name, pattern)


def _address(server: Server) -> Address:
    return Address(server.host, server.port)


def _offset(head: bytes) -> str:
    return header_of(head, "Stream-Next-Offset") or ""


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongAnswer(f"{what}: {found!r}, expected {expected!r}")


class Load(NamedTuple):
    """A closed loop of small requests, by wrk if it is installed."""

    requests_per_second: float
    answered: int
    """With those of the warm-up."""
    unanswered: int
    """At most so many were sent, too."""
    cpu_microseconds: float
    """Of the server, per request."""
    busy: float


async def _load(
    server: Server, callers: Sequence[Caller], requests: Sequence[bytes], span: Span
) -> Load:
    """Send requests: those of `callers`, or all of `requests` in turns where there is wrk."""
    address, cpu_before = _address(server), server.cpu_seconds()
    if wrk.PROGRAM is None:
        pace = await closed_loop(address, callers, span.warm_up, span.seconds)
        per_second, answered, unanswered = pace.requests_per_second, sum(pace.answered), 0
        busy = pace.load_busy
    else:
        warm = await wrk.closed_loop(address, requests, len(callers), span.warm_up)
        measured = await wrk.closed_loop(address, requests, len(callers), span.seconds)
        per_second, answered = measured.per_second, warm.requests + measured.requests
        # wrk ends without the answers to its last requests.
        unanswered, busy = 2 * len(callers), 0.0
    cpu = server.cpu_seconds() - cpu_before
    return Load(per_second, answered, unanswered, cpu / max(1, answered) * 1e6, busy)


def appends(connections: int, spread: int = 1, size: int = MESSAGE_BYTES) -> Measure:
    async def measure(server: Server, span: Span) -> Measured:
        async with streams_at(_address(server)) as streams, temporary(streams, spread) as names:
            requests = [
                append(names[writer % spread], message(writer, 0, size))
                for writer in range(max(connections, spread))
            ]
            callers = [Caller([request], 204) for request in requests[:connections]]
            load = await _load(server, callers, requests, span)
            stored = 0
            for name in names:
                stored += len(await streams.messages(name))
            if not load.answered <= stored <= load.answered + load.unanswered:
                raise WrongAnswer(f"{stored} messages are stored after {load.answered} answers")
        return Measured([load.requests_per_second, load.cpu_microseconds], load.busy)

    return measure


def batched_appends(connections: int) -> Measure:
    async def measure(server: Server, span: Span) -> Measured:
        address = _address(server)
        async with streams_at(address) as streams, temporary(streams) as [name]:
            bodies = [
                b"[" + b",".join(message(writer, index) for index in range(BATCH)) + b"]"
                for writer in range(connections)
            ]
            callers = [Caller([append(name, body)], 204) for body in bodies]
            pace = await closed_loop(address, callers, span.warm_up, span.seconds)
            stored = len(await streams.messages(name))
            _same("messages", stored, sum(pace.answered) * BATCH)
        return Measured([pace.requests_per_second * BATCH], pace.load_busy)

    return measure


def large_appends(connections: int) -> Measure:
    async def measure(server: Server, span: Span) -> Measured:
        address = _address(server)
        async with streams_at(address) as streams, temporary(streams, kind=BINARY) as [name]:
            request = append(name, bytes(MEGABYTE), BINARY)
            callers = [Caller([request], 204, keep_heads=True) for _ in range(connections)]
            pace = await closed_loop(address, callers, span.warm_up, span.seconds)
            offsets = sorted({_offset(head) for caller in callers for head in caller.heads or ()})
            _same("different offsets", len(offsets), sum(pace.answered))
            # Reading everything back would take longer than writing it: check the last few.
            last = min(8, len(offsets) - 1)
            length = await streams.length(name, offsets[-1 - last])
            _same("bytes at the end", length, last * MEGABYTE)
        return Measured([pace.requests_per_second * MEGABYTE / 1e6], pace.load_busy)

    return measure


def connects(connections: int) -> Measure:
    """Each connection is for one read of a small stream."""

    async def measure(server: Server, span: Span) -> Measured:
        async with streams_at(_address(server)) as streams, temporary(streams) as [name]:
            await streams.append(name, message(0, 0))
            request = read(name, closes=True)
            callers = [Caller([request], 200) for _ in range(connections)]
            load = await _load(server, callers, [request], span)
        return Measured([load.requests_per_second, load.cpu_microseconds], load.busy)

    return measure


def catch_up_json(
    connections: int, amount: int = CATCH_UP_MESSAGES, size: int = MESSAGE_BYTES
) -> Measure:
    async def measure(server: Server, span: Span) -> Measured:
        address = _address(server)
        async with streams_at(address) as streams, temporary(streams) as [name]:
            for index in range(amount):
                await streams.append(name, message(0, index, size))
            found = [item["i"] for item in await streams.messages(name)]
            _same("messages", found, list(range(amount)))
            load, pages, _ = await _catch_up(server, name, connections, span)
        figures = [load.requests_per_second / pages, load.cpu_microseconds * pages]
        return Measured(figures, load.busy)

    return measure


def catch_up_binary(connections: int) -> Measure:
    async def measure(server: Server, span: Span) -> Measured:
        async with streams_at(_address(server)) as streams, temporary(streams, kind=BINARY) as [n]:
            await streams.append(n, bytes(MEGABYTE), BINARY)
            _same("bytes", await streams.length(n), MEGABYTE)
            load, pages, length = await _catch_up(server, n, connections, span)
        megabytes = load.requests_per_second / pages * length / MEGABYTE
        return Measured([megabytes], load.busy)

    return measure


async def _catch_up(
    server: Server, name: str, connections: int, span: Span
) -> tuple[Load, int, int]:
    """Read a stream again and again; also returns its number of pages, and of bytes."""
    address = _address(server)
    async with streams_at(address) as streams:
        pages = [page async for page in streams.pages(name)]
    requests = [page.request for page in pages]
    lengths = [page.response.length for page in pages]
    callers = [Caller(requests, 200, lengths) for _ in range(connections)]
    return await _load(server, callers, requests, span), len(pages), sum(lengths)


def long_poll_latency(waiters: int) -> Measure:
    async def measure(server: Server, span: Span) -> Measured:
        address = _address(server)
        async with streams_at(address) as streams, temporary(streams) as [name]:
            tail = await streams.append(name, message(0, 0))
            room = _Waiters(address, name, waiters)
            await room.enter()
            try:
                tail, _ = await room.rounds(tail, 0, span.warm_up)
                _, delays = await room.rounds(tail, 1_000_000, span.seconds)
            finally:
                room.leave()
        return Measured(_percentiles(delays))

    return measure


class _Waiters:
    """The waiters on one stream, and its writer."""

    def __init__(self, address: Address, name: str, size: int) -> None:
        self._address = address
        self._name = name
        self._writer = Client()
        self._waiters = [Waiter(self._answered) for _ in range(size)]
        self._missing = 0
        self._all_answered: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        await self._address.connect(self._writer)
        await self._address.connect_all(self._waiters)

    def leave(self) -> None:
        for connection in (self._writer, *self._waiters):
            connection.close()

    async def rounds(self, tail: str, first: int, seconds: float) -> tuple[str, list[float]]:
        delays: list[float] = []
        deadline = time.perf_counter() + seconds
        index = first
        while not delays or time.perf_counter() < deadline:
            index += 1
            tail = await self._round(tail, index, delays)
        return tail, delays

    async def _round(self, tail: str, index: int, delays: list[float]) -> str:
        self._missing = len(self._waiters)
        self._all_answered = asyncio.get_running_loop().create_future()
        request = read(self._name, tail, "long-poll")
        for waiter in self._waiters:
            waiter.wait(request)
        await asyncio.sleep(PAUSE_SECONDS + PARK_SECONDS_PER_WAITER * len(self._waiters))
        body = message(0, index)
        sent_at = time.perf_counter()
        acknowledged = await self._writer.ask(append(self._name, body), 204)
        await asyncio.wait_for(self._all_answered, PATIENCE)
        expected = (200, b"[" + body + b"]")
        for waiter in self._waiters:
            _same("long-poll", waiter.answer(), expected)
            delays.append(waiter.answered_at - sent_at)
        return next_offset(acknowledged)

    def _answered(self) -> None:
        self._missing -= 1
        if self._missing == 0 and self._all_answered is not None:
            self._all_answered.set_result(None)


async def sse_latency(server: Server, span: Span) -> Measured:
    """One reader; each append waits until the previous one was received."""
    sent_at: list[float] = []
    async with _FanOut(server, 1, sent_at) as show:
        deadline = time.perf_counter() + span.warm_up
        while time.perf_counter() < deadline:
            await show.append_and_see()
        warm = len(show.audience.delays)
        deadline = time.perf_counter() + span.seconds
        while len(show.audience.delays) == warm or time.perf_counter() < deadline:
            await show.append_and_see()
        await show.check()
        return Measured(_percentiles(show.audience.delays[warm:]))


def fan_out_flat_out(readers: int = READERS, size: int = MESSAGE_BYTES) -> Measure:
    """One writer without pauses; the time ends when the last reader has the last message."""

    async def measure(server: Server, span: Span) -> Measured:
        async with _FanOut(server, readers, size=size) as show:
            await show.append_and_see()
            before = show.audience.delivered
            window = Window()
            deadline = time.perf_counter() + span.seconds
            while time.perf_counter() < deadline:
                await show.append()
            await show.audience.reach(show.appended * readers)
            window.close()
            await show.check()
        deliveries = show.audience.delivered - before
        return Measured([deliveries / window.elapsed], window.load_busy)

    return measure


def fan_out_at(rate: int) -> Measure:
    """A steady rate: appends are sent on time, whether or not the previous one was delivered."""

    async def measure(server: Server, span: Span) -> Measured:
        sent_at: list[float] = []
        async with _FanOut(server, READERS, sent_at) as show:
            await show.append_and_see()
            show.audience.delays.clear()
            began = time.perf_counter()
            for tick in range(max(2, round(span.seconds * rate))):
                await asyncio.sleep(max(0.0, began + tick / rate - time.perf_counter()))
                await show.append()
            await show.audience.reach(show.appended * READERS)
            await show.check()
            return Measured(_percentiles(show.audience.delays)[1:])

    return measure


class _FanOut:
    """SSE readers of one stream, and its writer."""

    def __init__(
        self,
        server: Server,
        readers: int,
        sent_at: list[float] | None = None,
        *,
        size: int = MESSAGE_BYTES,
    ) -> None:
        """`size`: of a message in bytes."""
        self._address = _address(server)
        self._size = readers
        self._message_bytes = size
        self._sent_at = sent_at
        self._writer = Client()
        self._readers: list[SseReader] = []
        self._name = ""
        self.audience = Audience(sent_at)
        self.appended = 0

    async def __aenter__(self) -> Self:
        async with streams_at(self._address) as streams:
            self._name = f"show-{time.monotonic_ns()}"
            tail = await streams.create(self._name)
        request = read(self._name, tail, "sse")
        self._readers = await open_readers(self._address, request, self.audience, self._size)
        await self._address.connect(self._writer)
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in (self._writer, *self._readers):
            connection.close()
        # The server must have noticed the disconnects before the stream is deleted.
        await asyncio.sleep(PAUSE_SECONDS * 25)
        async with streams_at(self._address) as streams:
            await streams.delete(self._name)

    async def append(self) -> None:
        request = append(self._name, message(0, self.appended, self._message_bytes))
        self.appended += 1
        if self._sent_at is not None:
            self._sent_at.append(time.perf_counter())
        await self._writer.ask(request, 204)

    async def append_and_see(self) -> None:
        await self.append()
        await self.audience.reach(self.appended * self._size)
        await asyncio.sleep(PAUSE_SECONDS)

    async def check(self) -> None:
        """Check that all readers have all messages, and decode those of one to check the order."""
        counts = {reader.count for reader in self._readers}
        _same("messages per reader", counts, {self.appended})
        seen = [
            item["i"]
            for event in self._readers[0].events()
            if event.kind == "data"
            for item in json.loads(event.data)
        ]
        _same("messages of the first reader", seen, list(range(self.appended)))


async def memory_per_reader(server: Server, _span: Span) -> Measured:
    """Growth of the server's resident memory with a thousand idle readers."""
    async with _FanOut(server, READERS // 10) as rehearsal:
        await rehearsal.append_and_see()
    await asyncio.sleep(SETTLE_SECONDS)
    before = server.rss_kb()
    async with _FanOut(server, READERS):
        await asyncio.sleep(SETTLE_SECONDS)
        after = server.rss_kb()
    return Measured([(after - before) / READERS])


def _percentiles(delays: Sequence[float]) -> list[float]:
    """p50 and p99 in milliseconds."""
    if len(delays) < 2:
        raise WrongAnswer("too few samples")
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    return [cuts[49] * 1000, cuts[98] * 1000]


def _rate(title: str) -> tuple[Metric, Metric]:
    return Metric(title, "req/s"), Metric(f"{title}: processor time", MICROSECONDS, False)


def _latency(title: str) -> tuple[Metric, Metric]:
    return Metric(f"{title}, p50", "ms", False), Metric(f"{title}, p99", "ms", False)


ROWS = (
    *(
        Row(
            f"append-{connections}",
            _rate(f"append 100 B, {connections} connection{'s'[: connections > 1]}"),
            appends(connections),
        )
        for connections in (1, 16, 64, 256)
    ),
    *(
        Row(
            f"append-{streams}-streams",
            _rate(f"append 100 B, 64 connections over {streams:,} streams"),
            appends(64, spread=streams),
        )
        for streams in (64, 1000)
    ),
    Row(
        "append-batched",
        (Metric(f"append 100 {TIMES} 100 B per request, 16 connections", "msg/s"),),
        batched_appends(16),
    ),
    Row(
        "append-1mb",
        (Metric("append 1 MB, 4 connections", "MB/s"),),
        large_appends(4),
    ),
    Row(
        "catch-up-json",
        _rate(f"read 1000 {TIMES} 100 B JSON, 16 connections"),
        catch_up_json(16),
    ),
    Row(
        "catch-up-1mb",
        (Metric("read 1 MB binary, 16 connections", "MB/s"),),
        catch_up_binary(16),
    ),
    Row(
        "connects",
        _rate("connect, read 100 B and close, 64 at once"),
        connects(64),
        needs_wrk=True,
    ),
    Row("long-poll-1", _latency("append → long-poll, 1 waiter"), long_poll_latency(1)),
    Row("long-poll-100", _latency("append → long-poll, 100 waiters"), long_poll_latency(100)),
    Row("sse-1", _latency("append → SSE, 1 reader"), sse_latency),
    Row(
        "fan-out-flat-out",
        (Metric("SSE to 1,000 readers, flat out", "deliveries/s"),),
        fan_out_flat_out(),
    ),
    *(
        Row(
            f"fan-out-{rate}",
            (Metric(f"SSE to 1,000 readers, {rate} msg/s, p99", "ms", False),),
            fan_out_at(rate),
        )
        for rate in (5, 50)
    ),
    Row(
        "memory",
        (Metric("memory per idle SSE reader", "KB", False),),
        memory_per_reader,
        fresh_server=True,
    ),
)

DS_BENCH_BYTES = 256
REPLAYED_MESSAGES = 4000

DS_BENCH = (
    *(
        Row(
            f"append-{streams}-streams",
            _rate(f"append 256 B, 64 connections over {streams:,} streams"),
            appends(64, spread=streams, size=DS_BENCH_BYTES),
        )
        for streams in (100, 1000, 10_000)
    ),
    *(
        Row(
            f"replay-{clients}",
            _rate(f"replay {REPLAYED_MESSAGES:,} {TIMES} 256 B, connections: {clients}"),
            catch_up_json(clients, REPLAYED_MESSAGES, DS_BENCH_BYTES),
        )
        for clients in (1, 16, 256)
    ),
    *(
        Row(
            f"sse-{readers}",
            (Metric(f"SSE of 256 B to {readers:,} reader{'s'[: readers > 1]}", "deliveries/s"),),
            fan_out_flat_out(readers, DS_BENCH_BYTES),
        )
        for readers in (1, 100, 1000)
    ),
)
"""The shape of electric-sql's ds-bench: more streams, larger messages, and many clients that read
a stream from its beginning."""

SHAPES = {"default": ROWS, "ds-bench": DS_BENCH}
