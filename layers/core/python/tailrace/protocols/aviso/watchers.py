"""Watchers of an event type, which get new notifications from one follower per stream.

Each notification is parsed, and looked up among the filters, once, however many watch; its frame is
rendered once and pushed to all watchers whose filter it passes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from tailrace import metrics
from tailrace.limits import AVISO_POLL_SECONDS
from tailrace.live.follower import ChainFollower, Followers, Pace, Reader, Sink, slices
from tailrace.protocols.aviso import PREFIX
from tailrace.protocols.aviso.envelope import Notification, Renderer
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.event_frames import LIVE
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.filter_index import FilterIndex
from tailrace.protocols.aviso.filters import Filter
from tailrace.streams import Streams, View

ROUND_NOTIFICATIONS: Final = 64
"""Notifications that a watcher gets by one write, if as many were sent meanwhile."""


class Watcher(Reader):
    __slots__ = ("ended", "filter")

    def __init__(
        self, wanted: Filter, sink: Sink, chain: int | None, slot: int, offset: int
    ) -> None:
        super().__init__(sink, chain, slot, offset)
        self.filter = wanted
        self.ended = False
        """Whether the stream is closed, and the watcher has all of it."""


class Watchers:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._followers: Followers[Watcher] = Followers()

    def attend(self, watcher: Watcher, renderer: Renderer) -> asyncio.Future[bool] | None:
        """Serve a watcher until the future is done: with True if the stream was closed.

        None: it is behind, and has to read on by itself first."""
        event = watcher.filter.event
        start = partial(_WatchFollower, self._streams, event, renderer, watcher)
        return self._followers.attend(event.path, watcher, start)

    def leave(self, watcher: Watcher) -> None:
        self._followers.leave(watcher.filter.event.path, watcher)


class _WatchFollower(ChainFollower[Watcher]):
    def __init__(
        self, streams: Streams, event: EventType, renderer: Renderer, first: Watcher
    ) -> None:
        poll = AVISO_POLL_SECONDS
        super().__init__(streams, event.path, first.chain, first.slot, first.offset, poll=poll)
        self._event = event
        self._renderer = renderer
        self._index: FilterIndex[Watcher] = FilterIndex(event)

    def add(self, reader: Watcher) -> None:
        self._index.add(reader.filter, reader)
        super().add(reader)

    def remove(self, reader: Watcher) -> None:
        self._index.remove(reader.filter, reader)
        super().remove(reader)

    async def deliver(self, view: View) -> None:
        pace, matches = Pace(), _Matches()
        start = self.offset if view.bodies else view.offset
        for offset, message in view.messages(start):
            # A watcher that joins from now on must already have it.
            self.serving = offset
            notification = Notification.parse(message)
            if notification is not None:
                self._match(offset, notification, matches)
            await pace.rest()
            if len(matches.frames) == ROUND_NOTIFICATIONS:
                await self._push(matches, view)
                matches = _Matches()
        await self._push(matches, view)
        self.slot, self.offset = view.end, view.offset
        if view.closed:
            self.release(list(self.readers), closed=True)
            self.end()

    def _match(self, offset: int, notification: Notification, matches: _Matches) -> None:
        frame = b""
        sent = 0
        for watcher in self._index.match(notification):
            # A watcher that has read ahead of this follower has it already.
            if offset > watcher.offset:
                frame = frame or self._renderer.frame(LIVE, offset, notification)
                sent += 1
                matches.add(watcher, offset, frame)
        count_sent(RequestKind.WATCH, self._event, sent)

    async def _push(self, matches: _Matches, view: View) -> None:
        """Push notifications of a view to the watchers that are still there."""
        end = self.serving
        async for watchers in slices(list(matches.numbers), view):
            full = []
            for watcher in watchers:
                # It may have left, read on by itself and joined again.
                if watcher in self.readers and watcher.offset < end:
                    data = matches.data(watcher)
                    watcher.slot, watcher.offset = self.slot, end
                    if data and not watcher.sink.push(data):
                        full.append(watcher)
            self.release(full)


class _Matches:
    """Notifications, and the watchers that get them."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        """Of each its offset and its frame."""
        self.numbers: dict[Watcher, list[int]] = {}
        """For each watcher which of them."""
        self._joined: dict[tuple[int, ...], bytes] = {}

    def add(self, watcher: Watcher, offset: int, frame: bytes) -> None:
        if not self.frames or self.frames[-1][0] != offset:
            self.frames.append((offset, frame))
        self.numbers.setdefault(watcher, []).append(len(self.frames) - 1)

    def data(self, watcher: Watcher) -> bytes:
        """The frames that a watcher lacks; those of many watchers are the same object."""
        numbers = tuple(
            each for each in self.numbers[watcher] if self.frames[each][0] > watcher.offset
        )
        data = self._joined.get(numbers)
        if data is None:
            data = self._joined[numbers] = b"".join(self.frames[each][1] for each in numbers)
        return data


def count_sent(kind: RequestKind, event: EventType, notifications: int) -> None:
    route = f"{PREFIX}{kind.value}"
    metrics.count("aviso_sse_events_sent_total", route, event.label, by=notifications)
