"""Measures wakes of subscriptions: `python -m bench.wakes [--aws] [--wakes N]`.

The latency is from the request of an append to the arrival of the webhook, or of the wake event at
a reader that follows the wake stream. With `--aws` on the local AWS, where the stream of the table
is polled as Lambda does, and functions are warm; units of DynamoDB are those of all functions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from devtools.local_aws.stack import AwsLocal
from devtools.processes import free_ports
from devtools.server import Server

JSON = {"content-type": "application/json"}
WARM = 10
SECONDS = 60.0


class Receiver:
    """A webhook that is done at once."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[float] = asyncio.Queue()

    async def start(self) -> str:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        match = re.search(rb"content-length: (\d+)", head.lower())
        assert match is not None
        await reader.readexactly(int(match[1]))
        self.arrived.put_nowait(time.perf_counter())
        answer = b'{"done":true}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        writer.close()


async def webhooks(client: httpx.AsyncClient, wakes: int) -> list[float]:
    receiver = Receiver()
    hook = {"type": "webhook", "pattern": "hook/*", "webhook": {"url": await receiver.start()}}
    await put(client, "__ds/subscriptions/hook", hook)
    await put(client, "hook/a", [])
    latencies = []
    for _ in range(wakes + WARM):
        begun = time.perf_counter()
        await append(client, "hook/a")
        latencies.append(await asyncio.wait_for(receiver.arrived.get(), SECONDS) - begun)
        await until_idle(client, "hook")
    return latencies[WARM:]


async def pull_wakes(client: httpx.AsyncClient, wakes: int) -> list[float]:
    await put(client, "wakes", [])
    pull = {"type": "pull-wake", "pattern": "pull/*", "wake_stream": "wakes"}
    await put(client, "__ds/subscriptions/pull", pull)
    await put(client, "pull/a", [])
    offset, latencies = "-1", []
    for _ in range(wakes + WARM):
        following = asyncio.create_task(follow(client, "wakes", offset))
        begun = time.perf_counter()
        tail = await append(client, "pull/a")
        offset, arrived = await following
        latencies.append(arrived - begun)
        url = "/v1/stream/__ds/subscriptions/pull"
        claimed = (await client.post(f"{url}/claim", json={"worker": "w"})).json()
        done = {name: claimed[name] for name in ("wake_id", "generation")}
        done |= {"acks": [{"stream": "pull/a", "offset": tail}], "done": True}
        headers = {"authorization": f"Bearer {claimed['token']}"}
        (await client.post(f"{url}/ack", json=done, headers=headers)).raise_for_status()
    return latencies[WARM:]


async def follow(client: httpx.AsyncClient, path: str, offset: str) -> tuple[str, float]:
    while True:
        query = {"offset": offset, "live": "long-poll"}
        answer = await client.get(f"/v1/stream/{path}", params=query)
        answer.raise_for_status()
        offset = answer.headers["stream-next-offset"]
        if answer.status_code == 200 and answer.json():
            return offset, time.perf_counter()


async def until_idle(client: httpx.AsyncClient, id_: str) -> None:
    while True:
        streams = (await client.get(f"/v1/stream/__ds/subscriptions/{id_}")).json()["streams"]
        tail = (await client.head("/v1/stream/hook/a")).headers["stream-next-offset"]
        if [each["acked_offset"] for each in streams] == [tail]:
            return
        await asyncio.sleep(0.02)


async def put(client: httpx.AsyncClient, path: str, body: Any) -> None:
    answer = await client.put(f"/v1/stream/{path}", json=body)
    assert answer.is_success, answer.text


async def append(client: httpx.AsyncClient, path: str) -> str:
    answer = await client.post(f"/v1/stream/{path}", json={"n": 1})
    answer.raise_for_status()
    return answer.headers["stream-next-offset"]


def units(aws: AwsLocal) -> Counter[str]:
    """Units and calls so far, as the functions have logged them."""
    found: Counter[str] = Counter()
    for name, function in aws.functions.items():
        for line in function.output().splitlines():
            if not line.startswith("{"):
                continue
            for metric, value in json.loads(line).items():
                if metric.startswith("dynamodb_"):
                    found[f"{name} {metric}"] += sum(value) if isinstance(value, list) else value
    return found


def show(name: str, latencies: list[float]) -> None:
    ordered = sorted(latencies)
    p99 = ordered[int(len(ordered) * 0.99)]
    print(f"{name}: p50 {statistics.median(ordered) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")


async def measure(url: str, wakes: int) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False) as client:
        show("webhook", await webhooks(client, wakes))
        show("pull-wake", await pull_wakes(client, wakes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aws", action="store_true")
    parser.add_argument("--wakes", type=int, default=200)
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.aws:
            (port,) = free_ports(1)
            variables = {"TAILRACE_PUBLIC_URL": f"http://127.0.0.1:{port}"}
            local = AwsLocal(variant="local-open-brief", port=port, variables=variables)
            aws = stack.enter_context(local)
            asyncio.run(measure(aws.url, options.wakes))
            print(dict(units(aws)))
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            server = stack.enter_context(Server(Path(folder) / "data", {}))
            asyncio.run(measure(server.url, options.wakes))


if __name__ == "__main__":
    main()
