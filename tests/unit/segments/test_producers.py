"""The author of an entry is known from its segment, long after the entry has left the table."""

from __future__ import annotations

from pathlib import Path

from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.state import Producer
from tailrace.segments.format import unpack
from tailrace.settings import Settings
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams


async def test_the_embedded_store_keeps_producers_in_its_segments(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path), segment_max_messages=2)
    store = SqliteStore(settings)
    await store.open()
    streams = Streams(store, settings)
    till = [Producer("till", 2, seq) for seq in range(2)]
    authors = [None, till[0], Producer("shop", 0, 0), till[1], None, None, None]
    await streams.create("a", Create(content_type="text/plain"))
    for by in authors:
        await streams.append("a", Append(b"x", "text/plain", producer=by))
    assert (await store.compact()).segments == 3
    await store.close()
    files = (path for path in (tmp_path / "segments").rglob("*") if path.is_file())
    found = sorted((unpack(path.read_bytes()) for path in files), key=lambda parts: parts.first)
    assert [by for parts in found for by in parts.producers()] == authors[:6]
