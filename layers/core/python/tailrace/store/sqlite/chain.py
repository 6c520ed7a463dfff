"""A stream that the embedded store holds open: its tail, its hot entries, and the waits for it."""

from __future__ import annotations

import asyncio

from tailrace.log.state import State, Stream
from tailrace.store.sqlite.hot import Hot


class Chain:
    __slots__ = (
        "accessed",
        "committed",
        "earliest",
        "hot",
        "soft_deleted",
        "stable",
        "state",
        "stored",
        "storing",
        "stream",
        "touched",
        "waiters",
        "watchers",
    )

    def __init__(self, stream: Stream, state: State, stored: int, *, soft: bool = False) -> None:
        self.stream = stream
        self.state = state
        self.committed = state
        self.soft_deleted = soft
        self.earliest = stream.config.earliest
        self.accessed = stored
        self.touched = False
        """Whether `accessed` was seen by this process, not concluded from the file."""
        self.stored = stored
        """The time of access that the file knows."""
        self.storing = stored
        """The newest time of access on its way to the file."""
        self.stable = True
        """False while the stream's creation or deletion is not committed yet."""
        self.hot = Hot(state.slot, state.offset, state.size)
        self.waiters: set[asyncio.Future[bool]] = set()
        self.watchers = 0
        """Waits that have not returned yet; some may have been woken already."""

    @property
    def watched(self) -> bool:
        return self.watchers > 0

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost if the chain were read from the file again."""
        return (
            self.stable
            and self.state is self.committed
            and not self.watchers
            and (self.stored == self.accessed or not self.touched)
        )

    def wake(self) -> None:
        """End all waits; each counts as watching until its caller has resumed."""
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(True)
