"""Segments of chains in the table: their manifests are items, their objects are in the bucket.

An object is there before its manifest, and a name says up to which slot its chain is in segments.
Both change in one transaction, so that segments of a chain follow each other without a hole and
without an overlap, whoever commits them and however often.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from tailrace.aws.client.failures import TransactionCanceled
from tailrace.log.state import Stream
from tailrace.segments.format import BadSegment, Parts, Trailer, pack
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import actions, layout
from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.table import Table


class TableManifests:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def covering(self, chain: int, slot: int) -> Manifest | None:
        while True:
            found = await last_before(self._table, chain, slot)
            if found is None or found.stop > slot:
                return found
            # A query may see a merge half done, what it removes without what it puts; a get sees
            # all or nothing of it.
            item = await self._table.get(layout.segment_key(chain, found.first))
            if item is not None and item["k"]["S"] == found.key:
                return None


async def last_before(table: Table, chain: int, slot: int | None = None) -> Manifest | None:
    """The last segment of a chain; of those that begin at `slot` or before it."""
    end = layout.LAST_SLOT if slot is None else layout.slot_text(slot)
    item = await table.last(layout.segment_partition(chain), layout.slot_text(0), end)
    return None if item is None else layout.manifest_of(item)


async def segments_from(table: Table, chain: int, slot: int) -> Sequence[Manifest]:
    """The segments of a chain in order, from the one with `slot` on."""
    covering = await last_before(table, chain, slot)
    found = [covering] if covering is not None and covering.stop > slot else []
    return [*found, *await all_segments(table, chain, slot + 1)]


async def all_segments(table: Table, chain: int, begin: int | None = 0) -> Sequence[Manifest]:
    """The segments of a chain in order, those that begin at slot `begin` or after it."""
    found: list[Manifest] = []
    while begin is not None:
        page = await table.query(
            layout.segment_partition(chain), layout.slot_text(begin), layout.LAST_SLOT
        )
        found += map(layout.manifest_of, page.items)
        begin = None if page.more is None else found[-1].first + 1
    return found


async def upload(bucket: Bucket, parts: Parts, at: int, level: int = 0) -> Manifest:
    """Put a segment into the bucket: its manifest, which is not part of the chain yet."""
    segment = pack(parts)
    # A key that nobody else has: what an earlier run left under its own may be swept any time.
    key = f"segments/{parts.chain:016x}/{parts.first:016d}-{secrets.token_hex(12)}"
    await bucket.put(key, segment)
    trailer = Trailer.read(segment)
    return Manifest(
        parts.chain, parts.first, parts.stop, key, trailer.data_bytes, trailer.index_bytes,
        trailer.index_checksum, at, level, parts.size, *parts.end,
    )  # fmt: skip


async def check(table: Table, stream: Stream, manifest: Manifest, offset: int) -> int:
    """By how many slots history is ahead of a segment, with `offset` before its first slot.

    0: it is the next of its chain. `BadSegment` when it begins at the right slot, but otherwise
    does not follow the last one."""
    last = await last_before(table, stream.id)
    end = stream.config.base if last is None else (last.stop, last.offset, last.size)
    if manifest.first > end[0]:
        # Retention may have taken what was between them: then nothing is left to compare with.
        item = await table.get(layout.name_key(stream.path))
        name = None if item is None else layout.name_of(item)
        if name is not None and name.stream.id == stream.id and name.earliest > end[0]:
            return name.archived - manifest.first
    if manifest.first == end[0] and (offset, manifest.begin) != end[1:]:
        raise BadSegment(
            f"slot {manifest.first} of {stream.id:016x} begins at offset {offset} and size"
            f" {manifest.begin}, but history ends at {end[1]} and {end[2]}"
        )
    return end[0] - manifest.first


async def commit(table: Table, stream: Stream, manifest: Manifest) -> bool:
    """Add a segment to its chain, whose last one it follows. False: it is not the next any more.

    The entries stay in the table until `trimming` lets them go."""
    first = stream.config.base[0] if manifest.first == stream.config.base[0] else None
    try:
        await table.transact(
            [
                actions.put_new(layout.manifest_item(manifest)),
                actions.advance(stream, "w", manifest.first, manifest.stop, absent=first),
            ]
        )
    except TransactionCanceled as error:
        taken = error.reasons[0].item
        return taken is not None and taken["k"]["S"] == manifest.key
    return True


async def replace(table: Table, olds: Sequence[Manifest], merged: Manifest, due: int) -> bool:
    """Put a merged segment in the place of those it holds, whose objects go when `due`.

    False: they are not what they were."""
    parts = [actions.replace_segment(olds[0], layout.manifest_item(merged))]
    parts += [actions.remove_segment(old) for old in olds[1:]]
    parts += [actions.claim(old.key, due) for old in olds]
    try:
        await table.transact(parts)
    except TransactionCanceled as error:
        taken = error.reasons[0].item
        return taken is not None and taken["k"]["S"] == merged.key
    return True
