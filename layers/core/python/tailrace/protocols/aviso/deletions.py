"""What admins have deleted: a stream beside the notifications says it.

The log only grows, and numbers must stay, so a notification is deleted by a note in
`aviso/<base>/deleted`: `{"sequence":7}` for one, `{"through":120}` for all up to that one. Replays
leave out what is noted. The bytes stay in the log until retention lets go of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.schema import EventType
from tailrace.streams import Streams

JSON = "application/json"


@dataclass(slots=True)
class Deleted:
    """Of one event type, as far as it was read."""

    through: int = 0
    sequences: set[int] = field(default_factory=set)
    chain: int = 0
    slot: int = BEGINNING

    def __contains__(self, sequence: int) -> bool:
        return sequence <= self.through or sequence in self.sequences


class Deletions:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._known: dict[str, Deleted] = {}

    async def of(self, event: EventType) -> Deleted:
        """What is deleted by now; only what is new since the last time is read."""
        deleted = self._known.setdefault(event.name, Deleted())
        while True:
            try:
                view = await self._streams.view(_path(event), deleted.slot)
            except (StreamNotFound, StreamGone):
                return deleted
            except OffsetTrimmed:
                deleted.slot = BEGINNING
                continue
            if view.tail.stream.id != deleted.chain:
                first = deleted.chain == 0
                deleted = self._known[event.name] = Deleted(chain=view.tail.stream.id)
                if not first:
                    continue
            for body in view.bodies:
                _note(deleted, body)
            deleted.slot = view.end
            if view.up_to_date:
                return deleted

    async def delete(self, event: EventType, sequence: int) -> None:
        await self._append(event, {"sequence": sequence})

    async def wipe(self, event: EventType, through: int) -> None:
        await self._append(event, {"through": through})

    async def _append(self, event: EventType, note: dict[str, int]) -> None:
        await append(self._streams, _path(event), Append(orjson.dumps(note), JSON))


async def append(streams: Streams, path: str, request: Append) -> None:
    """Appends to a stream of JSON that the first append creates."""
    try:
        await streams.append(path, request)
    except StreamNotFound:
        await streams.create(path, Create(content_type=JSON))
        await streams.append(path, request)


def _path(event: EventType) -> str:
    return f"{event.path}/deleted"


def _note(deleted: Deleted, body: bytes) -> None:
    try:
        notes = orjson.loads(b"[%b]" % body)
    except orjson.JSONDecodeError:
        return
    for note in notes:
        match note:
            case {"sequence": int(sequence)}:
                deleted.sequences.add(sequence)
            case {"through": int(through)}:
                deleted.through = max(deleted.through, through)
                deleted.sequences = {each for each in deleted.sequences if each > through}
