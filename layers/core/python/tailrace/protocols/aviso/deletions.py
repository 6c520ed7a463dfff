"""Deletions by admins, recorded in a stream beside the notifications.

The log is append-only and sequences must not change, so a notification is deleted by a record in
`aviso/<base>/deleted`: `{"sequence":7}` for one, `{"through":120}` for all up to and including that
one. Replays leave out what is recorded there. The bytes stay in the log until retention removes
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.event_types import EventType
from tailrace.streams import Streams

JSON = "application/json"


@dataclass(slots=True)
class DeletedSequences:
    """Deleted sequences of one event type, as far as the records have been read."""

    through: int = 0
    sequences: set[int] = field(default_factory=set)
    chain: int = 0
    slot: int = BEGINNING

    def __contains__(self, sequence: int) -> bool:
        return sequence <= self.through or sequence in self.sequences


class Deletions:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._cache: dict[str, DeletedSequences] = {}

    async def read(self, event: EventType) -> DeletedSequences:
        """Read the records that were added since the last call."""
        deleted = self._cache.get(event.name) or DeletedSequences()
        while True:
            try:
                view = await self._streams.view(_path(event), deleted.slot)
            except (StreamNotFound, StreamGone):
                return deleted
            except OffsetTrimmed:
                deleted.slot = BEGINNING
                continue
            if view.tail.stream.id != deleted.chain:
                first_read = deleted.chain == 0
                deleted = DeletedSequences(chain=view.tail.stream.id)
                self._cache[event.name] = deleted
                if not first_read:
                    continue
            for body in view.bodies:
                _apply(deleted, body)
            deleted.slot = view.end
            if view.up_to_date:
                return deleted

    async def delete(self, event: EventType, sequence: int) -> None:
        await self._append(event, b'{"sequence":%d}' % sequence)

    async def wipe(self, event: EventType, through: int) -> None:
        await self._append(event, b'{"through":%d}' % through)

    async def _append(self, event: EventType, record: bytes) -> None:
        await append_or_create(self._streams, _path(event), Append(record, JSON))


async def append_or_create(streams: Streams, path: str, request: Append) -> None:
    """Append to a JSON stream, which the first append creates."""
    try:
        await streams.append(path, request)
    except StreamNotFound:
        await streams.create(path, Create(content_type=JSON))
        await streams.append(path, request)


def _path(event: EventType) -> str:
    return f"{event.path}/deleted"


def _apply(deleted: DeletedSequences, body: bytes) -> None:
    try:
        records = orjson.loads(b"[%b]" % body)
    except orjson.JSONDecodeError:
        # Anybody who may append to this stream can append anything.
        return
    for record in records:
        match record:
            case {"sequence": int(sequence)}:
                deleted.sequences.add(sequence)
            case {"through": int(through)}:
                deleted.through = max(deleted.through, through)
                deleted.sequences = {each for each in deleted.sequences if each > through}
