"""Trimming is the one danger: a slot that was filled and removed is empty again.

`log.trimming` has the rule; these tests let time pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import pytest

from devtools.dynamodb_simulator.network import CALM, Faults
from tailrace.errors import OffsetTrimmed, StreamNotFound
from tailrace.limits import TAIL_CACHE_SECONDS
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import parse
from tailrace.log.retention import Keep
from tailrace.log.state import State
from tailrace.log.trimming import first_kept
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import slot_text
from tests.integration.simulation.archivist import Archivist
from tests.integration.simulation.stage import Stage, append, content, play
from tests.integration.simulation.world import GRACE, TEXT, now

ARCHIVED_AT = 1_700_000_000_000
LATER = ARCHIVED_AT + GRACE * 1000


async def fill(stage: Stage, count: int = 3) -> None:
    for number in range(1, count + 1):
        await append(stage.other, b"<%d>" % number)


async def archive(stage: Stage, count: int = 3) -> None:
    """So many entries more, and all but the last are archived now."""
    await fill(stage, count)
    while await Archivist(stage.world).archive("s"):
        pass


async def trim(stage: Stage) -> None:
    await Archivist(stage.world).trim("s")


async def forget(stage: Stage) -> None:
    """Let go for good of all that may go."""
    await asyncio.sleep(GRACE)
    await Archivist(stage.world).retain("s", Keep(1, None))


def slots(stage: Stage) -> list[int]:
    """The slots that there are in all chains."""
    items = stage.world.table.items()
    return [int(item["s"]["S"]) for item in items if item["p"]["S"].startswith("C")]


@contextmanager
def trimmed_before(slot: int, offset: int) -> Iterator[None]:
    """The reader is told that the stream begins there now."""
    with pytest.raises(OffsetTrimmed) as caught:
        yield
    assert parse(caught.value.earliest)[:2] == (slot, offset)


# The rule


@pytest.mark.parametrize(
    ("n", "archived", "now", "kept"),
    [
        pytest.param(10, 5, LATER, 5, id="archived slots go"),
        pytest.param(10, 10, LATER, 9, id="the last entry stays"),
        pytest.param(1, 1, LATER, 0, id="the only entry stays"),
        pytest.param(10, 5, LATER - 1, 0, id="nothing goes before the grace is over"),
        pytest.param(10, 0, LATER, 0, id="nothing goes that was not archived"),
    ],
)
def test_the_first_slot_that_is_kept(n: int, archived: int, now: int, kept: int) -> None:
    assert first_kept(State(n, 0, 0, 0), archived, ARCHIVED_AT, now, GRACE) == kept


def test_a_grace_that_a_trusted_tail_would_outlive_is_refused() -> None:
    with pytest.raises(AssertionError, match="outlive"):
        first_kept(State(2, 0, 0, 0), 1, 0, 10**15, TAIL_CACHE_SECONDS)


def test_no_setting_allows_such_a_grace() -> None:
    (setting,) = (setting for setting in fields(Settings) if setting.name == "trim_grace")
    assert setting.metadata["least"] >= 2 * TAIL_CACHE_SECONDS


# The trimmer


def test_slots_go_when_the_grace_is_over_and_the_last_one_never() -> None:
    async def story(stage: Stage) -> None:
        await archive(stage)
        await asyncio.sleep(GRACE - 1)
        await trim(stage)
        assert slots(stage) == [0, 1, 2, 3]
        await asyncio.sleep(1)
        await trim(stage)
        assert slots(stage) == [3]
        await asyncio.sleep(10 * GRACE)
        await trim(stage)
        assert slots(stage) == [3]
        accepted = await append(stage.warm, b"<4>")
        assert accepted.slot == 5

    play(story)


def test_a_trimmer_that_dies_leaves_work_but_no_harm() -> None:
    async def story(stage: Stage) -> None:
        await archive(stage, 30)
        await asyncio.sleep(GRACE)
        dying = Archivist(stage.world)
        trimming = asyncio.create_task(dying.trim("s"))
        await asyncio.sleep(stage.world.chance.random() * 0.06)
        dying.kill()
        await asyncio.sleep(1)
        assert slots(stage)[-1] == 30
        await append(stage.warm, b"<31>")
        await trim(stage)
        assert slots(stage) == [30, 31]
        assert await content(stage.other) == b"".join(b"<%d>" % n for n in range(32))
        trimming.cancel()

    play(story, seeds=10)


# The writer


@pytest.mark.usefixtures("alone")
def test_within_the_time_that_a_tail_is_trusted_its_slot_is_still_there() -> None:
    async def story(stage: Stage) -> None:
        await archive(stage)
        await asyncio.sleep(TAIL_CACHE_SECONDS - 2)
        await trim(stage)
        await append(stage.warm, b"<4>")
        assert stage.calls()[0] == "PutItem"
        assert await content(stage.other) == b"<0><1><2><3><4>"

    play(story)


def test_after_that_time_the_writer_asks_where_the_tail_is() -> None:
    async def story(stage: Stage) -> None:
        await archive(stage)
        await asyncio.sleep(GRACE)
        await trim(stage)
        await append(stage.warm, b"<4>")
        calls = stage.calls()
        assert sorted(calls[:2]) == ["GetItem", "Query"]
        assert calls[2:] == ["PutItem"]
        assert (await stage.other.view("s", 3)).bodies == [b"<3>", b"<4>"]

    play(story)


@pytest.mark.usefixtures("alone")
def test_a_lost_race_does_not_make_a_tail_trusted_for_longer() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        begun = now()
        await archive(stage, 0)
        archived = now()
        await asyncio.sleep(begun + TAIL_CACHE_SECONDS - 0.3 - now())
        # It loses slot 1 and goes for slot 2, but its client leaves.
        stage.client.fate["PutItem C"] = [CALM, Faults(lost_request=1)]
        leaving = asyncio.create_task(append(stage.warm, b"<never>"))
        await asyncio.sleep(0.1)
        leaving.cancel()
        await asyncio.sleep(archived + GRACE - 0.35 - now())
        stage.client.fate["PutItem C"] = [Faults(lost_request=1)]
        appending = asyncio.create_task(append(stage.warm, b"<4>"))
        await asyncio.sleep(archived + GRACE + 0.01 - now())
        await trim(stage)
        await appending
        assert (await stage.other.view("s", 4)).bodies == [b"<4>"]

    play(story, seeds=20)


def test_a_chain_is_erased_from_its_start_and_its_tombstone_goes_last() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        await stage.other.delete("s")
        await asyncio.sleep(GRACE - 1)
        await stage.other.sweep()
        assert slots(stage) == [0, 1, 2, 3, 4]
        with pytest.raises(StreamNotFound):
            await append(stage.warm, b"<4>")
        await asyncio.sleep(2)
        await stage.other.sweep()
        assert slots(stage) == []
        removed = [change.key[1] for change in stage.world.table.changes if change.after is None]
        assert removed[-1] == slot_text(4)

    play(story)


# The reader


def test_a_read_of_a_trimmed_slot_names_the_earliest_offset() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        await forget(stage)
        for streams in (stage.warm, stage.other):
            with trimmed_before(3, 9):
                await streams.view("s", 0)

    play(story)


def test_of_a_closed_stream_that_was_trimmed_the_end_is_left() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        await stage.other.append("s", Append(b"", close=True))
        await forget(stage)
        for streams in (stage.warm, stage.other):
            with trimmed_before(4, 12):
                await streams.view("s", 0)
            assert (await streams.view("s", 4)).closed

    play(story)


@pytest.mark.parametrize("body", [b"", b"<own>"], ids=["empty", "with data"])
def test_a_fork_has_no_more_than_its_source_had(body: bytes) -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        await forget(stage)
        await stage.other.create("fork", Create(body, TEXT, fork=ForkFrom("s")))
        for streams in (stage.warm, stage.other):
            async with asyncio.timeout(10):
                with trimmed_before(3, 9):
                    await streams.view("fork", 0)
            assert (await streams.view("fork", 3)).bodies == [b"<3>", body][: 1 + bool(body)]

    play(story)


def test_slots_that_a_fork_reads_through_are_not_removed() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        await stage.other.create("fork", Create(b"<own>", TEXT, fork=ForkFrom("s", 2)))
        await forget(stage)
        assert await content(stage.warm, "fork") == b"<0><1><own>"
        assert await content(stage.warm) == b"<0><1><2><3>"

    play(story)


@pytest.mark.parametrize(("at", "sub_offset"), [(0, 2), (1, 0), (1, 2), (2, 1)])
def test_a_fork_cannot_begin_at_removed_slots(at: int, sub_offset: int) -> None:
    async def story(stage: Stage) -> None:
        await fill(stage)
        await forget(stage)
        with trimmed_before(3, 9):
            await stage.warm.create("fork", Create(fork=ForkFrom("s", at, sub_offset)))

    play(story)
