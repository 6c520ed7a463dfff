"""Particular to this store: spills and claims in transactions, what is due, and sweeping."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from tailrace.errors import (
    BodyTooLarge,
    OffsetTrimmed,
    StoreUnavailable,
    StreamGone,
    StreamNotFound,
)
from tailrace.limits import ITEM_BODY_BYTES, NAME_SHARDS, UPLOAD_INTENT_SECONDS
from tailrace.log import producers
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import parse
from tailrace.log.state import Producer
from tailrace.store.dynamodb import sweeping, trimming
from tailrace.store.dynamodb.bodies import S3Bucket
from tailrace.store.dynamodb.table import Action, Table
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support.streams import Clock

TEXT = Create(content_type="text/plain")
GRACE = 86_400


def plain(body: bytes) -> Append:
    return Append(body, "text/plain")


def large(seed: int) -> bytes:
    return random.Random(seed).randbytes(70_000)


async def objects(process: Process) -> list[str]:
    """The keys of all objects in the bucket."""
    bucket = process.backend.bucket
    assert isinstance(bucket, S3Bucket)
    found: dict[str, Any] = await bucket._run(
        lambda s3: s3.list_objects_v2(Bucket=process.settings.bucket)
    )
    return [each["Key"] for each in found.get("Contents", [])]


# Producers


async def test_many_producers_stay_exactly_once(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCER_STATE_BYTES", 800)
    streams = process.streams
    await streams.create("a", TEXT)
    names = [f"producer {number:04d} {'.' * 60}" for number in range(30)]

    async def produce(name: str, seq: int) -> bool:
        request = Append(f"<{name}>".encode(), "text/plain", producer=Producer(name, 0, seq))
        return (await streams.append("a", request)).new

    assert all([await produce(name, 0) for name in names])
    assert "TransactWriteItems" in process.spent()[0], "some moved to items of their own"
    assert len(await process.items("P")) > 10
    assert not any([await produce(name, 0) for name in names]), "every repeat is recognised"
    assert all([await produce(name, 1) for name in names])
    assert (await streams.find("a")).state.slot == 60
    entries = await process.items("C")
    assert max(len(str(entry)) for entry in entries) < 2_000, "no entry carries them all"


# Large bodies


async def test_producers_that_come_together_fit_into_transactions(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact, sizes = Table.transact, list[int]()

    async def counted(table: Table, parts: Sequence[Action]) -> None:
        sizes.append(len(parts))
        await transact(table, parts)

    monkeypatch.setattr(Table, "transact", counted)
    streams = process.streams
    await streams.create("a", TEXT)

    async def produce_all() -> list[bool]:
        producers = (Producer(f"{number}", 0, 0) for number in range(300))
        requests = (Append(b"x", "text/plain", producer=producer) for producer in producers)
        return [
            each.new
            for each in await asyncio.gather(*(streams.append("a", each) for each in requests))
        ]

    assert all(await produce_all())
    assert 50 < max(sizes) <= 100
    assert not any(await produce_all())


async def test_an_upload_intent_ends_with_the_entry_that_names_the_object(process: Process) -> None:
    await process.streams.create("a", Create(large(0), "text/plain"))
    await process.streams.append("a", plain(large(1)))
    assert await process.items("B") == []
    named = {item["k"]["S"] for item in await process.items("C")}
    assert named == set(await objects(process))
    assert (await process.streams.view("a", 0)).bodies == [large(0), large(1)]


async def test_a_body_that_lost_its_race_is_not_uploaded_again(start: Start) -> None:
    first, second = await start(), await start()
    await first.streams.create("a", TEXT)
    await first.streams.append("a", plain(b"x"))
    await second.streams.append("a", plain(b"y"))
    await first.streams.append("a", plain(large(1)))
    assert first.store.outcomes["lost"] == 1
    assert len(await objects(first)) == 1
    assert await first.items("B") == []
    assert (await second.streams.view("a", 2)).bodies == [large(1)]


async def test_an_object_that_no_entry_names_is_swept_after_an_hour(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    await process.streams.create("a", Create(large(0), "text/plain"))
    bodies = process.store._bodies
    assert bodies is not None
    await bodies.upload("bodies/1", large(1))
    clock.pass_s(UPLOAD_INTENT_SECONDS - 1)
    await process.streams.sweep()
    assert len(await objects(process)) == 2
    clock.pass_s(1)
    await process.streams.sweep()
    assert len(await objects(process)) == 1
    assert await process.items("B") == []
    assert (await process.streams.view("a", 0)).bodies == [large(0)]


@pytest.mark.parametrize("swept", ["object and intent", "object", "nothing yet"])
async def test_an_entry_cannot_name_an_object_that_is_being_swept(
    start: Start, swept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that slept for an hour between upload and entry uploads again, wherever the sweep
    that revoked the intent was killed."""
    clock = Clock()
    slow, other = await start(clock), await start(clock)
    await slow.streams.create("a", TEXT)
    bodies, sweeper = slow.store._bodies, other.store._bodies
    assert bodies is not None
    assert sweeper is not None
    upload = bodies.upload

    async def killed(_: object) -> None:
        raise ConnectionError

    if swept == "object":
        monkeypatch.setattr(sweeper._table, "delete", killed)
    elif swept == "nothing yet":
        monkeypatch.setattr(sweeper._bucket, "delete", killed)
    uploads = 0

    async def dawdle(folder: str, body: bytes) -> str:
        nonlocal uploads
        uploads += 1
        key = await upload(folder, body)
        if uploads == 1:
            clock.pass_s(UPLOAD_INTENT_SECONDS)
            with nullcontext() if swept == "object and intent" else pytest.raises(ConnectionError):
                await other.streams.sweep()
        return key

    bodies.upload = dawdle  # type: ignore[method-assign]
    await slow.streams.append("a", plain(large(1)))
    assert uploads == 2
    assert (await other.streams.view("a", 0)).bodies == [large(1)]
    assert len(await objects(slow)) == (2 if swept == "nothing yet" else 1)


async def test_without_a_bucket_an_item_is_the_limit(start: Start) -> None:
    process = await start()
    process.store._bodies = None
    await process.streams.create("a", TEXT)
    body = random.Random(1).randbytes(ITEM_BODY_BYTES)
    await process.streams.append("a", plain(body))
    with pytest.raises(BodyTooLarge, match="set TAILRACE_BUCKET"):
        await process.streams.append("a", plain(body + b"x"))
    assert (await process.streams.view("a", 0)).bodies == [body]


# What is due


async def test_a_deleted_stream_is_erased_after_the_grace_period(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    streams = process.streams
    await streams.create("kept", Create(b"kept", "text/plain"))
    await streams.create("a", Create(large(0), "text/plain"))
    for number in range(60):
        await streams.append("a", plain(b"%d" % number))
    await streams.delete("a")
    clock.pass_s(GRACE - 1)
    await streams.sweep()
    assert len(await process.items("C")) == 1 + 61 + 1
    clock.pass_s(1)
    await streams.sweep()
    assert len(await process.items("C")) == 1
    assert await objects(process) == []
    assert len(await process.items()) == 2, "a name and an entry: what is kept"
    assert (await streams.view("kept", 0)).bodies == [b"kept"]


async def test_a_source_is_kept_as_long_as_a_fork_reads_through_it(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    streams = process.streams
    await streams.create("a", Create(b"one", "text/plain"))
    await streams.create("f", Create(b"two", fork=ForkFrom("a")))
    await streams.delete("a")
    clock.pass_s(2 * GRACE)
    await streams.sweep()
    assert (await streams.view("f", 0)).bodies == [b"one", b"two"]
    await streams.delete("f")
    with pytest.raises(StreamNotFound):
        await streams.find("a")
    clock.pass_s(GRACE)
    await streams.sweep()
    assert await process.items() == []


async def test_the_sweep_finishes_a_cascade_that_was_interrupted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    process = await start(clock)
    streams = process.streams
    await streams.create("a", Create(b"one", "text/plain"))
    await streams.create("f", Create(fork=ForkFrom("a")))
    await streams.delete("a")
    with monkeypatch.context() as interrupted:

        async def fail(*_: object) -> None:
            raise StoreUnavailable("no answer")

        interrupted.setattr(sweeping, "release", fail)
        await streams.delete("f")
    with pytest.raises(StreamGone):
        await streams.find("a")
    for _ in range(2):
        clock.pass_s(GRACE)
        await streams.sweep()
    assert await process.items() == []


async def test_the_index_of_expiring_streams_catches_up_with_accesses(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    streams = process.streams
    await streams.create("used", Create(content_type="text/plain", ttl=100))
    await streams.create("idle", Create(content_type="text/plain", ttl=100))
    for _ in range(10):
        clock.pass_s(20)
        await streams.access("used")
    await streams.sweep()
    assert [item["s"]["S"] for item in await process.items("N")] == ["used"]
    (name,) = await process.items("N")
    assert int(name["d"]["N"]) > clock.now, "it is due again when it may expire"
    clock.pass_s(120)
    await streams.sweep()
    assert await process.items("N") == []


async def test_a_stream_of_many_pages_that_expired_is_dropped_in_a_few_calls(start: Start) -> None:
    clock = Clock()
    writer = await start(clock)
    await writer.streams.create("a", Create(content_type="text/plain", ttl=60))
    for _ in range(30):
        await writer.streams.append("a", plain(b"x" * 50_000))
    clock.pass_s(67)
    reader = await start(clock, chunk_bytes=1024)
    with pytest.raises(StreamNotFound):
        await reader.streams.view("a", 0)
    calls, _, _ = reader.spent()
    assert calls == {"GetItem": 2, "Query": 2, "TransactWriteItems": 1}


# Names


async def test_a_listing_reads_names_and_the_tails_of_what_it_lists(process: Process) -> None:
    streams = process.streams
    paths = [f"room/{number:03d}" for number in range(60)]
    await asyncio.gather(*(streams.create(path, TEXT) for path in [*paths, "other"]))
    for number in range(30):
        await streams.append("room/000", plain(b"%d" % number))
    process.spent()
    listed = await streams.list("room/", "", 10)
    assert [each.stream.path for each in listed] == paths[:10]
    calls, _, _ = process.spent()
    assert calls == {"Query": NAME_SHARDS + 10}
    whole = [each.stream.path for each in await streams.list("room/", "", 1000)]
    assert whole == paths


async def test_paths_of_any_length_can_be_listed(process: Process) -> None:
    path = "p" * 1024
    await process.streams.create(path, TEXT)
    assert len(await process.streams.list("p" * 1024, "", 10)) == 1
    assert len(await process.streams.list("p", "p" * 1023, 10)) == 1
    assert await process.streams.list("p" * 1025, "", 10) == []
    assert await process.streams.list("p", "p" * 5000, 10) == []
    assert len(await process.streams.list("p", "o" * 5000, 10)) == 1


# Retention


async def test_a_read_of_removed_slots_names_the_earliest_offset(process: Process) -> None:
    streams = process.streams
    await streams.create("a", TEXT)
    for number in range(10):
        await streams.append("a", plain(b"%d" % number))
    stream = (await streams.find("a")).stream
    assert await trimming.remove_slots(process.store._table, stream.id, 6, due=0) == 6
    with pytest.raises(OffsetTrimmed) as caught:
        await streams.view("a", 3)
    assert parse(caught.value.earliest)[:2] == (6, 6)
    assert (await streams.view("a", 6)).bodies == [b"6", b"7", b"8", b"9"]
    accepted = await streams.append("a", plain(b"ten"))
    assert accepted.slot == 11
