"""Damaged objects in S3 are not served, logged once, and counted."""

from __future__ import annotations

from typing import cast

import pytest

from tailrace.errors import DamagedData
from tailrace.log.append import Append
from tailrace.log.create import Create
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support import archiving
from tests.support.archiving import Most
from tests.support.streams import Clock

BODIES = [b"a" * 3000, b"b" * 3000, b"c" * 3000]
HARMS = ["flipped", "torn", "missing"]


@pytest.fixture
async def process(start: Start) -> Process:
    """A process with a stream whose bodies are objects."""
    process = await start(Clock(), chunk_bytes=1, inline_bytes=1024)
    await process.streams.create("a", Create(content_type="text/plain"))
    for body in BODIES:
        await process.streams.append("a", Append(body, "text/plain"))
    return process


async def harm(process: Process, key: str, how: str) -> None:
    """Change one bit of an object, or cut it off, or remove it."""
    bucket = process.backend.bucket
    assert bucket is not None
    whole = bytearray(await bucket.get(key))
    whole[100] ^= 1
    await bucket.delete([key])
    if how != "missing":
        await bucket.put(key, bytes(whole) if how == "flipped" else bytes(whole[:100]))


async def assert_damaged(
    process: Process, slot: int, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with pytest.raises(DamagedData):
            await process.streams.view("a", slot)
    assert process.store.damaged == 1
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert key in record.message


@pytest.mark.parametrize("how", HARMS)
async def test_a_damaged_body_is_not_served(
    process: Process, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    _, key, _ = [item["k"]["S"] for item in await process.items("C") if "k" in item]
    await harm(process, key, how)
    await assert_damaged(process, 1, key, caplog)
    assert (await process.streams.view("a", 2)).bodies == [BODIES[2]]


@pytest.mark.parametrize("how", HARMS)
async def test_a_damaged_segment_is_not_served(
    process: Process, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    table, bucket = process.store.table, process.backend.bucket
    assert bucket is not None
    stream = (await process.streams.find("a")).stream
    manifest = await archiving.archive(table, bucket, stream, Most(2), process.clock())
    assert manifest is not None
    grace = process.settings.trim_grace
    cast("Clock", process.clock).pass_s(grace)
    assert await archiving.trim(table, "a", process.clock(), grace) == 2
    await harm(process, manifest.key, how)
    await assert_damaged(process, 0, manifest.key, caplog)
    assert (await process.streams.view("a", 2)).bodies == [BODIES[2]]
