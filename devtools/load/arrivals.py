"""Counts the origin requests of readers that come and go at any time, with the whole deployment on
this machine.

`.venv/bin/python -m devtools.load.arrivals` prints the table; `--write` puts it into
docs/collapsing.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from devtools.load.audience import TEXT, Credentials, machine, nothing
from devtools.load.client import Address, Client
from devtools.load.wire import EventDecoder, Response, render
from devtools.local_aws.stack import AwsLocal
from devtools.processes import ROOT

WARM_UP: Final = 20.0
"""The time in which the readers come that are there when the measurement begins, in seconds."""
CATCH_UP: Final = 300.0
"""How long readers may take to get the last messages: a safety net."""
RETRY: Final = 0.5
"""The pause before a patient reader asks again, if it is not told how long, in seconds."""

Disturbance = Callable[[AwsLocal, Sequence["Stream"]], Awaitable[None]]


class Stream:
    """A stream, its writer and its readers."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.tag = ""
        self.offset = ""
        self.written = 0
        """Messages that were acknowledged; each is its number."""
        self.sent_at: list[float] = []
        self.readers: list[Reader] = []


@dataclass(slots=True)
class Reader:
    """A reader from the end of a stream on, by long-polls or by shared server-sent events."""

    stream: Stream
    address: Address
    headers: dict[str, str]
    live: str
    patient: bool
    """Whether it asks again after 429, 5xx and broken connections; else they fail the run."""
    first: int = 0
    got: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    answers: int = 0
    refused: int = 0
    here: bool = True

    async def read(self, stay: float) -> None:
        try:
            async with asyncio.timeout(stay):
                await self._follow()
        except TimeoutError:
            self.here = False

    async def _follow(self) -> None:
        stream = self.stream
        self.first, offset, cursor = stream.written, stream.offset, ""
        client = Client()
        client.lost = True
        try:
            while True:
                query = f"offset={offset}&live={self.live}" + (
                    f"&cursor={cursor}" if cursor else ""
                )
                try:
                    if client.lost:
                        client = await self.address.connect(Client())
                    request = render("GET", f"{stream.path}?{query}", self.headers)
                    answer = await client.ask(request, *(() if self.patient else (200, 204)))
                except OSError:
                    if not self.patient:
                        raise
                    await self._pause(None)
                    continue
                if answer.status not in (200, 204):
                    assert answer.status == 429 or answer.status >= 500, answer
                    await self._pause(answer)
                    continue
                self.answers += 1
                if self.live == "sse":
                    offset, cursor = self._take_events(answer)
                    continue
                offset = answer.header("stream-next-offset") or ""
                cursor = self._next_cursor(answer, cursor)
                stream.tag = answer.header("cache-tag") or stream.tag
                self._take(answer.body.decode())
        finally:
            if not client.lost:
                client.close()

    def _next_cursor(self, answer: Response, held: str) -> str:
        cursor = answer.header("stream-cursor") or ""
        assert int(cursor) > int(held or "0"), (cursor, held)
        return cursor

    def _take_events(self, answer: Response) -> tuple[str, str]:
        """Take the messages of a whole response; returns the last offset and cursor."""
        control: dict[str, str] = {}
        for event in EventDecoder().feed([answer.body]):
            if event.kind == "data":
                self._take(event.data)
            else:
                control = json.loads(event.data)
        return control["streamNextOffset"], control["streamCursor"]

    def _take(self, text: str) -> None:
        now = time.perf_counter()
        for message in map(int, text.split()):
            self.got.append(message)
            self.delays.append(now - self.stream.sent_at[message])

    async def _pause(self, answer: Response | None) -> None:
        self.refused += 1
        told = answer.header("retry-after") if answer is not None else None
        seconds = float(told) if told else RETRY
        await asyncio.sleep(seconds * self.stream.chance.uniform(0.5, 1))

    def missed_or_repeated(self) -> bool:
        """Whether it got anything but all messages in order since it came."""
        if self.here and self.first + len(self.got) != self.stream.written:
            return True
        return self.got != list(range(self.first, self.first + len(self.got)))


@dataclass(frozen=True, slots=True)
class Result:
    streams: int
    present: int
    """Readers of each stream at a time, on average."""
    came: int
    """Readers altogether."""
    stay: float
    every: float
    """Seconds between two writes to a stream."""
    writes: int
    asked: int
    """Origin requests."""
    answers: int
    refused: int
    wrong: int
    p50: float
    p99: float

    @property
    def per_write(self) -> float:
        return self.asked / self.writes


async def measure(
    stack: AwsLocal,
    name: str,
    *,
    streams: int,
    present: int,
    stay: float,
    every: float,
    seconds: float,
    live: str = "long-poll",
    credentials: Credentials = nothing,
    disturb: Disturbance | None = None,
) -> Result:
    """`present` readers of each of `streams` come in the first seconds, and others for those that
    leave: at random, and each stays for `stay` seconds on average."""
    address = Address("127.0.0.1", stack.port)
    all_streams = [Stream(f"/v1/stream/{name}-{number}", number) for number in range(streams)]
    tasks: list[asyncio.Task[None]] = []
    path = f"/v1/stream/{name}-"
    numbers = iter(range(10**9))
    end = time.perf_counter() + WARM_UP + seconds

    async def visit(stream: Stream, pause: float, stays: float) -> None:
        await asyncio.sleep(pause)
        headers = dict(credentials("read", next(numbers)))
        reader = Reader(stream, address, headers, live, patient=disturb is not None)
        stream.readers.append(reader)
        await reader.read(stays)

    def plan_visits(stream: Stream) -> None:
        chance = stream.chance
        visits = [
            (chance.uniform(0, WARM_UP), chance.expovariate(1 / stay)) for _ in range(present)
        ]
        at = chance.expovariate(present / stay)
        while at < WARM_UP + seconds:
            visits.append((at, chance.expovariate(1 / stay)))
            at += chance.expovariate(present / stay)
        tasks.extend(asyncio.create_task(visit(stream, *each)) for each in visits)

    async def write(stream: Stream) -> None:
        headers = {"Content-Type": TEXT, **credentials("write", 0)}
        writer = await address.connect(Client())
        created = await writer.ask(render("PUT", stream.path, headers, b""), 201)
        stream.offset = created.header("stream-next-offset") or ""
        plan_visits(stream)
        due = time.perf_counter()
        while (due := due + every) < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            body = b"%d\n" % stream.written
            stream.sent_at.append(time.perf_counter())
            answer = await writer.ask(render("POST", stream.path, headers, body), 204)
            stream.offset = answer.header("stream-next-offset") or ""
            stream.written += 1
        writer.close()

    disturbing = None if disturb is None else asyncio.ensure_future(disturb(stack, all_streams))
    try:
        await asyncio.gather(*map(write, all_streams))
        if disturbing is not None:
            disturbing.cancel()
        await _wait_for_the_last(all_streams, tasks)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [each for each in ended if isinstance(each, Exception)]
    assert not failures, failures[:3]
    readers = [reader for stream in all_streams for reader in stream.readers]
    delays = sorted(delay for reader in readers for delay in reader.delays)
    found = stack.requests("live" if live == "sse" else "wait").items()
    quantiles = statistics.quantiles(delays, n=100, method="inclusive")
    return Result(
        streams=streams,
        present=present,
        came=len(readers),
        stay=stay,
        every=every,
        writes=sum(stream.written for stream in all_streams),
        asked=sum(times for (_, target), times in found if target.startswith(path)),
        answers=sum(reader.answers for reader in readers),
        refused=sum(reader.refused for reader in readers),
        wrong=sum(reader.missed_or_repeated() for reader in readers),
        p50=quantiles[49],
        p99=quantiles[98],
    )


async def _wait_for_the_last(
    streams: Sequence[Stream], tasks: Sequence[asyncio.Task[None]]
) -> None:
    deadline = time.perf_counter() + CATCH_UP
    while any(
        reader.here and reader.first + len(reader.got) < stream.written
        for stream in streams
        for reader in stream.readers
    ):
        assert time.perf_counter() < deadline, "readers did not get the last messages"
        assert not [task for task in tasks if task.done() and task.exception()]
        await asyncio.sleep(0.05)


def table(results: Sequence[Result]) -> str:
    titles = "streams, readers of each at a time, readers that came, mean stay, a write every"
    titles += ", writes, responses, origin requests, per write, missed or repeated, p50, p99"
    lines = ["| " + titles.replace(", ", " | ") + " |", "|" + "---|" * 12]
    lines += [
        f"| {each.streams} | {each.present:,} | {each.came:,} | {each.stay / 60:g} min"
        f" | {each.every:g} s | {each.writes} | {each.answers:,} | {each.asked}"
        f" | **{each.per_write:.2f}** | {each.wrong}"
        f" | {each.p50 * 1000:.0f} ms | {each.p99 * 1000:.0f} ms |"
        for each in results
    ]
    return "\n".join(lines)


async def run_all(stack: AwsLocal) -> list[Result]:
    cases = [(1, 1000, 60.0, 1.0), (1, 1000, 600.0, 1.0), (1, 1000, 60.0, 5.0)]
    cases += [(1, 1000, 600.0, 5.0), (5, 200, 60.0, 5.0)]
    return [
        await measure(
            stack,
            f"arrivals-{number}",
            streams=streams,
            present=present,
            stay=stay,
            every=every,
            seconds=30.0 if every < 5 else 60.0,
        )
        for number, (streams, present, stay, every) in enumerate(cases)
    ]


def main() -> None:
    with AwsLocal(say=print) as stack:
        results = asyncio.run(run_all(stack))
    print(table(results))
    if "--write" in sys.argv[1:]:
        target = ROOT / "docs" / "collapsing.md"
        before, mark, rest = target.read_text().partition("<!-- arrivals -->\n")
        assert mark, f"{target} has no place for the table"
        after = rest.partition("<!-- end -->\n")[2]
        measured = f"{table(results)}\n\nMeasured on {machine()}.\n"
        target.write_text(f"{before}{mark}\n{measured}\n<!-- end -->\n{after}")
        print(f"wrote docs/{target.name}")


if __name__ == "__main__":
    main()
