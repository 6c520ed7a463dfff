"""One follower per event type and incarnation for all who watch it live.

Each notification is read, and looked up among the filters, once, however many watch; its frame is
made once and handed to all whose filter it passes. A watcher that is behind, or slow, reads for
itself until it has caught up. When the stream is deleted, or is created, the watchers of what was
there before are released, and find out by themselves what is there now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.limits import AVISO_POLL_SECONDS
from tailrace.live.pace import Pace
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.envelope import Notification, Renderer
from tailrace.protocols.aviso.filters import Filter
from tailrace.protocols.aviso.frames import LIVE
from tailrace.protocols.aviso.history import find
from tailrace.protocols.aviso.index import FilterIndex
from tailrace.protocols.aviso.schema import EventType
from tailrace.streams import Streams, View
from tailrace.web.messages import Sink

logger = logging.getLogger("tailrace")

FOLLOW_SECONDS: Final = 30.0
"""How long one wait for the next notification lasts; then the stream is looked at again."""


class Watcher:
    """Somebody who watches, and where: `slot` of a chain comes next."""

    __slots__ = ("chain", "ended", "feed", "filter", "released", "sink", "slot")

    def __init__(self, wanted: Filter, sink: Sink, chain: int | None, slot: int) -> None:
        self.filter = wanted
        self.sink = sink
        self.chain = chain
        self.slot = slot
        self.ended = False
        """Whether the stream is closed, and nothing more will come."""
        self.released: asyncio.Future[None] | None = None
        self.feed: Feed | None = None
        """The follower that served it last."""


_Key = tuple[str, int | None]
"""An event type and the incarnation of its stream; None while there is none."""


class Feeds:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._feeds: dict[_Key, Feed] = {}

    def attend(self, watcher: Watcher, renderer: Renderer) -> asyncio.Future[None] | None:
        """Be served from now on, until the future is done; None: the watcher has to read on first.

        Nothing is awaited in here, so nothing is delivered between the two."""
        self.leave(watcher)
        event = watcher.filter.event
        key = event.name, watcher.chain
        feed = self._feeds.get(key)
        if feed is None or feed.over:
            feed = Feed(self._streams, event, renderer, watcher.chain, watcher.slot)
            self._feeds[key] = feed
        elif watcher.slot < feed.slot:
            return None
        watcher.released = asyncio.get_running_loop().create_future()
        watcher.feed = feed
        feed.add(watcher)
        return watcher.released

    def leave(self, watcher: Watcher) -> None:
        """Be served no longer; a follower that serves nobody ends."""
        feed, watcher.feed = watcher.feed, None
        if feed is None:
            return
        feed.let_go([watcher])
        if not feed.watchers:
            feed.stop()
            key = watcher.filter.event.name, feed.chain
            if self._feeds.get(key) is feed:
                del self._feeds[key]


class Feed:
    """The follower of one event type, for one incarnation of its stream."""

    def __init__(
        self, streams: Streams, event: EventType, renderer: Renderer, chain: int | None, slot: int
    ) -> None:
        self.chain = chain
        self.slot = slot
        """The slot that is handed out next; no watcher is behind it."""
        self.over = False
        self.watchers: dict[Watcher, None] = {}
        self._streams = streams
        self._event = event
        self._renderer = renderer
        self._index: FilterIndex[Watcher] = FilterIndex(event)
        self._task = asyncio.create_task(self._run())

    def add(self, watcher: Watcher) -> None:
        self.watchers[watcher] = None
        self._index.add(watcher.filter, watcher)

    def stop(self) -> None:
        self.over = True
        self._task.cancel()

    async def _run(self) -> None:
        try:
            if self.chain is None:
                await self._created()
            else:
                await self._follow()
        except (StreamNotFound, StreamGone):
            pass
        except TailraceError as error:
            logger.warning("following '%s' broke off: %s", self._event.path, error)
        except Exception:
            logger.exception("following '%s' failed", self._event.path)
        finally:
            self.over = True
            self.let_go(list(self.watchers))

    async def _created(self) -> None:
        """Wait until there is a stream."""
        with self._streams.watching(self._event.path) as created:
            while not self._streams.draining:
                created.clear()
                if await find(self._streams, self._event) is not None:
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(created.wait(), AVISO_POLL_SECONDS)

    async def _follow(self) -> None:
        tail = await self._streams.find(self._event.path)
        while tail.stream.id == self.chain and self.watchers and not self._streams.draining:
            try:
                view = await self._streams.follow(tail, self.slot, FOLLOW_SECONDS)
            except OffsetTrimmed:
                view = await self._streams.view(self._event.path, BEGINNING)
            tail = view.tail
            if tail.stream.id == self.chain:
                await self._deliver(view)

    def let_go(self, watchers: Iterable[Watcher]) -> None:
        """Release watchers that have all that this follower has handed out."""
        served = [watcher for watcher in watchers if watcher in self.watchers]
        for watcher in served:
            watcher.slot = max(watcher.slot, self.slot)
        self._release(served)

    async def _deliver(self, view: View) -> None:
        pace = Pace()
        for slot, body in enumerate(view.bodies, view.start):
            notification = Notification.of(body)
            if notification is not None:
                self._hand_out(slot, notification)
            # At each: a watcher that attends meanwhile has to read what was handed out before.
            self.slot = slot + 1
            await pace.rest()
        self.slot = view.end
        if view.closed:
            for watcher in self.watchers:
                watcher.ended = True
            self.let_go(list(self.watchers))

    def _hand_out(self, slot: int, notification: Notification) -> None:
        frame = b""
        full = []
        for watcher in self._index.passing(notification):
            # A watcher that read ahead of this follower has it already.
            if slot >= watcher.slot:
                frame = frame or self._renderer.frame(LIVE, slot + 1, notification)
                if not watcher.sink.push(frame):
                    watcher.slot = slot + 1
                    full.append(watcher)
        self._release(full)

    def _release(self, watchers: Iterable[Watcher]) -> None:
        for watcher in watchers:
            del self.watchers[watcher]
            self._index.remove(watcher.filter, watcher)
            if watcher.released is not None and not watcher.released.done():
                watcher.released.set_result(None)
