"""Readers of server-sent events, which get what is new from one follower per stream.

An event is encoded once, and the same bytes are pushed to all readers that are at the tail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from tailrace import metrics
from tailrace.errors import (
    DamagedData,
    OffsetTrimmed,
    StreamGone,
    StreamNotFound,
    TailraceError,
)
from tailrace.live.follower import ChainFollower, Followers, Reader, Sink
from tailrace.protocols.durable_streams import sse
from tailrace.protocols.durable_streams.caching import next_cursor
from tailrace.store.base import Tail
from tailrace.streams import Streams, View
from tailrace.web.limiter import Limiter

logger = logging.getLogger("tailrace")


class SseReader(Reader):
    """A response of server-sent events. Nothing runs for it while a follower serves it."""

    __slots__ = ("_readers", "_up_to_date", "_wake", "client", "cursor", "deadline", "over", "tail")

    def __init__(
        self,
        readers: SseReaders,
        sink: Sink,
        view: View,
        cursor: int,
        deadline: float,
        client: str | None = None,
    ) -> None:
        """`view`: what it has read. `deadline`: when the response has lived long enough, by the
        monotonic clock. `client`: whose live reads it is one of, until it is over."""
        super().__init__(sink, view.tail.stream.id, view.end, view.offset)
        self.client = client
        self.cursor = cursor
        self.deadline = deadline
        self.over = view.closed
        self.tail = view.tail
        self._readers = readers
        self._up_to_date = view.up_to_date
        self._wake: Callable[[], None] | None = None

    async def read_on(self) -> bool:
        """Send what it lacks; returns whether it is served from then on, or over."""
        readers, streams = self._readers, self._readers.streams
        while not self.over:
            await self.sink.drain()
            if self._has_to_end():
                self.over = True
            elif self._up_to_date and readers.join(self):
                return True
            else:
                await self._read(streams)
        return False

    async def _read(self, streams: Streams) -> None:
        """Read from where it is, and send that; it is over if that fails."""
        try:
            view = await streams.follow(self.tail, self.slot, 0)
        except TailraceError as error:
            self.over = True
            if isinstance(error, StreamNotFound | StreamGone):
                self.sink.push(sse.DELETED)
            elif not isinstance(error, OffsetTrimmed | DamagedData):
                # The client reconnects, and gets the error itself if it is still there.
                logger.warning("reading '%s' failed: %s", self.tail.stream.path, error)
            return
        if view.bodies or view.closed:
            self.cursor = max(self.cursor, next_cursor(None, streams.clock()))
            await sse.send(self.sink, view, self.cursor)
        self.slot, self.offset = view.end, view.offset
        self.tail, self._up_to_date, self.over = view.tail, view.up_to_date, view.closed

    def _has_to_end(self) -> bool:
        return self._readers.streams.draining or time.monotonic() >= self.deadline

    # While it is parked

    def park(self, sink: Sink, wake: Callable[[], None]) -> None:
        self.sink, self._wake = sink, wake

    async def resume(self) -> bool:
        waits = False
        try:
            waits = await self.read_on()
        finally:
            if not waits:
                self._readers.end(self)
        return waits

    def leave(self) -> None:
        self._wake = None
        self._readers.leave(self)
        self._readers.end(self)

    def on_release(self, *, closed: bool) -> None:
        wake, self._wake = self._wake, None
        if wake is None:
            return
        self._readers.leave(self)
        self._up_to_date = False
        if closed or self._has_to_end():
            self.over = True
            self._readers.end(self)
        wake()


class SseReaders:
    def __init__(self, streams: Streams, keep_alive: float, limiter: Limiter | None = None) -> None:
        """`keep_alive`: seconds without data after which a comment is sent. `limiter`: counts the
        readers that have a client."""
        self.streams = streams
        self._keep_alive = keep_alive
        self._limiter = limiter or Limiter()
        self._followers: Followers[SseReader] = Followers()

    def join(self, reader: SseReader) -> bool:
        """Have a reader at the tail served until its sink is full, its deadline has come, or the
        stream ends; False if it is behind: something was appended since it read."""
        start = partial(_SseFollower, self.streams, reader.tail, reader, self._keep_alive)
        return self._followers.join(reader.tail.stream.path, reader, start)

    def leave(self, reader: SseReader) -> None:
        self._followers.leave(reader.tail.stream.path, reader)

    def end(self, reader: SseReader) -> None:
        """Count a reader no longer."""
        client, reader.client = reader.client, None
        if client is not None:
            metrics.count("ds_sse_clients_num", by=-1)
            self._limiter.end_live(client)


class _SseFollower(ChainFollower[SseReader]):
    def __init__(self, streams: Streams, tail: Tail, first: SseReader, keep_alive: float) -> None:
        chain = tail.stream.id
        super().__init__(streams, tail.stream.path, chain, first.slot, first.offset, tail=tail)
        self._keep_alive = keep_alive
        self._deadline = float("inf")
        """No reader has an earlier one."""
        self._deadline_in = 0.0

    def add(self, reader: SseReader) -> None:
        self._deadline = min(self._deadline, reader.deadline)
        super().add(reader)

    def longest_wait(self) -> float:
        """Until the first deadline or the next keep-alive."""
        self._deadline_in = self._deadline - time.monotonic()
        return min(self._deadline_in, self._keep_alive)

    async def deliver(self, view: View) -> None:
        if view.bodies or view.closed:
            await self._push(view)
        elif self._deadline_in > self._keep_alive:
            await self._push_keep_alive()
        now = time.monotonic()
        if self._deadline <= now:
            self.release([each for each in self.readers if each.deadline <= now])
            self._deadline = min((each.deadline for each in self.readers), default=float("inf"))

    def skip(self, earliest: str) -> None:  # noqa: ARG002 - a client must learn what it has missed
        self.end()

    async def _push(self, view: View) -> None:
        """Push an event to all readers; those that need another part of the data are released."""
        if sse.is_small(view):
            await self._push_small(view)
        else:
            # Each reads it by itself, and sends it piece by piece, as fast as its client takes it.
            self.release([each for each in self.readers if each.offset != view.offset])
        self.slot, self.offset = view.end, view.offset
        if view.closed:
            self.end()

    async def _push_keep_alive(self) -> None:
        async for readers in self.slices():
            self.release([each for each in readers if not each.sink.push(sse.KEEP_ALIVE)])

    async def _push_small(self, view: View) -> None:
        start, closed = self.offset, view.closed
        self.serving = view.offset
        current = next_cursor(None, self._streams.clock())
        events = {current: sse.encode(view, current)}
        async for readers in self.slices(view):
            full, partly = [], []
            for reader in readers:
                if reader.offset == start:
                    cursor = max(current, reader.cursor)
                    if cursor not in events:
                        events[cursor] = sse.encode(view, cursor)
                    reader.slot, reader.offset = view.end, view.offset
                    if not reader.sink.push(events[cursor]) or closed:
                        full.append(reader)
                elif reader.offset < view.offset:
                    # It joined while the view was being read, and already has a part of it.
                    partly.append(reader)
            self.release(partly)
            self.release(full, closed=closed)
        if view.up_to_date:
            lag = self._streams.clock() - view.tail.state.written_at
            metrics.observe("delivery_lag_ms", max(0, lag))
