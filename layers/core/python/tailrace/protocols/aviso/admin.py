"""What admins do: delete one notification, or all there are by now."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.protocols.aviso.config import Config
from tailrace.protocols.aviso.deletions import Deletions
from tailrace.protocols.aviso.history import History, find
from tailrace.protocols.aviso.schema import EventType
from tailrace.streams import Streams

logger = logging.getLogger("tailrace")

_SEQUENCE: Final = re.compile(r"\+?[0-9]{1,20}")


class Told(NamedTuple):
    status: int
    message: str

    @property
    def success(self) -> bool:
        return self.status == 200


class Admin:
    def __init__(self, streams: Streams, config: Config, deletions: Deletions) -> None:
        self._streams = streams
        self._events = config.events
        self._deletions = deletions
        self._history = History(streams, deletions)

    async def delete(self, given: str) -> Told:
        """`given`: `<event type or base>@<sequence>`."""
        name, at, number = given.strip().partition("@")
        if not (name and at and _SEQUENCE.fullmatch(number) and 0 < int(number) < 2**64):
            return Told(400, "expected <event type>@<sequence>, such as mars@7")
        event, sequence = self._resolved(name), int(number)
        if event is None:
            return Told(404, f"there is no event type '{name[:80]}'")
        try:
            deleted = await self._deletions.of(event)
            if not await self._history.exists(event, sequence, deleted):
                return Told(404, f"there is no notification {event.name}@{sequence}")
            await self._deletions.delete(event, sequence)
        except TailraceError as error:
            return _failed(error)
        return Told(200, f"{event.name}@{sequence} was deleted")

    async def wipe(self, name: str) -> Told:
        event = self._resolved(name.strip())
        if event is None:
            return Told(404, f"there is no stream '{name[:80]}'")
        try:
            await self._wipe(event)
        except TailraceError as error:
            return _failed(error)
        return Told(200, f"the notifications of '{event.name}' were deleted")

    async def wipe_all(self) -> Told:
        """Success even where one fails: the others are wiped, and the log names it."""
        for event in self._events.values():
            try:
                await self._wipe(event)
            except TailraceError as error:
                _failed(error)
        return Told(200, "all notifications were deleted")

    async def _wipe(self, event: EventType) -> None:
        tail = await find(self._streams, event)
        if tail is not None and tail.committed.tail:
            await self._deletions.wipe(event, tail.committed.tail)

    def _resolved(self, name: str) -> EventType | None:
        """By event type or topic base, in any case."""
        wanted = name.lower()
        by_name = (each for each in self._events.values() if each.name.lower() == wanted)
        by_base = (each for each in self._events.values() if each.base.lower() == wanted)
        return next(by_name, None) or next(by_base, None)


def _failed(error: TailraceError) -> Told:
    logger.warning("an administrator's request failed: %s", error)
    return Told(500, str(error))
