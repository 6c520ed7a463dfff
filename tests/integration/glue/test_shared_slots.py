"""Appends that share slots become the same segments and the same rows as appends that do not."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.table import MemoryTable
from glue_jobs.compaction.build_segments import CELLS, Rules, _build_segment
from glue_jobs.exporting.messages import messages
from glue_jobs.shared.workers import Backend, Row, arrow_schema
from tailrace.log.append import Append, decide
from tailrace.log.slots import appends, merge, share
from tailrace.log.state import Config, Entry, Part, Producer
from tailrace.segments.format import Parts, Record, Trailer, pack, read_index, seal
from tailrace.segments.merge import Grid
from tailrace.store.dynamodb.layout import entry_item, entry_of
from tailrace.store.dynamodb.table import Table
from tests.integration.glue.lab import BYTES, JSON, TEXT, cell_row

CHAIN: Final = 0x1F00000000000001
CHUNK_BYTES: Final = 32
RULES: Final = Rules(Grid(1 << 60, 1 << 60), 1, 1, 0)

DATA: Final = {
    JSON: (b"1", b'{"a":[1,2]}', b' [2, "x,y", {}] ', b'"\\u00e9"'),
    TEXT: (b"one", "été".encode(), b"\xff", b"a longer line of text"),
    BYTES: (b"\x00", b"\xff\xfe", bytes(range(50))),
}


class Sent(NamedTuple):
    """An append, and when it came."""

    request: Append
    at: int


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, list[list[Sent]]]:
    """A content type, and appends that share slots; those of a slot came at one time."""
    kind = draw(st.sampled_from([*DATA]))
    counts, made, at = dict[str, int](), [], 0
    for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=8)):
        at += draw(st.sampled_from((0, 1, 50_000_000)))
        batch = []
        for _ in range(size):
            by, producer = draw(st.sampled_from((None, "p", "ä"))), None
            if by is not None:
                counts[by] = counts.get(by, -1) + 1
                producer = Producer(by, 0, counts[by])
            body = draw(st.sampled_from(DATA[kind]))
            batch.append(Sent(Append(body, kind, producer=producer), at))
        made.append(batch)
    return kind, made


def filled(config: Config, slots: Sequence[Sequence[Sent]]) -> Iterator[Entry]:
    """The entries of appends, as a store that batches them writes them."""
    state = config.initial_state()
    for batch in slots:
        entries: list[Entry] = []
        for request, at in batch:
            entry = decide(config, entries[-1].state if entries else state, request, at).entry
            assert entry is not None
            entries.append(share(entry) if entries else entry)
        yield merge(state, entries)
        state = entries[-1].state


def compacted(config: Config, entries: Sequence[Entry], key: str | None = None) -> Parts | Row:
    """Compact entries to a segment, or to a refusal. `key`: of the object with the last body."""
    bucket = MemoryBucket(random.Random(0), latency=(0.0, 0.0))
    table = MemoryTable(random.Random(0), latency=(0.0, 0.0), lag=0.0)
    items = [entry_item(CHAIN, entry, "", None) for entry in entries]
    if key is not None:
        items[-1] = entry_item(CHAIN, entries[-1], "", key)
    rows = [cell_row(CHAIN, config.mode, entry_of(item)) for item in items]
    cell = pa.Table.from_pylist(rows, arrow_schema(CELLS))

    async def build() -> Parts | Row | None:
        if key is not None:
            await bucket.put(key, entries[-1].body or b"")
        return await _build_segment(Backend(Table(table.connect(), "t"), bucket), cell, RULES)

    result = asyncio.run(build())
    assert result is not None
    return result


def segment(config: Config, slots: Sequence[Sequence[Sent]]) -> Parts:
    entries = list(filled(config, slots))
    parts = compacted(config, entries)
    assert isinstance(parts, Parts)
    records = [
        Record(entry.slot, offset, size, entry.state.written_at, body, author)
        for entry in entries
        for body, offset, size, author in appends(entry.body or b"", entry.parts, entry.state)
    ]
    assert pack(parts) == seal(CHAIN, config.mode, (0, 0), records), "as the embedded store does"
    return parts


def exported(parts: Parts) -> list[dict[str, Any]]:
    tables = [table for _, table in messages(parts, "a", "x/y", 0, 1 << 60)]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


def read(parts: Parts) -> list[bytes]:
    """The data from the beginning, and from after each append, to the end."""
    whole, counts = pack(parts), parts.counts or [1] * len(parts.pauses)
    trailer = Trailer.read(whole)
    index = read_index(whole[trailer.data_bytes :][: trailer.index_bytes], trailer.index_checksum)
    places = [slot for slot, count in enumerate(counts) for _ in range(count)]
    ends = [0, *accumulate(parts.steps)]
    reads = []
    for slot, after in zip(places, ends, strict=False):
        bodies: list[bytes] = []
        while slot < parts.stop:
            boundary = (index.start_of(slot)[1] // CHUNK_BYTES + 1) * CHUNK_BYTES
            part = index.range(slot, parts.stop, boundary, after)
            bodies += index.split(part, whole, 0)
            slot, after = part.slot, 0
        reads.append(b"|".join(bodies))
    return reads


@settings(max_examples=40, deadline=None, derandomize=True)
@given(batches())
def test_sharing_slots_changes_no_row_and_no_read(drawn: tuple[str, list[list[Sent]]]) -> None:
    kind, slots = drawn
    config = Config(kind, 0)
    shared = segment(config, slots)
    single = segment(config, [[sent] for batch in slots for sent in batch])
    assert [len(batch) for batch in slots] == list(shared.counts)
    assert (shared.data, shared.lengths, shared.steps) == (
        single.data, single.lengths, single.steps,
    )  # fmt: skip
    assert list(shared.producers()) == list(single.producers())
    assert read(shared) == read(single)
    rows, others = exported(shared), exported(single)
    places = [(row.pop("slot"), row.pop("message")) for row in rows]
    for row in others:
        del row["slot"], row["message"]
    assert rows == others
    by_slot = groupby(places, lambda place: place[0])
    assert places == [(slot, i) for slot, of in by_slot for i, _ in enumerate(list(of))]


TOGETHER: Final = [Sent(Append(b"[1,2]", JSON), 0), Sent(Append(b"3", JSON), 0)]


def test_a_slot_that_does_not_consist_of_its_appends_is_refused() -> None:
    first, last = filled(Config(JSON, 0), [TOGETHER, TOGETHER])
    for parts in ([Part(3, 2), Part(2, 1)], [Part(3, 2), Part(1, 2)], [Part(3, 2)]):
        refused = compacted(Config(JSON, 0), [first, last._replace(parts=parts)])
        assert isinstance(refused, dict)
        assert refused["refused"] == f"slot 1 of {CHAIN:016x} does not consist of its appends"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_large_body_is_verified_and_taken_apart(damaged: bool) -> None:
    entries = list(filled(Config(JSON, 0), [TOGETHER, TOGETHER]))
    key = f"bodies/{CHAIN:016x}/00-{zlib.crc32(b'' if damaged else b'1,23'):08x}"
    result = compacted(Config(JSON, 0), entries, key)
    if damaged:
        assert isinstance(result, dict)
        assert f"the object {key} has another checksum" in result["refused"]
    else:
        assert isinstance(result, Parts)
        assert result.data == b"1,2,3,1,2,3"
