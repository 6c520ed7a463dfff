"""Strongly consistent reads of the current store, to recheck one suspect."""

from __future__ import annotations

from typing import Final

from glue_jobs.shared import listing
from glue_jobs.shared.workers import Backend, Row
from tailrace.errors import DamagedData
from tailrace.segments.format import TRAILER_BYTES
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import LAST_SLOT, Key, Name, Stored, slot_text
from tailrace.store.dynamodb.segments import covering, segments_from

TRIES: Final = 10
"""Reads that may differ from each other before the suspect is skipped: it is being changed."""


class StoreProbe:
    """A suspect, and reads of the items and objects around it."""

    def __init__(self, backend: Backend, settings: Settings, row: Row) -> None:
        self._table = backend.table
        self._bucket = backend.bucket
        self._settings = settings
        self.chain = int(row["chain"], 16)
        self.path: str | None = row["path"]
        self.n: int | None = row["n"]
        self.key: str = row["key"] or ""
        self.other: str | None = row["other"]
        """The path of the stream whose chain is `key`, if there is one."""

    # Names

    async def name(self) -> Name | None:
        """The stream's name; None if it was deleted, or replaced by another."""
        return await self.name_of(self.path, self.chain)

    async def name_of(self, path: str | None, chain: int) -> Name | None:
        item = None if path is None else await self._table.get(layout.name_key(path))
        name = None if item is None else layout.name_of(item)
        return name if name is not None and name.stream.id == chain else None

    # Entries

    async def entry(self, n: int) -> Stored | None:
        item = await self._table.get(layout.slot_key(self.chain, n))
        return None if item is None else layout.entry_of(item)

    async def first(self, begin: int, stop: int | None = None) -> Stored | None:
        """The first entry from slot `begin` on, before `stop`."""
        if stop is not None and begin >= stop:
            return None
        chain, last = layout.chain_partition(self.chain), _before(stop)
        page = await self._table.query(chain, slot_text(begin), last, limit=1)
        return layout.entry_of(page.items[0]) if page.items else None

    async def last(self, stop: int | None = None, chain: int | None = None) -> Stored | None:
        """The last entry, before `stop` if given."""
        if stop == 0:
            return None
        partition = layout.chain_partition(self.chain if chain is None else chain)
        item = await self._table.last(partition, slot_text(0), _before(stop))
        return None if item is None else layout.entry_of(item)

    # Segments

    async def manifest(self, first: int) -> Manifest | None:
        item = await self._table.get(layout.segment_key(self.chain, first))
        return None if item is None else layout.manifest_of(item)

    async def covering(self, n: int) -> Manifest | None:
        return await covering(self._table, self.chain, n) if n >= 0 else None

    async def manifests(self, n: int) -> tuple[Manifest, ...]:
        return tuple(await segments_from(self._table, self.chain, n))

    # Objects

    async def expected_length(self) -> int | None:
        """The expected length of the suspect's object, if an entry or a segment still names it."""
        assert self.n is not None
        entry, manifest = await self.entry(self.n), await self.manifest(self.n)
        if entry is not None and entry.object_key == self.key:
            return entry.length
        if manifest is not None and manifest.key == self.key:
            return manifest.data_bytes + manifest.index_bytes + TRAILER_BYTES
        return None

    async def length(self, key: str) -> int | None:
        """The length of an object; None if it does not exist."""
        return await listing.length(self._settings, key)

    async def object(self, key: str) -> bytes | None:
        try:
            return await self._bucket.get(key)
        except DamagedData:
            return None

    # The rest

    async def has(self, key: Key) -> bool:
        return await self._table.get(key) is not None

    async def any_in(self, partition: str) -> bool:
        return bool((await self._table.begins(partition, "", 1, None)).items)

    async def count(self, partition: str) -> int:
        return sum([len(page) async for page in self._table.all_keys(partition, "x")])


def _before(stop: int | None) -> str:
    return LAST_SLOT if stop is None else slot_text(stop - 1)
