"""One follower per stream for everybody who tails it.

A thousand readers at the tail wait for the same data. They do not wait one by one: a `Follower`,
one task per stream, waits for the next slot and hands it out to all of them. A protocol only says
what its readers are, and how a view becomes what is pushed to them.

A follower never goes back, so it admits a reader only if the reader is not behind. A reader that is
behind, or whose client takes data too slowly, reads the stream by itself until it has caught up.
Nothing is awaited between that comparison and the admission, so no data is lost or sent twice.

How far a reader or a follower has got is an offset *of a chain*, with the slot to read next: a
stream that is deleted and created again is another chain, which counts from its own beginning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from tailrace.errors import DamagedData, OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.log import offsets
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

SLICE_SECONDS: Final = 0.005
"""How long work may hold the event loop at a time: an append is acknowledged in less than that."""

SLICE_READERS: Final = 32
"""Readers that are served before other tasks run. Appends that are committed meanwhile go out
together in the next round, so that a thousand readers get fewer and larger events."""

BUSY_SLICE_READERS: Final = 4
"""The same while appends to the stream go on: each of them waits for several slices, and the more
of them a round lets through, the fewer events there are."""


GATHER_SECONDS: Final = 0.01
"""Longest pause before the next round while appends go on; it is as long as the last round."""

T = TypeVar("T")


class Pace:
    """Splits long work into slices: call `rest` after each bounded step."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        """Let other tasks run if the current slice is over."""
        if time.perf_counter() - self._since >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


async def slices(readers: Sequence[T], view: View | None = None) -> AsyncIterator[Sequence[T]]:
    """Iterate over readers, slice by slice; other tasks run in between. `view`: what they get."""
    begin = 0
    while begin < len(readers):
        if begin:
            await asyncio.sleep(0)
        is_busy = view is not None and view.tail.state.tail > view.end
        end = begin + (BUSY_SLICE_READERS if is_busy else SLICE_READERS)
        yield readers[begin:end]
        begin = end


class Sink(Protocol):
    """The body of a response that goes on for as long as its client listens."""

    async def drain(self) -> None:
        """Wait until there is room for more."""

    def push(self, data: bytes) -> bool:
        """Write without waiting; False when there is no room for more after that."""


logger = logging.getLogger("tailrace")

FOLLOW_SECONDS: Final = 30.0
"""Longest wait for the next slot; then the follower reads the stream without having been woken."""

RETRY_SECONDS: Final = 1.0
"""Pause before a follower goes on after the store has failed."""

UNKNOWN: Final = -1
"""In place of a chain: the follower has not looked up the stream yet."""


class ReaderPosition(Protocol):
    """How far somebody has got in a stream."""

    chain: int | None
    """None: there was no stream."""
    offset: int
    """The offset of that chain up to which it has the data."""


class Follower(ABC):
    """The task that follows a stream's tail, over deletions, failures and retention."""

    def __init__(
        self,
        streams: Streams,
        path: str,
        chain: int | None = UNKNOWN,
        slot: int = 0,
        offset: int = 0,
        *,
        tail: Tail | None = None,
        poll: float | None = None,
    ) -> None:
        """`tail`: the stream, if the caller has just looked it up. `poll`: seconds between two
        lookups of a stream that another process may create; None: no other process can."""
        self.path = path
        self.chain = chain
        """The chain that is followed; None: there is no stream."""
        self.slot = slot
        """The slot that is read next."""
        self.offset = offset
        """The offset up to which data was handed out."""
        self.over = False
        """Whether it hands out nothing any more."""
        self._streams = streams
        self._tail = tail
        self._poll = poll
        self._task = asyncio.create_task(self._run())

    def admits(self, reader: ReaderPosition) -> bool:
        """Whether a reader has everything that was handed out so far."""
        if self.chain is None:
            return True
        return reader.chain == self.chain and reader.offset >= self.offset

    def stop(self) -> None:
        self.end()
        self._task.cancel()

    # What differs between protocols

    @abstractmethod
    async def deliver(self, view: View) -> None:
        """Hand out a view, and advance `slot` and `offset`. The view is empty when a wait ended
        without data."""

    def longest_wait(self) -> float:
        """Seconds after which `deliver` is called even if there is no data."""
        return FOLLOW_SECONDS

    def switch(self, tail: Tail | None) -> None:
        """Go on with another chain, or with none, after the stream was created or deleted.

        The first chain is followed from its tail on, a later one from its beginning."""
        if tail is None:
            self.chain = None
            return
        is_first = self.chain == UNKNOWN
        if is_first:
            self.slot, self.offset = tail.committed.tail, tail.committed.offset
        else:
            self.slot, self.offset, _ = tail.stream.config.base
        self.chain = tail.stream.id

    def skip(self, earliest: str) -> None:
        """Go on at the first offset that retention has kept."""
        self.slot, self.offset, _ = offsets.parse(earliest)

    async def back_off(self) -> None:
        """Pause after a failure; then the follower tries again, unless it is over."""
        await asyncio.sleep(RETRY_SECONDS)

    def end(self) -> None:
        self.over = True

    # The task

    @property
    def _running(self) -> bool:
        return not self.over and not self._streams.draining

    async def _run(self) -> None:
        try:
            with self._streams.watching(self.path) as created:
                while self._running:
                    created.clear()
                    await self._follow()
                    if self._running:
                        with suppress(TimeoutError):
                            await asyncio.wait_for(created.wait(), self._poll)
        finally:
            self.end()

    async def _follow(self) -> None:
        """Deliver until the stream is closed, deleted, or not there."""
        while self._running:
            try:
                await self._follow_chain()
            except (StreamNotFound, StreamGone):
                if self.chain is not None:
                    self.switch(None)
            except OffsetTrimmed as error:
                self.skip(error.earliest)
                continue
            except DamagedData:
                await self.back_off()  # The store has logged it.
                continue
            except TailraceError as error:
                logger.warning("following '%s' failed: %s", self.path, error)
                await self.back_off()
                continue
            except Exception:
                logger.exception("following '%s' failed", self.path)
                await self.back_off()
                continue
            return

    async def _follow_chain(self) -> None:
        tail, self._tail = self._tail, None
        if tail is None:
            tail = await self._streams.find(self.path)
        if tail.stream.id != self.chain:
            self.switch(tail)
        while self._running:
            view = await self._streams.follow(tail, self.slot, self.longest_wait())
            tail = view.tail
            began = time.perf_counter()
            await self.deliver(view)
            if view.closed:
                return
            if view.bodies and view.up_to_date and tail.state.tail > view.end:
                # There is more already. Half of the time is for appends, and not for readers.
                await asyncio.sleep(min(time.perf_counter() - began, GATHER_SECONDS))


class Reader:
    """A response that gets what is new in a stream while a follower serves it."""

    __slots__ = ("chain", "offset", "released", "sink", "slot")

    def __init__(self, sink: Sink, chain: int | None, slot: int, offset: int) -> None:
        self.sink = sink
        self.chain = chain
        self.slot = slot
        """The slot to read next; while the reader is served it may lag behind the follower's."""
        self.offset = offset
        """The offset up to which it has the data, which may lie inside of that slot."""
        self.released: asyncio.Future[bool] | None = None

    def on_release(self, *, closed: bool) -> None:
        """Called when the follower serves it no longer; `closed`: it has all there will ever be."""
        if self.released is not None and not self.released.done():
            self.released.set_result(closed)


R = TypeVar("R", bound=Reader)


class ChainFollower(Follower, Generic[R]):
    """A follower that ends with its chain, or, where there is none, when one is created.

    Whenever it cannot serve one of its readers it releases it, and the reader finds out for itself
    how things are."""

    def __init__(
        self,
        streams: Streams,
        path: str,
        chain: int | None,
        slot: int,
        offset: int,
        *,
        tail: Tail | None = None,
        poll: float | None = None,
    ) -> None:
        super().__init__(streams, path, chain, slot, offset, tail=tail, poll=poll)
        self.readers: dict[R, None] = {}
        """None of them is behind `offset`."""
        self.serving = 0
        """The offset after the data that is being handed out: readers that join need it, too."""

    def admits(self, reader: ReaderPosition) -> bool:
        return super().admits(reader) and reader.offset >= self.serving

    def add(self, reader: R) -> None:
        """Serve a reader until it is released."""
        self.readers[reader] = None

    def remove(self, reader: R) -> None:
        del self.readers[reader]

    async def slices(self, view: View | None = None) -> AsyncIterator[Sequence[R]]:
        """Iterate over the readers, slice by slice, without those that leave in between.

        `view`: what they are to get."""
        async for some in slices(list(self.readers), view):
            yield [each for each in some if each in self.readers]

    def release(self, readers: Iterable[R], *, closed: bool = False) -> None:
        """Serve readers no longer; `closed`: they have all there will ever be."""
        for reader in readers:
            if reader not in self.readers:
                continue
            self.remove(reader)
            if reader.offset <= self.offset:
                reader.slot, reader.offset = self.slot, self.offset
            reader.on_release(closed=closed)

    def switch(self, tail: Tail | None) -> None:  # noqa: ARG002 - every chain but its own ends it
        self.end()

    async def back_off(self) -> None:
        """Each reader meets the failure by itself, and can tell its client."""
        self.end()

    def end(self) -> None:
        super().end()
        self.release(list(self.readers))


class Followers(Generic[R]):
    """The followers of a protocol, started by their first reader and stopped by their last."""

    def __init__(self) -> None:
        self._followers: dict[tuple[str, int | None], ChainFollower[R]] = {}

    def join(self, path: str, reader: R, start: Callable[[], ChainFollower[R]]) -> bool:
        """Have a reader served until it is released; False: it is behind, and has to read on by
        itself first. `start` makes the follower if there is none."""
        key = path, reader.chain
        follower = self._followers.get(key)
        if follower is None or follower.over:
            follower = self._followers[key] = start()
        elif not follower.admits(reader):
            return False
        follower.add(reader)
        return True

    def attend(
        self, path: str, reader: R, start: Callable[[], ChainFollower[R]]
    ) -> asyncio.Future[bool] | None:
        """As `join`, for a reader that waits until the future is done: with True if it has all
        there will ever be."""
        if not self.join(path, reader, start):
            return None
        reader.released = asyncio.get_running_loop().create_future()
        return reader.released

    def leave(self, path: str, reader: R) -> None:
        key = path, reader.chain
        follower = self._followers.get(key)
        if follower is None:
            return
        follower.release([reader])
        if not follower.readers:
            follower.stop()
            del self._followers[key]
