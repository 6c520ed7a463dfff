"""Reading segments: which one has a slot, its index, and one range of its data."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from tailrace.clock import Clock
from tailrace.limits import TAIL_TRUST_SECONDS
from tailrace.log.slots import Chunk, SlotInfo
from tailrace.segments.format import Index, read_index
from tailrace.segments.index_cache import Indexes

CHAINS: Final = 10_000
"""Chains whose last segment is remembered."""


class Manifest(NamedTuple):
    """That a segment exists: slots `first` up to `stop` of a chain are in the object `key`."""

    chain: int
    first: int
    stop: int
    key: str
    data_bytes: int
    index_bytes: int
    index_checksum: int
    committed_at: int
    """When it was committed, in milliseconds: its slots may leave the store a while after that."""
    level: int = 0
    """How often its entries were merged; it and the rest are known where segments are merged."""
    begin: int = 0
    """The size of the stream before its first slot."""
    offset: int = 0
    """The offset after its last slot."""
    size: int = 0
    """The size after its last slot."""


class Manifests(Protocol):
    async def covering(self, chain: int, slot: int) -> Manifest | None:
        """The segment that holds `slot` of a chain."""


class Objects(Protocol):
    async def get(self, key: str, begin: int, end: int) -> bytes:
        """The bytes of an object from `begin` up to `end`."""


class History:
    """Segments of all chains; the indexes that were used last are kept, up to a number of slots.

    Segments are merged and let go, and their objects stay for a grace period after that; what is
    remembered of them is trusted for far less."""

    def __init__(self, manifests: Manifests, objects: Objects, slots: int, clock: Clock) -> None:
        self._manifests = manifests
        self._objects = objects
        self._indexes = Indexes(slots)
        self._clock = clock
        self._used: dict[int, tuple[Manifest, int]] = {}
        """The segment of each chain that was read last, and until when it is trusted: who reads on
        begins there."""

    async def read(self, chain: int, slot: int, stop: int, boundary: int) -> Chunk | None:
        """From `slot` up to `stop`, but nothing after the first slot that passes `boundary`.

        It ends with its segment at the latest. None: `slot` is in no segment."""
        manifest = await self._covering(chain, slot)
        if manifest is None:
            return None
        index = await self._index(manifest)
        found = index.range(slot, stop, boundary)
        data = await self._objects.get(manifest.key, found.begin, found.end)
        bodies = index.split(slot, found.slot, data)
        return Chunk(bodies, found.slot, found.offset, found.size, cold=True)

    async def start(self, chain: int, slot: int) -> tuple[int, int] | None:
        """Offset and size at which `slot` begins, if it is in a segment."""
        manifest = await self._covering(chain, slot)
        return None if manifest is None else (await self._index(manifest)).position(slot)

    async def end(self, chain: int, slot: int) -> tuple[int, int] | None:
        """Offset and size at which `slot` begins, if the slot before it is in a segment."""
        manifest = await self._covering(chain, slot - 1)
        return None if manifest is None else (await self._index(manifest)).position(slot)

    async def slot_info(self, chain: int, slot: int) -> SlotInfo | None:
        """The marks on `slot`, if it is in a segment."""
        manifest = await self._covering(chain, slot)
        if manifest is None:
            return None
        index = await self._index(manifest)
        return SlotInfo(index.position(slot + 1)[0], index.time(slot))

    async def _covering(self, chain: int, slot: int) -> Manifest | None:
        now = self._clock()
        used, until = self._used.get(chain, (None, 0))
        if used is not None and used.first <= slot < used.stop and now < until:
            return used
        manifest = await self._manifests.covering(chain, slot)
        if manifest is not None:
            self._used[chain] = manifest, now + TAIL_TRUST_SECONDS * 1000
            if len(self._used) > CHAINS:
                del self._used[next(iter(self._used))]
        return manifest

    async def _index(self, manifest: Manifest) -> Index:
        index = self._indexes.get(manifest.key)
        if index is None:
            end = manifest.data_bytes + manifest.index_bytes
            packed = await self._objects.get(manifest.key, manifest.data_bytes, end)
            index = read_index(packed, manifest.index_checksum)
            self._indexes.keep(manifest.key, index)
        return index
