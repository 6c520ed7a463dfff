"""History of one stream, made step by step: a test decides what happens between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tailrace.log.content import length
from tailrace.log.slots import appends
from tailrace.log.state import Stream
from tailrace.segments.format import BadSegment, Record, seal, unpack
from tailrace.segments.merge import Grid, merges
from tailrace.segments.merge import merge as merge_parts
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import layout, segments, trimming
from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.layout import Name, Stored
from tailrace.store.dynamodb.table import Table

ENDLESS: Final = Grid(1 << 60, 1 << 60)
"""A grid of one cell."""


class Most(NamedTuple):
    """A segment ends at the first slot with which it has as many entries, or bytes."""

    entries: int
    bytes: int = 1 << 60


class Uploaded(NamedTuple):
    """An object that is in the bucket, and not yet part of its chain."""

    manifest: Manifest
    offset: int
    """Of the stream before the first slot."""


async def archive(
    table: Table, bucket: Bucket, stream: Stream, most: Most, now: int, grid: Grid = ENDLESS
) -> Manifest | None:
    """Put the next entries into a segment. None: they fill none, or somebody else was faster."""
    uploaded = await upload(table, bucket, stream, most, now, grid)
    return uploaded.manifest if uploaded and await commit(table, stream, uploaded) else None


async def upload(
    table: Table, bucket: Bucket, stream: Stream, most: Most, now: int, grid: Grid = ENDLESS
) -> Uploaded | None:
    name, last = await name_of(table, stream.path), await segments.last_before(table, stream.id)
    if name is None or name.stream.id != stream.id:
        return None
    n, offset, size = (last.stop, last.offset, last.size) if last else stream.config.base
    if n < name.earliest <= name.archived:
        # Retention has taken what was between; the next entry tells where it begins.
        item = await table.get(layout.slot_key(stream.id, name.archived))
        if item is None or not layout.entry_of(item).has_data:
            return None
        first = layout.entry_of(item)
        body, end, end_size, _ = next(appends(await _body(bucket, first), first.parts, first.state))
        n, size, offset = first.slot, end_size - len(body), end - length(stream.config.mode, body)
    if n != name.archived:
        return None  # The query has seen a transaction half done.
    entries = await _next(table, stream.id, n, size, most, grid)
    if entries is None:
        return None
    records = [
        Record(entry.slot, offset, size, entry.state.written_at, body, author)
        for entry in entries
        for body, offset, size, author in appends(
            await _body(bucket, entry), entry.parts, entry.state
        )
    ]
    segment = seal(stream.id, stream.config.mode, (offset, size), records)
    return Uploaded(await segments.upload(bucket, unpack(segment), now), offset)


async def commit(table: Table, stream: Stream, uploaded: Uploaded) -> bool:
    if await segments.check(table, stream, *uploaded):
        return False
    return await segments.commit(table, stream, uploaded.manifest)


async def merge(
    table: Table, bucket: Bucket, chain: int, grid: Grid, due: int
) -> Sequence[Manifest]:
    """Merge what the grid wants merged now; not yet what comes of that."""
    made = []
    for olds in merges(await segments.segments_from(table, chain, 0), grid):
        merged = await upload_merged(bucket, olds)
        if await segments.replace(table, olds, merged, due):
            made.append(merged)
    return made


async def upload_merged(bucket: Bucket, olds: Sequence[Manifest]) -> Manifest:
    parts = merge_parts([unpack(await bucket.get(old.key)) for old in olds])
    # Its slots were archived when the last of them were, and may go a grace period after that.
    at, level = max(old.committed_at for old in olds), max(old.level for old in olds)
    return await segments.upload(bucket, parts, at, level + 1)


async def trim(table: Table, path: str, now: int, grace: int) -> int:
    name = await name_of(table, path)
    return 0 if name is None else await trimming.trim(table, name, now, grace)


async def name_of(table: Table, path: str) -> Name | None:
    item = await table.get(layout.name_key(path))
    return None if item is None else layout.name_of(item)


async def _body(bucket: Bucket, entry: Stored) -> bytes:
    return entry.body if entry.object_key is None else await bucket.get(entry.object_key)


async def _next(
    table: Table, chain: int, first: int, size: int, most: Most, grid: Grid
) -> list[Stored] | None:
    """The entries of a segment that begins at `first`; never the last one of the chain."""
    entries: list[Stored] = []
    cell, n, end = grid.cell(first, size), first, size
    while True:
        page = await table.query(
            layout.chain_partition(chain), layout.slot_text(n), layout.LAST_SLOT
        )
        for entry in map(layout.entry_of, page.items):
            if entries and (
                len(entries) >= most.entries
                or end >= size + most.bytes
                or grid.cell(n, end) != cell
            ):
                return entries
            if not entry.has_data:
                return None
            if entry.slot != n:
                raise BadSegment(f"slot {n} of {chain:016x} is neither archived nor in the table")
            entries.append(entry)
            n, end = entry.slot + 1, entry.size
        if page.more is None:
            return None
