"""`python -m bench.aviso`: throughput and latency of notifications, and the cost of filters.

A server process and its clients share this machine. Filters are also measured alone, in CPU time,
against two plain loops: one in which every watcher parses each notification and applies its own
filter, so that nothing is shared, and one in which only the parsing is shared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import shapely

from bench.report import machine
from devtools.processes import ROOT
from devtools.server import Server
from tailrace.protocols.aviso import envelope
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.filter_index import FilterIndex
from tailrace.protocols.aviso.filters import Filter
from tailrace.protocols.aviso.request_body import parse_body, parse_notification, parse_query
from tailrace.settings import Settings

PAGE = ROOT / "docs" / "benchmarks-aviso.md"
FACTS = ("machine", "system", "Tailrace", "date")

EVENT = "extreme_event"
EVENTS = AvisoConfig.load(Settings()).events
FILTERS = 1_000
GOAL = 10.0
CONNECTIONS = 32
HAZARDS = ("storm", "flood", "fire", "heat", "drought")


Parse = Callable[[bytes], dict[str, Any]]


class Row(NamedTuple):
    name: str
    value: str


# Notifications and filters


def ring(south: float, west: float, size: float) -> list[list[float]]:
    north, east = south + size, west + size
    return [[south, west], [south, east], [north, east], [north, west], [south, west]]


def notification(chance: random.Random) -> dict[str, Any]:
    return {
        "event_type": EVENT,
        "identifier": {
            "date": f"2026-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}",
            "hazard": chance.choice(HAZARDS),
            "severity": chance.randint(1, 7),
            "anomaly": round(chance.uniform(-100, 100), 2),
            "polygon": ring(chance.uniform(-80, 75), chance.uniform(-170, 165), 2.0),
        },
        "payload": {"location": f"s3://products/{chance.getrandbits(64):016x}", "bytes": 123_456},
    }


def field_filter(chance: random.Random, i: int) -> dict[str, Any]:
    """A filter on a day and, in some of them, on a hazard and a range."""
    low = chance.uniform(-100, 60)
    identifier: dict[str, Any] = {"date": f"2026-{i % 12 + 1:02d}-{i // 12 % 28 + 1:02d}"}
    if i % 2:
        identifier["hazard"] = chance.choice(HAZARDS)
    if i % 3:
        identifier["anomaly"] = {"between": [low, low + 40]}
    return identifier


def range_filter(chance: random.Random, _: int) -> dict[str, Any]:
    low = chance.uniform(-100, 99)
    return {"anomaly": {"between": [low, low + 1]}, "severity": {"gte": chance.randint(1, 7)}}


def area_filter(chance: random.Random, _: int) -> dict[str, Any]:
    return {"polygon": ring(chance.uniform(-80, 75), chance.uniform(-170, 165), 5.0)}


KINDS: dict[str, Callable[[random.Random, int], dict[str, Any]]] = {
    "values": field_filter,
    "ranges": range_filter,
    "polygons": area_filter,
}


def compile_filter(identifier: dict[str, Any]) -> Filter:
    fields = {"event_type": EVENT, "identifier": identifier}
    body = parse_body(json.dumps(fields).encode(), RequestKind.WATCH, EVENTS)
    return parse_query(body).filter


def encode_notification(chance: random.Random) -> bytes:
    raw = json.dumps(notification(chance)).encode()
    body = parse_body(raw, RequestKind.NOTIFICATION, EVENTS)
    return envelope.encode(parse_notification(body), "id", "http://localhost", 0)


# Filters alone


class PlainFilter:
    """The straightforward filter: compares parsed JSON, one field after the other."""

    def __init__(self, identifier: dict[str, Any]) -> None:
        self._identifier = dict(identifier)
        polygon = self._identifier.pop("polygon", None)
        self._area = shapely.Polygon([pair[::-1] for pair in polygon]) if polygon else None
        if self._area is not None:
            shapely.prepare(self._area)

    def matches(self, event: dict[str, Any]) -> bool:
        identifier = event["data"]["identifier"]
        for name, constraint in self._identifier.items():
            if isinstance(constraint, dict):
                number = float(identifier[name])
                if (
                    "between" in constraint
                    and not constraint["between"][0] <= number <= constraint["between"][1]
                ):
                    return False
                if "gte" in constraint and number < constraint["gte"]:
                    return False
            elif identifier[name] != constraint:
                return False
        if self._area is None:
            return True
        return bool(self._area.intersects(event["shape"]))


def parse_notification_json(body: bytes, *, with_shape: bool) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(body)
    if with_shape:
        pairs = event["data"]["identifier"]["polygon"]
        event["shape"] = shapely.Polygon([pair[::-1] for pair in pairs])
    return event


def measure_cpu(work: Callable[[], int]) -> tuple[float, int]:
    began = time.process_time()
    matches = work()
    return time.process_time() - began, matches


def measure_filters(quick: bool) -> Iterator[Row]:
    chance = random.Random(1)
    bodies = [encode_notification(chance) for _ in range(50 if quick else 400)]
    for kind, make in KINDS.items():
        filters = [make(chance, i) for i in range(FILTERS)]
        index: FilterIndex[int] = FilterIndex(EVENTS[EVENT])
        for i, identifier in enumerate(filters):
            index.add(compile_filter(identifier), i)
        plain = [PlainFilter(identifier) for identifier in filters]

        def match_by_index(index: FilterIndex[int] = index) -> int:
            matches = 0
            for body in bodies:
                one = envelope.Notification.parse(body)
                assert one is not None
                matches += sum(1 for _ in index.match(one))
            return matches

        parse = partial(parse_notification_json, with_shape=kind == "polygons")

        def parse_once(plain: list[PlainFilter] = plain, parse: Parse = parse) -> int:
            events = map(parse, bodies)
            return sum(each.matches(event) for event in events for each in plain)

        def parse_for_each(plain: list[PlainFilter] = plain, parse: Parse = parse) -> int:
            some = bodies[: max(10, len(bodies) // 10)]
            return sum(each.matches(parse(body)) for body in some for each in plain)

        match_by_index()
        seconds, matches = measure_cpu(match_by_index)
        once, same = measure_cpu(parse_once)
        assert matches == same, "the index and the plain loop disagree"
        each, _ = measure_cpu(parse_for_each)
        each *= len(bodies) / max(10, len(bodies) // 10)
        count = len(bodies)
        yield Row(
            f"{FILTERS:,} filters, {kind}",
            f"{seconds / count * 1e6:,.0f} µs | {once / count * 1e6:,.0f} µs |"
            f" {each / count * 1e6:,.0f} µs | **{once / seconds:,.0f}x** | {each / seconds:,.0f}x",
        )


# Over HTTP


class HttpConnection:
    """One connection, with the minimum of HTTP that the benchmark needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> HttpConnection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))

    def send(self, path: str, fields: dict[str, Any]) -> None:
        body = json.dumps(fields).encode()
        # The server refuses host names that are not its own.
        head = f"POST /api/v1/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def answer(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self._reader.readexactly(length)

    async def head(self) -> None:
        assert (await self._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

    async def chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        data = await self._reader.readexactly(size + 2)
        return data[:-2]

    def close(self) -> None:
        self._writer.close()


async def publish(port: int, count: int) -> Row:
    chance = random.Random(2)
    waiting = [notification(chance) for _ in range(count)]
    size = sum(len(encode_notification(random.Random(i))) for i in range(20)) / 20

    async def publisher() -> None:
        connection = await HttpConnection.open(port)
        while waiting:
            connection.send("notification", waiting.pop())
            await connection.answer()
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(publisher() for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    return Row(
        f"notifications stored, {CONNECTIONS} connections, {size:,.0f} bytes each",
        f"{count / seconds:,.0f}/s",
    )


AVERAGE = sum(len(encode_notification(random.Random(i))) for i in range(200)) / 200
"""Average size of a stored notification in bytes."""


async def replay(port: int, count: int, name: str, identifier: dict[str, Any]) -> tuple[Row, int]:
    connection = await HttpConnection.open(port)
    began = time.perf_counter()
    connection.send("replay", {"event_type": EVENT, "identifier": identifier, "from_id": "0"})
    await connection.head()
    matches = size = 0
    while data := await connection.chunk():
        matches += data.count(b"event: replay\n")
        size += len(data)
    seconds = time.perf_counter() - began
    connection.close()
    speed = f"{count / seconds:,.0f}/s | {count * AVERAGE / 1e6 / seconds:,.0f} MB/s"
    sent = f"{size / 1e6 / seconds:,.1f} MB/s"
    row = f"{seconds:.2f} s | {speed} | {matches:,} | {sent}"
    return Row(f"{count:,} notifications replayed, {name}", row), matches


def naive_replay(bodies: list[bytes], name: str, identifier: dict[str, Any], expected: int) -> Row:
    """Measure filtering alone, with every notification parsed."""
    plain, parse = (
        PlainFilter(identifier),
        partial(parse_notification_json, with_shape="polygon" in identifier),
    )
    seconds, matches = measure_cpu(lambda: sum(plain.matches(parse(body)) for body in bodies))
    assert matches == expected, f"the replay has {expected}, the plain loop {matches}"
    speed = f"{len(bodies) / seconds:,.0f}/s | {len(bodies) * AVERAGE / 1e6 / seconds:,.0f} MB/s"
    return Row(
        f"plain loop for comparison, without reading or sending; {name}",
        f"{seconds:.2f} s | {speed} | {matches:,} |",
    )


async def watchers(port: int, count: int, sent: int) -> Iterator[Row]:
    """Measure the time from sending a notification to its arrival, with a filter per watcher."""
    chance = random.Random(3)
    arrived: dict[str, list[float]] = {}

    async def watch(i: int) -> HttpConnection:
        connection = await HttpConnection.open(port)
        connection.send("watch", {"event_type": EVENT, "identifier": field_filter(chance, i)})
        await connection.head()
        await connection.chunk()
        return connection

    async def follow(connection: HttpConnection) -> None:
        while True:
            data = await connection.chunk()
            now = time.perf_counter()
            for part in data.split(b'"location":"')[1:]:
                arrived.setdefault(part.partition(b'"')[0].decode(), []).append(now)

    connections: list[HttpConnection] = []
    for begin in range(0, count, 50):
        connections += await asyncio.gather(
            *(watch(i) for i in range(begin, min(begin + 50, count)))
        )
    tasks = [asyncio.create_task(follow(connection)) for connection in connections]
    began: dict[str, float] = {}
    publisher = await HttpConnection.open(port)
    for _ in range(sent):
        one = notification(chance)
        began[one["payload"]["location"]] = time.perf_counter()
        publisher.send("notification", one)
        await publisher.answer()
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    for connection in connections:
        connection.close()
    delays = sorted(at - began[key] for key, times in arrived.items() for at in times)
    p99 = delays[int(len(delays) * 0.99)]
    return iter(
        [
            Row(f"{count:,} watchers with a filter each, deliveries", f"{len(delays):,}"),
            Row("delivery latency, median", f"{statistics.median(delays) * 1e3:.1f} ms"),
            Row("delivery latency, p99", f"{p99 * 1e3:.1f} ms"),
        ]
    )


class Measured(NamedTuple):
    filters: list[Row]
    server: list[Row]
    replays: list[Row]


async def over_http(port: int, quick: bool) -> tuple[list[Row], list[Row]]:
    count = 5_000 if quick else 100_000
    chance = random.Random(4)
    filters = {
        "everything": {},
        "a field filter": field_filter(chance, 7),
        "a spatial filter": area_filter(chance, 0),
    }
    server = [await publish(port, count)]
    replays = []
    same = random.Random(2)
    bodies = [encode_notification(same) for _ in range(count)]
    # The first spatial filter in a process loads shapely, which must not be measured.
    await replay(port, count, "", area_filter(chance, 0))
    for name, identifier in filters.items():
        row, matches = await replay(port, count, name, identifier)
        replays.append(row)
        if identifier:
            replays.append(naive_replay(bodies, name, identifier, matches))
    server += await watchers(port, 100 if quick else FILTERS, 200 if quick else 1_000)
    return server, replays


def render(measured: Measured) -> str:
    facts = machine(ROOT / "node_modules", None)
    return "\n".join(
        [
            "# Benchmarks: Aviso",
            "",
            "`make bench-aviso`: the server with its SQLite store and the clients on one machine.",
            "Notifications have four fields, a polygon and a payload.",
            "",
            *(f"- {name}: {facts[name]}" for name in FACTS if name in facts),
            f"- load average, 15 minutes: {os.getloadavg()[2]:.1f}",
            "",
            "## Filters",
            "",
            "CPU time for one notification and all filters, compared with plain loops over the",
            f"same filters. Goal: {GOAL:.0f} times as fast as a plain loop that parses once.",
            "",
            "| | index | parsed once | parsed per filter | **over once** | over per filter |",
            "|---|---:|---:|---:|---:|---:|",
            *(f"| {row.name} | {row.value} |" for row in measured.filters),
            "",
            "## Over HTTP",
            "",
            "| | |",
            "|---|---:|",
            *(f"| {row.name} | {row.value} |" for row in measured.server),
            "",
            "| | time | examined | | matched | sent |",
            "|---|---:|---:|---:|---:|---:|",
            *(f"| {row.name} | {row.value} |" for row in measured.replays),
            "",
        ]
    )


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("bench.aviso", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args(argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    filters = list(measure_filters(arguments.quick))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        env = {"TAILRACE_AVISO_REPLAY_LIMIT": "1000000", "TAILRACE_AVISO_BATCH": "1000"}
        with Server(Path(folder) / "data", env) as server:
            rows, replays = asyncio.run(over_http(server.port, arguments.quick))
    page = render(Measured(filters, rows, replays))
    print(page)
    if arguments.write:
        PAGE.write_text(page)


if __name__ == "__main__":
    main(sys.argv[1:])
