"""Ten thousand readers of server-sent events on one container: memory, delays, processor, calls.

The container is a process of this machine, behind no edge, on a local DynamoDB; another process
writes, as a function would. Readers are in two processes. `--write` puts the figures into
docs/benchmarks-containers.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import httpx

from devtools.engines.ministack import Ministack
from devtools.load.audience import machine
from devtools.load.client import Address, Connection
from devtools.load.wire import HEAD_END, render
from devtools.processes import ROOT, allow_many_connections, fresh_name
from devtools.server import Server
from tailrace.aws.edge.origin_secret import derive_key, sign_edge_token

SECRET: Final = "between CloudFront and the containers"
CLIENTS: Final = 2
BODY_BYTES: Final = 100
MESSAGE: Final = re.compile(rb"~(\d{6}) (\d+)")
IDLE_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 3.0
PATIENCE: Final = 600.0
PAGE: Final = ROOT / "docs" / "benchmarks-containers.md"
HEADER: Final = "<!-- `make bench-containers ARGS=--write` writes what follows -->\n"


class Reader(Connection):
    """Counts the messages of one response, and notes how old each is when it comes."""

    def __init__(self, request: bytes, delays: list[float]) -> None:
        self._request = request
        self._delays = delays
        self._opening: bytes | None = b""
        self.next = 0
        self.received = 0
        self.wrong = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._opening is not None:
            self._opening += data
            head, found, events = self._opening.partition(HEAD_END)
            if found and head[9:12] != b"200":
                self.ready.set_exception(AssertionError(head))
            elif b"upToDate" in events:
                self._opening = None
                self.ready.set_result(None)
            return
        self.received += len(data)
        now = time.perf_counter_ns()
        for number, sent in MESSAGE.findall(data):
            self.wrong = self.wrong or int(number) != self.next
            self.next += 1
            self._delays.append((now - int(sent)) / 1e6)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.wrong = True


def read(pipe: Pipe, port: int, path: str, count: int) -> None:
    """A process with readers; it says when all are up to date, and at the end what they got."""
    allow_many_connections()
    asyncio.run(_read(pipe, port, path, count))


async def _read(pipe: Pipe, port: int, path: str, count: int) -> None:
    token = sign_edge_token(derive_key(SECRET.encode()), path.encode()).decode()
    headers = {"x-tailrace-origin": SECRET, "x-tailrace-edge-token": token}
    request = render("GET", f"{path}?offset=now&live=sse", headers)
    delays: list[float] = []
    readers = [Reader(request, delays) for _ in range(count)]
    begun = time.perf_counter()
    await Address("127.0.0.1", port).connect_all(readers)
    await asyncio.wait_for(asyncio.gather(*(reader.ready for reader in readers)), PATIENCE)
    pipe.send(time.perf_counter() - begun)
    loop = asyncio.get_running_loop()
    messages: int = await loop.run_in_executor(None, pipe.recv)
    deadline = time.monotonic() + PATIENCE
    # Not an event, which each of a million deliveries would have to look at.
    while (  # noqa: ASYNC110
        any(reader.next < messages for reader in readers) and time.monotonic() < deadline
    ):
        await asyncio.sleep(0.1)
    pipe.send(
        {
            "wrong": sum(reader.wrong or reader.next != messages for reader in readers),
            "bytes": sum(reader.received for reader in readers),
            "delays": delays,
        }
    )


@dataclass(frozen=True, slots=True)
class Result:
    readers: int
    writes: float
    """A second."""
    messages: int
    connect_seconds: float
    kib_each: float
    idle_processor: float
    """The fraction of a processor while nothing is written."""
    processor: float
    p50: float
    p99: float
    bytes_each: float
    """Of the body of a response, for each message."""
    wrong: int
    idle_calls: float
    """To DynamoDB, a second."""
    calls: float


def calls_between(server: Server, begun: float, ended: float) -> float:
    """Calls to DynamoDB a second, by the metrics in the container's log."""
    lines = [json.loads(line) for line in server.printed().splitlines() if line.startswith("{")]
    inside = [
        line for line in lines if begun * 1000 + 1000 < line["_aws"]["Timestamp"] <= ended * 1000
    ]
    total = sum(float(line.get("dynamodb_calls_total", 0)) for line in inside)
    return total / max(1, len(inside))


@contextmanager
def servers(folder: Path, ministack: Ministack) -> Iterator[tuple[Server, Server]]:
    """A server that writes, and a container that reads."""
    table = {
        "AWS_ENDPOINT_URL": ministack.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TAILRACE_STORE": "dynamodb",
        "TAILRACE_TABLE": fresh_name("audience"),
        "TAILRACE_CREATE_TABLE": "true",
    }
    container = {
        **table,
        "TAILRACE_ORIGIN_SECRET": SECRET,
        "TAILRACE_ACCESS": "closed",
        "TAILRACE_ACCESS_SECRET": '{"secret": "unused-secret-of-the-readers-1234"}',
        "TAILRACE_READ_ONLY": "true",
        "TAILRACE_SSE_LIFETIME": "3600",
        "TAILRACE_SWEEP_INTERVAL": "0",
        "TAILRACE_METRICS_INTERVAL": "1",
    }
    with (
        Server(folder / "writer", table) as writer,
        Server(folder / "container", container) as reader,
    ):
        yield writer, reader


def measure(
    writer: Server, container: Server, readers: int, writes: float, seconds: float
) -> Result:
    path = f"/v1/stream/{fresh_name('audience')}"
    with httpx.Client(base_url=writer.url, trust_env=False, timeout=60) as client:
        text = {"content-type": "text/plain"}
        client.put(path, headers=text).raise_for_status()
        before = container.rss_kb()
        context = multiprocessing.get_context("spawn")
        each = [readers // CLIENTS] * CLIENTS if readers >= CLIENTS else [readers]
        pairs = [context.Pipe() for _ in each]
        processes = [
            context.Process(target=read, args=(theirs, container.port, path, count))
            for (_, theirs), count in zip(pairs, each, strict=True)
        ]
        for process in processes:
            process.start()
        pipes = [ours for ours, _ in pairs]
        connected = max(pipe.recv() for pipe in pipes)
        time.sleep(SETTLE_SECONDS)
        kib = (container.rss_kb() - before) / readers
        idle, idle_calls = _watch(container, lambda: time.sleep(IDLE_SECONDS))
        messages = int(writes * seconds)

        def write() -> None:
            due = time.perf_counter()
            for number in range(messages):
                time.sleep(max(0.0, due - time.perf_counter()))
                body = b"~%06d %d " % (number, time.perf_counter_ns())
                body = body.ljust(BODY_BYTES, b".")
                client.post(path, headers=text, content=body).raise_for_status()
                due += 1 / writes

        busy, calls = _watch(container, write)
        for pipe in pipes:
            pipe.send(messages)
        outcomes: list[dict[str, Any]] = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    delays = [delay for outcome in outcomes for delay in outcome["delays"]]
    quantiles = statistics.quantiles(delays, n=100, method="inclusive")
    return Result(
        readers=readers,
        writes=writes,
        messages=messages,
        connect_seconds=connected,
        kib_each=kib,
        idle_processor=idle,
        processor=busy,
        p50=quantiles[49],
        p99=quantiles[98],
        bytes_each=sum(outcome["bytes"] for outcome in outcomes) / readers / messages,
        wrong=sum(outcome["wrong"] for outcome in outcomes),
        idle_calls=idle_calls,
        calls=calls,
    )


def _watch(container: Server, work: Callable[[], None]) -> tuple[float, float]:
    """The processor time, and the calls to DynamoDB, that a container takes a second meanwhile."""
    begun, wall, used = time.perf_counter(), time.time(), container.cpu_seconds()
    work()
    elapsed = time.perf_counter() - begun
    return (container.cpu_seconds() - used) / elapsed, calls_between(container, wall, time.time())


def table(results: list[Result]) -> str:
    titles = (
        "readers", "writes/s", "lost or repeated", "p50", "p99", "processor", "while idle",
        "memory of a reader", "bytes of a message", "calls to DynamoDB/s", "while idle",
        "all connected in",
    )  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    lines += [
        f"| {r.readers:,} | {r.writes:g} | {r.wrong} of {r.readers * r.messages:,}"
        f" | {r.p50:.0f} ms | {r.p99:.0f} ms | {100 * r.processor:.0f} %"
        f" | {100 * r.idle_processor:.0f} % | {f'{r.kib_each:.1f} KiB' if r.readers > 100 else ''}"
        f" | {r.bytes_each:.0f} B | {r.calls:.0f} | {r.idle_calls:.0f}"
        f" | {r.connect_seconds:.1f} s |"
        for r in results
    ]
    return "\n".join(lines)


def run(readers: int, seconds: float) -> list[Result]:
    allow_many_connections()
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ministack").mkdir()
        with Ministack(folder / "ministack") as ministack:
            for count, writes in ((1, 1.0), (readers, 1.0), (readers, 0.2)):
                place = folder / f"{count}-{writes}"
                place.mkdir()
                # A process of its own for each, so that memory is comparable.
                with servers(place, ministack) as (writer, container):
                    results.append(measure(writer, container, count, writes, seconds))
                    print(table(results[-1:]), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.containers", description=__doc__)
    parser.add_argument("--readers", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of writing, for each row")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    given = parser.parse_args()
    results = run(given.readers, given.seconds)
    print(table(results))
    if given.write:
        text = PAGE.read_text()
        before = text.partition(HEADER)[0]
        PAGE.write_text(f"{before}{HEADER}\n{table(results)}\n\nMeasured on {machine()}.\n")


if __name__ == "__main__":
    main()
