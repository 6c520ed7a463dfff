"""Readers of server-sent events, which get what is new from one follower per stream.

An event is encoded once, and the same bytes are pushed to all readers that are at the tail.
"""

from __future__ import annotations

import time
from functools import partial

from tailrace.live.follower import ChainFollower, Followers, Reader, Sink
from tailrace.protocols.durable_streams import sse
from tailrace.protocols.durable_streams.caching import next_cursor
from tailrace.store.base import Tail
from tailrace.streams import Streams, View


class SseReader(Reader):
    __slots__ = ("cursor", "deadline")

    def __init__(self, sink: Sink, view: View, cursor: int, deadline: float) -> None:
        """`view`: what it has read. `deadline`: when the response has lived long enough, by the
        monotonic clock."""
        super().__init__(sink, view.tail.stream.id, view.end, view.offset)
        self.cursor = cursor
        self.deadline = deadline


class SseReaders:
    def __init__(self, streams: Streams, keep_alive: float) -> None:
        """`keep_alive`: seconds without data after which a comment is sent."""
        self._streams = streams
        self._keep_alive = keep_alive
        self._followers: Followers[SseReader] = Followers()

    async def attend(self, tail: Tail, reader: SseReader) -> bool:
        """Serve a reader at the tail until its sink is full, its deadline has come, or the stream
        ends; True when it has got the stream's end.

        Returns at once if the reader is behind: something was appended since it read."""
        path = tail.stream.path
        # Nothing but the future is kept while it waits: there may be many thousand readers.
        start = partial(_SseFollower, self._streams, tail, reader, self._keep_alive)
        released = self._followers.attend(path, reader, start)
        if released is None:
            return False
        try:
            return await released
        finally:
            self._followers.leave(path, reader)


class _SseFollower(ChainFollower[SseReader]):
    def __init__(self, streams: Streams, tail: Tail, first: SseReader, keep_alive: float) -> None:
        chain = tail.stream.id
        super().__init__(streams, tail.stream.path, chain, first.slot, first.offset, tail=tail)
        self._keep_alive = keep_alive
        self._deadline_in = 0.0

    def longest_wait(self) -> float:
        """Until the first deadline or the next keep-alive."""
        deadline = min((reader.deadline for reader in self.readers), default=float("inf"))
        self._deadline_in = deadline - time.monotonic()
        return min(self._deadline_in, self._keep_alive)

    async def deliver(self, view: View) -> None:
        if view.bodies or view.closed:
            await self._push(view)
        elif self._deadline_in > self._keep_alive:
            self.release([each for each in self.readers if not each.sink.push(sse.KEEP_ALIVE)])
        now = time.monotonic()
        self.release([each for each in self.readers if each.deadline <= now])

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
