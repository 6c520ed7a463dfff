"""One follower per stream for all who read its tail as events.

A thousand readers at the tail wait for the same thing and get the same bytes. So they do not wait
each for itself: one task per stream follows the tail, encodes an event once, and hands it to every
reader's sink. A reader that is behind the follower, or whose line is full, reads for itself until
it has caught up: the follower never goes back, so it would not hand out what the reader lacks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound
from tailrace.log.cursor import next_cursor
from tailrace.protocols.durable_streams import sse
from tailrace.store.base import Tail
from tailrace.streams import Streams, View
from tailrace.web.messages import Sink

logger = logging.getLogger("tailrace")


class Reader:
    """Somebody who reads a stream as events, and where."""

    __slots__ = ("cursor", "done", "end", "released", "sink", "slot")

    def __init__(self, sink: Sink, cursor: int, end: float) -> None:
        self.sink = sink
        self.cursor = cursor
        self.end = end
        """When the response has lived long enough, by the monotonic clock."""
        self.slot = 0
        """The slot it reads next."""
        self.done = False
        """Whether it was told that the stream is closed."""
        self.released: asyncio.Future[None] | None = None


class Feeds:
    def __init__(self, streams: Streams, keep_alive: float) -> None:
        self._streams = streams
        self._keep_alive = keep_alive
        self._feeds: dict[int, Feed] = {}

    async def attend(self, tail: Tail, reader: Reader) -> bool:
        """Be served at the tail until the line is full, the time is up, or the stream ends.

        At once where the follower is past the reader, which has to read on by itself: something was
        appended since the reader looked. True when the reader was told of the end."""
        chain = tail.stream.id
        feed = self._feeds.get(chain)
        if feed is None or feed.over:
            feed = self._feeds[chain] = Feed(self._streams, tail, reader.slot, self._keep_alive)
        elif reader.slot < feed.slot:
            return False
        reader.released = asyncio.get_running_loop().create_future()
        feed.readers[reader] = None
        try:
            await reader.released
            return reader.done
        finally:
            feed.readers.pop(reader, None)
            if not feed.readers:
                feed.stop()
                if self._feeds.get(chain) is feed:
                    del self._feeds[chain]


class Feed:
    """The follower of one stream's tail."""

    def __init__(self, streams: Streams, tail: Tail, slot: int, keep_alive: float) -> None:
        self.readers: dict[Reader, None] = {}
        """None of them is behind the follower."""
        self.slot = slot
        """The slot that is handed out next."""
        self.over = False
        self._streams = streams
        self._tail = tail
        self._keep_alive = keep_alive
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self.over = True
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while self.readers and not self._streams.draining:
                await self._next()
        except (StreamNotFound, StreamGone, OffsetTrimmed):
            pass
        except Exception:
            logger.exception("following '%s' failed", self._tail.stream.path)
        finally:
            self.over = True
            self._release(list(self.readers))

    async def _next(self) -> None:
        """Wait for the next data, or until somebody's time is up, or too long in silence."""
        soonest = min(each.end for each in self.readers) - time.monotonic()
        view = await self._streams.follow(self._tail, self.slot, min(soonest, self._keep_alive))
        self._tail = view.tail
        if view.bodies or view.closed:
            self._deliver(view)
        elif soonest > self._keep_alive:
            self._release([each for each in self.readers if not each.sink.push(sse.KEEP_ALIVE)])
        now = time.monotonic()
        self._release([each for each in self.readers if each.end <= now])

    def _deliver(self, view: View) -> None:
        """Hand an event to all; those who cannot take it as it is go on by themselves."""
        current = next_cursor(None, self._streams.clock())
        start, end, closed = view.start, view.end, view.closed
        if not sse.is_small(view):
            # Each reads for itself, piece by piece, as fast as its line takes it.
            self._n = end
            self._release([each for each in self.readers if each.slot != end or closed])
            return
        events = {current: sse.encode(view, current)}
        leaving = []
        for reader in self.readers:
            if reader.slot == start:
                cursor = max(current, reader.cursor)
                if cursor not in events:
                    events[cursor] = sse.encode(view, cursor)
                reader.slot = end
                reader.done = closed
                if not reader.sink.push(events[cursor]) or closed:
                    leaving.append(reader)
            elif reader.slot < end or closed:
                # It came while this was on its way, and has only a part of it.
                leaving.append(reader)
        self.slot = end
        self._release(leaving)

    def _release(self, readers: Iterable[Reader]) -> None:
        for reader in readers:
            self.readers.pop(reader, None)
            if reader.released is not None and not reader.released.done():
                reader.released.set_result(None)
