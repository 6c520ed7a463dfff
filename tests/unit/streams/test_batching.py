"""The same history in slots of several appends and in slots of one: read by offset, it is the same.

Requests that come at once share slots; one after the other each has its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tailrace.errors import StreamClosed, TailraceError
from tailrace.log.append import Append
from tailrace.log.content import join_bodies
from tailrace.log.offsets import parse, token
from tailrace.log.state import Producer
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import View
from tests.support.streams import START, Client, Clock, place, serving

PATH = "a"
GROUPS = 10

KINDS = {
    "text": ("text/plain", [b"x", b"yy", b"z" * 30, b"w" * 1_500]),
    "json": (
        "application/json",
        [b"1", b"[2,3]", b'{"a":[4,5]}', b"[[6],[7,8],9]", b'"%b"' % (b"w" * 1_500), b"[]", b"{"],
    ),
}  # fmt: skip
"""Content types, each with some bodies; the longest is a file of its own."""

MEMORY = {"hot": (0, 1 << 20), "partly hot": (1, 2_000), "table": (2, 0)}
"""A seed, and how much of what was written stays in memory."""


def history(seed: int, content_type: str, contents: Sequence[bytes]) -> list[list[Append]]:
    """Groups of requests: plain ones, producers with their retries, Stream-Seq, and a close."""
    chance = random.Random(seed)
    sent = [-1] * 4
    groups: list[list[Append]] = []
    for group in range(GROUPS):
        requests = []
        for _ in range(chance.choice([1, 2, 5, 20])):
            request = Append(chance.choice(contents), content_type)
            match chance.randrange(6):
                case 0 | 1:
                    who = chance.randrange(len(sent))
                    sent[who] += chance.choice([0, 1, 1, 1])
                    seq = max(0, sent[who])
                    request = request._replace(producer=Producer(f"p{who}", 0, seq))
                case 2:
                    request = request._replace(seq=f"{group:03d}")
            requests.append(request)
        groups.append(requests)
    closing = [None, b"", contents[1]][seed % 3]
    if closing is not None:
        last = groups[-1]
        last.insert(len(last) // 2, Append(closing, content_type, close=True))
    return groups


class Found(NamedTuple):
    """All that readers see, by offset."""

    rest: bytes
    """The data from there on."""
    messages: list[tuple[int, bytes]]
    end: int
    closed: bool


async def apply(
    client: Client, clock: Clock, groups: Sequence[Sequence[Append]], *, at_once: bool
) -> tuple[list[Any], dict[int, str]]:
    """Send the requests; return the outcome of each, and the tokens they were told by offset."""
    answers: list[Any] = []
    for requests in groups:
        work = [client.streams.append(PATH, request) for request in requests]
        if at_once:
            answers += await asyncio.gather(*work, return_exceptions=True)
        else:
            for each in work:
                answers += await asyncio.gather(each, return_exceptions=True)
        clock.pass_s(1)
    outcomes: list[Any] = []
    offsets: dict[int, str] = {}
    for answer in answers:
        if isinstance(answer, StreamClosed):
            outcomes.append((StreamClosed, place(answer.next_offset)[1]))
        elif isinstance(answer, TailraceError):
            outcomes.append((type(answer), str(answer)))
        elif answer.new:
            outcomes.append((answer.offset, answer.producer_seq))
            offsets[answer.offset] = answer.next_offset
        else:
            # It tells where the stream ends by now.
            outcomes.append(("duplicate", answer.producer_seq))
    return outcomes, offsets


async def found(client: Client, offsets: dict[int, str]) -> dict[Any, Found]:
    """Read from every offset, and from inside of each append; from the last bytes; from a time."""
    streams = client.streams
    seen: dict[Any, Found] = {}
    known = sorted(offsets)
    for offset, following in zip(known, [*known[1:], known[-1] + 1], strict=True):
        slot, _, epoch = parse(offsets[offset])
        for begin in {offset, (offset + following) // 2}:
            view = await streams.read(PATH, parse(token(slot, begin, epoch)))
            seen[begin] = await followed(client, view)
    for count in (0, 1, 2, 3, 7, 50, 1_000_000):
        seen["last", count] = await followed(client, await streams.read_last(PATH, count))
    for group in range(GROUPS + 1):
        view = await streams.read_since(PATH, START + group * 1000)
        seen["since", group] = await followed(client, view)
    return seen


async def followed(client: Client, view: View) -> Found:
    views = [view]
    while not views[-1].up_to_date:
        views.append(await client.streams.read(PATH, parse(views[-1].next_offset)))
    mode = view.tail.stream.config.mode
    data = join_bodies(mode, [body for each in views for body in each.bodies])
    messages = (
        [message for each in views for message in each.messages()] if data[:1] == b"[" else []
    )
    return Found(data, messages, views[-1].offset, views[-1].closed)


@pytest.mark.parametrize(("seed", "hot_bytes"), MEMORY.values(), ids=MEMORY.keys())
@pytest.mark.parametrize(("content_type", "contents"), KINDS.values(), ids=KINDS.keys())
async def test_a_history_reads_the_same_however_it_was_batched(
    data: Path, content_type: str, contents: list[bytes], seed: int, hot_bytes: int
) -> None:
    groups = history(seed, content_type, contents)
    results = []
    for at_once in (False, True):
        clock, folder = Clock(), data.with_name(f"{at_once}")
        settings = {
            "chunk_bytes": 64, "hot_bytes": hot_bytes, "inline_bytes": 1024,
            "segment_max_messages": 3,
        }  # fmt: skip
        async with serving(folder, clock, **settings) as streams:
            client = Client(streams)
            created = await client.create(PATH, content_type=content_type)
            outcomes, offsets = await apply(client, clock, groups, at_once=at_once)
            offsets[0] = created.next_offset
            slots = (await streams.find(PATH)).committed.slot
            seen = await found(client, offsets)
            assert isinstance(streams.store, SqliteStore)
            assert (await streams.store.compact()).segments
            assert await found(client, offsets) == seen
        async with serving(folder, clock, **settings) as streams:
            assert await found(Client(streams), offsets) == seen
        results.append((outcomes, sorted(offsets), seen, slots))
    plain, batched = results
    assert batched[:3] == plain[:3]
    assert batched[3] < plain[3], "no slot has several appends"
