"""Segments of chains in the table: their manifests are items, their objects are in the bucket."""

from __future__ import annotations

from tailrace.history.reader import History, Manifest
from tailrace.history.segment import BadSegment, Record, Trailer, seal
from tailrace.log.state import Stream
from tailrace.store.dynamo import actions, layout
from tailrace.store.dynamo.bodies import Bodies
from tailrace.store.dynamo.failures import TransactionCanceled
from tailrace.store.dynamo.layout import Stored
from tailrace.store.dynamo.table import Table


class TableManifests:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def covering(self, chain: int, n: int) -> Manifest | None:
        found = await last_before(self._table, chain, layout.slot_text(n))
        return found if found is not None and found.stop > n else None


async def last_before(table: Table, chain: int, slot: str = layout.LAST_SLOT) -> Manifest | None:
    """The last segment of a chain that begins at a slot or before it."""
    page = await table.query(
        layout.segment_partition(chain), layout.slot_text(0), slot, limit=1, backward=True
    )
    return layout.manifest_of(page.items[0]) if page.items else None


async def archive(
    table: Table,
    bodies: Bodies,
    history: History,
    stream: Stream,
    most: tuple[int, int],
    now: int,
) -> Manifest | None:
    """Put the next entries of a chain into a segment, if they fill one: `most` entries or bytes.

    The entries stay in the table until `sweeping.trim` lets them go. None: they are too few, or
    somebody else has done it."""
    chain = stream.id
    last = await last_before(table, chain)
    first, start = stream.config.base[0], stream.config.base[1:]
    if last is not None:
        found = await history.end(chain, last.stop)
        assert found is not None
        first, start = last.stop, found
    entries = await _next(table, chain, first, start[1], most)
    if entries is None:
        return None
    records = [
        Record(
            entry.n, entry.offset, entry.size, int(entry.item["a"]["N"]), await _body(bodies, entry)
        )
        for entry in entries
    ]
    segment = seal(chain, stream.config.mode, start, records)
    parts = Trailer.read(segment)
    key = await bodies.upload(f"segments/{chain:016x}", segment)
    manifest = Manifest(
        chain, first, records[-1].n + 1, key, parts.data_bytes, parts.index_bytes,
        parts.index_checksum, 0, now,
    )  # fmt: skip
    try:
        await table.transact(
            [actions.put_new(layout.manifest_item(manifest)), actions.take_body(key)]
        )
    except TransactionCanceled as error:
        taken = error.reasons[0].item
        if taken is None or taken["k"]["S"] != key:
            return None  # The claim runs out, and the object is swept.
    return manifest


async def _next(
    table: Table, chain: int, first: int, size: int, most: tuple[int, int]
) -> list[Stored] | None:
    """The entries of a segment that begins at `first`; never the last one of the chain."""
    entries: list[Stored] = []
    slots, length = most
    n = first
    while True:
        page = await table.query(
            layout.chain_partition(chain), layout.slot_text(n), layout.LAST_SLOT
        )
        for entry in map(layout.entry_of, page.items):
            if entries and (len(entries) >= slots or entries[-1].size >= size + length):
                return entries
            if not entry.has_data:
                return None
            if entry.n != n:
                raise BadSegment(f"slot {n} of {chain:016x} is neither archived nor in the table")
            entries.append(entry)
            n = entry.n + 1
        if page.more is None:
            return None


async def _body(bodies: Bodies, entry: Stored) -> bytes:
    return entry.body if entry.object_key is None else await bodies.read(entry.object_key)
