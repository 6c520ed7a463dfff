"""Administration: delete one notification, or all that exist at the time of the request."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.deletions import Deletions
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.replay import ReplayReader, find_tail
from tailrace.streams import Streams

logger = logging.getLogger("tailrace")

_SEQUENCE: Final = re.compile(r"\+?[0-9]{1,20}")


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
        name, at, number = notification_id.strip().partition("@")
        if not (name and at and _SEQUENCE.fullmatch(number) and 0 < int(number) < 2**64):
            return AdminResult(400, "expected <event type>@<sequence>, such as mars@7")
        event, sequence = self._find_event_type(name), int(number)
        if event is None:
            return AdminResult(404, f"there is no event type '{name[:80]}'")
        try:
            deleted = await self._deletions.read(event)
            if not await self._reader.exists(event, sequence, deleted):
                return AdminResult(404, f"there is no notification {event.name}@{sequence}")
            await self._deletions.delete(event, sequence)
        except TailraceError as error:
            return _report_failure(error)
        return AdminResult(200, f"{event.name}@{sequence} was deleted")

    async def wipe(self, name: str) -> AdminResult:
        event = self._find_event_type(name.strip())
        if event is None:
            return AdminResult(404, f"there is no stream '{name[:80]}'")
        try:
            await self._wipe(event)
        except TailraceError as error:
            return _report_failure(error)
        return AdminResult(200, f"the notifications of '{event.name}' were deleted")

    async def wipe_all(self) -> AdminResult:
        """Wipe every event type. One that fails is logged, and the result is a success anyway."""
        for event in self._events.values():
            try:
                await self._wipe(event)
            except TailraceError as error:
                _report_failure(error)
        return AdminResult(200, "all notifications were deleted")

    async def _wipe(self, event: EventType) -> None:
        tail = await find_tail(self._streams, event)
        if tail is not None and tail.committed.tail:
            await self._deletions.wipe(event, tail.committed.tail)

    def _find_event_type(self, name: str) -> EventType | None:
        """The event type with this name or, failing that, this topic base, in any case."""
        lower = name.lower()
        by_name = (event for event in self._events.values() if event.name.lower() == lower)
        by_base = (event for event in self._events.values() if event.base.lower() == lower)
        return next(by_name, None) or next(by_base, None)


def _report_failure(error: TailraceError) -> AdminResult:
    logger.warning("an Aviso admin request failed: %s", error)
    return AdminResult(500, str(error))
