"""The last messages, what was appended since an instant, and appends at an expected offset, against
a list of messages."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import OffsetMismatch
from tailrace.log.append import Append
from tailrace.log.content import join_bodies
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import Position, parse
from tailrace.log.state import Producer
from tailrace.store.base import Compacting
from tailrace.streams import Streams, View
from tests.support.read_starts import JSON, check, check_forks, fill, messages
from tests.support.streams import Clock, serving

TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"

PLACES: dict[str, dict[str, Any]] = {
    "hot": {},
    "table": {"hot_bytes": 0},
    "cold": {"hot_bytes": 0, "segment_max_messages": 3},
    "small chunks": {"hot_bytes": 2000, "segment_max_messages": 5, "chunk_bytes": 1024},
}


def content(view: View) -> bytes:
    return join_bodies(view.tail.stream.config.mode, view.bodies)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [JSON, BYTES])
async def test_last_and_since_agree_with_a_list(tmp_path: Path, place: str, kind: str) -> None:
    clock, chance = Clock(), random.Random(f"{place} {kind}")
    async with serving(tmp_path / "data", clock, **PLACES[place]) as streams:
        model = await fill(streams, clock, "s", kind, chance)
        slot = (await streams.find("s")).committed.slot
        await streams.create("fork", Create(fork=ForkFrom("s", slot // 2)))
        inherited = (await streams.find("fork")).committed.offset
        assert isinstance(streams.store, Compacting)
        await streams.store.compact()
        await check(streams, "s", kind, model, clock)
        await check(streams, "fork", kind, model[:inherited], clock)
        await check_forks(streams, "s", kind, model, clock)


async def test_the_last_bytes_of_text_are_whole_characters(streams: Streams) -> None:
    await streams.create("s", Create("äöü".encode(), TEXT))
    found = [content(await streams.read_last("s", count)).decode() for count in range(7)]
    assert found == ["", "", "ü", "ü", "öü", "öü", "äöü"]


async def test_an_empty_stream_has_no_last_messages(streams: Streams) -> None:
    await streams.create("s", Create(b"", JSON))
    view = await streams.read_last("s", 5)
    assert (content(view), view.up_to_date) == (b"[]", True)


def at(offset: str) -> Position:
    return parse(offset)


async def test_an_append_happens_at_the_expected_offset_only(streams: Streams) -> None:
    created = await streams.create("s", Create(b"", JSON))
    first = await streams.append("s", Append(b"1", JSON, expected=at(created.next_offset)))
    with pytest.raises(OffsetMismatch) as failure:
        await streams.append("s", Append(b"2", JSON, expected=at(created.next_offset)))
    assert failure.value.next_offset == first.next_offset
    await streams.append("s", Append(b"2", JSON, expected=at(first.next_offset)))
    assert content(await streams.read_last("s", 9)) == b"[1,2]"


async def test_an_offset_of_another_stream_is_not_expected_by_chance(streams: Streams) -> None:
    created = await streams.create("s", Create(b"", JSON))
    slot, offset, epoch = at(created.next_offset)
    with pytest.raises(OffsetMismatch):
        await streams.append(
            "s", Append(b"1", JSON, expected=Position(slot, offset, epoch % 8999 + 1))
        )


async def test_a_retry_of_a_producer_wins_over_the_expected_offset(streams: Streams) -> None:
    created = await streams.create("s", Create(b"", JSON))
    request = Append(b"1", JSON, producer=Producer("p", 0, 0), expected=at(created.next_offset))
    assert (await streams.append("s", request)).new
    assert not (await streams.append("s", request)).new


async def test_of_many_writers_at_one_offset_exactly_one_wins(streams: Streams) -> None:
    offset = (await streams.create("s", Create(b"", JSON))).next_offset
    for turn in range(20):
        results = await asyncio.gather(
            *(
                streams.append("s", Append(b"%d" % turn, JSON, expected=at(offset)))
                for _ in range(8)
            ),
            return_exceptions=True,
        )
        losses = [each for each in results if isinstance(each, OffsetMismatch)]
        (won,) = [each for each in results if not isinstance(each, BaseException)]
        assert len(losses) == 7
        offset = won.next_offset
    view = await streams.read_last("s", 99)
    assert messages(JSON, [*view.bodies]) == [b"%d" % turn for turn in range(20)]
