from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import (
    ContentTypeConflict,
    EmptyBatch,
    InvalidJson,
    OffsetMismatch,
    ProducerFenced,
    ProducerGap,
    SequenceConflict,
    StoreUnavailable,
    StreamClosed,
    StreamConflict,
    StreamNotFound,
    TailraceError,
)
from tailrace.limits import JSON_EVENT_LOOP_BYTES, PRODUCER_STATE_BYTES
from tailrace.log import json_mode
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import epoch_of, parse, token
from tailrace.log.state import Producer
from tailrace.store.base import Tail
from tailrace.store.sqlite import queries
from tailrace.streams import Appended, Streams
from tests.support.streams import Client, Clock, begun, ended, place, serving

# Creating


async def test_a_new_stream(client: Client) -> None:
    created = await client.create("a")
    assert created.new
    assert created.next_offset == token(0, 0, created.stream.config.epoch)
    assert created.stream.config.epoch == epoch_of(created.stream.id)
    assert created.stream.config.content_type == "text/plain"
    assert await client.read("a") == b""


async def test_a_new_stream_with_a_body(client: Client) -> None:
    created = await client.create("a", b"hello")
    assert place(created.next_offset) == (1, 5)
    assert await client.read("a") == b"hello"


async def test_the_same_stream_again(client: Client) -> None:
    first = await client.create("a", b"hello")
    await client.append("a", b" world")
    again = await client.create("a", b"ignored")
    assert not again.new
    assert again.stream == first.stream
    assert place(again.next_offset) == (2, 11)
    assert await client.read("a") == b"hello world"


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"content_type": "text/html"}, ContentTypeConflict),
        ({"ttl": 60}, StreamConflict),
        ({"expires_at": 1 << 50}, StreamConflict),
        ({"closed": True}, StreamConflict),
    ],
)
async def test_another_stream_at_the_same_path(
    client: Client, other: dict[str, Any], error: type[TailraceError]
) -> None:
    await client.create("a", b"x")
    with pytest.raises(error):
        await client.create("a", **other)
    assert await client.read("a") == b"x"


async def test_a_stream_that_was_closed_is_created_again_only_as_closed(client: Client) -> None:
    await client.create("a", b"x")
    await client.close("a")
    with pytest.raises(StreamConflict):
        await client.create("a")
    assert not (await client.create("a", closed=True)).new


@pytest.mark.parametrize("body", [b"{", b" ", b"1,2", b"NaN"])
async def test_a_json_stream_is_created_only_with_json(client: Client, body: bytes) -> None:
    with pytest.raises(InvalidJson):
        await client.create("a", body, "application/json")
    assert await client.status("a") == "missing"


@pytest.mark.parametrize("body", [b"", b"[]"])
async def test_a_json_stream_may_begin_empty(client: Client, body: bytes) -> None:
    assert place((await client.create("a", body, "application/json")).next_offset) == (0, 0)
    assert await client.read("a") == b"[]"


async def test_one_of_many_concurrent_creations_creates_the_stream(client: Client) -> None:
    created = await asyncio.gather(*(client.create("a", b"%d" % n) for n in range(30)))
    assert [each.new for each in created].count(True) == 1
    assert len({each.stream.id for each in created}) == 1
    (winner,) = (n for n, each in enumerate(created) if each.new)
    assert await client.read("a") == b"%d" % winner
    for each in created:
        assert place(each.next_offset) == (1, len(b"%d" % winner))


async def test_concurrent_creations_of_different_streams_conflict(client: Client) -> None:
    results = await asyncio.gather(
        *(client.create("a", content_type=f"text/x-{n}") for n in range(10)),
        return_exceptions=True,
    )
    winners = [each for each in results if not isinstance(each, BaseException)]
    assert len(winners) == 1
    losers = [each for each in results if isinstance(each, BaseException)]
    assert {type(each) for each in losers} == {ContentTypeConflict}


# Appending


async def test_parallel_appends_all_succeed(client: Client) -> None:
    await client.create("a")
    bodies = [b"<%d>" % n for n in range(64)]
    accepted = await asyncio.gather(*(client.append("a", body) for body in bodies))
    offsets = [each.next_offset for each in accepted]
    assert len(set(offsets)) == 64
    in_order = [body for _, body in sorted(zip(offsets, bodies, strict=True))]
    for n, offset in enumerate(sorted(offsets), 1):
        view = await client.streams.read("a", parse(offset))
        assert b"".join(view.bodies) == b"".join(in_order[n:])
    assert await client.read("a") == b"".join(in_order)
    assert max(offsets) == view.next_offset


async def test_refused_appends_do_not_disturb_those_they_came_with(client: Client) -> None:
    await client.create("a", b"[0]", "application/json")
    end = parse((await client.append("a", b"1", content_type="application/json")).next_offset)
    p = Producer("p", 0, 0)
    requests: list[tuple[dict[str, Any], type[TailraceError] | bool]] = [
        ({"body": b"2", "producer": p}, True),
        ({"body": b"{"}, InvalidJson),
        ({"body": b"2", "producer": p}, False),
        ({"body": b"[3,4]", "seq": "5"}, True),
        ({"body": b"[]"}, EmptyBatch),
        ({"body": b"x", "content_type": "text/plain"}, ContentTypeConflict),
        ({"body": b"x", "producer": p._replace(seq=2)}, ProducerGap),
        ({"body": b"5", "seq": "4"}, SequenceConflict),
        ({"body": b"5", "expected": end}, OffsetMismatch),
        ({"body": b"5", "producer": p._replace(seq=1)}, True),
        ({"body": b"6"}, True),
    ]
    results = await asyncio.gather(
        *(
            client.streams.append("a", Append(**{"content_type": "application/json", **fields}))
            for fields, _ in requests
        ),
        return_exceptions=True,
    )
    told = [each.new if isinstance(each, Appended) else type(each) for each in results]
    assert told == [outcome for _, outcome in requests]
    assert await client.read("a") == b"[0,1,2,3,4,5,6]"


async def test_every_answer_says_where_its_reader_goes_on(client: Client) -> None:
    """Also one that was concluded from appends which others followed in the same moment."""
    start = (await client.create("a")).next_offset

    async def answer(number: int) -> str:
        request = Append(b"%d;" % number, "text/plain")
        match number % 3:
            case 1:
                request = request._replace(producer=Producer("p", 0, 0))
            case 2:
                request = request._replace(expected=parse(start))
        try:
            return (await client.streams.append("a", request)).next_offset
        except OffsetMismatch as error:
            return error.next_offset

    answers = await asyncio.gather(*map(answer, range(30)))
    whole = await client.read("a")
    assert whole.count(b";") == 11
    for offset in [start, *answers]:
        assert await client.read("a", offset) == whole[place(offset)[1] :]


async def test_parallel_appends_to_many_streams(client: Client) -> None:
    paths = [f"s{n}" for n in range(8)]
    await asyncio.gather(*map(client.create, paths))
    await asyncio.gather(*(client.append(path, b"%d;" % n) for n in range(20) for path in paths))
    for path in paths:
        numbers = (await client.read(path)).decode().rstrip(";").split(";")
        assert sorted(map(int, numbers)) == list(range(20))


async def test_an_append_to_nothing(client: Client) -> None:
    with pytest.raises(StreamNotFound):
        await client.append("a", b"x")


async def test_an_append_that_is_refused_changes_nothing(client: Client) -> None:
    await client.create("a", b"[1]", "application/json")
    producer = Producer("p", 0, 0)
    for body, error in ((b"{", InvalidJson), (b"[]", EmptyBatch)):
        with pytest.raises(error):
            await client.append(
                "a", body, content_type="application/json", producer=producer, seq="5"
            )
    accepted = await client.append(
        "a", b"2", content_type="application/json", producer=producer, seq="1"
    )
    assert place(accepted.next_offset) == (2, 2)
    assert await client.read("a") == b"[1,2]"


async def test_parallel_appends_with_one_stream_seq(client: Client) -> None:
    await client.create("a")
    results = await asyncio.gather(
        *(client.append("a", b"%d" % n, seq="1") for n in range(10)), return_exceptions=True
    )
    refused = [each for each in results if isinstance(each, BaseException)]
    assert len(refused) == 9
    assert {type(each) for each in refused} == {SequenceConflict}


async def test_nothing_is_accepted_after_a_close(client: Client) -> None:
    await client.create("a")
    work = [client.append("a", b"%d;" % n) for n in range(20)]
    work.insert(10, client.close("a"))
    results = await asyncio.gather(*work, return_exceptions=True)
    accepted = [each for each in results if not isinstance(each, BaseException)]
    refused = [each for each in results if isinstance(each, BaseException)]
    assert all(isinstance(each, StreamClosed) for each in refused)
    views = await client.views("a")
    assert views[-1].closed
    assert b"".join(views[-1].bodies).count(b";") == len(accepted) - 1
    end = views[-1].next_offset
    assert all(isinstance(each, StreamClosed) and each.next_offset == end for each in refused)


async def test_closing_twice_is_closing(client: Client) -> None:
    await client.create("a", b"x")
    first, second = await client.close("a"), await client.close("a")
    assert first.next_offset == second.next_offset
    assert place(second.next_offset) == (1, 1)
    assert (first.new, second.new) == (True, False)


async def test_an_append_that_closes(client: Client) -> None:
    await client.create("a", b"x")
    accepted = await client.append("a", b"last", close=True)
    assert accepted.closed
    assert await client.read("a") == b"xlast"
    with pytest.raises(StreamClosed):
        await client.append("a", b"more")


async def test_the_clock_going_back_does_not_turn_time_around(client: Client, clock: Clock) -> None:
    await client.create("a")
    times = []
    for step in (5_000, -9_000, 1, 20_000, -1):
        clock.pass_ms(step)
        await client.append("a", b"x")
        times.append((await client.streams.find("a")).committed.written_at)
    assert times == sorted(times)


# Producers


async def test_a_batch_delivered_many_times_at_once_is_accepted_once(client: Client) -> None:
    await client.create("a")
    accepted = await asyncio.gather(*(client.produce("a", "p", 0, 0) for _ in range(20)))
    assert [each.new for each in accepted].count(True) == 1
    assert {each.producer_seq for each in accepted} == {0}
    assert {place(each.next_offset) for each in accepted} == {(1, 6)}
    assert await client.read("a") == b"p.0.0;"


async def test_a_retry_gets_the_highest_accepted(client: Client) -> None:
    await client.create("a")
    for seq in range(5):
        await client.produce("a", "p", 0, seq)
    retry = await client.produce("a", "p", 0, 2)
    assert not retry.new
    assert retry.producer_seq == 4


async def test_a_pipelined_producer_in_order(client: Client) -> None:
    await client.create("a")
    accepted = await asyncio.gather(*(client.produce("a", "p", 0, seq) for seq in range(30)))
    assert all(each.new for each in accepted)
    assert await client.read("a") == b"".join(b"p.0.%d;" % seq for seq in range(30))


async def test_a_zombie_is_fenced_off(client: Client) -> None:
    await client.create("a")
    await client.produce("a", "p", 0, 0)
    await client.produce("a", "p", 1, 0)
    with pytest.raises(ProducerFenced) as raised:
        await client.produce("a", "p", 0, 1)
    assert raised.value.epoch == 1


MANY = PRODUCER_STATE_BYTES // 100


async def test_more_producers_than_a_state_holds_are_all_known(data: Path, clock: Clock) -> None:
    async with serving(data, clock) as streams:
        client = Client(streams)
        await client.create("a")
        names = [f"producer {n}" + "." * 200 for n in range(MANY)]
        for seq in range(2):
            await asyncio.gather(*(client.produce("a", name, 0, seq) for name in names))
        assert (await streams.find("a")).state.spilled > 1
        for name in (names[0], names[-1]):
            assert not (await client.produce("a", name, 0, 1)).new
            with pytest.raises(ProducerGap):
                await client.produce("a", name, 0, 3)
    async with serving(data, clock) as streams:
        client = Client(streams)
        retries = await asyncio.gather(*(client.produce("a", name, 0, 1) for name in names))
        assert [each.new for each in retries] == [False] * MANY
        accepted = await asyncio.gather(*(client.produce("a", name, 0, 2) for name in names))
        assert all(each.new for each in accepted)
        assert len((await client.read("a")).split(b";")) == 3 * MANY + 1


async def test_a_lookup_that_a_spill_overtook_is_not_believed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a retry looks up its spilled producer, the original is accepted and spilled again."""
    await client.create("a")
    fillers = (f"filler {n}" + "." * 200 for n in range(1_000))

    async def spill_all() -> None:
        before = (await client.streams.find("a")).state.spilled
        while (await client.streams.find("a")).state.spilled < before + 2:
            await client.produce("a", next(fillers), 0, 0, b"f")

    await client.produce("a", "p", 0, 0)
    await spill_all()
    assert "p" not in (await client.streams.find("a")).state.producers

    looked_up, go_on = asyncio.Event(), asyncio.Event()
    producer = client.streams.store.producer

    async def slowly(tail: Tail, name: str) -> tuple[int, int] | None:
        found = await producer(tail, name)
        if name == "p" and not looked_up.is_set():
            looked_up.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(client.streams.store, "producer", slowly)
    late = await begun(client.produce("a", "p", 0, 1, b"<p1>"))
    await looked_up.wait()
    assert (await client.produce("a", "p", 0, 1, b"<p1>")).new
    await spill_all()
    go_on.set()
    assert not (await ended(late)).new
    assert (await client.read("a")).count(b"<p1>") == 1


# Durability


class Commits:
    """Holds commits back, and lets them fail, at the statement that inserts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.failing = False
        for statement in ("insert_entries", "insert_record"):
            insert = getattr(queries, statement)
            monkeypatch.setattr(queries, statement, partial(self._held, insert))

    def _held(self, insert: Callable[..., None], db: sqlite3.Connection, *values: Any) -> None:
        assert self.free.wait(20)
        if self.failing:
            raise sqlite3.OperationalError("database or disk is full")
        insert(db, *values)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


async def test_a_duplicate_is_answered_after_the_original_is_committed(
    client: Client, commits: Commits
) -> None:
    await client.create("a")
    commits.free.clear()
    try:
        original = await begun(client.produce("a", "p", 0, 0))
        retry = await begun(client.produce("a", "p", 0, 0), 0.05)
        assert not original.done()
    finally:
        commits.free.set()
    assert (await ended(original)).new
    assert not (await ended(retry)).new


async def test_a_rejection_waits_until_its_reason_is_committed(
    client: Client, commits: Commits
) -> None:
    await client.create("a")
    commits.free.clear()
    try:
        closing = await begun(client.append("a", b"last", close=True))
        late = await begun(client.append("a", b"too late"), 0.05)
        again = await begun(client.create("a", closed=True), 0.05)
    finally:
        commits.free.set()
    await ended(closing)
    with pytest.raises(StreamClosed):
        await ended(late)
    assert not (await ended(again)).new


async def test_a_retry_waits_for_the_commit_that_spills_its_producer(
    client: Client, commits: Commits
) -> None:
    await client.create("a")
    await client.produce("a", "p", 0, 0)
    tail = await client.streams.find("a")
    commits.free.clear()
    try:
        fillers: list[asyncio.Task[Appended]] = []
        while "p" in tail.state.producers:
            name = f"filler {len(fillers)}" + "." * 200
            fillers.append(await begun(client.produce("a", name, 0, 0), 0))
        retry = await begun(client.produce("a", "p", 0, 0), 0.05)
    finally:
        commits.free.set()
    assert not (await ended(retry)).new
    assert all([(await ended(filler)).new for filler in fillers])


async def test_when_the_original_fails_its_duplicate_fails_and_a_retry_is_accepted(
    client: Client, commits: Commits
) -> None:
    await client.create("a")
    commits.free.clear()
    commits.failing = True
    try:
        deliveries = [await begun(client.produce("a", "p", 0, 0)) for _ in range(3)]
        refused = await begun(client.produce("a", "p", 0, 2))
    finally:
        commits.free.set()
    results = await asyncio.gather(*deliveries, refused, return_exceptions=True)
    assert {type(each) for each in results} == {StoreUnavailable}
    commits.failing = False
    assert (await client.produce("a", "p", 0, 0)).new
    assert (await client.produce("a", "p", 0, 1)).new
    assert await client.read("a") == b"p.0.0;p.0.1;"


async def test_readers_see_only_what_is_committed(client: Client, commits: Commits) -> None:
    await client.create("a", b"seen ")
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    commits.free.clear()
    try:
        appending = await begun(client.append("a", b"unseen"))
        assert await client.read("a") == b"seen "
        assert not reading.done()
    finally:
        commits.free.set()
    await ended(appending)
    assert b"".join((await ended(reading)).bodies) == b"unseen"


@pytest.mark.parametrize("seed", range(3))
async def test_failing_commits_never_lose_or_double_an_acknowledged_batch(
    client: Client, commits: Commits, seed: int
) -> None:
    """Producers that retry until they are acknowledged, over a disk that is full now and then."""
    chance = random.Random(seed)
    await client.create("a")
    commits_failed = 0

    async def produce(name: str) -> None:
        nonlocal commits_failed
        for seq in range(15):
            while True:
                commits.failing = chance.random() < 0.3
                try:
                    await client.produce("a", name, 0, seq)
                    break
                except StoreUnavailable:
                    commits_failed += 1
                await asyncio.sleep(0)

    await asyncio.gather(*(produce(f"p{n}") for n in range(6)))
    commits.failing = False
    assert commits_failed > 10
    stored = (await client.read("a")).decode().rstrip(";").split(";")
    for n in range(6):
        mine = [each for each in stored if each.startswith(f"p{n}.")]
        assert mine == [f"p{n}.0.{seq}" for seq in range(15)]
    assert len(stored) == 90


# Deleting and creating again


async def test_a_deleted_stream_is_missing(client: Client) -> None:
    await client.create("a", b"x")
    await client.streams.delete("a")
    assert await client.status("a") == "missing"
    with pytest.raises(StreamNotFound):
        await client.streams.delete("a")


async def test_a_path_created_again_starts_clean(client: Client) -> None:
    old = await client.create("a", b"old", ttl=60)
    await client.produce("a", "p", 3, 0)
    await client.append("a", b"x", seq="z")
    await client.close("a")
    await client.streams.delete("a")
    new = await client.create("a", b"[1]", "application/json")
    assert new.new
    assert new.stream.id != old.stream.id
    accepted = await client.append(
        "a", b"2", content_type="application/json", seq="a", producer=Producer("p", 0, 0)
    )
    assert place(accepted.next_offset) == (2, 2)
    assert await client.read("a") == b"[1,2]"


async def test_a_reader_of_a_replaced_stream_gets_not_found(client: Client) -> None:
    await client.create("a", b"old")
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    await asyncio.gather(client.streams.delete("a"))
    await client.create("a", b"new")
    await client.append("a", b"newer")
    with pytest.raises(StreamNotFound):
        await ended(reading)


async def test_a_reader_that_was_not_waiting_when_its_stream_was_replaced(client: Client) -> None:
    await client.create("a", b"old")
    tail = await client.streams.access("a")
    await client.streams.delete("a")
    await client.create("a", b"new")
    with pytest.raises(StreamNotFound):
        await asyncio.wait_for(client.streams.follow(tail, 1, 10_000), 120)


@pytest.mark.parametrize("seed", range(4))
async def test_appends_deletions_and_creations_at_once(client: Client, seed: int) -> None:
    """All acknowledged appends belong to one incarnation, gap-free, and only the last is read."""
    chance = random.Random(seed)
    acknowledged: dict[int, list[bytes]] = {}

    async def append(n: int) -> None:
        await asyncio.sleep(chance.uniform(0, 0.03))
        try:
            accepted = await client.append("a", b"%d;" % n)
        except StreamNotFound:
            return
        assert accepted.new
        acknowledged.setdefault(accepted.offset, []).append(b"%d;" % n)

    async def replace() -> None:
        for _ in range(4):
            await asyncio.sleep(chance.uniform(0, 0.01))
            await client.streams.delete("a")
            await client.create("a")

    await client.create("a")
    await asyncio.gather(replace(), *(append(n) for n in range(60)))
    (view,) = await client.views("a")
    end = 0
    for body in re.findall(rb"[0-9]+;", b"".join(view.bodies)):
        end += len(body)
        assert body in acknowledged[end]
    assert view.offset == end


async def test_deleting_at_once_is_done_once(client: Client) -> None:
    await client.create("a", b"x")
    results = await asyncio.gather(
        *(client.streams.delete("a") for _ in range(10)), return_exceptions=True
    )
    assert results.count(None) == 1
    assert {type(each) for each in results if each is not None} == {StreamNotFound}


# Restarts


async def test_everything_is_there_after_a_restart(data: Path, clock: Clock) -> None:
    async with serving(data, clock) as streams:
        client = Client(streams)
        await client.create("a", b"one ")
        await client.produce("a", "p", 1, 0, b"two ")
        await client.append("a", b"three ", seq="5")
        await client.create("b", b"x", closed=True)
    async with serving(data, clock) as streams:
        client = Client(streams)
        assert await client.read("a") == b"one two three "
        assert not (await client.produce("a", "p", 1, 0)).new
        with pytest.raises(SequenceConflict):
            await client.append("a", b"x", seq="5")
        with pytest.raises(StreamClosed):
            await client.append("b", b"y")
        assert not (await client.create("b", closed=True)).new


async def test_a_retry_of_the_close_is_known_after_a_restart(data: Path, clock: Clock) -> None:
    last = Append(b"last", "text/plain", True, None, Producer("p", 0, 0))
    async with serving(data, clock) as streams:
        await Client(streams).create("a")
        await streams.append("a", last)
    async with serving(data, clock) as streams:
        again = await streams.append("a", last)
        assert not again.new
        assert again.closed
        assert await Client(streams).read("a") == b"last"


# Under pressure


async def test_streams_that_do_not_fit_in_memory(data: Path, clock: Clock) -> None:
    async with serving(data, clock, open_streams=16, hot_bytes=0) as streams:
        client = Client(streams)
        paths = [f"s{n}" for n in range(50)]
        await asyncio.gather(*map(client.create, paths))
        await asyncio.gather(*(client.append(path, b"%d;" % n) for n in range(6) for path in paths))
        for path in paths:
            numbers = (await client.read(path)).decode().rstrip(";").split(";")
            assert sorted(map(int, numbers)) == list(range(6))


async def test_more_readers_wait_than_streams_fit_in_memory(data: Path, clock: Clock) -> None:
    paths = [f"s{n}" for n in range(40)]
    async with serving(data, clock) as streams:
        await asyncio.gather(*map(Client(streams).create, paths))
    async with serving(data, clock, open_streams=16) as streams:
        client = Client(streams)
        readers = []
        for path in paths:
            tail = await streams.access(path)
            readers.append(asyncio.ensure_future(streams.follow(tail, 0, 10_000)))
            await asyncio.sleep(0)
        for path in paths:
            await client.append(path, path.encode())
        views = [await ended(reading) for reading in readers]
        assert [view.bodies for view in views] == [[path.encode()] for path in paths]


class Helper:
    """Flattens as the rules do, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    async def flatten(self, body: bytes) -> json_mode.Flat | InvalidJson:
        self.calls += 1
        await asyncio.sleep(0)
        try:
            return json_mode.flatten(body)
        except InvalidJson as error:
            return error


LARGE = b'["' + b"a" * JSON_EVENT_LOOP_BYTES + b'",2]'


async def test_large_json_is_checked_by_the_helper(streams: Streams) -> None:
    helper = streams.checker = Helper()
    created = await streams.create("a", Create(LARGE, "application/json"))
    assert created.state.offset == 2
    accepted = await streams.append("a", Append(LARGE, "application/json"))
    assert accepted.offset == 4
    messages = [message for _, message in (await streams.view("a", 0)).messages()]
    assert messages == [LARGE[1:-3], b"2"] * 2
    await streams.append("a", Append(b"1", "application/json"))
    await streams.create("text", Create(LARGE, "text/plain"))
    await streams.append("text", Append(LARGE, "text/plain"))
    assert helper.calls == 2


async def test_invalid_large_json_is_refused_in_the_order_of_the_rules(streams: Streams) -> None:
    helper = streams.checker = Helper()
    bad = LARGE + b"]"
    with pytest.raises(InvalidJson):
        await streams.create("a", Create(bad, "application/json"))
    with pytest.raises(StreamNotFound):
        await streams.append("a", Append(bad, "application/json"))
    assert helper.calls == 1
    await streams.create("a", Create(b"", "application/json"))
    with pytest.raises(InvalidJson):
        await streams.append("a", Append(bad, "application/json"))
    await streams.append("a", Append(b"1", "application/json", seq="5"))
    with pytest.raises(SequenceConflict):
        await streams.append("a", Append(bad, "application/json", seq="4"))
    with pytest.raises(ProducerGap):
        await streams.append("a", Append(bad, "application/json", producer=Producer("p", 0, 1)))
    await streams.append("a", Append(b"", "application/json", close=True))
    with pytest.raises(StreamClosed):
        await streams.append("a", Append(bad, "application/json"))
    await streams.create("text", Create(b"", "text/plain"))
    with pytest.raises(ContentTypeConflict):
        await streams.append("text", Append(bad, "application/json"))
    # What exists is not created again, whatever the body.
    assert not (await streams.create("text", Create(bad, "text/plain"))).new


async def test_a_fork_takes_a_part_of_a_large_append(streams: Streams) -> None:
    await streams.create("a", Create(LARGE, "application/json"))
    created = await streams.create("f", Create(fork=ForkFrom("a", 0, 1)))
    assert created.state.offset == 1
    assert (await streams.view("f", 0)).bodies == [LARGE[1:-3]]
