"""One follower per event type for all who watch it live.

Each notification is read, and looked up among the filters, once, however many watch; its frame is
made once and handed to all whose filter it passes. Who is behind, or slow, reads for itself until
it has caught up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tailrace.aviso.envelope import Notification, Renderer
from tailrace.aviso.filters import Filter
from tailrace.aviso.frames import LIVE
from tailrace.aviso.history import find
from tailrace.aviso.index import FilterIndex
from tailrace.aviso.schema import EventType
from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.http.wire import Sink
from tailrace.limits import AVISO_POLL_SECONDS
from tailrace.log.offsets import BEGINNING
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

logger = logging.getLogger("tailrace")

FOLLOW_SECONDS: Final = 30.0
"""How long one wait for the next notification lasts; then the stream itself is looked at again."""


class Watcher:
    """Somebody who watches, and where: slot `n` of a chain comes next."""

    __slots__ = ("chain", "ended", "filter", "n", "released", "sink")

    def __init__(self, wanted: Filter, sink: Sink, chain: int | None, n: int) -> None:
        self.filter = wanted
        self.sink = sink
        self.chain = chain
        self.n = n
        self.ended = False
        """Whether the stream is closed, and nothing more will come."""
        self.released: asyncio.Future[None] | None = None


class Feeds:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._feeds: dict[str, Feed] = {}

    def attend(self, watcher: Watcher, renderer: Renderer) -> asyncio.Future[None] | None:
        """Be served from now on, until the future is done; None: the watcher has to read on first.

        Nothing is awaited in here, so nothing is delivered between the two."""
        event = watcher.filter.event
        feed = self._feeds.get(event.name)
        if feed is None or feed.over:
            feed = self._feeds[event.name] = Feed(
                self._streams, event, renderer, watcher.chain, watcher.n
            )
        elif watcher.chain == feed.chain and watcher.n < feed.n:
            return None
        elif watcher.chain is None and feed.chain is not None:
            watcher.chain, watcher.n = feed.chain, 0
            return None
        watcher.released = asyncio.get_running_loop().create_future()
        feed.add(watcher)
        return watcher.released

    def leave(self, watcher: Watcher) -> None:
        name = watcher.filter.event.name
        feed = self._feeds.get(name)
        if feed is not None:
            feed.release([watcher])
            if not feed.watchers:
                feed.stop()
                del self._feeds[name]


class Feed:
    """The follower of one event type."""

    def __init__(
        self, streams: Streams, event: EventType, renderer: Renderer, chain: int | None, n: int
    ) -> None:
        self.chain = chain
        self.n = n
        self.over = False
        self.watchers: dict[Watcher, None] = {}
        self._streams = streams
        self._event = event
        self._renderer = renderer
        self._index: FilterIndex[Watcher] = FilterIndex(event)
        self._tail: Tail | None = None
        self._task = asyncio.create_task(self._run())

    def add(self, watcher: Watcher) -> None:
        self.watchers[watcher] = None
        self._index.add(watcher.filter, watcher)

    def release(self, watchers: Iterable[Watcher]) -> None:
        for watcher in watchers:
            if watcher in self.watchers:
                del self.watchers[watcher]
                self._index.remove(watcher.filter, watcher)
                if watcher.released is not None and not watcher.released.done():
                    watcher.released.set_result(None)

    def stop(self) -> None:
        self.over = True
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while self.watchers and not self._streams.draining:
                await self._next()
        except TailraceError as error:
            logger.warning("following '%s' broke off: %s", self._event.path, error)
        except Exception:
            logger.exception("following '%s' failed", self._event.path)
        finally:
            self.over = True
            self._let_go()

    async def _next(self) -> None:
        try:
            if self._tail is None:
                await self._find()
                return
            view = await self._streams.follow(self._tail, self.n, FOLLOW_SECONDS)
        except OffsetTrimmed:
            view = await self._streams.view(self._event.path, BEGINNING)
        except (StreamNotFound, StreamGone):
            self._tail = None
            self._move(None)
            return
        self._deliver(view)

    async def _find(self) -> None:
        """Wait for the stream; one that was made anew begins with its first slot."""
        with self._streams.watching(self._event.path) as created:
            tail = await find(self._streams, self._event)
            if tail is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(created.wait(), AVISO_POLL_SECONDS)
                return
        self._tail = tail
        self._move(tail.stream.id)

    def _move(self, chain: int | None) -> None:
        """Go on with a chain, at its beginning unless it is the one of before."""
        if chain != self.chain:
            self.chain, self.n = chain, 0
        for watcher in self.watchers:
            if watcher.chain != chain:
                watcher.chain, watcher.n = chain, 0

    def _let_go(self) -> None:
        for watcher in self.watchers:
            if watcher.chain == self.chain:
                watcher.n = max(watcher.n, self.n)
        self.release(list(self.watchers))

    def _deliver(self, view: View) -> None:
        for slot, body in enumerate(view.bodies, view.start):
            notification = Notification.of(body)
            if notification is not None:
                self._hand_out(slot, notification)
        self.n = view.end
        self._tail = view.tail
        if view.closed:
            for watcher in self.watchers:
                watcher.ended = True
            self._let_go()

    def _hand_out(self, slot: int, notification: Notification) -> None:
        frame = b""
        full = []
        for watcher in self._index.passing(notification):
            # Who read ahead of this follower has it already.
            if slot >= watcher.n:
                frame = frame or self._renderer.frame(LIVE, slot + 1, notification)
                if not watcher.sink.push(frame):
                    watcher.n = slot + 1
                    full.append(watcher)
        self.release(full)
