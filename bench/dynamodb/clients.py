"""CPU time of a call in the process that makes it: boto3's client beside ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvloop

from bench.dynamodb.lab import SMALL, entry_item
from devtools.processes import ROOT
from tailrace.aws.client.json_client import JsonClient
from tailrace.aws.client.service_access import boto_client, resolve_service_access
from tailrace.settings import Settings
from tailrace.store.dynamodb.table import ABSENT, Table

AT_ONCE = (1, 16)
WARM_UP = 64

Loop = Callable[[], asyncio.AbstractEventLoop]


class Cost(NamedTuple):
    client: str
    microseconds: list[float]
    """Of CPU per call, in user and system mode, for each of `AT_ONCE`."""


def costs(calls: int) -> list[Cost]:
    with _stub() as url:
        settings = Settings(store="dynamodb", endpoint_url=url)
        return [
            Cost("boto3", [_boto3(settings, calls, at_once) for at_once in AT_ONCE]),
            *(
                Cost(name, [_ours(settings, calls, at_once, loop) for at_once in AT_ONCE])
                for name, loop in _LOOPS.items()
            ),
        ]


_LOOPS: dict[str, Loop] = {
    "Tailrace's, on asyncio": asyncio.new_event_loop,
    "Tailrace's, on uvloop": uvloop.new_event_loop,
}


@contextmanager
def _stub() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.dynamodb.stub"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as stub:
        try:
            assert stub.stdout is not None
            yield f"http://127.0.0.1:{stub.stdout.readline().strip()}"
        finally:
            stub.terminate()


def _boto3(settings: Settings, calls: int, at_once: int) -> float:
    client = boto_client("dynamodb", settings)
    request: dict[str, Any] = {
        "TableName": settings.table,
        "Item": {**entry_item(SMALL), "b": {"B": SMALL}},
        "ConditionExpression": ABSENT,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }

    def some(number: int) -> None:
        for _ in range(number):
            client.put_item(**request)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(some, [WARM_UP // at_once] * at_once))
        begin = time.process_time()
        list(threads.map(some, [calls // at_once] * at_once))
        used = time.process_time() - begin
    client.close()
    return used / calls * 1e6


def _ours(settings: Settings, calls: int, at_once: int, loop: Loop) -> float:
    async def run() -> float:
        client = JsonClient(resolve_service_access(settings))
        table, item = Table(client, settings.table), entry_item(SMALL)

        async def some(number: int) -> None:
            for _ in range(number):
                await table.put_new(item)

        await asyncio.gather(*(some(WARM_UP // at_once) for _ in range(at_once)))
        begin = time.process_time()
        await asyncio.gather(*(some(calls // at_once) for _ in range(at_once)))
        used = time.process_time() - begin
        await client.close()
        return used / calls * 1e6

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())
