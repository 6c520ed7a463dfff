"""The life of a batch: appends of one process that share a slot, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from devtools.dynamodb_simulator.network import CALM, Faults
from tailrace.errors import (
    ContentTypeConflict,
    OffsetMismatch,
    OutcomeUnknown,
    ProducerGap,
    StoreUnavailable,
    StreamClosed,
    StreamNotFound,
    StreamTooHot,
)
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import Position, parse
from tailrace.log.state import Producer
from tailrace.store.dynamodb import batches, layout
from tailrace.store.dynamodb.chain import Chain
from tailrace.streams import Appended, Streams
from tests.integration.simulation.stage import Stage, append, content, play, produce
from tests.integration.simulation.world import CHUNK_BYTES, GRACE, TEXT, now

BODIES = [b"<%d>" % number for number in range(1, 6)]


def together(streams: Streams, *bodies: bytes) -> list[asyncio.Task[Appended]]:
    """Appends that come at the same moment; they wait for the same write."""
    return [asyncio.create_task(append(streams, body)) for body in bodies or BODIES]


async def outcomes(*appends: Coroutine[Any, Any, Appended]) -> list[str]:
    """How appends that come at the same moment end: `new`, `duplicate`, or an error."""
    answers = await asyncio.gather(*appends, return_exceptions=True)
    return [
        type(answer).__name__ if isinstance(answer, BaseException)
        else "new" if answer.new else "duplicate"
        for answer in answers
    ]  # fmt: skip


@contextmanager
def every_attempt_meets(stage: Stage, faults: Faults) -> Iterator[None]:
    network = stage.world.table.network
    network.faults = faults
    try:
        yield
    finally:
        network.faults = CALM


async def read_from(streams: Streams, offset: str) -> list[bytes]:
    return list((await streams.read("s", parse(offset))).bodies)


def test_appends_that_come_together_are_one_write() -> None:
    async def story(stage: Stage) -> None:
        appended = await asyncio.gather(*together(stage.warm))
        assert stage.calls() == ["PutItem"]
        assert await content(stage.other) == b"<0><1><2><3><4><5>"
        for following, each in enumerate(appended, 1):
            assert await read_from(stage.other, each.next_offset) == BODIES[following:]

    play(story)


def test_appends_during_a_write_share_the_next_slot() -> None:
    async def story(stage: Stage) -> None:
        first = together(stage.warm, b"<1>")
        await asyncio.sleep(0.0001)
        later = together(stage.warm, *BODIES[1:])
        appended = await asyncio.gather(*first, *later)
        assert stage.calls() == ["PutItem", "PutItem"]
        assert [each.slot for each in appended] == [2, 2, 2, 2, 3]

    play(story)


# A race that is lost


def test_all_appends_of_a_lost_slot_are_decided_again() -> None:
    async def story(stage: Stage) -> None:
        await append(stage.other, b"<p>", producer=Producer("p", 0, 0))
        ended = await outcomes(
            append(stage.warm, b"<1>"),
            append(stage.warm, b"<p>", producer=Producer("p", 0, 0)),
            append(stage.warm, b"<2>", producer=Producer("p", 0, 1)),
        )
        assert ended == ["new", "duplicate", "new"]
        assert stage.calls()[:2] == ["PutItem", "PutItem"]
        assert await content(stage.other) == b"<0><p><1><2>"

    play(story)


def test_all_appends_of_a_lost_slot_are_refused_by_the_close_that_took_it() -> None:
    async def story(stage: Stage) -> None:
        await append(stage.other, b"<last>", close=True)
        assert await outcomes(*(append(stage.warm, body) for body in BODIES)) == [
            StreamClosed.__name__
        ] * len(BODIES)
        assert await content(stage.warm) == b"<0><last>"

    play(story)


# What an append rests on may not be stored yet


def test_a_refusal_waits_for_what_it_rests_on() -> None:
    async def story(stage: Stage) -> None:
        closing = asyncio.create_task(append(stage.warm, b"<1>", close=True))
        refused = asyncio.create_task(append(stage.warm, b"<2>"))
        done, _ = await asyncio.wait((closing, refused), return_when=asyncio.FIRST_EXCEPTION)
        assert refused in done
        assert (await stage.other.find("s")).committed.closed
        with pytest.raises(StreamClosed):
            await refused
        assert not (await closing).next_offset < (await append_again(stage)).next_offset

    async def append_again(stage: Stage) -> Appended:
        return await stage.warm.append("s", Append(b"", close=True))

    play(story)


def test_a_refusal_is_decided_again_when_what_it_rests_on_fails() -> None:
    async def story(stage: Stage) -> None:
        with every_attempt_meets(stage, Faults(unreachable=1)):
            closing = asyncio.create_task(append(stage.warm, b"<1>", close=True))
            refused = asyncio.create_task(append(stage.warm, b"<2>"))
            with pytest.raises(StoreUnavailable):
                await closing
        assert (await refused).new
        assert await content(stage.other) == b"<0><2>"

    play(story)


def test_a_duplicate_is_stored_again_when_the_first_one_fails() -> None:
    async def story(stage: Stage) -> None:
        with every_attempt_meets(stage, Faults(unreachable=1)):
            first, again = [asyncio.create_task(produce(stage.warm, 0, 0)) for _ in range(2)]
            with pytest.raises(StoreUnavailable):
                await first
        assert (await again).new
        assert await content(stage.other) == b"<0><0.0>"

    play(story)


def test_one_append_that_is_refused_does_not_spoil_the_others() -> None:
    async def story(stage: Stage) -> None:
        ended = await outcomes(
            produce(stage.warm, 0, 0),
            stage.warm.append("s", Append(b"{}", "application/json")),
            produce(stage.warm, 0, 2),
            produce(stage.warm, 0, 1),
            produce(stage.warm, 0, 0),
        )
        refused = [ContentTypeConflict.__name__, ProducerGap.__name__]
        assert ended == ["new", *refused, "new", "duplicate"]
        assert await content(stage.other) == b"<0><0.0><0.1>"

    play(story)


def test_no_refusal_rests_on_what_was_stored_before_the_request() -> None:
    """The answer to a write is still awaited when another process has written after it."""

    async def story(stage: Stage) -> None:
        stage.client.fate["PutItem C"] = [Faults(lost_answer=1)]
        waiting = asyncio.create_task(append(stage.warm, b"<1>"))
        await asyncio.sleep(0.1)
        await produce(stage.other, 0, 0)
        assert (await produce(stage.warm, 0, 1)).new
        assert (await waiting).new
        assert await content(stage.other) == b"<0><1><0.0><0.1>"

    play(story)


def test_the_offset_of_a_refusal_is_not_outdated_by_an_append_after_it() -> None:
    async def story(stage: Stage) -> None:
        first = asyncio.create_task(append(stage.warm, b"<1>"))
        elsewhere = asyncio.create_task(append(stage.warm, b"<never>", expected=Position(0)))
        last = asyncio.create_task(append(stage.warm, b"<2>"))
        with pytest.raises(OffsetMismatch) as caught:
            await elsewhere
        await asyncio.gather(first, last)
        assert await read_from(stage.other, caught.value.next_offset) == [b"<2>"]

    play(story)


# Callers


def test_an_append_whose_caller_leaves_stays_on_its_way() -> None:
    async def story(stage: Stage) -> None:
        first = together(stage.warm, b"<1>")
        await asyncio.sleep(0.0001)
        later = together(stage.warm, *BODIES[1:])
        await asyncio.sleep(0.0001)
        for leaving in (first[0], later[1]):
            leaving.cancel()
        staying = [later[0], *later[2:]]
        assert all(each.new for each in await asyncio.gather(*staying))
        assert await content(stage.other) == b"<0><1><2><3><4><5>"

    play(story)


@pytest.mark.parametrize(
    ("faults", "error", "stored"),
    [
        (Faults(unreachable=1), StoreUnavailable, b"<0><2><3><4><5>"),
        (Faults(lost_answer=1), OutcomeUnknown, b"<0><1><2><3><4><5>"),
        (Faults(throttled=1), (StoreUnavailable, StreamTooHot), b"<0><2><3><4><5>"),
    ],
    ids=["unreachable", "no answer", "throttled"],
)
def test_an_error_reaches_the_callers_of_one_slot(
    faults: Faults, error: type[Exception], stored: bytes
) -> None:
    async def story(stage: Stage) -> None:
        with every_attempt_meets(stage, faults):
            first = together(stage.warm, b"<1>")
            await asyncio.sleep(0.0001)
            later = together(stage.warm, *BODIES[1:])
            with pytest.raises(error) as caught:
                await first[0]
        assert isinstance(caught.value, OutcomeUnknown) == (error is OutcomeUnknown)
        assert all(each.new for each in await asyncio.gather(*later))
        assert await content(stage.other) == stored

    play(story)


def test_an_error_reaches_all_callers_of_its_slot() -> None:
    async def story(stage: Stage) -> None:
        with every_attempt_meets(stage, Faults(unreachable=1)):
            ended = await outcomes(*(append(stage.warm, body) for body in BODIES))
        assert ended == [StoreUnavailable.__name__] * len(BODIES)
        assert await content(stage.other) == b"<0>"

    play(story)


def test_more_appends_than_may_wait_are_told_to_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "QUEUED_APPENDS", 3)

    async def story(stage: Stage) -> None:
        ended = await outcomes(*(append(stage.warm, body) for body in BODIES))
        assert ended == ["new"] * 3 + [StreamTooHot.__name__] * 2
        assert (await append(stage.warm, b"<4>")).new

    play(story)


def test_more_bytes_than_may_wait_are_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "QUEUED_BYTES", 500)

    async def story(stage: Stage) -> None:
        body = b"<%b>" % (b"." * 300)
        ended = await outcomes(append(stage.warm, body), append(stage.warm, body))
        assert ended == ["new", StreamTooHot.__name__]

    play(story)


# Beside other operations


def test_a_source_that_is_deleted_under_appends_goes_with_its_last_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "NAME_SHARDS", 2)

    async def story(stage: Stage) -> None:
        await stage.other.create("fork", Create(fork=ForkFrom("s")))
        await append(stage.other, b"<.>")
        deleting = asyncio.create_task(stage.warm.delete("s"))
        appending = []
        for body in BODIES:
            await asyncio.sleep(stage.world.chance.random() * 0.005)
            appending += together(stage.warm, body)
        await deleting
        await asyncio.gather(*appending, return_exceptions=True)
        assert await content(stage.warm, "fork") == b"<0>"
        await stage.other.delete("fork")
        for _ in range(2):
            await asyncio.sleep(2 * GRACE)
            await stage.other.sweep()
        assert not [*stage.world.table.items()]

    play(story, seeds=20)


def test_a_process_that_has_seen_little_of_a_stream_knows_its_offsets() -> None:
    async def story(stage: Stage) -> None:
        appended = [await append(stage.other, b"<%b>" % (b"." * CHUNK_BYTES)) for _ in range(4)]
        for each in appended:
            cold = (await stage.world.start()).streams
            await cold.read("s", parse(each.next_offset))

    play(story)


def test_an_append_that_waits_for_long_is_not_written_to_an_erased_stream() -> None:
    async def story(stage: Stage) -> None:
        chain = cast("Chain", await stage.warm.find("s"))
        chain.pacer.free_at = now() + 3 * GRACE
        waiting = asyncio.create_task(append(stage.warm, b"<1>"))
        await asyncio.sleep(1)
        await stage.other.delete("s")
        await asyncio.sleep(GRACE)
        await stage.other.sweep()
        assert not [*stage.world.table.items()]
        with pytest.raises(StreamNotFound):
            await waiting
        assert not [*stage.world.table.items()]

    play(story)


def test_appends_to_a_stream_that_is_deleted_meanwhile_are_not_found() -> None:
    async def story(stage: Stage) -> None:
        await stage.other.delete("s")
        assert await outcomes(*(append(stage.warm, body) for body in BODIES)) == [
            StreamNotFound.__name__
        ] * len(BODIES)
        await stage.other.create("s", Create(content_type=TEXT))
        assert all(each.new for each in await asyncio.gather(*together(stage.warm)))

    play(story)
