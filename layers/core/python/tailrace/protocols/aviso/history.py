"""Replays: the part of a stream that was asked for, and what of it passes a filter.

A notification's sequence is the number of its slot, counted from 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tailrace.errors import OffsetTrimmed, SlotTrimmed, StreamGone, StreamNotFound
from tailrace.live.pace import Pace
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.deletions import Deleted, Deletions
from tailrace.protocols.aviso.envelope import Notification
from tailrace.protocols.aviso.filters import Filter, Test
from tailrace.protocols.aviso.moments import milliseconds
from tailrace.protocols.aviso.requests import Start, Subscription
from tailrace.protocols.aviso.schema import EventType
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

Found = list[tuple[int, Notification]]
"""Sequences and their notifications."""


@dataclass(frozen=True, slots=True)
class Part:
    """The slots of a replay, fixed when it begins: what comes later is live."""

    chain: int | None
    """The incarnation; None: there is no stream yet."""
    first: int
    stop: int
    tail: int
    """Where live goes on."""
    end_sequence: int | None = None
    """The last sequence, where the request names an end."""


class History:
    def __init__(self, streams: Streams, deletions: Deletions) -> None:
        self._streams = streams
        self._deletions = deletions

    async def part(self, asked: Subscription) -> Part:
        event = asked.filter.event
        tail = await find(self._streams, event)
        if tail is None:
            return Part(None, 0, 0, 0, None if asked.stop is None else 0)
        end = tail.committed.tail
        if asked.start is None:
            return Part(tail.stream.id, end, end, end)
        floor = max(tail.earliest, await self._kept_from(event, tail))
        first = max(floor, await self._first(tail, asked.start))
        if asked.stop is None:
            return Part(tail.stream.id, first, end, end)
        stop = max(floor, await self._stop(tail, asked.stop))
        return Part(tail.stream.id, first, stop, end, stop)

    async def replayed(self, wanted: Filter, part: Part) -> AsyncIterator[Found]:
        """What passes, in order, piece by piece; a piece may be empty."""
        if part.first >= part.stop:
            return
        event, test, pace = wanted.event, Test(wanted), Pace()
        deleted = await self._deletions.of(event)
        latest = await self._latest(wanted, part) if event.storage.latest else None
        async for view in self._views(event, part.chain, part.first, part.stop):
            found: Found = []
            # Retention may have gone past the end meanwhile.
            within = view.bodies[: max(0, part.stop - view.start)]
            for slot, body in enumerate(within, view.start):
                await pace.rest()
                notification = test.passes(body)
                if notification is None or slot + 1 in deleted:
                    continue
                if latest is None or latest.get(notification.subject) == slot:
                    found.append((slot + 1, notification))
            yield found

    async def _views(
        self, event: EventType, chain: int | None, slot: int, stop: int
    ) -> AsyncIterator[View]:
        """The views of one incarnation; what took its place meanwhile is not part of a replay."""
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

    async def _latest(self, wanted: Filter, part: Part) -> dict[bytes, int]:
        """The last slot of each topic; a shape that is not wanted is the latest all the same."""
        test, pace = Test(Filter(wanted.event, wanted.asked)), Pace()
        latest: dict[bytes, int] = {}
        async for view in self._views(wanted.event, part.chain, part.first, part.tail):
            for slot, body in enumerate(view.bodies, view.start):
                await pace.rest()
                notification = test.passes(body)
                if notification is not None and slot < part.tail:
                    latest[notification.subject] = slot
        return latest

    async def _first(self, tail: Tail, start: Start) -> int:
        if start.sequence is not None:
            return max(0, start.sequence - 1)
        assert start.instant is not None
        return await self._streams.slot_since(tail, milliseconds(start.instant))

    async def _stop(self, tail: Tail, stop: Start) -> int:
        if stop.sequence is not None:
            return min(stop.sequence, tail.committed.tail)
        assert stop.instant is not None
        return await self._streams.slot_since(tail, milliseconds(stop.instant) + 1)

    async def _kept_from(self, event: EventType, tail: Tail) -> int:
        """The first slot that the event type's storage policy keeps."""
        storage, end = event.storage, tail.committed.tail
        first = 0
        if storage.messages is not None:
            first = max(first, end - storage.messages)
        if storage.seconds is not None:
            since = self._streams.clock() - storage.seconds * 1000
            first = max(first, await self._streams.slot_since(tail, since))
        if storage.size is not None:
            first = max(first, await self._within(tail, first, storage.size))
        return first

    async def _within(self, tail: Tail, low: int, size: int) -> int:
        """The first slot from which on the stream has at most `size` bytes."""
        high, whole = tail.committed.tail, tail.committed.size
        while low < high:
            middle = (low + high) // 2
            try:
                _, before = await self._streams.store.position(tail.stream.id, middle)
            except SlotTrimmed as error:
                low = max(middle + 1, error.earliest)
                continue
            if whole - before > size:
                low = middle + 1
            else:
                high = middle
        return low

    async def exists(self, event: EventType, sequence: int, deleted: Deleted) -> bool:
        tail = await find(self._streams, event)
        if tail is None or not tail.earliest < sequence <= tail.committed.tail:
            return False
        if sequence in deleted:
            return False
        view = await self._streams.view(event.path, sequence - 1)
        return bool(view.bodies) and Notification.of(view.bodies[0]) is not None


async def find(streams: Streams, event: EventType) -> Tail | None:
    try:
        return await streams.find(event.path)
    except (StreamNotFound, StreamGone):
        return None
