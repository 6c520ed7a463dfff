"""Counts the origin requests of readers that long-poll together, through the whole path.

`devtools.load.arrivals` has readers that come and go.
"""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devtools.load.client import Address, Client, Connection
from devtools.load.wire import ResponseParser, header_of, render
from devtools.local_aws.stack import AwsLocal

PATIENCE: Final = 300.0
SETTLE_SECONDS: Final = 0.1
"""The pause between complete delivery and the next write, in which all clients poll again."""
LAST_SECONDS: Final = 1.0
"""The time after the last write, in which its poll reaches the origin: it is a cycle, too."""
TEXT: Final = "text/plain"

Credentials = Callable[[str, int], Mapping[str, str]]
"""The headers that authorize the client with this number to `read` or `write`."""


def nothing(_scope: str, _number: int) -> Mapping[str, str]:
    return {}


class Follower(Connection):
    """A client that long-polls a stream on one connection, and keeps all messages."""

    def __init__(
        self,
        path: str,
        offset: str,
        arrived: Callable[[str, float], None],
        headers: Mapping[str, str],
    ) -> None:
        self._path = path
        self._headers = headers
        self._offset = offset
        self._cursor = ""
        self._arrived = arrived
        self._parser = ResponseParser(keep_body=True)
        self.got: list[str] = []
        self.polls = 0
        self.failure: str | None = None

    def poll(self) -> None:
        self.polls += 1
        cursor = f"&cursor={self._cursor}" if self._cursor else ""
        target = f"{self._path}?offset={self._offset}&live=long-poll{cursor}"
        self.transport.write(render("GET", target, self._headers))

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if not parser.feed(data):
            return
        if parser.status not in (200, 204):
            self._fail(f"status {parser.status}: {parser.head!r} {parser.take_body()[:200]!r}")
            return
        offset = header_of(parser.head, "stream-next-offset")
        cursor = header_of(parser.head, "stream-cursor")
        if offset is None or cursor is None:
            self._fail(f"no offset or no cursor in {parser.head!r}")
            return
        self._offset, self._cursor = offset, cursor
        if parser.status == 200:
            now = time.perf_counter()
            messages = parser.take_body().decode().split()
            self.got += messages
            for message in messages:
                self._arrived(message, now)
        self.poll()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was closed: {exc}")

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self.transport.close()


class Audience:
    """The followers of one stream."""

    def __init__(
        self, address: Address, path: str, size: int, credentials: Credentials = nothing
    ) -> None:
        self.path = path
        self._credentials = credentials
        self.size = size
        self.delays: list[float] = []
        self.sent: list[str] = []
        self.followers: list[Follower] = []
        self._address = address
        self._sent_at: dict[str, float] = {}
        self._missing = 0
        self._complete = asyncio.Event()

    async def open(self, writer: Client) -> None:
        headers = {"Content-Type": TEXT, **self._credentials("write", 0)}
        created = await writer.ask(render("PUT", self.path, headers, b""), 201)
        offset = created.header("stream-next-offset")
        assert offset is not None
        self.followers = [
            Follower(self.path, offset, self._arrived, self._credentials("read", number))
            for number in range(self.size)
        ]
        await self._address.connect_all(self.followers)
        for follower in self.followers:
            follower.poll()

    async def write(self, writer: Client, message: str) -> None:
        """Append, and wait until every follower has received it."""
        self._missing = self.size
        self._complete.clear()
        self.sent.append(message)
        self._sent_at[message] = time.perf_counter()
        body = f"{message}\n".encode()
        headers = {"Content-Type": TEXT, **self._credentials("write", 0)}
        await writer.ask(render("POST", self.path, headers, body), 204)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._complete.wait()
        except TimeoutError:
            raise AssertionError(
                f"{self._missing} of {self.size} followers never got {message}: {self.failures()}"
            ) from None

    def close(self) -> None:
        for follower in self.followers:
            follower.failure = follower.failure or "closed"
            follower.close()

    def failures(self) -> Counter[str]:
        return Counter(each.failure for each in self.followers if each.failure)

    def wrong(self) -> int:
        """The number of followers that missed a message, or received one twice or out of order."""
        return sum(follower.got != self.sent for follower in self.followers)

    def cycles(self) -> int:
        """The most polls of any client: what the stream would cost with a single client."""
        return max(follower.polls for follower in self.followers)

    def _arrived(self, message: str, at: float) -> None:
        self.delays.append(at - self._sent_at[message])
        self._missing -= 1
        if not self._missing:
            self._complete.set()


@dataclass(frozen=True, slots=True)
class Result:
    """The requests of one or several audiences."""

    streams: int
    clients: int
    writes: int
    cycles: int
    """Polls that a single client made: from an offset and a cursor to data or 204."""
    per_key: list[int]
    """Origin requests for each offset and cursor. Keys are more than cycles when clients that
    were given different cursors no longer wait together."""
    polls: int
    """Polls of all clients together."""
    delivered: int
    """Messages received by clients."""
    wrong: int
    p50: float
    p99: float

    @property
    def asked(self) -> int:
        """All origin requests."""
        return sum(self.per_key)


async def measure(
    stack: AwsLocal,
    name: str,
    *,
    streams: int,
    clients: int,
    writes: int,
    idle: float = 0,
    credentials: Credentials = nothing,
) -> Result:
    """`clients` on each of `streams`; first `idle` seconds without a write, then the writes."""
    address = Address("127.0.0.1", stack.port)
    audiences = [
        Audience(address, f"/v1/stream/{name}-{number}", clients, credentials)
        for number in range(streams)
    ]
    writers = [await address.connect(Client()) for _ in audiences]
    try:
        for audience, writer in zip(audiences, writers, strict=True):
            await audience.open(writer)
        await asyncio.sleep(idle or SETTLE_SECONDS)
        for number in range(writes):
            await asyncio.gather(
                *(
                    audience.write(writer, str(number))
                    for audience, writer in zip(audiences, writers, strict=True)
                )
            )
            await asyncio.sleep(SETTLE_SECONDS)
        await asyncio.sleep(LAST_SECONDS)
        failures = sum((audience.failures() for audience in audiences), Counter())
        assert not failures, failures
    finally:
        for audience in audiences:
            audience.close()
        for writer in writers:
            writer.close()
    return Result(
        streams=streams,
        clients=clients,
        writes=writes,
        cycles=sum(audience.cycles() for audience in audiences),
        per_key=requests_per_key(stack.requests("wait"), [audience.path for audience in audiences]),
        polls=sum(each.polls for audience in audiences for each in audience.followers),
        delivered=sum(len(audience.delays) for audience in audiences),
        wrong=sum(audience.wrong() for audience in audiences),
        p50=_percentile(audiences, 50),
        p99=_percentile(audiences, 99),
    )


def requests_per_key(requests: Counter[tuple[str, str]], paths: Iterable[str]) -> list[int]:
    """The origin requests for each cache key of long-polls of these paths."""
    wanted = tuple(f"{path}?" for path in paths)
    return [
        times
        for (method, target), times in requests.items()
        if method == "GET" and target.startswith(wanted) and "live=long-poll" in target
    ]


def table(results: Sequence[Result]) -> str:
    titles = "streams, clients each, writes each, poll cycles, origin requests, per cycle"
    titles += ", deliveries per origin request, missed or repeated, p50, p99"
    lines = ["| " + titles.replace(", ", " | ") + " |", "|" + "---|" * 10]
    lines += [
        f"| {each.streams} | {each.clients:,} | {each.writes} | {each.cycles}"
        f" | {each.asked} | {each.asked / each.cycles:.2f}"
        f" | {each.delivered / each.asked:,.0f} | {each.wrong}"
        f" | {each.p50 * 1000:.0f} ms | {each.p99 * 1000:.0f} ms |"
        for each in results
    ]
    return "\n".join(lines)


def machine() -> str:
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


def _percentile(audiences: Iterable[Audience], percent: int) -> float:
    delays = [delay for audience in audiences for delay in audience.delays]
    return statistics.quantiles(delays, n=100, method="inclusive")[percent - 1]
