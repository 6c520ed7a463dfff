"""The operations of streams, one at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bench.dynamodb.lab import BINARY, SMALL, Lab, append
from bench.dynamodb.ledger import Sample, measured
from bench.rows import TIMES
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.expiry import renewal_slack
from tailrace.log.state import Producer

KB = 1024
LARGE = b"x" * (200 * KB)
HOT_ENTRIES = 100
TTL = 3600
LISTED = 100

Samples = list[Sample]


class Operation(NamedTuple):
    title: str
    run: Callable[[Lab, int], Awaitable[Samples]]
    times: int
    """Repetitions of a full run."""
    needs_bucket: bool = False


async def create_empty(lab: Lab, times: int) -> Samples:
    request = Create(b"", BINARY)
    return [await measured(lab.streams.create(lab.path(), request)) for _ in range(times)]


async def create_with_body(lab: Lab, times: int) -> Samples:
    request = Create(SMALL, BINARY)
    return [await measured(lab.streams.create(lab.path(), request)) for _ in range(times)]


def appending(body: bytes) -> Callable[[Lab, int], Awaitable[Samples]]:
    async def run(lab: Lab, times: int) -> Samples:
        path = await lab.stream(entries=1, body=body)
        return [await measured(lab.streams.append(path, append(body))) for _ in range(times)]

    return run


async def append_with_producer(lab: Lab, times: int) -> Samples:
    path = await lab.stream()
    requests = [Append(SMALL, BINARY, producer=Producer("bench", 0, seq)) for seq in range(times)]
    return [await measured(lab.streams.append(path, request)) for request in requests]


async def append_again(lab: Lab, times: int) -> Samples:
    path = await lab.stream()
    request = Append(SMALL, BINARY, producer=Producer("bench", 0, 0))
    await lab.streams.append(path, request)
    return [await measured(lab.streams.append(path, request)) for _ in range(times)]


async def append_cold(lab: Lab, times: int) -> Samples:
    path = await lab.stream(entries=HOT_ENTRIES)
    return [await measured((await lab.fresh()).append(path, append(SMALL))) for _ in range(times)]


def reading(entries: int, body: bytes) -> Callable[[Lab, int], Awaitable[Samples]]:
    async def run(lab: Lab, times: int) -> Samples:
        path = await lab.stream(entries=entries, body=body)
        return [await measured(lab.streams.view(path, 0)) for _ in range(times)]

    return run


async def read_cold(lab: Lab, times: int) -> Samples:
    path = await lab.stream(entries=HOT_ENTRIES)
    return [await measured((await lab.fresh()).view(path, 0)) for _ in range(times)]


async def read_tail(lab: Lab, times: int) -> Samples:
    path = await lab.stream(entries=HOT_ENTRIES)
    return [await measured(lab.streams.view(path, HOT_ENTRIES)) for _ in range(times)]


async def read_tail_cold(lab: Lab, times: int) -> Samples:
    path = await lab.stream(entries=HOT_ENTRIES)
    return [await measured((await lab.fresh()).view(path, HOT_ENTRIES)) for _ in range(times)]


async def find(lab: Lab, times: int) -> Samples:
    path = await lab.stream(entries=HOT_ENTRIES)
    return [await measured(lab.streams.find(path)) for _ in range(times)]


async def find_cold(lab: Lab, times: int) -> Samples:
    path = await lab.stream(entries=HOT_ENTRIES)
    return [await measured((await lab.fresh()).find(path)) for _ in range(times)]


async def touch(lab: Lab, times: int) -> Samples:
    tail = await lab.streams.find(await lab.stream(ttl=TTL))
    samples = []
    for _ in range(times):
        lab.clock.ahead += renewal_slack(TTL) + 1
        samples.append(await measured(lab.streams.store.touch(tail, lab.clock())))
    return samples


async def fork(lab: Lab, times: int) -> Samples:
    request = Create(fork=ForkFrom(await lab.stream(entries=HOT_ENTRIES)))
    return [await measured(lab.streams.create(lab.path(), request)) for _ in range(times)]


async def delete(lab: Lab, times: int) -> Samples:
    paths = [await lab.stream(entries=1) for _ in range(times)]
    return [await measured(lab.streams.delete(path)) for path in paths]


async def list_page(lab: Lab, times: int) -> Samples:
    prefix = f"list/{lab.path()}/"
    for number in range(LISTED):
        await lab.streams.create(f"{prefix}{number}", Create(SMALL, BINARY))
    return [await measured(lab.streams.list(prefix, "", LISTED)) for _ in range(times)]


APPEND = "append 100 B"
READ = f"catch-up read of {HOT_ENTRIES} {TIMES} 100 B"
READ_TAIL = "read at the tail"
CHUNK_ENTRIES = 103
"""Of 10 KB each: they fill a chunk of 1 MiB, as the store cuts it."""

OPERATIONS = (
    Operation("create, empty", create_empty, 300),
    Operation("create with 100 B", create_with_body, 300),
    Operation(APPEND, appending(SMALL), 500),
    Operation("append 100 B with a producer", append_with_producer, 500),
    Operation("append 100 B with a producer, again", append_again, 300),
    Operation("append 100 B, cold", append_cold, 200),
    Operation("append 1 KB", appending(b"x" * KB), 300),
    Operation("append 10 KB", appending(b"x" * 10 * KB), 200),
    Operation("append 200 KB, through S3", appending(LARGE), 50, needs_bucket=True),
    Operation(READ, reading(HOT_ENTRIES, SMALL), 200),
    Operation(f"{READ}, cold", read_cold, 200),
    Operation("catch-up read of 1 MiB", reading(CHUNK_ENTRIES, b"x" * 10 * KB), 30),
    Operation("catch-up read of 200 KB, from S3", reading(1, LARGE), 50, needs_bucket=True),
    Operation(READ_TAIL, read_tail, 300),
    Operation("read at the tail, cold", read_tail_cold, 200),
    Operation("find (HEAD)", find, 300),
    Operation("find (HEAD), cold", find_cold, 200),
    Operation("renew a TTL", touch, 300),
    Operation("fork at the tail", fork, 200),
    Operation("delete", delete, 200),
    Operation(f"list {LISTED} streams", list_page, 20),
)
