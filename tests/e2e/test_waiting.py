"""Readers that wait have functions of their own, and leave room for those that write."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import httpx
import pytest

from devtools.local_aws.stack import AwsLocal
from devtools.processes import fresh_name
from tests.e2e.conftest import SECONDS

TEXT = {"content-type": "text/plain"}


def viewer(stack: AwsLocal) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=stack.url, timeout=SECONDS, limits=limits, trust_env=False)


@pytest.mark.parametrize(("function", "live"), [("wait", "long-poll"), ("live", "sse")])
async def test_more_waiters_than_environments_leave_room_for_appends(
    aws_local: AwsLocal, function: str, live: str
) -> None:
    name = fresh_name("waiting")
    paths = [f"/v1/stream/{name}-{number}" for number in range(6)]
    limited = aws_local.functions[function]
    before = limited.configuration.concurrency
    statuses: Counter[int] = Counter()

    async def wait(client: httpx.AsyncClient, path: str) -> None:
        while True:
            answer = await client.get(path, params={"offset": "now", "live": live})
            statuses[answer.status_code] += 1
            assert answer.status_code in (200, 204, 429), answer.text
            assert ("retry-after" in answer.headers) == (answer.status_code == 429)
            if answer.status_code == 429:
                await asyncio.sleep(0.1)

    async with viewer(aws_local) as client:
        for path in paths:
            assert (await client.put(path, headers=TEXT)).status_code == 201
        limited.limit(2)
        waiting = [asyncio.create_task(wait(client, path)) for path in paths]
        try:
            deadline = time.monotonic() + SECONDS
            appended = 0
            while statuses[429] < 20 or appended < 20:
                assert time.monotonic() < deadline, statuses
                assert not [task for task in waiting if task.done()]
                answer = await client.post(paths[0], headers=TEXT, content=b"x")
                assert answer.status_code == 204, answer.text
                appended += 1
        finally:
            limited.limit(before)
            for task in waiting:
                task.cancel()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert not [each for each in ended if isinstance(each, Exception)]
