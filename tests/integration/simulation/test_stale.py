"""A process that remembers a stream, and what another process did to it meanwhile.

Time is virtual. `warm` has just appended to the stream `s`, so that it knows the name and the tail;
then `other` acts, and `warm` is asked again. What it asks the table for is part of the promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import pytest

from devtools.dynamodb_simulator.network import Faults
from tailrace.clock import system_clock
from tailrace.errors import ProducerFenced, ProducerGap, StreamClosed, StreamGone, StreamNotFound
from tailrace.limits import TAIL_CACHE_SECONDS, UPLOAD_INTENT_SECONDS
from tailrace.log import producers
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.expiry import renewal_slack
from tailrace.log.offsets import NOW
from tailrace.log.state import Producer
from tailrace.store.dynamodb.chain import Chain
from tailrace.streams import Streams
from tests.integration.simulation.stage import Stage, append, content, head, play, produce
from tests.integration.simulation.world import GRACE, INLINE_BYTES, TEXT

# What the chain tells a stale writer


def test_after_a_delete_the_tombstone_is_in_the_way() -> None:
    async def story(stage: Stage) -> None:
        await stage.other.delete("s")
        with pytest.raises(StreamNotFound):
            await append(stage.warm, b"<1>")
        assert stage.calls() == ["PutItem", "GetItem"]

    play(story)


def test_after_a_delete_and_a_create_the_new_stream_is_written_to() -> None:
    async def story(stage: Stage) -> None:
        await stage.other.delete("s")
        await stage.other.create("s", Create(b"<new>", TEXT))
        accepted = await append(stage.warm, b"<1>")
        assert stage.calls() == ["PutItem", "GetItem", "Query", "PutItem"]
        assert await content(stage.other) == b"<new><1>"
        assert accepted.next_offset == await head(stage.other)

    play(story)


def test_after_a_close_nothing_is_written_and_readers_see_the_end() -> None:
    async def story(stage: Stage) -> None:
        closed = await append(stage.other, b"<last>", close=True)
        with pytest.raises(StreamClosed) as caught:
            await append(stage.warm, b"<1>")
        assert caught.value.next_offset == closed.next_offset
        assert sorted(stage.calls()) == ["GetItem", "PutItem", "Query"]
        again = await stage.warm.append("s", Append(b"", close=True))
        assert (again.new, again.next_offset) == (False, closed.next_offset)

    play(story)


def test_a_stream_that_is_kept_for_a_fork_is_gone() -> None:
    async def story(stage: Stage) -> None:
        await stage.other.create("fork", Create(fork=ForkFrom("s")))
        await stage.other.delete("s")
        with pytest.raises(StreamGone):
            await append(stage.warm, b"<1>")
        assert await content(stage.warm, "fork") == b"<0>"

    play(story)


def test_a_duplicate_of_a_stream_that_is_kept_for_a_fork_is_no_answer() -> None:
    async def story(stage: Stage) -> None:
        await stage.warm.append("s", Append(b"", close=True))
        await stage.other.create("fork", Create(fork=ForkFrom("s")))
        await stage.other.delete("s")
        with pytest.raises(StreamGone):
            await stage.warm.append("s", Append(b"", close=True))

    play(story)


def test_one_entry_of_others_corrects_the_tail_without_a_question() -> None:
    async def story(stage: Stage) -> None:
        await append(stage.other, b"<1>")
        await append(stage.warm, b"<2>")
        assert stage.calls() == ["PutItem", "PutItem"]
        assert await content(stage.other) == b"<0><1><2>"

    play(story)


def test_many_entries_of_others_are_jumped_over_with_one_query() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(20):
            await append(stage.other, b"<.>")
        await append(stage.warm, b"<last>")
        assert stage.calls() == ["PutItem", "PutItem", "Query", "PutItem"]
        assert await content(stage.other) == b"<0>" + 20 * b"<.>" + b"<last>"

    play(story)


def test_at_first_a_tail_is_trusted_for_a_second() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(0.5)
        await append(stage.warm, b"<1>")
        assert stage.calls() == ["PutItem"]
        await asyncio.sleep(5)
        await append(stage.warm, b"<2>")
        assert stage.calls() == ["Query", "PutItem"]

    play(story)


@pytest.mark.usefixtures("alone")
def test_a_tail_is_trusted_for_a_minute_and_no_longer() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(TAIL_CACHE_SECONDS - 5)
        await append(stage.warm, b"<1>")
        assert stage.calls() == ["PutItem"]
        await asyncio.sleep(TAIL_CACHE_SECONDS)
        await append(stage.warm, b"<2>")
        calls = stage.calls()
        assert sorted(calls[:2]) == ["GetItem", "Query"]
        assert calls[2:] == ["PutItem"]

    play(story)


# Answers that are given without writing anything are confirmed first


def test_a_duplicate_is_confirmed_before_it_is_answered() -> None:
    async def story(stage: Stage) -> None:
        await produce(stage.warm, 0, 0)
        await append(stage.other, b"<1>")
        stage.calls()
        again = await produce(stage.warm, 0, 0)
        assert not again.new
        assert again.next_offset == await head(stage.other)
        assert sorted(stage.calls()) == ["GetItem", "GetItem", "Query", "Query"]

    play(story)


def test_a_duplicate_of_a_replaced_stream_is_accepted_by_the_new_one() -> None:
    async def story(stage: Stage) -> None:
        await produce(stage.warm, 0, 0)
        await stage.other.delete("s")
        await stage.other.create("s", Create(content_type=TEXT))
        accepted = await produce(stage.warm, 0, 0)
        assert accepted.new
        assert await content(stage.other) == b"<0.0>"

    play(story)


def test_a_producer_fenced_by_a_replaced_stream_may_write_to_the_new_one() -> None:
    async def story(stage: Stage) -> None:
        await produce(stage.warm, 1, 0)
        with pytest.raises(ProducerFenced):
            await produce(stage.warm, 0, 0)
        await stage.other.delete("s")
        await stage.other.create("s", Create(content_type=TEXT))
        await produce(stage.warm, 0, 0)
        assert await content(stage.other) == b"<0.0>"

    play(story)


def test_a_takeover_at_another_process_fences() -> None:
    async def story(stage: Stage) -> None:
        await produce(stage.warm, 0, 0)
        await produce(stage.other, 1, 0)
        with pytest.raises(ProducerFenced):
            await produce(stage.warm, 0, 1)
        assert await content(stage.other) == b"<0><0.0><1.0>"

    play(story)


def test_a_producer_that_changes_processes_leaves_no_gap() -> None:
    async def story(stage: Stage) -> None:
        await produce(stage.warm, 0, 0)
        await produce(stage.other, 0, 1)
        await produce(stage.warm, 0, 2)
        with pytest.raises(ProducerGap) as caught:
            await produce(stage.other, 0, 4)
        assert caught.value.expected == 3
        assert await content(stage.other) == b"<0><0.0><0.1><0.2>"

    play(story)


def test_creating_again_is_answered_by_what_is_there_now() -> None:
    async def story(stage: Stage) -> None:
        await stage.other.delete("s")
        await stage.other.create("s", Create(b"<new>", TEXT))
        created = await stage.warm.create("s", Create(content_type=TEXT))
        assert not created.new
        assert created.stream.id == (await stage.other.find("s")).stream.id

    play(story)


# Whoever reads after an acknowledgement sees what was acknowledged


Read = Callable[[Streams], Awaitable[str]]


async def from_the_start(streams: Streams) -> str:
    return (await streams.view("s", 0)).next_offset


async def from_now(streams: Streams) -> str:
    return (await streams.view("s", NOW)).next_offset


async def from_the_known_end(streams: Streams) -> str:
    return (await streams.view("s", 1)).next_offset


async def live(streams: Streams) -> str:
    view = await streams.view("s", 1)
    if not view.bodies and not view.closed:
        view = await streams.follow(view.tail, view.end, 1)
    return view.next_offset


LOOKS = pytest.mark.parametrize("look", [head, from_the_start, from_now, from_the_known_end, live])


@LOOKS
def test_an_append_of_another_process_is_seen_at_once(look: Read) -> None:
    async def story(stage: Stage) -> None:
        await look(stage.warm)
        accepted = await append(stage.other, b"<1>")
        assert await look(stage.warm) == accepted.next_offset

    play(story)


@LOOKS
def test_a_delete_by_another_process_is_seen_at_once(look: Read) -> None:
    async def story(stage: Stage) -> None:
        await look(stage.warm)
        await stage.other.delete("s")
        with pytest.raises(StreamNotFound):
            await look(stage.warm)

    play(story)


@LOOKS
def test_a_stream_that_took_anothers_place_is_seen_at_once(look: Read) -> None:
    async def story(stage: Stage) -> None:
        await look(stage.warm)
        await stage.other.delete("s")
        created = await stage.other.create("s", Create(b"<new>", TEXT))
        assert await look(stage.warm) == created.next_offset

    play(story)


def test_a_close_by_another_process_is_seen_at_once() -> None:
    async def story(stage: Stage) -> None:
        assert not (await stage.warm.view("s", 1)).closed
        await stage.other.append("s", Append(b"", close=True))
        assert (await stage.warm.view("s", 0)).closed
        assert (await stage.warm.find("s")).committed.closed

    play(story)


def test_an_append_of_another_process_ends_a_wait() -> None:
    async def story(stage: Stage) -> None:
        view = await stage.warm.view("s", 1)
        waiting = asyncio.create_task(stage.warm.follow(view.tail, view.end, 25))
        await asyncio.sleep(5)
        assert not waiting.done()
        await append(stage.other, b"<1>")
        async with asyncio.timeout(2):
            assert (await waiting).bodies == [b"<1>"]

    play(story)


def test_a_wait_on_a_replaced_stream_ends_with_not_found() -> None:
    async def story(stage: Stage) -> None:
        view = await stage.warm.view("s", 1)
        waiting = asyncio.create_task(stage.warm.follow(view.tail, view.end, 25))
        await asyncio.sleep(1)
        await stage.other.delete("s")
        await stage.other.create("s", Create(b"<new>", TEXT))
        async with asyncio.timeout(2):
            with pytest.raises(StreamNotFound):
                await waiting

    play(story)


# Expiry


def test_a_stream_that_another_process_renewed_is_not_dropped() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(8)
        await stage.other.view("s", 0)
        await asyncio.sleep(8)
        await stage.warm.sweep()
        await append(stage.warm, b"<1>")
        assert await content(stage.other) == b"<0><1>"

    play(story, ttl=10)


def test_an_expired_stream_is_dropped_by_the_next_request() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(12)
        with pytest.raises(StreamNotFound):
            await append(stage.warm, b"<1>")
        assert not [item for item in stage.world.table.items() if item["p"]["S"].startswith("N")]

    play(story, ttl=10)


def test_a_wait_at_one_process_keeps_the_stream_alive_for_all() -> None:
    async def story(stage: Stage) -> None:
        view = await stage.warm.view("s", 1)
        waiting = asyncio.create_task(stage.warm.follow(view.tail, view.end, 25))
        for _ in range(8):
            await asyncio.sleep(3)
            await stage.other.find("s")
        await append(stage.other, b"<1>")
        assert (await waiting).bodies == [b"<1>"]

    play(story, ttl=4)


def test_a_renewal_that_was_cut_short_is_not_taken_for_done() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        stage.client.fate["UpdateItem N"] = [Faults(lost_request=1)]
        leaving = asyncio.create_task(append(stage.warm, b"<never>"))
        await asyncio.sleep(0.1)
        leaving.cancel()
        await append(stage.warm, b"<1>")
        await asyncio.sleep(8)
        assert await content(stage.other) == b"<0><1>"

    play(story, ttl=10)


def test_a_concurrent_read_relies_only_on_a_stored_access_time() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        stage.client.fate["UpdateItem N"] = [Faults(lost_request=1)]
        first = asyncio.create_task(stage.warm.view("s", 0))
        await asyncio.sleep(0.05)
        used = system_clock()
        await stage.warm.view("s", 0)
        items = stage.world.table.items()
        (name,) = (item for item in items if item["p"]["S"].startswith("N"))
        assert int(name["accessed_at"]["N"]) >= used - renewal_slack(10)
        await first

    play(story, ttl=10)


# An attempt that was given up may have been carried out, or be carried out later


def test_a_put_whose_answer_was_lost_finds_its_own_entry() -> None:
    async def story(stage: Stage) -> None:
        stage.client.fate["PutItem C"] = [Faults(lost_answer=1)]
        accepted = await append(stage.warm, b"<1>")
        assert stage.calls() == ["PutItem", "PutItem"]
        assert accepted.new
        assert await content(stage.other) == b"<0><1>"

    play(story)


def test_a_create_does_not_revive_what_was_deleted_before_its_answer_came() -> None:
    async def story(stage: Stage) -> None:
        await stage.warm.delete("s")
        for operation in ("PutItem", "TransactWriteItems"):
            stage.client.fate[f"{operation} N"] = [Faults(lost_answer=1)]
        creating = asyncio.create_task(stage.warm.create("s", Create(content_type=TEXT)))
        await asyncio.sleep(0.15)
        await stage.other.delete("s")
        await creating
        async with asyncio.timeout(10):
            with pytest.raises(StreamNotFound):
                await stage.other.find("s")
        assert not await stage.other.list("", "", 10)

    play(story)


def test_a_late_upload_intent_does_not_cost_an_entry_its_body() -> None:
    large = b"<%b>" % (b"." * INLINE_BYTES)

    async def story(stage: Stage) -> None:
        stage.client.fate["PutItem B"] = [Faults(late=1)]
        await append(stage.warm, large)
        await asyncio.sleep(UPLOAD_INTENT_SECONDS + GRACE)
        await stage.other.sweep()
        assert await content(stage.other) == b"<0>" + large

    play(story)


def test_a_renewal_that_comes_late_does_not_turn_the_clock_back() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(2)
        stage.client.fate["UpdateItem N"] = [Faults(late=1)]
        await stage.warm.view("s", 0)
        await stage.other.view("s", 0)
        await asyncio.sleep(7)
        await stage.other.view("s", 0)
        await asyncio.sleep(8)
        assert await content(stage.other) == b"<0>"

    play(story, ttl=10)


# A query may see a transaction half done


def test_a_source_survives_a_delete_that_does_not_see_its_fork_yet() -> None:
    async def story(stage: Stage) -> None:
        await stage.warm.create("fork", Create(fork=ForkFrom("s")))
        stage.client.blind = True
        await stage.warm.delete("s")
        stage.client.blind = False
        await asyncio.sleep(2 * GRACE)
        await stage.other.sweep()
        assert await content(stage.other, "fork") == b"<0>"
        await stage.other.delete("fork")
        await asyncio.sleep(2 * GRACE)
        for _ in range(2):
            await stage.other.sweep()
            await asyncio.sleep(2 * GRACE)
        assert not [*stage.world.table.items()]

    play(story)


# Within one process


def test_a_request_that_races_with_a_delete_gets_not_found() -> None:
    async def story(stage: Stage) -> None:
        deleting = asyncio.create_task(stage.warm.delete("s"))
        finding = [asyncio.create_task(stage.warm.find("s")) for _ in range(20)]
        await deleting
        for each in await asyncio.gather(*finding, return_exceptions=True):
            assert not isinstance(each, StreamGone)
        with pytest.raises(StreamNotFound):
            await append(stage.warm, b"<1>")

    play(story, seeds=50)


def test_a_tail_is_never_that_of_a_tombstone() -> None:
    async def story(stage: Stage) -> None:
        end = await head(stage.warm)
        await asyncio.sleep(0.5)
        view = await stage.warm.view("s", 1)
        waiting = asyncio.create_task(stage.warm.follow(view.tail, view.end, 25))
        await asyncio.sleep(0.7)
        stage.client.fate["UpdateItem N"] = [Faults(lost_answer=1)]
        finding = asyncio.create_task(head(stage.warm))
        await asyncio.sleep(0.05)
        await stage.other.delete("s")
        with pytest.raises(StreamNotFound):
            await waiting
        with suppress(StreamNotFound):
            assert await finding == end

    play(story, ttl=10)


def test_a_writer_is_not_stuck_with_the_tombstone_that_a_reader_found() -> None:
    async def story(stage: Stage) -> None:
        view = await stage.warm.view("s", 1)
        waiting = asyncio.create_task(stage.warm.follow(view.tail, view.end, 25))
        await asyncio.sleep(1)
        await stage.other.delete("s")
        while not cast("Chain", view.tail).deleted:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.0001)
        waiting.cancel()
        with pytest.raises(StreamNotFound):
            await append(stage.warm, b"<1>")

    play(story)


def test_a_duplicate_is_not_said_to_end_before_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCER_STATE_BYTES", 0)

    async def story(stage: Stage) -> None:
        """With such a budget an entry carries one producer; the others have rows of their own."""
        await produce(stage.other, 0, 0)
        await append(stage.other, b"<1>", producer=Producer("q", 0, 0))
        await asyncio.sleep(TAIL_CACHE_SECONDS)
        stage.client.fate["GetItem P"] = [Faults(lost_request=1)]
        again = asyncio.create_task(produce(stage.warm, 0, 1))
        await asyncio.sleep(0.1)
        await produce(stage.other, 0, 1)
        last = await append(stage.other, b"<2>", producer=Producer("q", 0, 1))
        assert (await again).next_offset == last.next_offset

    play(story)
