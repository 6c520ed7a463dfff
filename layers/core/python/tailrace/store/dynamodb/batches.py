"""Appends of this process that wait for the same stream, and share its next slots.

A stream has at most one write under way. Appends that come meanwhile gather in a batch, which is
frozen when it is sent: a retry after an unclear answer sends the same item. A batch that loses its
slot to another process takes all that were decided after it along: they are decided again.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tailrace.errors import StreamTooHot
from tailrace.limits import QUEUED_APPENDS, QUEUED_BYTES, SLOT_APPENDS
from tailrace.log.slots import merge, position, share
from tailrace.log.state import Entry, State
from tailrace.store.base import resolve


class Batch:
    """Appends that become one entry."""

    __slots__ = ("_entries", "_futures", "_waiters", "before", "bytes", "complete", "large", "sent")

    def __init__(self, before: State, *, large: bool) -> None:
        """`before`: the state on which the first was decided. `large`: its body becomes an object,
        and nothing joins it."""
        self.large = large
        self.complete = False
        """Whether nothing joins it any more."""
        self.sent = False
        """Whether it may be stored by now."""
        self.bytes = 0
        self.before = before
        self._entries: list[Entry] = []
        self._futures: list[asyncio.Future[int | None]] = []
        self._waiters: list[asyncio.Future[bool]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def admits(self, entry: Entry, most: int) -> bool:
        """Whether an append may join. `most`: bytes of all of them."""
        return (
            not (self.complete or self.large)
            and len(self) < SLOT_APPENDS
            and self.bytes + weight(entry) <= most
        )

    def add(self, entry: Entry) -> asyncio.Future[int | None]:
        """Add an append; the future becomes what `Store.put` returns."""
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._entries.append(entry)
        self._futures.append(future)
        self.bytes += weight(entry)
        return future

    def freeze(self) -> Entry:
        self.complete = self.sent = True
        return merge(self.before, self._entries)

    async def done(self) -> bool:
        """Wait until the batch is stored; False when it was not.

        It is complete from now on: a conclusion from its state is true of the end of its slot."""
        self.complete = True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return await waiter

    def stored(self) -> None:
        for index, future in enumerate(self._futures):
            resolve(future, position(self._entries, index))
        self._end(stored=True)

    def lost(self) -> None:
        for future in self._futures:
            resolve(future, None)
        self._end(stored=False)

    def failed(self, error: Exception) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)
                # It counts as retrieved: a caller that was cancelled will not ask for it.
                future.exception()
        self._end(stored=False)

    @property
    def state(self) -> State:
        """The stream's state once the batch is stored."""
        return self._entries[-1].state

    def _end(self, *, stored: bool) -> None:
        for waiter in self._waiters:
            resolve(waiter, stored)


class Batches:
    """The batches of a stream that are not stored yet, in order; the first may be under way."""

    __slots__ = ("_appends", "_bytes", "_queue", "task")

    def __init__(self) -> None:
        self._queue: deque[Batch] = deque()
        self._appends = 0
        self._bytes = 0
        self.task: asyncio.Task[None] | None = None
        """Stores the batches, as long as there are any."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def first(self) -> Batch:
        return self._queue[0]

    @property
    def last(self) -> Batch:
        return self._queue[-1]

    def add(
        self, before: State, entry: Entry, most: int, *, large: bool
    ) -> asyncio.Future[int | None]:
        """Queue an append that was decided on `before`, the state of the last batch.

        `most`: bytes of the appends of a batch that it may join."""
        if self._appends >= QUEUED_APPENDS or self._bytes + weight(entry) > QUEUED_BYTES:
            raise StreamTooHot("more appends wait for this stream than it takes; try again later")
        if self._queue and not large and self.last.admits(entry, most):
            entry = share(entry)
        else:
            self._queue.append(Batch(before, large=large))
        self._appends += 1
        self._bytes += weight(entry)
        return self.last.add(entry)

    def pop(self) -> Batch:
        batch = self._queue.popleft()
        self._appends -= len(batch)
        self._bytes -= batch.bytes
        return batch

    def lose(self) -> None:
        """Have all appends decided again."""
        while self._queue:
            self.pop().lost()


def weight(entry: Entry) -> int:
    """How many bytes an append adds to an item, roughly."""
    author = entry.state.author
    named = 0 if author is None else len(author.id) + 16
    return len(entry.body or b"") + len(entry.note or "") + named + 12
