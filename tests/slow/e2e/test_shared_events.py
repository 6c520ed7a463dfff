"""Server-sent events that readers share, through the whole path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from devtools.engines.ministack import Ministack
from devtools.load.arrivals import measure, table
from devtools.local_aws.stack import AwsLocal, Missing
from devtools.processes import fresh_name
from tests.e2e.conftest import SECONDS
from tests.slow.e2e.test_arrivals import MOST_PER_WRITE
from tests.support.conformance.official import check

JSON = {"content-type": "application/json"}

DEVIATIONS = ["SSE Mode should have correct SSE headers (no Content-Length, proper Cache-Control)"]
"""The tests of the suite that do not count: docs/edge.md has them."""


@pytest.fixture(scope="module")
def shared_local(ministack: Ministack) -> Iterator[AwsLocal]:
    variables = {"TAILRACE_AVISO_MAX_DURATION": "3"}
    try:
        with AwsLocal(
            variables=variables, variant="local-open-shared", ministack=ministack
        ) as stack:
            yield stack
    except Missing as missing:
        pytest.skip(str(missing))


def test_official_suite_passes_but_for_the_length_of_a_cached_response(
    shared_local: AwsLocal, tmp_path: Path
) -> None:
    check(shared_local, tmp_path, DEVIATIONS)


async def test_a_thousand_readers_of_events_at_any_time_take_few_origin_requests(
    shared_local: AwsLocal,
) -> None:
    result = await measure(
        shared_local,
        fresh_name("arrivals"),
        streams=1,
        present=1000,
        stay=60,
        every=1,
        seconds=25,
        live="sse",
    )
    print(table([result]))
    assert result.wrong == 0
    assert result.came > 1000
    assert result.per_write <= MOST_PER_WRITE


async def follow(stack: AwsLocal, path: str, offset: str, last: int) -> list[int]:
    """Follow a stream as an `EventSource` does: go on behind the last event."""
    got: list[int] = []
    event_id, pause = "", 1.0
    async with httpx.AsyncClient(base_url=stack.url, timeout=SECONDS, trust_env=False) as client:
        while last not in got:
            headers = {"last-event-id": event_id} if event_id else {}
            query = {"offset": offset, "live": "sse"}
            async with client.stream("GET", path, params=query, headers=headers) as answer:
                assert answer.status_code == 200, answer.status_code
                assert answer.headers["cache-control"] == "no-cache"
                async for kind, data, given, retry in events(answer):
                    event_id, pause = given or event_id, retry or pause
                    if kind == "data":
                        got += json.loads(data)
            await asyncio.sleep(pause)
    return got


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, str, str, float]]:
    kind = data = given = ""
    retry = 0.0
    async for line in answer.aiter_lines():
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data += value
        elif name == "id":
            given = value
        elif name == "retry":
            retry = int(value) / 1000
        elif not line:
            yield kind, data, given, retry
            kind = data = given = ""
            retry = 0.0


async def test_readers_of_events_share_requests_and_lose_nothing(shared_local: AwsLocal) -> None:
    path, readers, writes = f"/v1/stream/{fresh_name('events')}", 40, 8
    async with httpx.AsyncClient(
        base_url=shared_local.url, timeout=SECONDS, trust_env=False
    ) as writer:
        created = await writer.put(path, headers=JSON)
        offset = created.headers["stream-next-offset"]
        following = [
            asyncio.create_task(follow(shared_local, path, offset, writes - 1))
            for _ in range(readers)
        ]
        for number in range(writes):
            await asyncio.sleep(1)
            appended = await writer.post(path, headers=JSON, content=str(number))
            assert appended.status_code == 204
        async with asyncio.timeout(SECONDS):
            got = await asyncio.gather(*following)
    assert got == [list(range(writes))] * readers
    asked = sum(
        times
        for (_, target), times in shared_local.requests("live").items()
        if target.startswith(path)
    )
    print(f"{asked} origin requests for {writes} writes to {readers} readers")
    assert asked <= readers * writes / 5
