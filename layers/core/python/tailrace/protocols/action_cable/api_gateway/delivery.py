"""New entries, as the table's stream tells of them, to those who listen.

The table's stream tells of one item in order, and of a chain's entries in any. So a record is only
a hint that there is something up to its slot: what is delivered are the slots from the room's on,
one after the other, and what the records do not bring is read. A record that comes late finds its
slot delivered.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tailrace.clock import Clock
from tailrace.errors import TailraceError
from tailrace.log.state import Stream
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.items import Listener, Room
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.contents import Message, messages
from tailrace.protocols.action_cable.core.stream_names import epoch_of
from tailrace.store.dynamodb.layout import (
    LAST_SLOT,
    Stored,
    chain_of,
    chain_partition,
    entry_of,
    id_text,
    is_name,
    name_key,
    name_of,
    slot_text,
)
from tailrace.store.dynamodb.store import DynamoStore

HOLD_SECONDS: Final = 60
"""How long a delivery may take; the function that does it is ended by then."""

PATIENCE: Final = 100
PAUSE: Final = 0.1
"""Looks at a room that another delivery holds, and seconds between two of them. Records come again
often enough to outlast whoever has died with it."""

Record = Mapping[str, Any]
"""A record of the table's stream, as Lambda shows it."""

logger = logging.getLogger("tailrace")


class RoomBusy(TailraceError):
    """Another delivery to the same listeners is under way; this one comes again."""

    code = "ROOM_BUSY"


class _Told(NamedTuple):
    """A message, and what its broadcast said about it."""

    message: Message
    excluded: str | None
    kind: str | None


class Deliveries:
    def __init__(self, store: DynamoStore, broadcaster: Broadcaster, clock: Clock) -> None:
        self._store = store
        self._table = store.table
        self._broadcaster = broadcaster
        self._rooms = broadcaster.rooms
        self._clock = clock

    async def take(self, records: Sequence[Record]) -> dict[str, Exception]:
        """Some records of the table's stream; what went wrong, by their partitions."""
        work: defaultdict[str, list[Awaitable[None]]] = defaultdict(list)
        entries: defaultdict[str, dict[int, Stored]] = defaultdict(dict)
        for record in records:
            item, partition = record["dynamodb"].get("NewImage"), partition_of(record)
            if record["eventName"] != "INSERT" or item is None:
                continue
            if chain_of(partition) is not None:
                entry = entry_of(item)
                entries[partition][entry.slot] = entry
            elif is_name(partition):
                work[partition].append(self.created(name_of(item).stream))
        for partition, hints in entries.items():
            work[partition].append(self.appended(int(partition[1:], 16), hints))
        failures = await asyncio.gather(*(_failure(each) for each in work.values()))
        found = zip(work, failures, strict=True)
        return {partition: failure for partition, failure in found if failure is not None}

    async def created(self, stream: Stream) -> None:
        """A name has got an incarnation: who waited for that hears it from its beginning."""
        if not await self._rooms.told(stream.path):
            return
        if not await self._is_current(stream.id, stream.path):
            return  # It has come and gone.
        config = stream.config
        await self._rooms.ensure(stream.id, stream.path, config.mode, config.base[0])
        last = await self._table.last(chain_partition(stream.id), slot_text(0), LAST_SLOT)
        if last is not None:
            await self.appended(stream.id, {entry_of(last).slot: entry_of(last)})

    async def appended(self, chain: int, hints: Mapping[int, Stored]) -> None:
        """Deliver everything up to the highest of some slots."""
        top = max(hints) + 1
        by, patience = secrets.token_hex(8), PATIENCE
        while (room := await self._rooms.get(chain)) is not None:
            # A room that is held may be held for slots that were not sent.
            if room.slot >= top and room.by is None:
                break
            until = self._clock() + HOLD_SECONDS * 1000
            if room.by is None:
                if await self._rooms.claim(room, top, by, until):
                    await self._deliver(room, top, by, hints)
                    break
            elif room.until <= self._clock():
                await self._take_over(room, by, until)
            elif patience:
                patience -= 1
                await asyncio.sleep(PAUSE)
            else:
                raise RoomBusy(f"'{room.path}' is being delivered to already")
        if room is not None and hints[top - 1].state.deleted:
            await self._rooms.remove(chain)

    async def _deliver(self, room: Room, top: int, by: str, hints: Mapping[int, Stored]) -> None:
        try:
            listeners = await self._listeners(room)
            if not listeners:
                await self._rooms.leave(room, by)
                return
            first = min(_first(each, room) for each in listeners)
            told = await self._told(room, first, top, hints)
        except Exception:
            await self._rooms.undo(room, by)
            raise
        lost = await self._broadcaster.send_all(_letters(listeners, room, told))
        await self._rooms.done(room, by)
        await self._rooms.dismiss([each for each in listeners if each.connection in lost])

    async def _listeners(self, room: Room) -> list[Listener]:
        """Those of this incarnation, and, while no other has followed it, those of all before."""
        found = await self._rooms.told(room.path)
        own = [each for each in found if each.chain == room.chain]
        if len(own) == len(found) or await self._is_current(room.chain, room.path):
            return found
        return own

    async def _is_current(self, chain: int, path: str) -> bool:
        name = await self._table.get(name_key(path))
        return name is not None and name["i"]["S"] == id_text(chain)

    async def _take_over(self, room: Room, by: str, until: int) -> None:
        """Whoever held the room has died, and nobody knows who has got what: all come back, and
        say how far they are."""
        if not await self._rooms.seize(room, by, until):
            return
        logger.warning("a delivery of '%s' did not end: its listeners come back", room.path)
        listeners = await self._rooms.listeners(room.path)
        await self._broadcaster.restart({each.connection for each in listeners})
        await self._rooms.dismiss(listeners)
        await self._rooms.done(room, by)

    async def _told(
        self, room: Room, first: int, top: int, hints: Mapping[int, Stored]
    ) -> list[_Told]:
        """What the slots hold, in order."""
        told: list[_Told] = []
        for entry in await self._entries(room.chain, first, top, hints):
            if entry.has_data:
                body = await self._store.body(entry)
                found = messages(room.mode, [body], entry.slot, entry.offset)
                notes = _notes(entry, len(found))
                told += (_Told(each, *note) for each, note in zip(found, notes, strict=True))
        return told

    async def _entries(
        self, chain: int, first: int, top: int, hints: Mapping[int, Stored]
    ) -> Sequence[Stored]:
        """From the records, or else from the table."""
        if all(slot in hints for slot in range(first, top)):
            return [hints[slot] for slot in range(first, top)]
        found: list[Stored] = []
        while first < top:
            page = await self._table.query(
                chain_partition(chain), slot_text(first), slot_text(top - 1)
            )
            found += map(entry_of, page.items)
            if page.more is None:
                break
            first = found[-1].slot + 1
        return found


def partition_of(record: Record) -> str:
    partition: str = record["dynamodb"]["Keys"]["p"]["S"]
    return partition


async def _failure(work: Sequence[Awaitable[None]]) -> Exception | None:
    failure = None
    for each in work:
        try:
            await each
        except Exception as error:  # noqa: BLE001 - it is told with the records that it is about
            failure = error
    return failure


def _first(listener: Listener, room: Room) -> int:
    """The slot from which on a listener is told what this delivery brings."""
    assert listener.slot is not None
    return max(room.slot, listener.slot) if listener.chain == room.chain else room.slot


def _letters(
    listeners: Sequence[Listener], room: Room, told: Sequence[_Told]
) -> Iterator[tuple[str, list[str]]]:
    """For each who gets something, what: made once for all who have the same identifier."""
    epoch = epoch_of(room.chain)
    made: dict[str, list[str]] = {}
    for listener in listeners:
        known = listener.subscription
        texts = made.get(known.identifier)
        if texts is None:
            texts = made[known.identifier] = [
                frames.data(
                    known.identifier,
                    each.message.text,
                    known.stream,
                    epoch,
                    each.message.offset,
                    each.kind,
                )
                for each in told
            ]
        slot = _first(listener, room)
        yield (
            listener.connection,
            [
                text
                for each, text in zip(told, texts, strict=True)
                if each.message.slot >= slot and each.excluded != listener.connection
            ],
        )


def _notes(entry: Stored, messages: int) -> Sequence[tuple[str | None, str | None]]:
    if entry.note is None:
        return [(None, None)] * messages
    found: list[tuple[str | None, str | None]] = [tuple(each) for each in orjson.loads(entry.note)]
    return found if len(found) == messages else [(None, None)] * messages
