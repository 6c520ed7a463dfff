from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import (
    ContentTypeConflict,
    ForkOutOfRange,
    StreamClosed,
    StreamConflict,
    StreamGone,
    StreamNotFound,
    TailraceError,
)
from tailrace.log import json_mode
from tailrace.log.append import Append, content
from tailrace.log.content import Mode
from tailrace.log.offsets import parse, token
from tailrace.log.state import Config, Producer
from tests.support.streams import Client, Clock, begun, ended, place, serving

# What a fork reads


async def test_a_fork_has_what_was_before_it_and_its_own(client: Client) -> None:
    await client.create("source")
    await client.append("source", b"one ", b"two ", b"three ")
    created = await client.fork("fork", "source", 2)
    assert created.new
    assert place(created.next_offset) == (2, 8)
    await client.append("fork", b"drei ")
    await client.append("source", b"four ")
    assert await client.read("fork") == b"one two drei "
    assert await client.read("source") == b"one two three four "


async def test_a_fork_begins_at_the_tail_by_default(client: Client) -> None:
    await client.create("source", b"one ")
    assert place((await client.fork("fork", "source")).next_offset) == (1, 4)
    await client.append("source", b"two ")
    assert await client.read("fork") == b"one "


@pytest.mark.parametrize("at", [0, None])
async def test_a_fork_of_nothing_is_empty(client: Client, at: int | None) -> None:
    await client.create("source")
    assert place((await client.fork("fork", "source", at)).next_offset) == (0, 0)
    await client.append("source", b"x")
    assert await client.read("fork") == b""
    await client.append("fork", b"y")
    assert await client.read("fork") == b"y"


async def test_a_fork_at_the_start_inherits_nothing(client: Client) -> None:
    await client.create("source", b"one")
    await client.fork("fork", "source", 0, body=b"eins")
    assert await client.read("fork") == b"eins"
    await client.streams.delete("source")
    assert await client.read("fork") == b"eins"


async def test_offsets_before_the_fork_are_the_sources(client: Client) -> None:
    await client.create("source")
    await client.append("source", b"one ", b"two ", b"three ")
    await client.fork("fork", "source", body=b"own")
    for n, rest in enumerate([b"one two three own", b"two three own", b"three own", b"own", b""]):
        assert await client.read("fork", n) == rest


async def test_reading_from_the_fork_on_gives_only_its_own(client: Client) -> None:
    await client.create("source", b"one ")
    created = await client.fork("fork", "source")
    await client.append("fork", b"own")
    (view,) = await client.views("fork", created.state.tail)
    assert b"".join(view.bodies) == b"own"


async def test_a_read_across_the_boundary_is_one_chunk(client: Client) -> None:
    await client.create("root", b"[1]", "application/json")
    await client.fork("middle", "root", body=b"[2,3]")
    await client.fork("leaf", "middle", body=b"[[4]]")
    (view,) = await client.views("leaf")
    assert [message for _, message in view.messages()] == [b"1", b"2", b"3", b"[4]"]
    assert place(view.next_offset) == (3, 4)
    assert await client.read("leaf") == b"[1,2,3,[4]]"


async def test_three_levels_each_with_its_own_end(client: Client) -> None:
    await client.create("0", b"a")
    for level in range(1, 4):
        await client.append(f"{level - 1}", b"b%d" % (level - 1))
        await client.fork(f"{level}", f"{level - 1}", body=b"c%d" % level)
        await client.append(f"{level - 1}", b"-hidden-")
    assert await client.read("3") == b"ab0c1b1c2b2c3"
    assert await client.read("2") == b"ab0c1b1c2b2-hidden-"
    assert await client.read("1") == b"ab0c1b1-hidden-"
    assert await client.read("0") == b"ab0-hidden-"


@pytest.mark.parametrize("at", range(7))
async def test_a_fork_of_a_fork_may_begin_inside_of_what_that_inherited(
    client: Client, at: int
) -> None:
    await client.create("root")
    await client.append("root", b"1", b"2", b"3", b"x")
    await client.fork("middle", "root", 3)
    await client.append("middle", b"4", b"5", b"6")
    await client.fork("leaf", "middle", at)
    await client.append("root", b"y")
    await client.append("middle", b"z")
    await client.append("leaf", b"!")
    assert await client.read("leaf") == b"123456"[:at] + b"!"


@pytest.mark.parametrize("chunk_bytes", [1, 3, 4, 7, 100])
async def test_a_fork_reads_in_the_chunks_of_a_plain_stream(
    data: Path, clock: Clock, chunk_bytes: int
) -> None:
    """Wherever a reader begins, the chunks end where they would if it were one chain."""
    contents = [b"aa", b"bbb", b"c", b"dddd", b"e", b"ff", b"ggggggggg", b"h", b"ii", b"j"]
    async with serving(data, clock, chunk_bytes=chunk_bytes) as streams:
        client = Client(streams)
        await client.create("plain")
        await client.append("plain", *contents)
        await client.create("root")
        await client.append("root", *contents[:4])
        await client.fork("middle", "root")
        await client.append("root", b"hidden")
        await client.append("middle", *contents[4:7])
        await client.fork("leaf", "middle")
        await client.append("middle", b"hidden")
        await client.append("leaf", *contents[7:])
        for n in range(len(contents) + 1):
            plain, leaf = await client.views("plain", n), await client.views("leaf", n)
            for one, other in zip(leaf, plain, strict=True):
                assert one[1:] == other[1:], "all but the tail is the same"


# Sub-offsets


@pytest.mark.whole_bodies
async def test_a_sub_offset_takes_part_of_the_next_append(client: Client) -> None:
    await client.create("source")
    await client.append("source", b"one ", b"hello")
    created = await client.fork("fork", "source", 1, 3)
    assert place(created.next_offset) == (2, 7)
    assert await client.read("fork") == b"one hel"
    await client.append("fork", b"p!")
    assert await client.read("fork") == b"one help!"


@pytest.mark.whole_bodies
async def test_a_body_follows_the_part(client: Client) -> None:
    await client.create("source", b"hello")
    await client.fork("fork", "source", 0, 3, b"XY")
    assert await client.read("fork") == b"helXY"


@pytest.mark.whole_bodies
async def test_sub_offsets_compose(client: Client) -> None:
    await client.create("0", b"abcdef")
    await client.fork("1", "0", 0, 4)
    await client.fork("2", "1", 0, 2)
    assert await client.read("1") == b"abcd"
    assert await client.read("2") == b"ab"
    await client.append("2", b"Z")
    assert await client.read("2") == b"abZ"


async def test_a_sub_offset_inside_of_inherited_data(client: Client) -> None:
    await client.create("root")
    await client.append("root", b"one ", b"twenty ", b"three ")
    await client.fork("middle", "root", body=b"four")
    await client.fork("leaf", "middle", 1, 3, b"!")
    assert await client.read("leaf") == b"one twe!"


@pytest.mark.whole_bodies
async def test_a_sub_offset_counts_messages_in_json(client: Client) -> None:
    await client.create("source", b'[1,[2,"x,y"],{"a":[3]},4]', "application/json")
    created = await client.fork("fork", "source", 0, 3)
    assert place(created.next_offset) == (1, 3)
    assert await client.read("fork") == b'[1,[2,"x,y"],{"a":[3]}]'
    await client.fork("deeper", "fork", 0, 2)
    assert await client.read("deeper") == b'[1,[2,"x,y"]]'


@pytest.mark.whole_bodies
async def test_a_whole_append_may_be_taken(client: Client) -> None:
    await client.create("source", b"hello")
    assert (await client.fork("fork", "source", 0, 5)).new
    assert await client.read("fork") == b"hello"


# Inside of a slot

SHARED = {
    "text": ("text/plain", [b"one ", b"two ", b"three ", b"four "]),
    "json": ("application/json", [b"[1,2]", b"[[3]]", b"[4,5,6]", b"7"]),
}


@pytest.mark.parametrize(("content_type", "contents"), SHARED.values(), ids=SHARED.keys())
async def test_a_fork_begins_at_any_append_of_a_slot(
    data: Path, clock: Clock, content_type: str, contents: list[bytes]
) -> None:
    mode = Config(content_type, 0).mode
    stored = [content(mode, body)[0] for body in contents]
    forks: dict[str, tuple[int, list[bytes]]] = {}
    """How many appends of the source each has, and all of its own."""

    async def check(client: Client) -> None:
        for path, (number, own) in forks.items():
            for begin, offset in enumerate(offsets[: number + 1]):
                (view,) = await client.views(path, offset)
                assert list(view.bodies) == [*stored[begin:number], *own]

    async with serving(data, clock) as streams:
        client = Client(streams)
        offsets = [(await client.create("source", content_type=content_type)).next_offset]
        shared = await client.together("source", *contents, content_type=content_type)
        offsets += [each.next_offset for each in shared]
        assert [place(offset)[0] for offset in offsets] == [0, 0, 0, 0, 1]
        for number, offset in enumerate(offsets):
            path = f"fork {number}"
            created = await client.fork(path, "source", offset)
            assert place(created.next_offset)[1] == place(offset)[1]
            assert not (await client.fork(path, "source", offset)).new
            forks[path] = number, []
            if number < len(contents):
                await client.fork(f"{path}, part", "source", offset, 1, contents[0])
                forks[f"{path}, part"] = number, [first(mode, stored[number]), stored[0]]
            for earlier in range(number + 1):
                await client.fork(f"{path}, {earlier}", path, offsets[earlier], body=contents[1])
                forks[f"{path}, {earlier}"] = earlier, [stored[1]]
        await streams.delete("source")
        await check(client)
    async with serving(data, clock, hot_bytes=0) as streams:
        await streams.sweep()
        await check(Client(streams))


def first(mode: Mode, body: bytes) -> bytes:
    """The first message, or byte, of a body."""
    return json_mode.split(body)[0] if mode is Mode.JSON else body[:1]


@pytest.mark.whole_bodies
async def test_an_offset_that_is_no_boundary_is_rounded_down(client: Client) -> None:
    await client.create("source")
    shared = await client.together("source", b"one ", b"two ", b"three ")
    slot, offset, epoch = parse(shared[0].next_offset)
    await client.fork("fork", "source", token(slot, offset + 2, epoch), 2)
    assert await client.read("fork") == b"one tw"
    await client.fork("whole", "source", token(slot, 99, epoch))
    assert await client.read("whole") == b"one two three "
    assert not (await client.fork("whole", "source", token(slot, 99, epoch))).new


@pytest.mark.whole_bodies
async def test_a_sub_offset_counts_from_the_append_at_the_offset(client: Client) -> None:
    await client.create("source")
    shared = await client.together("source", b"one ", b"two ")
    with pytest.raises(ForkOutOfRange, match="4 bytes"):
        await client.fork("fork", "source", shared[0].next_offset, 5)
    with pytest.raises(ForkOutOfRange, match="no append"):
        await client.fork("fork", "source", shared[1].next_offset, 1)
    await client.append("source", b"three ")
    await client.fork("fork", "source", shared[1].next_offset, 5)
    assert await client.read("fork") == b"one two three"


# What is not inherited


async def test_a_fork_does_not_inherit_producers(client: Client) -> None:
    await client.create("source")
    for seq in range(3):
        await client.produce("source", "p", 5, seq)
    await client.fork("fork", "source")
    accepted = await client.produce("fork", "p", 0, 0)
    assert accepted.new
    assert await client.read("fork") == b"p.5.0;p.5.1;p.5.2;p.0.0;"


async def test_a_fork_does_not_inherit_stream_seq(client: Client) -> None:
    await client.create("source")
    await client.append("source", b"x", seq="9")
    await client.fork("fork", "source")
    assert (await client.append("fork", b"y", seq="1")).new


async def test_a_fork_of_a_closed_stream_is_open(client: Client) -> None:
    await client.create("source", b"one ", closed=True)
    await client.fork("fork", "source")
    await client.append("fork", b"two")
    assert await client.read("fork") == b"one two"
    assert not (await client.views("fork"))[-1].closed


async def test_a_fork_of_a_stream_closed_by_a_bare_close(client: Client) -> None:
    await client.create("source", b"one ")
    await client.close("source")
    assert place((await client.fork("fork", "source")).next_offset) == (1, 4)
    await client.append("fork", b"two")
    assert await client.read("fork") == b"one two"


async def test_closing_one_leaves_the_other_open(client: Client) -> None:
    await client.create("source", b"one ")
    await client.fork("fork", "source")
    await client.fork("other", "source")
    await client.close("source")
    await client.append("fork", b"two")
    await client.close("fork")
    await client.append("other", b"zwei")
    with pytest.raises(StreamClosed):
        await client.append("source", b"x")
    with pytest.raises(StreamClosed):
        await client.append("fork", b"x")


async def test_a_fork_may_be_created_closed(client: Client) -> None:
    await client.create("source", b"one ")
    await client.fork("fork", "source", body=b"two", closed=True)
    views = await client.views("fork")
    assert views[-1].closed
    assert await client.read("fork") == b"one two"
    await client.append("source", b"three")


async def test_an_append_to_the_source_does_not_wake_a_forks_readers(client: Client) -> None:
    await client.create("source", b"one ")
    await client.fork("fork", "source")
    tail = await client.streams.access("fork")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    await client.append("source", b"two")
    await client.close("source")
    await asyncio.sleep(0.05)
    assert not reading.done()
    await client.append("fork", b"zwei")
    assert b"".join((await ended(reading)).bodies) == b"zwei"


async def test_a_forks_timestamps_never_decrease(client: Client, clock: Clock) -> None:
    """Also across the fork: a search by time goes through the inherited slots, too."""
    clock.pass_s(60)
    source = await client.create("source", b"x")
    clock.pass_s(-30)
    created = await client.fork("fork", "source", body=b"y")
    assert created.state.written_at >= source.state.written_at


# What a fork may not be


REFUSED: dict[str, tuple[dict[str, Any], type[TailraceError]]] = {
    "beyond the tail": ({"at": 3}, ForkOutOfRange),
    "far beyond": ({"at": 9999999999999999}, ForkOutOfRange),
    "sub-offset larger than the append": ({"at": 0, "sub_offset": 4}, ForkOutOfRange),
    "sub-offset at the tail": ({"at": 2, "sub_offset": 1}, ForkOutOfRange),
    "sub-offset at the default tail": ({"sub_offset": 1}, ForkOutOfRange),
    "another type": ({"content_type": "text/html"}, ContentTypeConflict),
}


@pytest.mark.parametrize(("request_", "error"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_fork_that_is_refused_leaves_nothing_behind(
    client: Client, request_: dict[str, Any], error: type[TailraceError]
) -> None:
    await client.create("source")
    await client.append("source", b"one", b"two")
    with pytest.raises(error):
        await client.fork("fork", "source", **request_)
    assert await client.status("fork") == "missing"
    await client.streams.delete("source")
    assert await client.status("source") == "missing", "a reference was left behind"


async def test_no_part_of_nothing(client: Client) -> None:
    await client.create("source")
    with pytest.raises(ForkOutOfRange):
        await client.fork("fork", "source", 0, 1)


async def test_a_sub_offset_beyond_the_messages(client: Client) -> None:
    await client.create("source", b"[1,2]", "application/json")
    with pytest.raises(ForkOutOfRange):
        await client.fork("fork", "source", 0, 3)


async def test_a_missing_source(client: Client) -> None:
    with pytest.raises(StreamNotFound, match="source"):
        await client.fork("fork", "source")


async def test_a_stream_is_no_fork_of_itself(client: Client) -> None:
    with pytest.raises(StreamNotFound):
        await client.fork("a", "a")
    await client.create("a", b"x")
    with pytest.raises(StreamConflict):
        await client.fork("a", "a", content_type="text/plain")


async def test_a_fork_over_another_stream(client: Client) -> None:
    await client.create("source", b"x")
    await client.create("taken", b"y")
    with pytest.raises(StreamConflict):
        await client.fork("taken", "source", content_type="text/plain")
    await client.streams.delete("source")
    assert await client.status("source") == "missing"
    assert await client.read("taken") == b"y"


@pytest.mark.whole_bodies
async def test_the_same_fork_again(client: Client) -> None:
    await client.create("source", b"one", ttl=60)
    await client.fork("fork", "source", 0, 2, b"body")
    same: list[dict[str, Any]] = [
        {"at": 0, "sub_offset": 2},
        {"at": None, "sub_offset": 2},
        {"at": 0, "sub_offset": 2, "content_type": "text/plain"},
        {"at": 0, "sub_offset": 2, "ttl": 60},
        {"at": 0, "sub_offset": 2, "body": b"another"},
    ]
    for again in same:
        assert not (await client.fork("fork", "source", **again)).new
    different: list[dict[str, Any]] = [
        {"at": 0, "sub_offset": 1},
        {"at": 1, "sub_offset": 2},
        {"at": 0, "sub_offset": 2, "ttl": 61},
        {"at": 0, "sub_offset": 2, "closed": True},
    ]
    for other in different:
        with pytest.raises(StreamConflict):
            await client.fork("fork", "source", **other)
    assert await client.read("fork") == b"onbody"


async def test_a_fork_exists_again_even_when_its_source_is_gone(client: Client) -> None:
    await client.create("source", b"one")
    await client.fork("fork", "source")
    await client.streams.delete("source")
    assert not (await client.fork("fork", "source")).new


# Deleting


async def test_a_source_with_forks_is_gone_but_readable_through_them(client: Client) -> None:
    await client.create("source", b"one ")
    await client.fork("fork", "source", body=b"two")
    await client.streams.delete("source")
    acts: dict[str, Callable[[], Any]] = {
        "find": lambda: client.streams.find("source"),
        "read": lambda: client.read("source"),
        "append": lambda: client.append("source", b"x"),
        "close": lambda: client.close("source"),
        "close by a producer": lambda: client.streams.append(
            "source", Append(b"", None, True, None, Producer("p", 0, 0))
        ),
        "delete": lambda: client.streams.delete("source"),
    }
    for act in acts.values():
        with pytest.raises(StreamGone):
            await act()
    with pytest.raises(StreamConflict):
        await client.create("source", b"x")
    with pytest.raises(StreamConflict):
        await client.fork("second", "source")
    assert await client.status("second") == "missing"
    assert await client.read("fork") == b"one two"
    await client.append("fork", b" three")
    await client.fork("third", "fork", 1)
    assert await client.read("third") == b"one "


async def test_a_reader_of_a_deleted_source_gets_gone(client: Client) -> None:
    await client.create("source", b"one")
    await client.fork("fork", "source")
    reading = await begun(client.streams.follow(await client.streams.access("source"), 1, 30))
    await client.streams.delete("source")
    with pytest.raises(StreamGone):
        await ended(reading)


async def test_the_last_fork_takes_its_gone_source_with_it(client: Client) -> None:
    await client.create("source", b"one")
    await client.fork("first", "source")
    await client.fork("second", "source")
    await client.streams.delete("source")
    await client.streams.delete("first")
    assert await client.status("source") == "gone"
    assert await client.read("second") == b"one"
    await client.streams.delete("second")
    assert await client.status("second") == "missing"
    assert await client.status("source") == "missing"
    assert (await client.create("source", b"new")).new
    assert await client.read("source") == b"new"


async def test_deleting_all_forks_leaves_a_live_source(client: Client) -> None:
    await client.create("source", b"one ")
    await client.fork("fork", "source")
    await client.streams.delete("fork")
    await client.append("source", b"two")
    assert await client.read("source") == b"one two"
    await client.streams.delete("source")
    assert await client.status("source") == "missing"


async def test_deleting_the_middle_of_a_chain(client: Client) -> None:
    await client.create("root", b"1")
    await client.fork("middle", "root", body=b"2")
    await client.fork("leaf", "middle", body=b"3")
    await client.streams.delete("middle")
    assert await client.status("middle") == "gone"
    assert await client.read("leaf") == b"123"
    assert await client.read("root") == b"1"
    await client.append("root", b"x")
    await client.streams.delete("root")
    assert await client.status("root") == "gone"
    assert await client.read("leaf") == b"123"
    await client.streams.delete("leaf")
    for path in ("root", "middle", "leaf"):
        assert await client.status(path) == "missing"


async def test_a_fork_inside_of_inherited_data_keeps_its_whole_line(client: Client) -> None:
    """It reads only the root's data, but the middle is its source."""
    await client.create("root")
    await client.append("root", b"1", b"2")
    await client.fork("middle", "root", body=b"3")
    await client.fork("leaf", "middle", 1)
    await client.streams.delete("middle")
    await client.streams.delete("root")
    await client.streams.sweep()
    assert await client.status("middle") == "gone"
    assert await client.status("root") == "gone"
    assert await client.read("leaf") == b"1"


async def test_forks_read_on_after_a_restart_and_a_sweep(data: Path, clock: Clock) -> None:
    async with serving(data, clock) as streams:
        client = Client(streams)
        await client.create("root", b"1")
        await client.fork("middle", "root", body=b"22", sub_offset=0)
        await client.fork("leaf", "middle", 1, 1, b"3")
        await streams.delete("root")
        await streams.delete("middle")
        await streams.sweep()
    async with serving(data, clock, hot_bytes=0) as streams:
        client = Client(streams)
        await streams.sweep()
        assert await client.read("leaf") == b"123"
        assert await client.status("middle") == "gone"
        await streams.delete("leaf")
        assert await client.status("root") == "missing"


# Everything at once


@pytest.mark.parametrize("seed", range(2))
async def test_a_tree_of_forks_reads_like_independent_copies(
    data: Path, clock: Clock, seed: int
) -> None:
    await forks_are_copies(data, clock, seed)


async def forks_are_copies(data: Path, clock: Clock, seed: int) -> None:
    """Random forks, appends, deletions and restarts, compared with lists of bodies."""
    chance = random.Random(seed)
    settings = {
        "chunk_bytes": chance.choice([1, 5, 20, 1 << 20]),
        "hot_bytes": chance.choice([0, 1_000, 1 << 20]),
        "inline_bytes": chance.choice([2, 1 << 20]),
    }
    expected: dict[str, list[bytes]] = {"s0": []}
    live = {"s0"}

    async def act(client: Client) -> None:
        path = chance.choice(sorted(live))
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                body = b"%d" % chance.randrange(10**6) * chance.randint(1, 3)
                await client.append(path, body)
                expected[path].append(body)
            case 4 | 5 | 6:
                await fork(client, path)
            case 7 if len(live) > 3:
                await client.streams.delete(path)
                live.discard(path)
            case 8:
                await client.streams.sweep()
            case _:
                await check(client, path)

    async def fork(client: Client, path: str) -> None:
        inherited = expected[path]
        at = chance.randint(0, len(inherited))
        part = b""
        if at < len(inherited) and chance.random() < 0.4:
            part = inherited[at][: chance.randint(1, len(inherited[at]))]
        body = b"<%d>" % chance.randrange(100) if chance.random() < 0.5 else b""
        name = f"s{len(expected)}"
        await client.fork(name, path, at, len(part), body)
        expected[name] = [*inherited[:at], *(each for each in (part, body) if each)]
        live.add(name)

    async def check(client: Client, path: str) -> None:
        bodies = expected[path]
        n = chance.randint(0, len(bodies))
        assert await client.read(path, n) == b"".join(bodies[n:])
        tail = await client.streams.access(path)
        assert place(tail.committed.next_offset(0)) == (len(bodies), sum(map(len, bodies)))

    for _ in range(3):
        async with serving(data, clock, **settings) as streams:
            client = Client(streams)
            if await client.status("s0") == "missing" and len(expected) == 1:
                await client.create("s0")
            for _ in range(60):
                await act(client)
            for path in sorted(live):
                await check(client, path)
    assert len(expected) > 20


async def test_forks_of_one_source_at_the_same_time(client: Client) -> None:
    await client.create("source", b"one ")
    await asyncio.gather(*(client.fork(f"f{n}", "source", body=b"%d" % n) for n in range(20)))
    for n in range(20):
        assert await client.read(f"f{n}") == b"one %d" % n


async def test_forks_and_the_deletion_of_their_source_at_the_same_time(client: Client) -> None:
    for round_ in range(5):
        await client.create("source", b"one ")
        paths = [f"{round_}.{n}" for n in range(8)]
        work = [client.fork(path, "source") for path in paths]
        await asyncio.gather(*work[:4], client.streams.delete("source"), *work[4:],
                             return_exceptions=True)  # fmt: skip
        made = [path for path in paths if await client.status(path) == "there"]
        assert await client.status("source") == ("gone" if made else "missing")
        for path in made:
            assert await client.read(path) == b"one "
            await client.streams.delete(path)
        assert await client.status("source") == "missing"


async def test_a_source_that_memory_forgot_can_be_forked(data: Path, clock: Clock) -> None:
    async with serving(data, clock, open_streams=2) as streams:
        client = Client(streams)
        await client.create("source", b"one ")
        for n in range(5):
            await client.create(f"other{n}")
            await client.fork(f"fork{n}", "source", body=b"%d" % n)
        for n in range(5):
            assert await client.read(f"fork{n}") == b"one %d" % n
