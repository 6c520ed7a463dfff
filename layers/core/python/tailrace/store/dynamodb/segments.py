"""Segments of chains in the table: their manifests are items, their objects are in the bucket.

An object is there before its manifest, and a name says up to which slot its chain is in segments.
Both change in one transaction, so that segments of a chain follow each other without a hole and
without an overlap, however many jobs commit them, and however often.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from tailrace.aws.client.failures import TransactionCanceled
from tailrace.clock import Clock
from tailrace.errors import DamagedData
from tailrace.limits import TAIL_CACHE_SECONDS
from tailrace.log.state import Chunk, SlotInfo, Stream
from tailrace.segments.format import BadSegment, Parts, Trailer, pack
from tailrace.segments.reader import FindSegment, Manifest, R, SegmentReader, Steps
from tailrace.store.damage import Damage
from tailrace.store.dynamodb import actions, layout
from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.table import Table

CHAINS: Final = 10_000
"""Chains whose last segment is remembered."""


class BucketSegments:
    """Reads segments of all chains: their manifests from the table, their data from the bucket.

    Segments are merged and removed, and their objects stay for a grace period after that; a
    remembered manifest is trusted for far less."""

    def __init__(self, table: Table, bucket: Bucket, slots: int, clock: Clock) -> None:
        self._table = table
        self._bucket = bucket
        self._reader = SegmentReader(slots)
        self._clock = clock
        self.damage = Damage()
        self._used: dict[int, tuple[Manifest, int]] = {}
        """The segment of each chain that was read last, which a reader goes on in, and until when
        it is trusted."""

    async def read(
        self, chain: int, slot: int, stop: int, boundary: int, after: int = 0
    ) -> Chunk | None:
        """As `SegmentReader.read`."""
        return await self._run(self._reader.read(chain, slot, stop, boundary, after))

    async def start_of(self, chain: int, slot: int) -> tuple[int, int] | None:
        """As `SegmentReader.start_of`."""
        return await self._run(self._reader.start_of(chain, slot))

    async def end_of(self, chain: int, slot: int) -> tuple[int, int] | None:
        """As `SegmentReader.end_of`."""
        return await self._run(self._reader.end_of(chain, slot))

    async def slot_info(self, chain: int, slot: int) -> SlotInfo | None:
        """As `SegmentReader.slot_info`."""
        return await self._run(self._reader.slot_info(chain, slot))

    async def _run(self, steps: Steps[R]) -> R:
        """Answer the requests of a read until it returns."""
        answer: Manifest | bytes | None = None
        key = ""
        try:
            while True:
                request = steps.send(answer)
                if isinstance(request, FindSegment):
                    answer = await self._find(*request)
                else:
                    key = request.manifest.key
                    answer = await self._bucket.get(key, request.begin, request.end)
        except StopIteration as done:
            result: R = done.value
            return result
        except DamagedData as error:
            self.damage.note(error)
            raise
        except BadSegment as error:
            damage = DamagedData(key, str(error))
            self.damage.note(damage)
            raise damage from error

    async def _find(self, chain: int, slot: int) -> Manifest | None:
        now = self._clock()
        used, until = self._used.get(chain, (None, 0))
        if used is not None and used.first <= slot < used.stop and now < until:
            return used
        manifest = await covering(self._table, chain, slot)
        if manifest is not None:
            self._used[chain] = manifest, now + TAIL_CACHE_SECONDS * 1000
            if len(self._used) > CHAINS:
                del self._used[next(iter(self._used))]
        return manifest


async def covering(table: Table, chain: int, slot: int) -> Manifest | None:
    """Return the segment that holds `slot` of a chain."""
    while True:
        manifest = await last_before(table, chain, slot)
        if manifest is None or manifest.stop > slot:
            return manifest
        # A query may see a merge half done, what it removes without what it puts; a get sees all
        # or nothing of it.
        item = await table.get(layout.segment_key(chain, manifest.first))
        if item is not None and item["object_key"]["S"] == manifest.key:
            return None


async def last_before(table: Table, chain: int, slot: int | None = None) -> Manifest | None:
    """The last segment of a chain; of those that begin at `slot` or before it."""
    end = layout.LAST_SLOT if slot is None else layout.slot_text(slot)
    item = await table.last(layout.segment_partition(chain), layout.slot_text(0), end)
    return None if item is None else layout.manifest_of(item)


async def segments_from(table: Table, chain: int, slot: int) -> Sequence[Manifest]:
    """The segments of a chain in order, from the one with `slot` on."""
    covering = await last_before(table, chain, slot)
    first = [covering] if covering is not None and covering.stop > slot else []
    return [*first, *await all_segments(table, chain, slot + 1)]


async def all_segments(table: Table, chain: int, begin: int | None = 0) -> Sequence[Manifest]:
    """The segments of a chain in order, those that begin at slot `begin` or after it."""
    manifests: list[Manifest] = []
    while begin is not None:
        page = await table.query(
            layout.segment_partition(chain), layout.slot_text(begin), layout.LAST_SLOT
        )
        manifests += map(layout.manifest_of, page.items)
        begin = None if page.more is None else manifests[-1].first + 1
    return manifests


async def upload(bucket: Bucket, parts: Parts, committed_at: int, level: int = 0) -> Manifest:
    """Put a segment into the bucket: its manifest, which is not part of the chain yet."""
    segment = pack(parts)
    # A fresh key: an object that an earlier run left under its own may be swept any time.
    key = f"segments/{parts.chain:016x}/{parts.first:016d}-{secrets.token_hex(12)}"
    await bucket.put(key, segment)
    trailer = Trailer.read(segment)
    return Manifest(
        parts.chain, parts.first, parts.stop, key, trailer.data_bytes, trailer.index_bytes,
        trailer.index_checksum, committed_at, level, parts.size, *parts.end,
    )  # fmt: skip


async def check(table: Table, stream: Stream, manifest: Manifest, offset: int) -> int:
    """Return by how many slots a chain's segments are ahead of one with `offset` before it.

    0: it is the next of its chain. `BadSegment` when it begins at the right slot, but otherwise
    does not follow the last one."""
    last = await last_before(table, stream.id)
    end = stream.config.base if last is None else (last.stop, last.offset, last.size)
    if manifest.first > end[0]:
        # If retention has removed the slots between them, nothing is left to compare with.
        item = await table.get(layout.name_key(stream.path))
        name = None if item is None else layout.name_of(item)
        if name is not None and name.stream.id == stream.id and name.earliest > end[0]:
            return name.archived - manifest.first
    if manifest.first == end[0] and (offset, manifest.begin) != end[1:]:
        raise BadSegment(
            f"slot {manifest.first} of {stream.id:016x} begins at offset {offset} and size"
            f" {manifest.begin}, but the last segment ends at {end[1]} and {end[2]}"
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
                actions.advance(
                    stream, layout.ARCHIVED, manifest.first, manifest.stop, absent=first
                ),
            ]
        )
    except TransactionCanceled as error:
        item = error.reasons[0].item
        return item is not None and item["object_key"]["S"] == manifest.key
    return True


async def replace(table: Table, olds: Sequence[Manifest], merged: Manifest, due: int) -> bool:
    """Put a merged segment in the place of those it holds, whose objects go when `due`.

    False: they have changed meanwhile."""
    parts = [actions.replace_segment(olds[0], layout.manifest_item(merged))]
    parts += [actions.remove_segment(old) for old in olds[1:]]
    parts += [actions.put_upload_intent(old.key, due) for old in olds]
    try:
        await table.transact(parts)
    except TransactionCanceled as error:
        item = error.reasons[0].item
        return item is not None and item["object_key"]["S"] == merged.key
    return True
