"""`python -m bench.cable`: measures how long a broadcast takes to reach the subscribers of a cable.

Server and clients share this machine, and each message is one POST to `/_broadcast`. Latency is
from before the request is written to when a subscriber's bytes have arrived. With `--aws` it is the
path of `make aws-local`, on which a broadcast goes through the table's stream.

Then it measures what the server needs for clients that connect and subscribe: the processor time
of its process, and how much larger that is afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jwt

from devtools.load.client import Address, Client, Connection
from devtools.load.frames import masked, unframed
from devtools.load.wire import HEAD_END, render
from devtools.local_aws.stack import AwsLocal
from devtools.server import Server
from tailrace.auth.signed_names import sign


class Case(NamedTuple):
    name: str
    streams: int
    subscribers: int
    """Of each stream."""
    messages: int
    pause: float
    """Seconds between two broadcasts; 0 sends each as soon as the previous one is acknowledged."""


CASES = (
    Case("1 subscriber", 1, 1, 500, 0.002),
    Case("100 subscribers", 1, 100, 200, 0.02),
    Case("1,000 subscribers", 1, 1000, 100, 0.1),
    Case("1,000 streams with one each", 1000, 1, 2000, 0.002),
    Case("1,000 subscribers, as fast as it goes", 1, 1000, 200, 0),
)


AWS_CASES = (
    Case("1 subscriber", 1, 1, 40, 0.5),
    Case("10 subscribers", 1, 10, 40, 0.5),
    Case("10 streams with one each", 10, 1, 40, 0.5),
    Case("100 subscribers", 1, 100, 40, 0.5),
)
"""At a pace at which batches do not queue; on this machine every function shares two processors.
The last one leaves as many functions busy as there may be here: all say good-bye at once."""

AT_ONCE = 10
"""How many subscribers connect at the same time: each needs a function for a moment."""


CLIENTS = 1000
"""How many connect, to see what each of them needs."""

SECRET = "the-secret-of-the-server-that-clients-connect-to"


class Subscriber(Connection):
    """A minimal WebSocket client."""

    def __init__(
        self,
        identifier: Mapping[str, str],
        heard: Callable[[bytes, float], None] = lambda _, __: None,
        query: str = "pi=0",
    ) -> None:
        self._identifier = json.dumps({"channel": "$pubsub", **identifier})
        self._heard = heard
        self._query = query
        self._held = b""
        self._upgraded = False
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        key = base64.b64encode(os.urandom(16)).decode()
        offer = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Protocol": "actioncable-v1-json",
        }
        self.transport.write(render("GET", f"/cable?{self._query}", offer))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._held += data
        if not self._upgraded:
            head, mark, rest = self._held.partition(HEAD_END)
            if not mark:
                return
            assert b" 101 " in head, head
            self._upgraded, self._held = True, rest
        frames, self._held = unframed(self._held)
        for frame in frames:
            if b'"type":"welcome"' in frame:
                command = {"command": "subscribe", "identifier": self._identifier}
                self.transport.write(masked(json.dumps(command).encode()))
            elif b'"stream_id":' in frame:
                self._heard(frame, now)
            elif b"confirm_subscription" in frame:
                self.subscribed.set_result(None)


async def subscribe(address: Address, subscribers: Sequence[Subscriber]) -> None:
    for at in range(0, len(subscribers), AT_ONCE):
        await address.connect_all(subscribers[at : at + AT_ONCE])
        await asyncio.gather(*(each.subscribed for each in subscribers[at : at + AT_ONCE]))


async def measure(address: Address, case: Case) -> tuple[list[float], float]:
    """The latency of each delivery, and the total duration in seconds."""
    latencies: list[float] = []
    wanted = case.messages * case.subscribers
    done = asyncio.Event()

    def heard(frame: bytes, now: float) -> None:
        at = frame.index(b'"t":') + 4
        latencies.append(now - float(frame[at : frame.index(b"}", at)]))
        if len(latencies) == wanted:
            done.set()

    names = [f"bench/{case.name.replace(' ', '-')}/{i}" for i in range(case.streams)]
    some = [
        Subscriber({"stream_name": name}, heard) for name in names for _ in range(case.subscribers)
    ]
    await subscribe(address, some)
    publisher = await address.connect(Client())
    begun = time.perf_counter()
    for i in range(case.messages):
        data = f'{{"text":"{"x" * 80}","t":{time.perf_counter()!r}}}'
        body = json.dumps({"stream": names[i % len(names)], "data": data}).encode()
        answer = await publisher.ask(render("POST", "/_broadcast", body=body))
        assert answer.status == 201, answer
        if case.pause:
            await asyncio.sleep(case.pause)
    async with asyncio.timeout(60):
        await done.wait()
    took = time.perf_counter() - begun
    for connection in (*some, publisher):
        connection.close()
    return latencies, took


def anonymous(_: int) -> Subscriber:
    return Subscriber({"stream_name": "bench/all"})


def named(number: int) -> Subscriber:
    token = jwt.encode({"ext": f'{{"user":{number}}}'}, SECRET)
    name = sign(f"bench/{number}", SECRET)
    return Subscriber({"signed_stream_name": name}, query=f"jid={token}")


CONNECTING = {
    "to one public stream": anonymous,
    "with tokens, to a signed stream each": named,
}


async def connect(server: Server, new: Callable[[int], Subscriber]) -> tuple[float, float]:
    """The processor time in seconds, and the KiB of memory for each client."""
    address = Address("127.0.0.1", server.port)
    await subscribe(address, [new(CLIENTS + number) for number in range(AT_ONCE)])
    seconds, memory = usage(server.pid)
    subscribers = [new(number) for number in range(CLIENTS)]
    await subscribe(address, subscribers)
    now = usage(server.pid)
    for connection in subscribers:
        connection.close()
    return now[0] - seconds, (now[1] - memory) / CLIENTS


def usage(pid: int) -> tuple[float, float]:
    """The processor time of a process in seconds, and its resident memory in KiB."""
    process = Path("/proc") / str(pid)
    times = process.joinpath("stat").read_text().rpartition(")")[2].split()[11:13]
    pages = int(process.joinpath("statm").read_text().split()[1])
    page_size = os.sysconf("SC_PAGE_SIZE")
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), pages * page_size / 1024


def run_connecting() -> None:
    print(f"\n| {CLIENTS:,} clients connect and subscribe | processor time, s | KiB each |")
    print("|---|---:|---:|")
    for name, new in CONNECTING.items():
        with tempfile.TemporaryDirectory() as folder:
            settings = {"TAILRACE_SECRET": SECRET, "TAILRACE_PUBLIC_STREAMS": "bench/all"}
            with Server(Path(folder) / "data", settings) as server:
                seconds, memory = asyncio.run(connect(server, new))
        print(f"| {name} | {seconds:.2f} | {memory:.0f} |", flush=True)


def row(case: Case, latencies: Sequence[float], took: float) -> str:
    ordered = sorted(latencies)
    shown = [ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.99)]
    shown.append(ordered[-1] * 1000)
    cells = [case.name, *(f"{each:.1f}" for each in shown), f"{len(ordered) / took:,.0f}"]
    return f"| {' | '.join(cells)} |"


async def run(port: int, cases: Sequence[Case]) -> None:
    print("| | median, ms | 99 of 100, ms | longest, ms | deliveries a second |")
    print("|---|---:|---:|---:|---:|")
    for case in cases:
        print(row(case, *await measure(Address("127.0.0.1", port), case)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.cable", description=__doc__)
    parser.add_argument("--aws", action="store_true", help="measure the AWS path on this machine")
    if parser.parse_args().aws:
        with AwsLocal() as stack:
            asyncio.run(run(stack.port, AWS_CASES))
        return
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder) / "data") as server:
        asyncio.run(run(server.port, CASES))
    run_connecting()


if __name__ == "__main__":
    main()
