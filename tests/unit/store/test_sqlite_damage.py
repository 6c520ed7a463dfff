"""Damaged files of the embedded store are not served, logged once, and counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tailrace.errors import DamagedData
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store import damage
from tailrace.store.damage import Damage
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams

BODIES = [b"a" * 3000, b"b" * 3000, b"c" * 3000, b"d" * 3000, b"e" * 3000]


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[100] ^= 1
    path.write_bytes(whole)


def tear(path: Path) -> None:
    os.truncate(path, 1000)


HARMS: dict[str, Callable[[Path], None]] = {"flipped": flip, "torn": tear, "missing": Path.unlink}


def settings(data: Path) -> Settings:
    """Bodies are files, and segments have two of them; nothing stays in memory."""
    return Settings(
        data=str(data), hot_bytes=0, inline_bytes=1024, chunk_bytes=1, segment_max_messages=2
    )


async def fill(data: Path, *, compact: bool = False) -> list[Path]:
    """Write a stream; return its files in the order of their slots."""
    store = SqliteStore(settings(data))
    await store.open()
    streams = Streams(store, settings(data))
    await streams.create("a", Create(content_type="text/plain"))
    for body in BODIES:
        await streams.append("a", Append(body, "text/plain"))
    if compact:
        await store.compact()
    await store.close()
    files = (data / ("segments" if compact else "bodies")).glob("*/*")
    return sorted(files, key=lambda path: int(path.name.partition("-")[0]))


async def read(streams: Streams, slots: Sequence[int]) -> list[bytes | None]:
    """The body of each slot; None where it is damaged."""
    seen: list[bytes | None] = []
    for slot in slots:
        try:
            seen.append((await streams.view("a", slot)).bodies[0])
        except DamagedData:
            seen.append(None)
    return seen


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize(
    ("compact", "lost"), [(False, {2}), (True, {2, 3})], ids=["body", "segment"]
)
async def test_damaged_data_is_not_served_and_the_rest_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str, compact: bool, lost: set[int]
) -> None:
    files = await fill(tmp_path, compact=compact)
    damaged = files[1 if compact else 2]
    HARMS[harm](damaged)
    store = SqliteStore(settings(tmp_path))
    await store.open()
    streams = Streams(store, settings(tmp_path))
    assert store.damaged == 0
    for _ in range(2):
        seen = await read(streams, range(5))
        assert seen == [None if slot in lost else body for slot, body in enumerate(BODIES)]
    assert store.damaged == 1
    [record] = caplog.records
    assert damaged.name in record.message
    assert str(tmp_path) not in record.message
    await store.close()


async def test_compaction_finds_damage_and_goes_on_with_other_streams(tmp_path: Path) -> None:
    flip((await fill(tmp_path))[0])
    store = SqliteStore(settings(tmp_path))
    await store.open()
    streams = Streams(store, settings(tmp_path))
    for name in ("0", "b"):
        await streams.create(name, Create(BODIES[0], "text/plain"))
        await streams.append(name, Append(BODIES[1], "text/plain"))
        await streams.append(name, Append(BODIES[2], "text/plain"))
    done = await store.compact()
    assert (done.segments, len(done.failed), store.damaged) == (2, 1, 1)
    await store.close()


def test_few_names_are_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(damage, "DAMAGED_OBJECTS", 3)
    found = Damage()
    for number in [*range(9), *range(9)]:
        found.note(DamagedData(str(number), f"file {number} is missing"))
    assert len(found) == len(caplog.records) == 3
