"""The answers of watch and replay, from their first frame to the last."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.live.pace import Pace
from tailrace.log.offsets import BEGINNING
from tailrace.protocols.aviso.config import Config
from tailrace.protocols.aviso.deletions import Deletions
from tailrace.protocols.aviso.envelope import Renderer
from tailrace.protocols.aviso.errors import Operation
from tailrace.protocols.aviso.feed import Feeds, Watcher
from tailrace.protocols.aviso.filters import Test
from tailrace.protocols.aviso.frames import LIVE, REPLAY, Frames, Reason
from tailrace.protocols.aviso.history import History, Part
from tailrace.protocols.aviso.requests import Subscription
from tailrace.streams import Streams
from tailrace.web.messages import Sink

logger = logging.getLogger("tailrace")


class _Outcome(Enum):
    """How a replay ended."""

    COMPLETE = auto()
    LIMITED = auto()
    STOPPED = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Opened:
    """A request that can be answered."""

    operation: Operation
    asked: Subscription
    part: Part
    frames: Frames


class Watching:
    def __init__(self, streams: Streams, config: Config, deletions: Deletions) -> None:
        self.streams = streams
        self.config = config
        self.history = History(streams, deletions)
        self.feeds = Feeds(streams)
        self.renderers = {
            name: Renderer(event, config.base_url) for name, event in config.events.items()
        }

    async def open(self, operation: Operation, asked: Subscription, request_id: str) -> Opened:
        """Fixes where replay ends and live begins; what fails here is no answer of events yet."""
        part = await self.history.part(asked)
        return Opened(operation, asked, part, Frames(asked.filter.topic, request_id))

    async def answer(self, opened: Opened, sink: Sink) -> None:
        await _Answer(self, opened, sink).run()


class _Answer:
    def __init__(self, watching: Watching, opened: Opened, sink: Sink) -> None:
        self._streams = watching.streams
        self._config = watching.config
        self._history = watching.history
        self._feeds = watching.feeds
        self._opened = opened
        self._filter = opened.asked.filter
        self._renderer = watching.renderers[self._filter.event.name]
        self._frames = opened.frames
        self._sink = sink
        self._live = opened.operation is Operation.WATCH
        self._end = time.monotonic() + self._config.max_duration
        self._beats_at = time.monotonic() if self._live else float("inf")

    async def run(self) -> None:
        self._push_opening()
        reason = Reason.END
        if self._opened.asked.start is not None:
            outcome = await self._replay()
            if outcome is _Outcome.COMPLETE:
                self._push(self._frames.completed)
            elif outcome is _Outcome.LIMITED:
                self._sink.push(self._frames.limited(self._now(), self._most))
            if outcome is not _Outcome.COMPLETE or not self._live:
                self._close(self._over() or reason)
                return
        if self._live:
            reason = await self._watch()
        self._close(reason)

    def _push_opening(self) -> None:
        start, part = self._opened.asked.start, self._opened.part
        if start is None:
            frame = self._frames.established(self._now(), self._config.max_duration)
        else:
            date = start.text if start.sequence is None else None
            frame = self._frames.started(
                self._now(), start.sequence, date, self._config.batch, part.end_sequence
            )
        self._sink.push(frame)
        self._beat()

    # Replay

    @property
    def _most(self) -> int:
        return self._filter.event.replay_limit or self._config.replay_limit

    async def _replay(self) -> _Outcome:
        """Everything up to where live begins; of more than the limit allows, the limit.

        It has an end in time, too, which a function could not outlast: a client comes back for the
        rest."""
        sent, batch = 0, self._config.batch
        try:
            async for found in self._history.replayed(self._filter, self._opened.part):
                for begin in range(0, len(found), batch):
                    some = found[begin : begin + min(batch, self._most - sent)]
                    await self._send([self._renderer.frame(REPLAY, *each) for each in some])
                    sent += len(some)
                    if begin + len(some) < len(found) and sent == self._most:
                        return _Outcome.LIMITED
                self._beat()
                if self._over():
                    return _Outcome.STOPPED
        except (StreamNotFound, StreamGone):
            return _Outcome.COMPLETE
        except TailraceError as error:
            # Not told as completed, so a client comes back for the rest.
            logger.warning("a replay of '%s' broke off: %s", self._filter.event.path, error)
            return _Outcome.FAILED
        return _Outcome.COMPLETE

    # Live

    async def _watch(self) -> Reason:
        part = self._opened.part
        watcher = Watcher(self._filter, self._sink, part.chain, part.tail)
        try:
            while True:
                reason = self._over()
                if reason is not None:
                    return reason
                if watcher.ended:
                    return Reason.END
                released = self._feeds.attend(watcher, self._renderer)
                if released is not None:
                    await self._attend(watcher, released)
                if not self._over() and not watcher.ended:
                    await self._sink.drain()
                    await self._catch_up(watcher)
        except TailraceError as error:
            logger.warning("a watch of '%s' broke off: %s", self._filter.event.path, error)
            return Reason.END
        finally:
            self._feeds.leave(watcher)

    async def _attend(self, watcher: Watcher, released: asyncio.Future[None]) -> None:
        while not released.done() and not self._over():
            wait = min(self._beats_at, self._end) - time.monotonic()
            await asyncio.wait([released], timeout=max(0.0, wait))
            if not self._beat():
                # The line is full. To wait for room ends when the client takes nothing for long.
                self._feeds.leave(watcher)

    async def _catch_up(self, watcher: Watcher) -> None:
        """Read one piece for this watcher alone, from where it is."""
        path = self._filter.event.path
        try:
            try:
                view = await self._streams.view(path, watcher.slot)
            except OffsetTrimmed:
                view = await self._streams.view(path, BEGINNING)
        except (StreamNotFound, StreamGone):
            watcher.chain, watcher.slot = None, 0
            return
        if view.tail.stream.id != watcher.chain:
            # What was read is of another stream, which is told from its beginning.
            watcher.chain, watcher.slot = view.tail.stream.id, 0
            return
        test, pace = Test(self._filter), Pace()
        frames: list[bytes] = []
        for slot, body in enumerate(view.bodies, view.start):
            if slot >= watcher.slot and (notification := test.passes(body)) is not None:
                frames.append(self._renderer.frame(LIVE, slot + 1, notification))
            await pace.rest()
        watcher.slot = max(watcher.slot, view.end)
        watcher.ended = view.closed
        await self._send(frames)
        self._beat()

    async def _send(self, frames: list[bytes]) -> None:
        """At once, and then wait until there is room for more."""
        if frames:
            self._sink.push(b"".join(frames))
            await self._sink.drain()

    # Time

    def _over(self) -> Reason | None:
        if self._streams.draining:
            return Reason.SHUTDOWN
        if time.monotonic() >= self._end:
            return Reason.DURATION
        return None

    def _beat(self) -> bool:
        """Send a heartbeat if it is time for one; False when there is no room for more after it."""
        now = time.monotonic()
        if now < self._beats_at or now >= self._end:
            return True
        self._beats_at = now + self._config.heartbeat
        return self._push(self._frames.heartbeat)

    def _push(self, frame: Callable[[int], bytes]) -> bool:
        return self._sink.push(frame(self._now()))

    def _close(self, reason: Reason) -> None:
        self._sink.push(self._frames.closing(self._now(), reason))

    def _now(self) -> int:
        return self._streams.clock()
