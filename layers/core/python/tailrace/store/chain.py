"""A stream that the embedded store holds open: its tail, its hot entries, and who waits there."""

from __future__ import annotations

import asyncio

from tailrace.log.expiry import deadline, renewal_slack
from tailrace.log.state import State, Stream
from tailrace.store.hot import Hot


class Chain:
    __slots__ = (
        "accessed",
        "hot",
        "memo",
        "settled",
        "soft",
        "stable",
        "state",
        "stored",
        "stream",
        "waiters",
    )

    def __init__(self, stream: Stream, state: State, accessed: int, *, soft: bool = False) -> None:
        self.stream = stream
        self.state = state
        self.settled = state
        self.soft = soft
        self.accessed = accessed
        self.stored = accessed
        """The time of access that the file knows."""
        self.stable = True
        """False while the stream's creation or deletion is not committed yet."""
        self.hot = Hot(state.n, state.offset, state.size)
        self.waiters: set[asyncio.Future[None]] = set()
        self.memo: tuple[object, bytes] | None = None

    @property
    def watched(self) -> bool:
        return bool(self.waiters)

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost if the chain were read from the file again."""
        return self.stable and self.state is self.settled and not self.waiters

    @property
    def stored_deadline(self) -> int | None:
        """When the stream expires for one who knows only the file."""
        config = self.stream.config
        instant = deadline(config, self.stored)
        if instant is not None and config.ttl is not None:
            instant += renewal_slack(config.ttl)
        return instant

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
