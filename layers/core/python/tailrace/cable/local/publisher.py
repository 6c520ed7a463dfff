"""Broadcasts become appends, which readers of all protocols see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from tailrace.cable.broadcasts import Publication
from tailrace.cable.local.hub import Hub
from tailrace.cable.local.room import Room
from tailrace.errors import StoreUnavailable, StreamConflict, StreamNotFound
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.quota import Quota
from tailrace.settings import Settings
from tailrace.streams import Streams

JSON: Final = "application/json"

ATTEMPTS: Final = 8
"""How often a stream may come and go while something is published to it."""


class Publisher:
    def __init__(self, streams: Streams, hub: Hub, settings: Settings) -> None:
        self._streams = streams
        self._hub = hub
        self._quota = Quota.parse(settings.streams_per_prefix)
        self._ttl = settings.cable_ttl or None

    async def publish(self, publications: Iterable[Publication]) -> None:
        """In their order; those that follow each other in one stream are one append."""
        for (stream, transient), some in groupby(publications, _run):
            room = self._hub.rooms.get(stream)
            if transient:
                for each in some:
                    if room is not None:
                        room.tell(each.text.decode(), each.kind, but=each.exclude)
                continue
            batch = list(some)
            if room is None or not any(each.noted for each in batch):
                await self._append(batch)
                continue
            async with room.publishing:
                end = await self._append(batch)
                tail = await self._streams.find(batch[0].path)
                _note(room, batch, tail.stream.id, end)

    async def _append(self, batch: Sequence[Publication]) -> int:
        """The stream's offset after them."""
        path = batch[0].path
        # In brackets, for a message that is a list would be taken for several.
        body = b"[%b]" % b",".join(each.text for each in batch)
        for _ in range(ATTEMPTS):
            try:
                accepted = await self._streams.append(path, Append(body, JSON))
            except StreamNotFound:
                await self._quota.require_room(path, self._streams.list)
            else:
                return accepted.state.offset
            try:
                created = await self._streams.create(path, Create(body, JSON, self._ttl))
            except StreamConflict:
                # Somebody else was faster, and made it differently.
                continue
            if created.new:
                return created.state.offset
        raise StoreUnavailable(f"'{path}' is created and deleted too often; try again")


def _run(publication: Publication) -> tuple[str, bool]:
    return publication.stream, publication.transient


def _note(room: Room, batch: Sequence[Publication], chain: int, end: int) -> None:
    """Before the room delivers them: the log does not hold who is not to get a message."""
    for place, each in enumerate(batch):
        if each.noted:
            room.notes[chain, end - len(batch) + 1 + place] = each
