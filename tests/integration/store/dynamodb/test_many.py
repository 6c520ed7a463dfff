"""The cost of reads of many streams on DynamoDB: that of a read of each, and of what waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from tailrace.app import Application
from tailrace.log.append import Append
from tailrace.log.create import Create
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support.dynamo import SAFETY_SECONDS
from tests.support.events import parsed
from tests.support.streams import Clock
from tests.support.wire import eventually

JSON = "application/json"
NAMES = ("a", "b", "c")
SECONDS = 1.0
POLL_SECONDS = 0.25


@pytest.fixture
async def writer(start: Start) -> Process:
    """A process that has written to three streams, all of them idle for an hour."""
    clock = Clock()
    writer = await start(clock)
    for name in NAMES:
        await writer.streams.create(name, Create(b"[1]", JSON))
    clock.pass_s(3600)
    return writer


@pytest.fixture
async def process(start: Start, writer: Process) -> Process:
    """Another process, which reads them."""
    return await start(writer.clock, poll_slowest=POLL_SECONDS, long_poll_timeout=SECONDS)


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    application = Application(process.settings, clock=process.clock, store=process.store)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
        yield client


async def read(http: httpx.AsyncClient, **query: str) -> httpx.Response:
    return await http.get("/v1/read", params={"stream": NAMES, **query})


def queries(process: Process) -> int:
    return sum(call.operation == "Query" for call in process.calls)


async def test_a_catch_up_read_costs_a_read_of_each(
    process: Process, http: httpx.AsyncClient
) -> None:
    answer = await read(http)
    assert [each["data"] for each in answer.json()["streams"]] == [[1], [1], [1]]
    assert process.spent() == ({"GetItem": 3, "Query": 3}, 0, 6)
    again = await read(http, offset=answer.json()["nextOffset"])
    assert again.headers["stream-up-to-date"] == "true"
    assert process.spent() == ({"GetItem": 3, "Query": 3}, 0, 6)


async def test_a_stream_that_does_not_exist_costs_one_unit(
    process: Process, http: httpx.AsyncClient
) -> None:
    answer = await http.get("/v1/read", params={"stream": ["a", "missing"]})
    assert answer.status_code == 200
    assert process.spent() == ({"GetItem": 2, "Query": 1}, 0, 3)


@pytest.mark.parametrize("query", [{"last": "1"}, {"since": "0"}])
async def test_where_a_read_begins_is_found_for_each(
    process: Process, http: httpx.AsyncClient, query: dict[str, str]
) -> None:
    await read(http, **query)
    calls, written, units = process.spent()
    # Observed: 15 calls of one unit, a third of them for each stream.
    assert calls.total() <= 18
    assert (written, units <= 18) == (0, True)


async def test_waiting_costs_half_a_unit_for_each_stream_and_interval(
    process: Process, http: httpx.AsyncClient
) -> None:
    assert (await read(http, offset="now", live="long-poll")).status_code == 204
    calls, written, units = process.spent()
    assert written == 0
    # A read of each before the wait, and at most one after it.
    assert calls["Query"] <= 6
    # Observed: 9, which is 3 of each stream.
    polls = calls["GetItem"] - calls["Query"]
    assert polls <= len(NAMES) * SECONDS / POLL_SECONDS
    assert units == 2 * calls["Query"] + polls / 2


async def test_news_of_one_stream_cost_a_read_of_that_one(
    writer: Process, process: Process, http: httpx.AsyncClient
) -> None:
    answer = asyncio.create_task(read(http, offset="-1", live="sse"))
    await asyncio.to_thread(eventually, lambda: queries(process) == 3, seconds=SAFETY_SECONDS)
    await writer.streams.append("b", Append(b"2", JSON))
    for name in NAMES:
        await writer.streams.append(name, Append(b"", close=True))
    events = [(kind, json.loads(data)) for kind, data in parsed((await answer).content)]
    assert events.count(("data", {"stream": "b", "data": [2]})) == 1
    # Three reads at the beginning, and one of each piece of news, at most.
    assert 6 <= queries(process) <= 7
