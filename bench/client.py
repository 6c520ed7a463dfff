"""`python -m bench.client`: the throughput of the Python client beside the stock JavaScript client.

Each client is a process of its own, on one core, with Tailrace's server on another; they take
turns, in one run. `--load KIND URL SIZES` is such a process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from bench.report import figure, machine
from bench.servers import Cores, Server, kinds
from devtools.node import find_node
from devtools.processes import ROOT
from tailrace.client import AsyncClient, AsyncStream, Client, Stream

PAGE: Final = ROOT / "docs" / "client.md"
MODULES: Final = ROOT / "node_modules"
FACTS: Final = ("machine", "Tailrace", "date")
JSON: Final = "application/json"
APPENDS: Final = 500
MESSAGES: Final = 50_000
CLIENTS: Final = {
    "blocking": "`Client`",
    "asyncio": "`AsyncClient`",
    "javascript": "`@durable-streams/client`",
}
WORK: Final = {
    "append": "one append after the other, appends/s",
    "producer": "a producer of messages of 100 bytes, messages/s",
    "read": "reading them, messages/s",
    "tail": "producing while following by events, messages/s",
}


def message(number: int) -> dict[str, Any]:
    return {"n": number, "text": "x" * 76}


def check(items: list[Any], count: int) -> None:
    assert [item["n"] for item in items] == list(range(count)), "wrong items"


def blocking(url: str, appends: int, messages: int) -> dict[str, float]:
    def produce(stream: Stream) -> None:
        with stream.producer("bench") as producer:
            for number in range(messages):
                producer.append(message(number))

    def timed(count: int, work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return count / (time.perf_counter() - began)

    with Client(url) as client:

        def create() -> Stream:
            stream = client.stream(f"bench/{uuid4()}")
            stream.create(content_type=JSON)
            return stream

        single, long, live = create(), create(), create()
        single.append(message(0))
        figures = {
            "append": timed(
                appends, lambda: [single.append(message(number)) for number in range(appends)]
            ),
            "producer": timed(messages, lambda: produce(long)),
        }
        items: list[Any] = []
        figures["read"] = timed(messages, lambda: items.extend(long.items()))
        check(items, messages)
        tail = live.tail(live="sse")
        next(tail)
        received: list[Any] = []

        def receive() -> None:
            for item in tail.items():
                received.append(item)
                if len(received) == messages:
                    return

        def both() -> None:
            receiving = threading.Thread(target=receive)
            receiving.start()
            produce(live)
            receiving.join()

        figures["tail"] = timed(messages, both)
        tail.close()
        check(received, messages)
    return figures


async def coroutines(url: str, appends: int, messages: int) -> dict[str, float]:
    async def produce(stream: AsyncStream) -> None:
        async with stream.producer("bench") as producer:
            for number in range(messages):
                await producer.append(message(number))

    async with AsyncClient(url) as client:

        async def create() -> AsyncStream:
            stream = client.stream(f"bench/{uuid4()}")
            await stream.create(content_type=JSON)
            return stream

        single, long, live = await create(), await create(), await create()
        await single.append(message(0))
        figures = {}
        began = time.perf_counter()
        for number in range(appends):
            await single.append(message(number))
        figures["append"] = appends / (time.perf_counter() - began)
        began = time.perf_counter()
        await produce(long)
        figures["producer"] = messages / (time.perf_counter() - began)
        began = time.perf_counter()
        items = [item async for item in long.items()]
        figures["read"] = messages / (time.perf_counter() - began)
        check(items, messages)

        received: list[Any] = []
        async with live.tail(live="sse") as tail:
            await anext(tail)

            async def receive() -> None:
                async for item in tail.items():
                    received.append(item)
                    if len(received) == messages:
                        return

            began = time.perf_counter()
            receiving = asyncio.create_task(receive())
            await produce(live)
            await receiving
            figures["tail"] = messages / (time.perf_counter() - began)
        check(received, messages)
    return figures


def load(kind: str, url: str, appends: int, messages: int) -> dict[str, float]:
    if kind == "blocking":
        return blocking(url, appends, messages)
    return asyncio.run(coroutines(url, appends, messages))


def measure(kind: str, url: str, sizes: str) -> dict[str, float]:
    """The figures of one client, as a process of its own."""
    if kind == "javascript":
        script = ROOT / "bench" / "client.mjs"
        command = [find_node(), str(script), str(MODULES), url, sizes]
    else:
        command = [sys.executable, "-m", "bench.client", "--load", kind, url, sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stdout}{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def table(rounds: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        f"| | {' | '.join(CLIENTS.values())} |",
        f"|---|{'---|' * len(CLIENTS)}",
    ]
    for work, title in WORK.items():
        medians = [statistics.median(each[work] for each in rounds[kind]) for kind in CLIENTS]
        lines.append(f"| {title} | {' | '.join(map(figure, medians))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--appends", type=int, default=APPENDS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--write", action="store_true", help=f"write them to {PAGE.name}")
    parser.add_argument("--load", nargs=3, metavar=("KIND", "URL", "SIZES"))
    options = parser.parse_args()
    if options.load:
        kind, url, sizes = options.load
        print(json.dumps(load(kind, url, **json.loads(sizes))))
        return
    cores = Cores.split()
    os.sched_setaffinity(0, cores.load)
    sizes = json.dumps({"appends": options.appends, "messages": options.messages})
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in CLIENTS}
    busy = os.getloadavg()[0]
    with Server(kinds(MODULES)["tailrace"], cores) as server:
        url = f"http://{server.host}:{server.port}"
        for _ in range(options.rounds):
            for kind in CLIENTS:
                rounds[kind].append(measure(kind, url, sizes))
    facts = machine(MODULES, None)
    text = (
        f"{table(rounds)}\n\nMedians of {options.rounds} rounds, in turns, each client on one core"
        f" and the server on another; {options.messages:,} messages.\nThe machine had a load of"
        f" {busy:.1f} before: {', '.join(facts[name] for name in FACTS)}.\n"
    )
    print(text)
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(
            re.sub(
                r"(<!-- Written by `make bench-client`. -->\n\n).*\Z",
                lambda match: match[1] + text,
                page,
                flags=re.DOTALL,
            )
        )


if __name__ == "__main__":
    main()
