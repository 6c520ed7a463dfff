"""Event streams: the responses to watch and replay, from the first frame to the last."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.live.follower import Pace, Sink
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.deletions import Deletions
from tailrace.protocols.aviso.envelope import Renderer
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.event_frames import LIVE, REPLAY, EndReason, EventFrames
from tailrace.protocols.aviso.filters import Matcher
from tailrace.protocols.aviso.replay import ReplayRange, ReplayReader
from tailrace.protocols.aviso.request_body import EventQuery
from tailrace.protocols.aviso.watchers import Watcher, Watchers, count_sent
from tailrace.streams import Streams

logger = logging.getLogger("tailrace")


class _ReplayOutcome(Enum):
    COMPLETE = auto()
    LIMITED = auto()
    STOPPED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class PreparedStream:
    """A valid request with the range of its replay, ready to be answered."""

    kind: RequestKind
    query: EventQuery
    range: ReplayRange
    frames: EventFrames


class EventStreams:
    def __init__(self, streams: Streams, config: AvisoConfig, deletions: Deletions) -> None:
        self.streams = streams
        self.config = config
        self.reader = ReplayReader(streams, deletions)
        self.watchers = Watchers(streams)

    async def prepare(
        self, kind: RequestKind, query: EventQuery, request_id: str
    ) -> PreparedStream:
        """Fix where the replay ends and the live phase begins.

        Only failures up to here can be reported with a status: later ones end the stream."""
        replay_range = await self.reader.resolve_range(query)
        frames = EventFrames(query.filter.topic, request_id)
        return PreparedStream(kind, query, replay_range, frames)

    async def send(self, prepared: PreparedStream, sink: Sink) -> None:
        await _EventStream(self, prepared, sink).run()


class _EventStream:
    def __init__(self, shared: EventStreams, prepared: PreparedStream, sink: Sink) -> None:
        self._streams = shared.streams
        self._config = shared.config
        self._reader = shared.reader
        self._watchers = shared.watchers
        self._query = prepared.query
        self._range = prepared.range
        self._filter = prepared.query.filter
        self._renderer = Renderer(self._filter.event, self._config.base_url)
        self._frames = prepared.frames
        self._sink = sink
        self._live = prepared.kind is RequestKind.WATCH
        self._end = time.monotonic() + self._config.max_duration
        self._next_heartbeat = time.monotonic() if self._live else float("inf")

    async def run(self) -> None:
        self._push_opening()
        reason = EndReason.END
        if self._query.start is not None:
            outcome = await self._replay()
            if outcome is _ReplayOutcome.COMPLETE:
                self._push(self._frames.completed)
            elif outcome is _ReplayOutcome.LIMITED:
                self._sink.push(self._frames.limited(self._now(), self._limit))
            if outcome is not _ReplayOutcome.COMPLETE or not self._live:
                self._close(self._end_reason() or reason)
                return
        if self._live:
            reason = await self._watch()
        self._close(reason)

    def _push_opening(self) -> None:
        now, start = self._now(), self._query.start
        if start is None:
            frame = self._frames.established(now, self._config.max_duration)
        else:
            end, batch = self._range.end_sequence, self._config.batch
            frame = self._frames.started(now, start, self._query.stop, end, batch)
        self._sink.push(frame)
        self._send_heartbeat()

    # Replay

    @property
    def _limit(self) -> int:
        return self._filter.event.replay_limit or self._config.replay_limit

    async def _replay(self) -> _ReplayOutcome:
        """Send the notifications up to the start of the live phase, or as many as the limit allows.

        A replay ends after the maximum duration, too, because a function must end before its
        timeout; the client reconnects for the rest."""
        sent, batch = 0, self._config.batch
        try:
            async for notifications in self._reader.read(self._filter, self._range):
                for begin in range(0, len(notifications), batch):
                    some = notifications[begin : begin + min(batch, self._limit - sent)]
                    await self._send([self._renderer.frame(REPLAY, *each) for each in some])
                    sent += len(some)
                    if begin + len(some) < len(notifications) and sent == self._limit:
                        return _ReplayOutcome.LIMITED
                self._send_heartbeat()
                if self._end_reason():
                    return _ReplayOutcome.STOPPED
        except (StreamNotFound, StreamGone):
            return _ReplayOutcome.COMPLETE
        except TailraceError as error:
            # Without replay_completed, the client reconnects for the rest.
            logger.warning("replay of '%s' failed: %s", self._filter.event.path, error)
            return _ReplayOutcome.FAILED
        return _ReplayOutcome.COMPLETE

    # Live

    async def _watch(self) -> EndReason:
        watcher = Watcher(self._filter, self._sink, self._range.chain, *self._range.tail)
        try:
            while True:
                reason = self._end_reason()
                if reason is not None:
                    return reason
                if watcher.ended:
                    return EndReason.END
                await self._attend(watcher)
                if not self._end_reason() and not watcher.ended:
                    await self._sink.drain()
                    await self._catch_up(watcher)
        except TailraceError as error:
            logger.warning("watch of '%s' failed: %s", self._filter.event.path, error)
            return EndReason.END

    async def _attend(self, watcher: Watcher) -> None:
        """Have the follower serve the watcher for as long as it can."""
        released = self._watchers.attend(watcher, self._renderer)
        if released is None:
            return
        try:
            while not released.done() and not self._end_reason():
                wait = min(self._next_heartbeat, self._end) - time.monotonic()
                await asyncio.wait([released], timeout=max(0.0, wait))
                if not self._send_heartbeat():
                    # The client is slow: leave the follower and wait until the sink has drained,
                    # which times out for a client that reads nothing.
                    break
        finally:
            self._watchers.leave(watcher)
        watcher.ended = released.result()

    async def _catch_up(self, watcher: Watcher) -> None:
        """Read and send one batch to this watcher alone, from its own position."""
        path = self._filter.event.path
        try:
            try:
                view = await self._streams.view(path, watcher.slot)
            except OffsetTrimmed:
                view = await self._streams.view(path, BEGINNING)
        except (StreamNotFound, StreamGone):
            watcher.chain, watcher.slot, watcher.offset = None, 0, 0
            return
        if view.tail.stream.id != watcher.chain:
            # The stream was created anew: send the new one from its beginning.
            watcher.chain = view.tail.stream.id
            watcher.slot, watcher.offset, _ = view.tail.stream.config.base
            return
        matcher, pace = Matcher(self._filter), Pace()
        frames: list[bytes] = []
        for offset, message in view.messages():
            if offset > watcher.offset and (notification := matcher.match(message)) is not None:
                frames.append(self._renderer.frame(LIVE, offset, notification))
            await pace.rest()
        watcher.slot, watcher.offset = view.end, view.offset
        watcher.ended = view.closed
        await self._send(frames)
        self._send_heartbeat()

    async def _send(self, frames: list[bytes]) -> None:
        """Send all frames, then wait until the sink has drained."""
        if frames:
            self._sink.push(b"".join(frames))
            kind = RequestKind.WATCH if self._live else RequestKind.REPLAY
            count_sent(kind, self._filter.event, len(frames))
            await self._sink.drain()

    # Time

    def _end_reason(self) -> EndReason | None:
        if self._streams.draining:
            return EndReason.SHUTDOWN
        if time.monotonic() >= self._end:
            return EndReason.DURATION
        return None

    def _send_heartbeat(self) -> bool:
        """Send a heartbeat if one is due; False if the sink is full afterwards."""
        now = time.monotonic()
        if now < self._next_heartbeat or now >= self._end:
            return True
        self._next_heartbeat = now + self._config.heartbeat
        return self._push(self._frames.heartbeat)

    def _push(self, frame: Callable[[int], bytes]) -> bool:
        return self._sink.push(frame(self._now()))

    def _close(self, reason: EndReason) -> None:
        self._sink.push(self._frames.closing(self._now(), reason))

    def _now(self) -> int:
        return self._streams.clock()
