"""Watchers of an event type, which get new notifications from one follower per stream.

Each notification is parsed, and looked up among the filters, once, however many watch; its frame is
rendered once and pushed to all watchers whose filter it passes.
"""

from __future__ import annotations

import asyncio
from functools import partial

from tailrace import metrics
from tailrace.limits import AVISO_POLL_SECONDS
from tailrace.live.follower import ChainFollower, Followers, Pace, Reader, Sink
from tailrace.protocols.aviso import PREFIX
from tailrace.protocols.aviso.envelope import Notification, Renderer
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.event_frames import LIVE
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.filter_index import FilterIndex
from tailrace.protocols.aviso.filters import Filter
from tailrace.streams import Streams, View


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
        pace = Pace()
        start = self.offset if view.bodies else view.offset
        for offset, message in view.messages(start):
            # Before it is pushed: a watcher that is released has it, and goes on after it; one
            # that joins before the next must already have it.
            self.offset = offset
            notification = Notification.parse(message)
            if notification is not None:
                self._push(offset, notification)
            await pace.rest()
        self.slot, self.offset = view.end, view.offset
        if view.closed:
            self.release(list(self.readers), closed=True)
            self.end()

    def _push(self, offset: int, notification: Notification) -> None:
        frame = b""
        full = []
        sent = 0
        for watcher in self._index.match(notification):
            # A watcher that has read ahead of this follower has it already.
            if offset > watcher.offset:
                frame = frame or self._renderer.frame(LIVE, offset, notification)
                sent += 1
                if not watcher.sink.push(frame):
                    full.append(watcher)
        count_sent(RequestKind.WATCH, self._event, sent)
        self.release(full)


def count_sent(kind: RequestKind, event: EventType, notifications: int) -> None:
    route = f"{PREFIX}{kind.value}"
    metrics.count("aviso_sse_events_sent_total", route, event.label, by=notifications)
