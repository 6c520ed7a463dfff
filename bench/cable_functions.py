"""`python -m bench.cable_functions`: how many WebSocket clients the functions of AWS carry.

The code of `dispatch` and of `heartbeat` runs here with an API of API Gateway that only counts, in
a process of its own, and with a table in memory. So the processor time is that of the functions
alone: of posts, which are signed, and of the calls to the table. From it follows how many clients
so many functions carry with their share of a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.table import MemoryTable
from devtools.processes import allow_many_connections
from tailrace.aws.costs import (
    DISPATCH_MEGABYTES,
    HEARTBEAT_MEGABYTES,
    PROCESSOR_MEGABYTES,
)
from tailrace.clock import system_clock
from tailrace.limits import GATEWAY_PART_PINGS
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster, for_each
from tailrace.protocols.action_cable.api_gateway.delivery import Deliveries
from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi
from tailrace.protocols.action_cable.api_gateway.heartbeat import Heartbeat
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import HeartbeatLease
from tailrace.protocols.action_cable.api_gateway.items import (
    ConnectionRecord,
    SubscriberRecord,
    connection_item,
    subscriber_item,
)
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import id_text, number, text
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

STREAM = "bench/crowd"
JSON = "application/json"
LATENCY = (0.001, 0.002)
"""Of the table, in each direction."""
COUNTER = """
import asyncio, sys
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\nx-amzn-requestid: 1\\r\\n\\r\\n"
class Posts(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.held = transport, b""
    def data_received(self, data):
        self.held += data
        while (end := self.held.find(b"\\r\\n\\r\\n")) >= 0:
            head = self.held[:end]
            at = head.find(b"content-length:")
            size = int(head[at + 15 : head.find(b"\\r", at)])
            if len(self.held) < end + 4 + size:
                return
            self.held = self.held[end + 4 + size :]
            self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Posts, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextlib.contextmanager
def counting_api() -> Iterator[int]:
    """A management API that answers every post; yields its port."""
    process = subprocess.Popen([sys.executable, "-c", COUNTER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


class Functions:
    """One process that plays all functions, each with its own connections to the API."""

    def __init__(self) -> None:
        self.settings = Settings(
            store="dynamodb",
            table="bench",
            access="open",
            cable_endpoint="https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com/cable",
        )
        self.table = MemoryTable(random.Random(1), latency=LATENCY)
        self._idle: list[GatewayApi] = []
        self._all: list[GatewayApi] = []

    async def start(self) -> None:
        backend = Backend(self.table.connect(), MemoryBucket(random.Random(2)))
        self.store = DynamoStore(self.settings, backend=backend)
        await self.store.open()
        self.streams = Streams(self.store, self.settings)

    @property
    def posted(self) -> int:
        return sum(each.counts["posts"] for each in self._all)

    @contextlib.contextmanager
    def function(self) -> Iterator[Broadcaster]:
        """A warm function, which has its connections to the API already."""
        if not self._idle:
            self._idle.append(GatewayApi(self.settings))
            self._all += self._idle
        api = self._idle.pop()
        yield Broadcaster(self.store.table, api, self.settings, system_clock)
        self._idle.append(api)

    async def close(self) -> None:
        for each in self._all:
            await each.close()

    async def serve_part(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        with self.function() as broadcaster:
            deliveries = Deliveries(self.store, broadcaster, system_clock)
            return await deliveries.serve_part(event)


async def deliver(subscribers: int, messages: int) -> None:
    """Send messages to the subscribers of one stream, one after the other."""
    functions = Functions()
    await functions.start()
    created = await functions.streams.create(STREAM, Create(content_type=JSON))
    chain = created.stream.id
    with functions.function() as broadcaster:
        deliveries = Deliveries(functions.store, broadcaster, system_clock, functions.serve_part)
        tail = await functions.streams.find(STREAM)
        await broadcaster.cursors.ensure(tail)
        subscription = Subscription('{"channel":"$pubsub","stream_name":"bench"}', "bench", STREAM)

        async def join(index: int) -> None:
            item = subscriber_item(SubscriberRecord(f"Sf1Qd{index:06}AMCJ8Q=", subscription))
            joined = {"next_slot": number(tail.committed.tail), "incarnation": text(id_text(chain))}
            await functions.store.table.put({**item, **joined})

        await for_each(join, range(subscribers))
        seen = len(functions.table.changes)
        took: list[float] = []
        # The first message starts the functions.
        for index in range(messages + 1):
            if index == 1:
                took.clear()
                spent, before = time.process_time(), functions.posted
            await functions.streams.append(STREAM, Append(b'{"n":%d}' % index, JSON))
            begun = time.perf_counter()
            records = [
                {
                    "eventName": "INSERT",
                    "dynamodb": {"Keys": each.after, "NewImage": each.after},
                }
                for each in functions.table.changes[seen:]
                if each.before is None and each.after and each.after["p"]["S"][0] == "C"
            ]
            seen = len(functions.table.changes)
            assert await deliveries.handle(records) == {}
            took.append(time.perf_counter() - begun)
        spent = time.process_time() - spent
    frames = functions.posted - before
    assert frames == subscribers * messages
    await functions.close()
    print(
        f"| {subscribers:,} subscribers, {messages} messages | {frames / sum(took):,.0f} |"
        f" {sorted(took)[len(took) // 2]:.2f} | {spent / frames * 1e6:.0f} |"
        f" {_share(spent / frames, DISPATCH_MEGABYTES):,.0f} |",
        flush=True,
    )


async def ping(connections: int, seconds: float, parts: int) -> None:
    """Ping connections every 3 seconds."""
    functions = Functions()
    await functions.start()
    now = system_clock()

    async def connect(index: int) -> None:
        record = ConnectionRecord(f"Sf1Qd{index:06}AMCJ8Q=", "{}", now - 60_000, 3.0, "s")
        await functions.store.table.put(connection_item(record))

    await for_each(connect, range(connections))
    lease = HeartbeatLease(functions.store.table, system_clock)
    await lease.acquire()
    await lease.divide(parts)
    await lease.release()
    end = time.monotonic() + seconds + 6.0
    late: list[float] = []

    async def run(part: int) -> None:
        with functions.function() as broadcaster:
            table = functions.store.table
            heart = Heartbeat(table, broadcaster, functions.settings, system_clock, part)

            async def start(_: int) -> None:
                pass

            await heart.run(lambda: end - time.monotonic(), start)
            late.append(heart.busy)

    spent = time.process_time()
    begun = time.perf_counter()
    await asyncio.gather(*map(run, range(parts)))
    took = time.perf_counter() - begun
    spent = time.process_time() - spent
    frames = functions.posted
    await functions.close()
    print(
        f"| {connections:,} connections, {parts} heartbeats | {frames / took:,.0f} |"
        f" {max(late):.2f} | {spent / frames * 1e6:.0f} |"
        f" {_share(spent / frames, HEARTBEAT_MEGABYTES):,.0f} |",
        flush=True,
    )


def _share(processor_seconds: float, megabytes: float) -> float:
    """Frames a second of one function, with its share of a processor like this one."""
    return megabytes / PROCESSOR_MEGABYTES / processor_seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.cable_functions", description=__doc__)
    parser.add_argument("--subscribers", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--connections", type=int, nargs="*", default=[2000, 20_000])
    parser.add_argument("--messages", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    allow_many_connections()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "ASIA0000000000000000",
        "AWS_SECRET_ACCESS_KEY": "0" * 40,
        "AWS_SESSION_TOKEN": "0" * 900,
        "AWS_REGION": "eu-central-1",
    }
    with counting_api() as port:
        os.environ["AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI"] = f"http://127.0.0.1:{port}"
        print("| deliveries | frames a second | a message, s | µs a frame | a function, frames/s |")
        print("|---|---:|---:|---:|---:|")
        for subscribers in arguments.subscribers:
            asyncio.run(deliver(subscribers, arguments.messages))
        print("\n| pings | frames a second | busy | µs a frame | a function, frames/s |")
        print("|---|---:|---:|---:|---:|")
        for connections in arguments.connections:
            needed = connections / 3 / GATEWAY_PART_PINGS
            parts = next(each for each in (1, 2, 4, 8, 16) if each >= needed or each == 16)
            asyncio.run(ping(connections, arguments.seconds, parts))


if __name__ == "__main__":
    main()
