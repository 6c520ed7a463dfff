"""Responses of server-sent events: of a stream, and of one that does not exist yet."""

from __future__ import annotations

import logging
import time
from functools import partial

from tailrace import metrics
from tailrace.errors import (
    StreamGone,
    StreamNotFound,
    TailraceError,
)
from tailrace.limits import SSE_KEEP_ALIVE_SECONDS
from tailrace.live.follower import Sink
from tailrace.log import offsets
from tailrace.log.content import Mode
from tailrace.log.offsets import Position
from tailrace.protocols.durable_streams import caching, missing, sse
from tailrace.protocols.durable_streams.caching import next_cursor
from tailrace.protocols.durable_streams.missing import MissingStreams, Release
from tailrace.protocols.durable_streams.read_start import ReadStart
from tailrace.protocols.durable_streams.sse_readers import SseReader, SseReaders
from tailrace.settings import Settings
from tailrace.streams import Streams, View
from tailrace.web.limiter import Limiter
from tailrace.web.messages import RawHeaders, Request, Streaming, run_parked

logger = logging.getLogger("tailrace")


class SseResponses:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        limiter: Limiter,
        missing_streams: MissingStreams,
    ) -> None:
        self._streams = streams
        self._limiter = limiter
        self._missing = missing_streams
        self._poll_seconds = settings.long_poll_timeout
        # The cursor of a response that readers do not share is the reader's own.
        self._cursor_seconds = settings.cursor_interval if settings.sse_shared else 0
        self._seconds = settings.sse_lifetime
        self._shared = settings.sse_shared
        self._missing_seconds = self._poll_seconds if self._shared else self._seconds
        """How long a response waits for a stream that does not exist yet."""
        self._readers = SseReaders(streams, SSE_KEEP_ALIVE_SECONDS, limiter)

    def read(self, request: Request, view: View, start: ReadStart, cursor: str) -> Streaming:
        headers = self._headers(start)
        if view.tail.stream.config.mode is Mode.BYTES:
            headers.append((b"stream-sse-data-encoding", b"base64"))
        client, first = request.client, [view]
        if self._shared:
            return Streaming(200, headers, partial(self._shared_live, client, first, cursor))
        events = partial(self._events, client, first, cursor)
        return Streaming(200, headers, events, partial(self._begin, client, first, cursor))

    async def read_missing(
        self, request: Request, path: str, start: ReadStart, cursor: str
    ) -> Streaming:
        """Answer with the events of a stream that does not exist yet."""
        release = await self._missing.admit(request.client, self._missing_seconds)
        run = partial(self._live_missing, request.client, path, cursor, release)
        return Streaming(200, self._headers(start), run)

    async def _live_missing(
        self, client: str, path: str, cursor: str, release: Release, sink: Sink
    ) -> None:
        """Send server-sent events of a stream that does not exist yet."""
        deadline = time.monotonic() + self._missing_seconds
        first = self._next_cursor(cursor)
        retry = sse.RETRY_SHARED if self._shared else sse.RETRY
        sink.push(retry + missing.control_event(first))
        with self._limiter.live(client), metrics.level("ds_sse_clients_num"):
            try:
                exists = await self._wait_for_missing(client, path, deadline, sink)
            finally:
                await release()
            if not exists:
                if self._shared:
                    sink.push(missing.control_event(self._next_cursor(cursor)))
                return
            try:
                view = await self._streams.read(path, Position(offsets.BEGINNING))
            except (StreamNotFound, StreamGone):
                sink.push(sse.DELETED)
                return
            # The head of the answer says nothing of base64, so binary data cannot follow.
            if view.tail.stream.config.mode is Mode.BYTES:
                return
            if self._shared:
                await self._shared_events(view, cursor, sink, deadline)
                return
            reader = SseReader(self._readers, sink, view, self._next_cursor(str(first)), deadline)
            views = [view]
            del view
            waiting = await self._begin_events(reader, views, b"")
            if waiting is not None:
                await run_parked(waiting, sink)

    async def _wait_for_missing(self, client: str, path: str, deadline: float, sink: Sink) -> bool:
        """Wait until there is a stream, and keep the connection alive; returns whether there is."""
        left = self._missing_seconds
        while not await self._missing.wait(path, client, min(left, SSE_KEEP_ALIVE_SECONDS)):
            left = deadline - time.monotonic()
            if left <= 0 or self._streams.draining:
                return False
            sink.push(sse.KEEP_ALIVE)
            await sink.drain()
        return True

    def _headers(self, start: ReadStart) -> RawHeaders:
        if not self._shared or not isinstance(start, Position):
            return [*sse.HEADERS]
        # The edge tells the reader not to keep it.
        return [
            (name, caching.LIVE if name == b"cache-control" else value)
            for name, value in sse.HEADERS
        ]

    async def _shared_live(self, client: str, first: list[View], cursor: str, sink: Sink) -> None:
        with self._limiter.live(client), metrics.level("ds_sse_clients_num"):
            deadline = time.monotonic() + self._poll_seconds
            await self._shared_events(first.pop(), cursor, sink, deadline, sse.RETRY_SHARED)

    async def _shared_events(
        self, view: View, cursor: str, sink: Sink, deadline: float, before: bytes = b""
    ) -> None:
        """Send all data there is, or else the first that is appended until a deadline.

        `cursor`: that of the cache in front, which gives the response to all that wait."""
        streams = self._streams
        waits = not view.bodies and not view.closed
        await sse.send(sink, view, self._next_cursor(cursor), before)
        try:
            while waits or not view.up_to_date:
                await sink.drain()
                left = max(0.0, deadline - time.monotonic()) if waits else 0.0
                view = await streams.follow(view.tail, view.end, min(left, SSE_KEEP_ALIVE_SECONDS))
                waits = waits and not view.bodies and not view.closed
                if waits and left > SSE_KEEP_ALIVE_SECONDS and not streams.draining:
                    sink.push(sse.KEEP_ALIVE)
                    continue
                waits = False
                await sse.send(sink, view, self._next_cursor(cursor))
        except (StreamNotFound, StreamGone):
            sink.push(sse.DELETED)
        except TailraceError as error:
            # The client reconnects, and gets the error itself if it is still there.
            logger.warning("reading '%s' failed: %s", view.tail.stream.path, error)

    async def _begin(
        self, client: str, first: list[View], client_cursor: str, sink: Sink
    ) -> SseReader | None:
        """Send what there is; the reader that is returned gets what is appended.

        `first`: has the first view, and keeps it no longer than it is sent, since its data may be
        all that a reader takes in memory."""
        self._limiter.begin_live(client)
        metrics.count("ds_sse_clients_num")
        deadline = time.monotonic() + self._seconds
        cursor = self._next_cursor(client_cursor)
        reader = SseReader(self._readers, sink, first[0], cursor, deadline, client)
        return await self._begin_events(reader, first, sse.RETRY)

    async def _begin_events(
        self, reader: SseReader, first: list[View], before: bytes
    ) -> SseReader | None:
        waits = False
        try:
            await sse.send(reader.sink, first.pop(), reader.cursor, before)
            waits = await reader.read_on()
        finally:
            if not waits:
                self._readers.end(reader)
        return reader if waits else None

    async def _events(self, client: str, first: list[View], client_cursor: str, sink: Sink) -> None:
        """Send data as it is appended, until the stream or the lifetime of the response ends."""
        reader = await self._begin(client, first, client_cursor, sink)
        if reader is not None:
            await run_parked(reader, sink)

    def _next_cursor(self, held: str | None) -> int:
        return next_cursor(held, self._streams.clock(), self._cursor_seconds)
