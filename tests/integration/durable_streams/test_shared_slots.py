"""The same history in slots of one append and of two: every read by HTTP gives the same data."""

from __future__ import annotations

import random
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.app import Application
from tailrace.log.append import content
from tailrace.log.content import Mode, length, mode
from tailrace.log.offsets import parse, token
from tailrace.settings import Settings
from tailrace.store.base import Compacting
from tailrace.store.sqlite import store
from tailrace.store.sqlite.store import SqliteStore
from tests.support.events import parsed
from tests.support.splitting import SplittingStore, halve
from tests.support.wire import target

PATH = target("a")
APPENDS = 14
BODIES = {
    "text/plain": [b"x", b"yy", "ä€".encode(), b"line\nline" * 9, b"w" * 1_500],
    "application/octet-stream": [b"\0", b"\xff\xfe", bytes(range(90)), b"w" * 1_500],
    "application/json": [b"1", b"[2,3]", b'[[4],{"a":[5,6]},7]', b'["%b",8]' % (b"w" * 1_500)],
}
MEMORY = {"hot": 1 << 20, "partly hot": 2_000, "files": 0}
INLINE_BYTES = 1024
"""A larger body has a slot of its own."""
LIVE = ["", "long-poll", "sse", "many"]
END = 100
"""More answers than any read takes."""

Data = Any
"""A list of messages, or bytes."""


async def read(client: httpx.AsyncClient, offset: str, live: str, *, is_json: bool) -> Data:
    """Read from an offset to the end of the closed stream, in one mode."""
    data: Data = [] if is_json else b""
    for _ in range(END):
        if live == "many":
            slot, end, epoch = parse(offset)
            first = await client.get("/v1/read", params={"stream": "a"})
            name = first.json()["nextOffset"].partition(".")[0]
            position = f"{name}.{slot:x}.{end:x}.{epoch:x}"
            answer = await client.get("/v1/read", params={"stream": "a", "offset": position})
            [news] = answer.json()["streams"]
            piece = news.get("data", [] if is_json else "")
            if not is_json:
                piece = b64decode(piece) if "encoding" in news else piece.encode()
            offset, ended = news["nextOffset"], news["closed"]
        else:
            query = {"offset": offset, **({"live": live} if live else {})}
            answer = await client.get(PATH, params=query)
            if live == "sse":
                return data + events(answer, is_json=is_json)
            assert answer.status_code in (200, 204), answer.text
            piece = (answer.json() if is_json and answer.content else answer.content) or data[:0]
            offset = answer.headers["stream-next-offset"]
            ended = "stream-closed" in answer.headers
        data += piece
        if ended:
            return data
    raise AssertionError(f"from {offset} it does not end")


def events(answer: httpx.Response, *, is_json: bool) -> Data:
    """The data of all events up to the one that says that the stream is closed."""
    data: Data = [] if is_json else b""
    found = parsed(answer.content)
    assert found[-1].control.get("streamClosed") is True
    for event in found:
        if event.kind != "data":
            continue
        if is_json:
            data += httpx.Response(200, text=event.data).json()
        elif "stream-sse-data-encoding" in answer.headers:
            data += b64decode(event.data)
        else:
            data += event.data.encode()
    return data


def between(before: str, kind: Mode, body: bytes) -> list[str]:
    """The offset between the two appends that a body became, if it did."""
    slot, offset, epoch = parse(before)
    first, _ = halve(kind, content(kind, body)[0])
    return [token(slot, offset + length(kind, first), epoch)] if first else []


async def told(
    folder: Path, content_type: str, hot_bytes: int, *, is_split: bool
) -> dict[tuple[str, int, str], Data]:
    """Write a history; return what is read from each offset in each mode, and once compacted."""
    chance, headers = random.Random(1), {"content-type": content_type}
    is_json = content_type == "application/json"
    settings = Settings(
        data=str(folder), chunk_bytes=64, hot_bytes=hot_bytes, inline_bytes=INLINE_BYTES,
        segment_max_messages=3, long_poll_timeout=1,
    )  # fmt: skip
    application = Application(settings)
    await application.start()
    try:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
            created = await client.put(PATH, headers=headers)
            offsets = [created.headers["stream-next-offset"]]
            for _ in range(APPENDS):
                body = chance.choice(BODIES[content_type])
                answer = await client.post(PATH, content=body, headers=headers)
                if is_split and len(body) <= INLINE_BYTES:
                    offsets += between(offsets[-1], mode(content_type), body)
                offsets.append(answer.headers["stream-next-offset"])
            await client.post(PATH, headers={"stream-closed": "true"})
            seen: dict[tuple[str, int, str], Data] = {}
            kept = application.streams.store
            assert isinstance(kept, SplittingStore if is_split else SqliteStore)
            assert isinstance(kept, Compacting)
            for moment in ("before", "after"):
                for offset in offsets:
                    for live in LIVE:
                        place = moment, parse(offset).offset, live
                        seen[place] = await read(client, offset, live, is_json=is_json)
                if moment == "before":
                    assert (await kept.compact()).segments
            return seen
    finally:
        await application.stop()


@pytest.mark.parametrize("hot_bytes", MEMORY.values(), ids=MEMORY.keys())
@pytest.mark.parametrize("content_type", BODIES)
async def test_every_read_gives_the_same_whether_slots_are_shared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content_type: str,
    hot_bytes: int,
) -> None:
    plain = await told(tmp_path / "plain", content_type, hot_bytes, is_split=False)
    monkeypatch.setattr(store, "SqliteStore", SplittingStore)
    shared = await told(tmp_path / "shared", content_type, hot_bytes, is_split=True)
    assert {place: shared[place] for place in plain} == plain
    everything = plain["before", 0, ""]
    for (moment, offset, live), data in shared.items():
        assert data == everything[offset:], (moment, offset, live)
