"""The cost of each operation: the exact calls, and the capacity that the engine says they consumed.

The observed number stands beside each bound. A lost race consumes a write unit, too, but no engine
reports it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import cast

import pytest

from tailrace.aws.costs import APPEND_WRITES, SHORT_LIFE, STALE_TAIL_READS
from tailrace.errors import OffsetMismatch, ProducerFenced, StreamNotFound
from tailrace.limits import EXPIRED_SECONDS, SLOT_APPENDS
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import NOW, parse
from tailrace.log.state import Producer, Stream
from tailrace.store.dynamodb import chain, layout, segments, trimming
from tailrace.streams import Appended
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support import archiving
from tests.support.archiving import Most
from tests.support.streams import Clock

BODY = b"x" * 100
PLAIN = Append(BODY, "text/plain")
TEXT = Create(content_type="text/plain")


def produced(seq: int, epoch: int = 0, close: bool = False) -> Append:
    return Append(BODY, "text/plain", close, producer=Producer("till-7", epoch, seq))


@pytest.fixture(autouse=True)
def no_presumption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a new tail for longer than a busy machine takes to the next append."""
    monkeypatch.setattr(chain, "PRESUMED_SECONDS", 3600.0)


@pytest.fixture
async def warm(process: Process) -> Process:
    """A process that has just written to the stream `a`."""
    await process.streams.create("a", TEXT)
    await process.streams.append("a", PLAIN)
    process.spent()
    return process


# Appending


async def test_a_plain_append_is_one_put_of_one_unit(warm: Process) -> None:
    for _ in range(5):
        await warm.streams.append("a", PLAIN)
        assert warm.spent() == ({"PutItem": 1}, APPEND_WRITES, 0)


async def test_a_producers_append_is_one_put_of_one_unit(warm: Process) -> None:
    for seq in range(5):
        await warm.streams.append("a", produced(seq))
        assert warm.spent() == ({"PutItem": 1}, 1, 0)


@pytest.mark.parametrize(
    "request_",
    [
        Append(BODY, "text/plain", seq="0001"),
        Append(BODY, "text/plain", close=True),
        Append(b"", close=True),
        produced(0, close=True),
    ],
    ids=["Stream-Seq", "append and close", "close", "a producer closes"],
)
async def test_sequence_and_closure_are_in_that_same_put(warm: Process, request_: Append) -> None:
    await warm.streams.append("a", request_)
    assert warm.spent() == ({"PutItem": 1}, 1, 0)


async def test_an_expected_offset_is_in_that_same_put(warm: Process) -> None:
    for _ in range(3):
        end = parse((await warm.streams.append("a", PLAIN)).next_offset)
        warm.spent()
        await warm.streams.append("a", PLAIN._replace(expected=end))
        assert warm.spent() == ({"PutItem": 1}, 1, 0)
        with pytest.raises(OffsetMismatch):
            await warm.streams.append("a", PLAIN._replace(expected=end))
        calls, written, _ = warm.spent()
        assert (calls.keys() & {"PutItem"}, written) == (set(), 0)


async def test_of_writers_at_one_offset_in_two_processes_one_wins(
    warm: Process, start: Start
) -> None:
    both = (warm.streams, (await start()).streams)
    offset = await warm.streams.last("a", 0)
    for turn in range(10):
        append = Append(b"%d;" % turn, "text/plain", expected=offset)
        results = await asyncio.gather(
            *(streams.append("a", append) for streams in both for _ in range(3)),
            return_exceptions=True,
        )
        losses = [each for each in results if isinstance(each, OffsetMismatch)]
        (won,) = [each for each in results if not isinstance(each, BaseException)]
        assert len(losses) == 5
        offset = parse(won.next_offset)
    view = await warm.streams.read_last("a", 20)
    assert b"".join(view.bodies) == b"".join(b"%d;" % turn for turn in range(10))


async def test_a_units_kilobyte_holds_the_body_and_its_state(warm: Process) -> None:
    await warm.streams.append("a", Append(b"x" * 850, "text/plain"))
    assert warm.spent() == ({"PutItem": 1}, 1, 0)
    await warm.streams.append("a", Append(b"x" * 10_000, "text/plain"))
    assert warm.spent() == ({"PutItem": 1}, 10, 0)


@pytest.mark.usefixtures("warm")
async def test_a_cold_append_is_two_reads_more(start: Start) -> None:
    cold = await start()
    await cold.streams.append("a", PLAIN)
    assert cold.spent() == ({"GetItem": 1, "Query": 1, "PutItem": 1}, 1, STALE_TAIL_READS)
    await cold.streams.append("a", PLAIN)
    assert cold.spent() == ({"PutItem": 1}, 1, 0)


async def test_an_append_after_another_process_costs_one_put_more(
    warm: Process, start: Start
) -> None:
    other = await start()
    await other.streams.append("a", PLAIN)
    await warm.streams.append("a", PLAIN)
    assert warm.spent()[0] == {"PutItem": 2}, "one that lost, and told what it lost to"
    assert warm.store.outcomes == {"appended": 2, "lost": 1}


async def test_a_process_far_behind_queries_the_tail(warm: Process, start: Start) -> None:
    other = await start()
    for _ in range(20):
        await other.streams.append("a", PLAIN)
    await warm.streams.append("a", PLAIN)
    assert warm.spent()[0] == {"PutItem": 3, "Query": 1}


async def test_an_answer_that_writes_nothing_is_confirmed_first(warm: Process) -> None:
    await warm.streams.append("a", produced(0, epoch=1))
    warm.spent()
    await warm.streams.append("a", produced(0, epoch=1))
    assert warm.spent() == ({"GetItem": 1, "Query": 1}, 0, 2)
    with pytest.raises(ProducerFenced):
        await warm.streams.append("a", produced(0, epoch=0))
    assert warm.spent() == ({"GetItem": 1, "Query": 1}, 0, 2)


async def append_together(process: Process, bodies: Iterable[bytes]) -> list[Appended]:
    """Appends that come to one process at the same moment."""
    requests = (Append(body, "text/plain") for body in bodies)
    return await asyncio.gather(*(process.streams.append("a", each) for each in requests))


async def test_appends_that_come_together_are_one_put(warm: Process) -> None:
    appended = await append_together(warm, [BODY] * 32)
    assert warm.spent() == ({"PutItem": 1}, 4, 0)
    offsets = [100 * number for number in range(2, 34)]
    assert [(each.slot, each.offset) for each in appended] == [
        (2 if offset == offsets[-1] else 1, offset) for offset in offsets
    ]


async def test_a_slot_has_so_many_appends_and_bytes_at_most(warm: Process) -> None:
    await append_together(warm, [b"x"] * (SLOT_APPENDS + 1))
    assert warm.spent()[0] == {"PutItem": 2}
    await append_together(warm, [b"x" * 10_000] * 8)
    calls, written, _ = warm.spent()
    assert calls == {"PutItem": 2}
    assert written <= 80
    assert (await warm.streams.view("a", 0)).end == 5


async def test_a_large_body_has_a_slot_of_its_own(warm: Process) -> None:
    appended = await append_together(warm, [b"1", b"x" * 70_000, b"2", b"3"])
    assert warm.spent() == ({"PutItem": 2, "TransactWriteItems": 2}, 2 + 8, 0)
    assert [each.slot for each in appended] == [2, 3, 3, 4]


async def test_among_rivals_a_slot_is_bounded_by_a_write_unit(warm: Process, start: Start) -> None:
    other = await start()
    await other.streams.append("a", PLAIN)
    appended = await append_together(warm, [BODY] * 20)
    calls, written, _ = warm.spent()
    assert warm.store.outcomes["lost"] == 1
    # The engine says nothing of the put that lost.
    assert written == calls["PutItem"] - 1
    # Eight in a slot; the last of them goes on at the next one.
    assert Counter(each.slot for each in appended) == {2: 7, 3: 8, 4: 4, 5: 1}


@pytest.mark.usefixtures("warm")
async def test_appends_of_many_processes_all_succeed(start: Start) -> None:
    processes = [await start() for _ in range(4)]
    bodies = [[b"<%d.%d>" % (row, number) for number in range(8)] for row in range(4)]
    appended = await asyncio.gather(*map(append_together, processes, bodies))
    view = await processes[0].streams.view("a", 1)
    ends = accumulate(map(len, view.bodies), initial=len(BODY))
    stored = dict(zip(view.bodies, list(ends)[1:], strict=True))
    for sent, answers in zip(bodies, appended, strict=True):
        assert [stored[body] for body in sent] == [each.offset for each in answers]


# Creating and deleting


async def test_an_empty_stream_is_one_get_and_one_transaction(process: Process) -> None:
    """A put would cost half, but its retry could claim the name again after a delete."""
    await process.streams.create("a", TEXT)
    assert process.spent() == ({"GetItem": 1, "TransactWriteItems": 1}, 2, 1)


async def test_a_stream_that_expires_is_in_the_index_as_well(process: Process) -> None:
    await process.streams.create("a", Create(content_type="text/plain", ttl=60))
    calls, written, _ = process.spent()
    assert calls == {"GetItem": 1, "TransactWriteItems": 1}
    assert written <= 4  # 3


async def test_a_stream_with_a_body_is_one_transaction(process: Process) -> None:
    await process.streams.create("a", Create(BODY, "text/plain", closed=True))
    assert process.spent() == ({"GetItem": 1, "TransactWriteItems": 1}, 4, 1)


async def test_a_deletion_is_one_transaction(warm: Process) -> None:
    await warm.streams.delete("a")
    calls, written, _ = warm.spent()
    assert calls == {"GetItem": 1, "Query": 1, "TransactWriteItems": 1}
    assert written <= 6, "5: 4, and the tombstone's place in the index"


async def test_the_life_of_streams_that_expire(start: Start) -> None:
    """Each has one entry, which closes it; docs/deploying.md says what a million of them cost."""
    process = await start(Clock())
    clock, number = cast("Clock", process.clock), 20

    async def sweep() -> tuple[float, float]:
        """Write and read units for each stream, beside those of a sweep that finds nothing."""
        await process.streams.sweep()
        _, written, read = process.spent()
        await process.streams.sweep()
        _, nothing, idle = process.spent()
        assert nothing == 0
        return written / number, (read - idle) / number

    for each in range(number):
        create = Create(BODY, "text/plain", closed=True, ttl=60)
        await process.streams.create(f"s/{each}", create)
    _, written, read = process.spent()
    # The name and the entry 4, and the name's place in the index.
    assert (written / number, read / number) == SHORT_LIFE["create"]
    clock.pass_s(60 + 6 + EXPIRED_SECONDS)
    # The entry, the name, and its place in the index.
    assert await sweep() == SHORT_LIFE["erase"]
    assert await process.items() == []


async def test_a_stream_that_has_just_expired_gets_a_tombstone(start: Start) -> None:
    """Others may still use it, and readers wait for its end."""
    process = await start(Clock())
    clock = cast("Clock", process.clock)
    await process.streams.create("a", Create(BODY, "text/plain", closed=True, ttl=60))
    clock.pass_s(60 + 6 + EXPIRED_SECONDS - 1)
    process.spent()
    await process.streams.sweep()
    calls, written, _ = process.spent()
    assert (calls["TransactWriteItems"], written) == (1, 6)
    clock.pass_s(process.settings.trim_grace)
    await process.streams.sweep()
    assert process.spent()[1] == 3
    assert await process.items() == []


async def test_a_fork_is_one_transaction(warm: Process) -> None:
    await warm.streams.create("f", Create(fork=ForkFrom("a")))
    calls, written, _ = warm.spent()
    assert calls == {"GetItem": 3, "Query": 1, "TransactWriteItems": 1}
    assert written == 6


# Reading


async def test_a_catch_up_read_is_one_query_and_one_get_at_the_same_time(warm: Process) -> None:
    begun: list[str] = []
    client = warm.store._backend.client  # type: ignore[union-attr]
    call = client.call

    async def noted(operation: str, request: object) -> object:
        begun.append(operation)
        answer = await call(operation, request)  # type: ignore[arg-type]
        begun.append(f"{operation} done")
        return answer

    client.call = noted  # type: ignore[method-assign]
    view = await warm.streams.view("a", 0)
    assert view.bodies == [BODY]
    assert view.up_to_date
    assert set(begun[:2]) == {"GetItem", "Query"}, "neither waits for the other"
    assert warm.spent() == ({"GetItem": 1, "Query": 1}, 0, 2)


@pytest.mark.parametrize("position", [0, 1, NOW, 1_000])
async def test_so_is_every_other_read(warm: Process, position: int) -> None:
    await warm.streams.view("a", position)
    calls, written, read = warm.spent()
    assert written == 0
    if position == 1_000:
        assert calls == {"GetItem": 1, "Query": 2}, "beyond the end: the end has to be found"
    else:
        assert (calls, read) == ({"GetItem": 1, "Query": 1}, 2)


@pytest.mark.usefixtures("warm")
async def test_a_cold_read_makes_the_same_calls_one_after_the_other(start: Start) -> None:
    cold = await start()
    assert (await cold.streams.view("a", 0)).up_to_date
    assert cold.spent() == ({"GetItem": 1, "Query": 1}, 0, 2)


async def test_looking_for_what_is_not_there_is_one_get(process: Process) -> None:
    for look in (process.streams.find, process.streams.access):
        with pytest.raises(StreamNotFound):
            await look("nothing")
        assert process.spent() == ({"GetItem": 1}, 0, 1)


async def test_a_read_renews_a_ttl_without_a_write_each(process: Process) -> None:
    await process.streams.create("a", Create(BODY, "text/plain", ttl=3600))
    process.spent()
    for _ in range(20):
        await process.streams.view("a", 0)
    calls, written, _ = process.spent()
    assert calls == Counter(GetItem=20, Query=20)
    assert written == 0


# Large bodies


async def test_a_large_body_costs_two_transactions(warm: Process) -> None:
    body = b"x" * 100_000
    await warm.streams.append("a", Append(body, "text/plain"))
    calls, written, _ = warm.spent()
    assert calls == {"TransactWriteItems": 2}
    assert written <= 10, "8: a claim in table and index 3, the entry and the claim's end 5"
    assert (await warm.streams.view("a", 1)).bodies == [body]


# History


@pytest.fixture
async def archivist(start: Start) -> Process:
    """A process with a stream of which 32 entries are to be moved to segments."""
    process = await start(Clock())
    await process.streams.create("a", TEXT)
    for _ in range(33):
        await process.streams.append("a", PLAIN)
    process.spent()
    return process


async def archived(process: Process, most: int) -> Stream:
    """The stream, with all its entries in segments of so many."""
    table, bucket = process.store._table, process.backend.bucket
    assert bucket is not None
    stream = (await process.streams.find("a")).stream
    while await archiving.archive(table, bucket, stream, Most(most), process.clock()):
        pass
    process.spent()
    return stream


async def test_a_segment_is_committed_by_a_query_and_a_transaction(archivist: Process) -> None:
    table, bucket = archivist.store._table, archivist.backend.bucket
    assert bucket is not None
    stream = (await archivist.streams.find("a")).stream
    for _ in range(2):
        uploaded = await archiving.upload(table, bucket, stream, Most(16), archivist.clock())
        assert uploaded is not None
        archivist.spent()
        assert await segments.check(table, stream, *uploaded) == 0
        assert archivist.spent() == ({"Query": 1}, 0, 1)
        assert await segments.commit(table, stream, uploaded.manifest)
        assert archivist.spent() == ({"TransactWriteItems": 1}, 4, 0)


async def test_a_merge_is_one_transaction(archivist: Process) -> None:
    stream = await archived(archivist, 4)
    table, bucket = archivist.store._table, archivist.backend.bucket
    assert bucket is not None
    olds = await segments.segments_from(table, stream.id, 0)
    assert len(olds) == 8
    assert archivist.spent() == ({"Query": 2}, 0, 2)
    merged = await archiving.upload_merged(bucket, olds)
    assert archivist.spent() == ({}, 0, 0)
    assert await segments.replace(table, olds, merged, archivist.clock())
    calls, written, _ = archivist.spent()
    assert calls == {"TransactWriteItems": 1}
    assert written <= 48, "40: 8 manifests 16, and 8 claims in table and index"


async def test_trimming_is_a_write_for_each_entry_and_one_for_the_name(archivist: Process) -> None:
    await archived(archivist, 16)
    clock, grace = cast("Clock", archivist.clock), archivist.settings.trim_grace
    table = archivist.store._table
    name = await archiving.name_of(table, "a")
    assert name is not None
    archivist.spent()
    assert await trimming.trim(table, name, clock(), grace) == 0
    assert archivist.spent() == ({"Query": 2}, 0, 2), "which segments there are"
    clock.pass_s(grace)
    assert await trimming.trim(table, name, clock(), grace) == 32
    calls, written, read = archivist.spent()
    assert calls == {"Query": 4, "BatchWriteItem": 8, "UpdateItem": 1}
    assert written == 32 + 1
    assert read <= 6, "4: the segments 2, the end, and the keys of the entries"
    name = await archiving.name_of(table, "a")
    assert name is not None
    archivist.spent()
    assert await trimming.trim(table, name, clock(), grace) == 0
    assert archivist.spent() == ({"Query": 2}, 0, 2)


async def test_trimming_costs_appends_that_share_a_slot_one_write(archivist: Process) -> None:
    # A write unit is for a kilobyte.
    small = Append(BODY[:50], "text/plain")
    for _ in range(4):
        await asyncio.gather(*(archivist.streams.append("a", small) for _ in range(10)))
    assert (await archivist.streams.find("a")).state.slot == 33 + 4
    await archived(archivist, 36)
    clock, grace = cast("Clock", archivist.clock), archivist.settings.trim_grace
    clock.pass_s(grace)
    name = await archiving.name_of(archivist.store._table, "a")
    assert name is not None
    archivist.spent()
    assert await trimming.trim(archivist.store._table, name, clock(), grace) == 36
    _, written, _ = archivist.spent()
    assert written == 33 + 3 + 1, "33 appends, 3 times 10 for 0.1 each, and the name"


async def test_letting_go_of_a_large_body_is_a_transaction(start: Start) -> None:
    process = await start(Clock())
    await process.streams.create("a", TEXT)
    for _ in range(2):
        await process.streams.append("a", Append(b"x" * 100_000, "text/plain"))
    stream = (await process.streams.find("a")).stream
    process.spent()
    assert await trimming.remove_slots(process.store._table, stream.id, 1, due=0) == 1
    calls, written, _ = process.spent()
    assert calls == {"Query": 1, "TransactWriteItems": 1}
    assert written <= 6, "5: the entry 2, the claim in table and index 3"


async def test_an_object_that_is_due_goes_in_two_writes(process: Process) -> None:
    bodies = process.store._bodies
    assert bodies is not None
    key = await bodies.upload("bodies/1", BODY)
    process.spent()
    await bodies.revoke(layout.upload_intent_key(key))
    calls, written, _ = process.spent()
    assert calls == {"UpdateItem": 1, "DeleteItem": 1}
    assert written <= 4, "3: the mark, and the claim in table and index"


async def test_a_process_that_was_frozen_reads_the_tail_again(start: Start) -> None:
    """The loop's clock may stand still while a function is frozen; the wall clock does not."""
    now = [1_700_000_000_000]
    process = await start(clock=lambda: now[0])
    await process.streams.create("a", TEXT)
    await process.streams.append("a", PLAIN)
    process.spent()
    now[0] += 900
    await process.streams.append("a", PLAIN)
    assert process.spent()[0] == {"PutItem": 1}
    now[0] += 900
    await process.streams.append("a", PLAIN)
    assert process.spent()[0] == {"GetItem": 1, "Query": 1, "PutItem": 1}


async def test_a_reader_that_may_not_write_does_not(start: Start) -> None:
    now = [1_700_000_000_000]
    writer = await start(clock=lambda: now[0])
    reader = await start(clock=lambda: now[0], read_only=True)
    await writer.streams.create("a", Create(content_type="text/plain", ttl=10))
    now[0] += 9_000
    await reader.streams.view("a", 0)
    now[0] += 9_000
    with pytest.raises(StreamNotFound):
        await reader.streams.view("a", 0)
    assert set(reader.spent()[0]) == {"GetItem", "Query"}
    assert await writer.items("N"), "it was not the reader's to remove"
