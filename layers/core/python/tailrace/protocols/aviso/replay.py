"""Replays: reads a range of a stream and filters it.

A notification's sequence is the stream's offset after it: the number of its message, from 1 on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tailrace.errors import OffsetTrimmed, SlotTrimmed, StreamGone, StreamNotFound
from tailrace.live.follower import Pace
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
    """The range that a replay sends, fixed when it begins; later notifications are live."""

    chain: int | None
    """The incarnation of the stream; None if the stream does not exist yet."""
    slot: int = 0
    """The first slot to read."""
    after: int = 0
    """The sequence after which the replay begins, if that lies inside of the slot."""
    through: int = 0
    """The last sequence that belongs to the replay."""
    tail: tuple[int, int] = (0, 0)
    """Slot and offset at which the live phase begins."""
    end_sequence: int | None = None
    """The last sequence, if the request has an upper bound."""


class ReplayReader:
    def __init__(self, streams: Streams, deletions: Deletions) -> None:
        self._streams = streams
        self._deletions = deletions

    async def resolve_range(self, query: EventQuery) -> ReplayRange:
        """Find what lies between the bounds of a request, as far as the stream still has it."""
        event = query.filter.event
        tail = await find_tail(self._streams, event)
        if tail is None:
            return ReplayRange(None, end_sequence=None if query.stop is None else 0)
        end = tail.committed.tail, tail.committed.offset
        if query.start is None:
            return ReplayRange(tail.stream.id, *end, end[1], end)
        kept_slot, kept_after = await self._first_retained(event, tail)
        kept_slot = max(kept_slot, tail.earliest)
        slot, after = await self._start(tail, query.start)
        slot, after = max(slot, kept_slot), max(after, kept_after)
        if query.stop is None:
            return ReplayRange(tail.stream.id, slot, after, end[1], end)
        floor = max(kept_after, (await self._streams.start_of(tail, kept_slot))[0])
        through = max(floor, await self._last(tail, query.stop))
        return ReplayRange(tail.stream.id, slot, after, through, end, through)

    async def read(
        self, filter_: Filter, replay_range: ReplayRange
    ) -> AsyncIterator[NumberedNotifications]:
        """Yield the notifications that match, in order, in batches that may be empty."""
        event, matcher, pace = filter_.event, Matcher(filter_), Pace()
        deleted = await self._deletions.read(event)
        latest = None
        if event.storage.latest:
            latest = await self._find_latest(filter_, replay_range)
        async for view in self._views(event, replay_range, replay_range.through):
            notifications: NumberedNotifications = []
            for sequence, message in view.messages():
                await pace.rest()
                if not replay_range.after < sequence <= replay_range.through:
                    continue
                notification = matcher.match(message)
                if notification is None or sequence in deleted:
                    continue
                if latest is None or latest.get(notification.subject) == sequence:
                    notifications.append((sequence, notification))
            yield notifications

    async def _views(
        self, event: EventType, replay_range: ReplayRange, through: int
    ) -> AsyncIterator[View]:
        """Read one incarnation of the stream; a replay ends if another has replaced it."""
        slot = replay_range.slot
        offset = 0
        while offset < through and slot < replay_range.tail[0]:
            try:
                view = await self._streams.view(event.path, slot)
            except OffsetTrimmed:
                view = await self._streams.view(event.path, BEGINNING)
            if view.tail.stream.id != replay_range.chain:
                return
            yield view
            slot, offset = view.end, view.offset
            if view.up_to_date:
                return

    async def _find_latest(self, filter_: Filter, replay_range: ReplayRange) -> dict[bytes, int]:
        """The last sequence of each topic that matches, whatever the shape of its notification."""
        matcher, pace = Matcher(Filter(filter_.event, filter_.constraints)), Pace()
        latest: dict[bytes, int] = {}
        end = replay_range.tail[1]
        async for view in self._views(filter_.event, replay_range, end):
            for sequence, message in view.messages():
                await pace.rest()
                notification = matcher.match(message)
                if notification is not None and sequence <= end:
                    latest[notification.subject] = sequence
        return latest

    async def _start(self, tail: Tail, start: Bound) -> tuple[int, int]:
        """The first slot of a replay, and the sequence after which it begins."""
        if start.sequence is not None:
            after = max(0, start.sequence - 1)
            return await self._streams.slot_after(tail, after), after
        assert start.instant is not None
        return await self._streams.slot_since(tail, to_milliseconds(start.instant)), 0

    async def _last(self, tail: Tail, stop: Bound) -> int:
        """The last sequence of a replay."""
        if stop.sequence is not None:
            return min(stop.sequence, tail.committed.offset)
        assert stop.instant is not None
        slot = await self._streams.slot_since(tail, to_milliseconds(stop.instant) + 1)
        return (await self._streams.start_of(tail, slot))[0]

    async def _first_retained(self, event: EventType, tail: Tail) -> tuple[int, int]:
        """The first slot within the storage policy of the event type, and the sequence after which
        that begins."""
        storage, state = event.storage, tail.committed
        first = after = 0
        if storage.messages is not None:
            after = max(0, state.offset - storage.messages)
            first = await self._streams.slot_after(tail, after)
        if storage.seconds is not None:
            since = self._streams.clock() - storage.seconds * 1000
            first = max(first, await self._streams.slot_since(tail, since))
        if storage.size is not None:
            first = max(first, await self._first_within_size(tail, first, storage.size))
        return first, after

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
        if tail is None or not 0 < sequence <= tail.committed.offset or sequence in deleted:
            return False
        slot = await self._streams.slot_after(tail, sequence - 1)
        try:
            view = await self._streams.view(event.path, slot)
        except OffsetTrimmed:
            return False
        found = (message for number, message in view.messages() if number == sequence)
        return any(Notification.parse(message) is not None for message in found)


async def find_tail(streams: Streams, event: EventType) -> Tail | None:
    """The tail of an event type's stream; None if the stream does not exist."""
    try:
        return await streams.find(event.path)
    except (StreamNotFound, StreamGone):
        return None
