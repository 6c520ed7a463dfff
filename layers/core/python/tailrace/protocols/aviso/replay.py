"""Replays: reads a range of a stream and filters it.

A notification's sequence is the number of its slot, counted from 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tailrace.errors import OffsetTrimmed, SlotTrimmed, StreamGone, StreamNotFound
from tailrace.live.pace import Pace
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.deletions import DeletedSequences, Deletions
from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.filters import Filter, Matcher
from tailrace.protocols.aviso.request_body import Bound, EventQuery
from tailrace.protocols.aviso.timestamps import to_milliseconds
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

NumberedNotifications = list[tuple[int, Notification]]
"""Sequences and their notifications."""


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """The slots of a replay, fixed when it begins; later notifications are live."""

    chain: int | None
    """The incarnation of the stream; None if the stream does not exist yet."""
    first: int
    stop: int
    tail: int
    """The first slot of the live phase."""
    end_sequence: int | None = None
    """The last sequence, if the request has an upper bound."""


class ReplayReader:
    def __init__(self, streams: Streams, deletions: Deletions) -> None:
        self._streams = streams
        self._deletions = deletions

    async def resolve_range(self, query: EventQuery) -> ReplayRange:
        """Find the slots between the bounds of a request, as far as the stream still has them."""
        event = query.filter.event
        tail = await find_tail(self._streams, event)
        if tail is None:
            return ReplayRange(None, 0, 0, 0, None if query.stop is None else 0)
        end = tail.committed.tail
        if query.start is None:
            return ReplayRange(tail.stream.id, end, end, end)
        floor = max(tail.earliest, await self._first_retained(event, tail))
        first = max(floor, await self._first_slot(tail, query.start))
        if query.stop is None:
            return ReplayRange(tail.stream.id, first, end, end)
        stop = max(floor, await self._stop_slot(tail, query.stop))
        return ReplayRange(tail.stream.id, first, stop, end, stop)

    async def read(
        self, filter_: Filter, replay_range: ReplayRange
    ) -> AsyncIterator[NumberedNotifications]:
        """Yield the notifications that match, in order, in batches that may be empty."""
        if replay_range.first >= replay_range.stop:
            return
        event, matcher, pace = filter_.event, Matcher(filter_), Pace()
        deleted = await self._deletions.read(event)
        latest = None
        if event.storage.latest:
            latest = await self._find_latest(filter_, replay_range)
        first, stop = replay_range.first, replay_range.stop
        async for view in self._views(event, replay_range.chain, first, stop):
            notifications: NumberedNotifications = []
            # The view may begin beyond the end, if retention has passed it meanwhile.
            bodies = view.bodies[: max(0, stop - view.start)]
            for slot, body in enumerate(bodies, view.start):
                await pace.rest()
                notification = matcher.match(body)
                if notification is None or slot + 1 in deleted:
                    continue
                if latest is None or latest.get(notification.subject) == slot:
                    notifications.append((slot + 1, notification))
            yield notifications

    async def _views(
        self, event: EventType, chain: int | None, slot: int, stop: int
    ) -> AsyncIterator[View]:
        """Read one incarnation of the stream; a replay ends if another has replaced it."""
        while slot < stop:
            try:
                view = await self._streams.view(event.path, slot)
            except OffsetTrimmed:
                view = await self._streams.view(event.path, BEGINNING)
            if view.tail.stream.id != chain:
                return
            yield view
            slot = view.end
            if view.up_to_date:
                return

    async def _find_latest(self, filter_: Filter, replay_range: ReplayRange) -> dict[bytes, int]:
        """The last slot of each topic that matches, whatever the shape of its notification."""
        matcher, pace = Matcher(Filter(filter_.event, filter_.constraints)), Pace()
        latest: dict[bytes, int] = {}
        first, tail = replay_range.first, replay_range.tail
        async for view in self._views(filter_.event, replay_range.chain, first, tail):
            for slot, body in enumerate(view.bodies, view.start):
                await pace.rest()
                notification = matcher.match(body)
                if notification is not None and slot < tail:
                    latest[notification.subject] = slot
        return latest

    async def _first_slot(self, tail: Tail, start: Bound) -> int:
        if start.sequence is not None:
            return max(0, start.sequence - 1)
        assert start.instant is not None
        return await self._streams.slot_since(tail, to_milliseconds(start.instant))

    async def _stop_slot(self, tail: Tail, stop: Bound) -> int:
        if stop.sequence is not None:
            return min(stop.sequence, tail.committed.tail)
        assert stop.instant is not None
        return await self._streams.slot_since(tail, to_milliseconds(stop.instant) + 1)

    async def _first_retained(self, event: EventType, tail: Tail) -> int:
        """The first slot within the storage policy of the event type."""
        storage, end = event.storage, tail.committed.tail
        first = 0
        if storage.messages is not None:
            first = max(first, end - storage.messages)
        if storage.seconds is not None:
            since = self._streams.clock() - storage.seconds * 1000
            first = max(first, await self._streams.slot_since(tail, since))
        if storage.size is not None:
            first = max(first, await self._first_within_size(tail, first, storage.size))
        return first

    async def _first_within_size(self, tail: Tail, low: int, size: int) -> int:
        """The first slot from which on the stream has at most `size` bytes, by bisection."""
        high, total = tail.committed.tail, tail.committed.size
        while low < high:
            middle = (low + high) // 2
            try:
                _, before = await self._streams.store.start_of(tail.stream.id, middle)
            except SlotTrimmed as error:
                low = max(middle + 1, error.earliest)
                continue
            if total - before > size:
                low = middle + 1
            else:
                high = middle
        return low

    async def exists(self, event: EventType, sequence: int, deleted: DeletedSequences) -> bool:
        tail = await find_tail(self._streams, event)
        if tail is None or not tail.earliest < sequence <= tail.committed.tail:
            return False
        if sequence in deleted:
            return False
        view = await self._streams.view(event.path, sequence - 1)
        return bool(view.bodies) and Notification.parse(view.bodies[0]) is not None


async def find_tail(streams: Streams, event: EventType) -> Tail | None:
    """The tail of an event type's stream; None if the stream does not exist."""
    try:
        return await streams.find(event.path)
    except (StreamNotFound, StreamGone):
        return None
