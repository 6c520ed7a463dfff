"""Administration: delete one notification, or all that exist at the time of the request.

The messages are those of aviso-server, because its clients show and compare them.
"""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.limits import LIST_PAGE_STREAMS
from tailrace.protocols.aviso.callers import PREFIX
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.deletions import Deletions
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.replay import ReplayReader, find_tail
from tailrace.streams import Streams

logger = logging.getLogger("tailrace")

_SEQUENCE: Final = re.compile(r"\+?0*([0-9]{1,20})")


class AdminResult(NamedTuple):
    status: int
    message: str

    @property
    def success(self) -> bool:
        return self.status == 200


class Admin:
    def __init__(self, streams: Streams, config: AvisoConfig, deletions: Deletions) -> None:
        self._streams = streams
        self._events = config.events
        self._deletions = deletions
        self._reader = ReplayReader(streams, deletions)

    async def delete(self, notification_id: str) -> AdminResult:
        """Delete the notification with the id `<event type or base>@<sequence>`."""
        name, _, digits = notification_id.strip().partition("@")
        if not name or not digits:
            return AdminResult(400, "notification_id must be in '<stream>@<sequence>' format")
        number = _SEQUENCE.fullmatch(digits)
        sequence = int(number[1]) if number else 2**64
        if sequence >= 2**64:
            return AdminResult(400, "notification_id sequence must be a positive integer")
        if sequence == 0:
            return AdminResult(400, "notification_id sequence must be greater than zero")
        event = self._find_event_type(name)
        try:
            if event is None or not await self._delete(event, sequence):
                return AdminResult(404, "Notification not found")
        except TailraceError as error:
            return _report_failure("delete notification", error)
        return AdminResult(200, "Notification deleted")

    async def _delete(self, event: EventType, sequence: int) -> bool:
        """Delete a notification; False if there is none."""
        deleted = await self._deletions.read(event)
        if not await self._reader.exists(event, sequence, deleted):
            return False
        await self._deletions.delete(event, sequence)
        return True

    async def wipe(self, name: str) -> AdminResult:
        event = self._find_event_type(name.strip())
        try:
            if event is None or not await self._wipe(event):
                names = ", ".join(sorted(self._events))
                known = f". Known event types: {names}" if names else ""
                return AdminResult(404, f"Stream not found: {name[:80]}{known}")
        except TailraceError as error:
            return _report_failure("wipe stream", error)
        return AdminResult(200, f"Successfully wiped stream: {name}")

    async def wipe_all(self) -> AdminResult:
        """Wipe every event type. One that fails is logged, and the result is a success anyway."""
        try:
            events = [*self._events.values(), *await self._list_schemaless()]
        except TailraceError as error:
            return _report_failure("wipe all data", error)
        for event in events:
            try:
                await self._wipe(event)
            except TailraceError as error:
                _report_failure("wipe stream", error)
        return AdminResult(200, "Successfully wiped all data")

    async def _wipe(self, event: EventType) -> bool:
        """Wipe an event type; False if it has neither a schema nor a notification."""
        tail = await find_tail(self._streams, event)
        if tail is not None and tail.committed.offset:
            await self._deletions.wipe(event, tail.committed.offset)
        return tail is not None or not event.schemaless

    async def _list_schemaless(self) -> list[EventType]:
        """The event types that have notifications, but no schema."""
        events: list[EventType] = []
        after, more = "", not self._events.strict
        while more:
            page = await self._streams.list(PREFIX, after, LIST_PAGE_STREAMS)
            paths = [stream.path for stream, _ in page]
            found = (self._find_event_type(path.removeprefix(PREFIX)) for path in paths)
            events += [event for event in found if event is not None and event.schemaless]
            after, more = paths[-1] if paths else "", len(paths) == LIST_PAGE_STREAMS
        return events

    def _find_event_type(self, name: str) -> EventType | None:
        """The event type with this name or, failing that, this topic base, in any case."""
        lower = name.lower()
        by_name = (event for event in self._events.values() if event.name.lower() == lower)
        by_base = (event for event in self._events.values() if event.base.lower() == lower)
        try:
            return next(by_name, None) or next(by_base, None) or self._events.find(name)
        except ValueError:
            return None


def _report_failure(action: str, error: TailraceError) -> AdminResult:
    message = f"Failed to {action}: {error}"
    logger.warning("%s", message)
    return AdminResult(500, message)
