"""Damaged data: 500 for its readers, and nothing for those of other data."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.settings import Settings
from tests.integration.durable_streams.conftest import local
from tests.support.events import parsed
from tests.support.wire import TEXT, error_of, target

BODIES = [b"a" * 3000, b"b" * 3000, b"c" * 3000]


def tear_body(data: Path, slot: int) -> None:
    [file] = data.glob(f"bodies/*/{slot}-*")
    os.truncate(file, 1000)


async def test_damaged_data_is_500_and_the_rest_is_read(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path), hot_bytes=0, inline_bytes=1024, chunk_bytes=1024)
    path = target("a")
    async with local(settings) as client:
        offsets = [(await client.put(path, headers=TEXT)).headers["stream-next-offset"]]
        for body in BODIES:
            appended = await client.post(path, content=body, headers=TEXT)
            offsets.append(appended.headers["stream-next-offset"])
        tear_body(tmp_path, 1)
        for live in ({}, {"live": "long-poll"}, {"live": "sse"}):
            answer = await client.get(path, params={"offset": offsets[1], **live})
            assert (answer.status_code, error_of(answer)["code"]) == (500, "DAMAGED_DATA")
            assert answer.headers["cache-control"] == "no-store"
        for number in (0, 2):
            answer = await client.get(path, params={"offset": offsets[number]})
            assert answer.content == BODIES[number]
        # An event stream ends before it, so that the client reconnects there.
        events = await client.get(path, params={"offset": "-1", "live": "sse"})
        data, control = parsed(events.content)
        assert data.data == BODIES[0].decode()
        assert control.control["streamNextOffset"] == offsets[1]
        details = (await client.get("/health?verbose")).json()
        assert details["damaged_objects"] == 1
