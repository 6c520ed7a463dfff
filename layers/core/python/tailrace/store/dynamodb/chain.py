"""A stream as this process knows it: its name, its tail, and the waits for its next slot."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from tailrace.limits import TAIL_CACHE_SECONDS
from tailrace.log.expiry import renewal_slack
from tailrace.log.retention import earliest
from tailrace.log.state import State
from tailrace.store.dynamodb.layout import Name

ALONE: Final = 16
AMONG_RIVALS: Final = 8
"""Appends in a row after which a process pauses."""

SMOOTHING: Final = 0.2


class AppendPacer:
    """Says when the appends of this process to one stream have to pause."""

    __slots__ = ("_ended", "_row", "_seconds")

    def __init__(self) -> None:
        self._row = 0
        """Appends that followed each other without a pause."""
        self._ended = 0.0
        self._seconds = 0.005
        """How long an append takes, roughly."""

    def pause(self, now: float, *, rivals: bool) -> float:
        """Return how long to wait before the next append."""
        if now - self._ended > self._seconds:
            self._row = 0
        if self._row < (AMONG_RIVALS if rivals else ALONE):
            return 0.0
        self._row = 0
        return self._seconds * random.uniform(1, 2)  # noqa: S311 - no secret

    def appended(self, begun: float, ended: float) -> None:
        """Note an append that filled its slot."""
        self._row += 1
        self._ended = ended
        self._seconds += (ended - begun - self._seconds) * SMOOTHING


UNKNOWN: Final = -1e9
"""A time so long ago that nothing known since then is trusted."""

LOSSES: Final = 2
"""Races lost in a row after which a query for the tail is cheaper than another attempt."""

RIVAL_SECONDS: Final = 10.0
"""How long after a lost race other processes are assumed to write to the stream."""

FRESH_SECONDS: Final = 0.02
"""Where others write, a tail that was seen longer ago than this is probably outdated: a read that
finds the new one takes as long as a lost write, and costs less."""


class Chain:
    __slots__ = (
        "_touched",
        "access_lock",
        "confirmed",
        "deleted",
        "earliest",
        "forked",
        "losses",
        "lost_at",
        "pacer",
        "polling",
        "seen_at",
        "soft_deleted",
        "state",
        "stored",
        "stream",
        "unused_upload",
        "used_at",
        "waiters",
        "watchers",
        "written_at",
    )

    def __init__(self, name: Name) -> None:
        self.stream = name.stream
        self.state = name.stream.config.initial_state()
        """Never that of a tombstone: a request that holds the chain may still answer with it."""
        self.deleted = False
        """Whether the tombstone was seen."""
        self.seen_at = UNKNOWN
        """When, by the loop's clock, `state` was last seen to be the tail."""
        self.used_at = UNKNOWN
        """When, by the loop's clock, a writer last used the state from memory."""
        self.confirmed = False
        """Whether the state was read from the table since then."""
        self.access_lock = asyncio.Lock()
        """Held while the time of access is being stored."""
        self.losses = 0
        self.lost_at = UNKNOWN
        """When, by the loop's clock, a race was last lost to another process."""
        self.pacer = AppendPacer()
        self.written_at = UNKNOWN
        """When, by the loop's clock, the last entry was written."""
        self.unused_upload: tuple[bytes, str] | None = None
        """A large body whose entry lost its race, and the key of its object."""
        self.waiters: dict[asyncio.Future[bool], int] = {}
        """The waits, each with its slot."""
        self.watchers = 0
        """Waits that have not returned yet; some may have been woken already."""
        self.polling: asyncio.Task[None] | None = None
        self._touched = 0
        self.update_name(name)

    def update_name(self, name: Name) -> None:
        """Take over what the name item says now."""
        self.stored = name.accessed
        self.forked = name.forked
        self.soft_deleted = name.tombstone is not None
        self.earliest = earliest(name.stream.config, name.earliest)

    @property
    def committed(self) -> State:
        return self.state

    @property
    def accessed(self) -> int:
        """Others may have used the stream since the stored time, by as much as it may lag."""
        ttl = self.stream.config.ttl
        if ttl is None:
            return self.stored
        return max(self._touched, self.stored + renewal_slack(ttl))

    @property
    def watched(self) -> bool:
        return self.watchers > 0

    @property
    def ended(self) -> bool:
        return self.soft_deleted or self.deleted

    def use(self, now: float) -> None:
        """Note that a writer draws conclusions from the remembered state."""
        self.used_at = now
        self.confirmed = False

    def touch(self, now: int) -> None:
        self._touched = max(self._touched, now)

    def trusted(self, now: float) -> bool:
        """Whether a writer may build on the tail without asking.

        This is one half of the rule in `log.trimming`: no slot that was empty when this tail was
        seen can have been filled and removed again in so short a time."""
        if now - self.seen_at >= TAIL_CACHE_SECONDS or self.losses >= LOSSES:
            return False
        # A process that has just lost a race was told the entry to go on from.
        return bool(self.losses) or not self.has_rivals(now) or now - self.seen_at < FRESH_SECONDS

    def has_rivals(self, now: float) -> bool:
        return now - self.lost_at < RIVAL_SECONDS

    def learn_tail(self, state: State, seen: float, silence: float) -> None:
        """Note that the tail was `state` when `seen`, and its last entry `silence` seconds old."""
        self.observe(state, seen - silence)
        if state.slot == self.state.slot:
            self.seen_at = max(self.seen_at, seen)

    def observe(self, state: State, written: float) -> None:
        """Note an entry that left this state behind, whether or not it is still the last one.

        The tail is trusted no longer for it: entries after it may be as old as it is."""
        if state.deleted:
            self.deleted = True
        elif state.slot > self.state.slot or self.written_at == UNKNOWN:
            self.written_at = written
            if state.slot > self.state.slot:
                self.state = state
        self.wake()

    def merge(self, other: Chain) -> None:
        """Take over what another read of the same chain has found."""
        self.stored = max(self.stored, other.stored)
        self.forked = other.forked
        self.earliest = max(self.earliest, other.earliest)
        self.soft_deleted = self.soft_deleted or other.soft_deleted
        self.deleted = self.deleted or other.deleted
        if other.state.slot >= self.state.slot:
            self.state = other.state
            self.written_at = max(self.written_at, other.written_at)
            self.seen_at = max(self.seen_at, other.seen_at)
        self.wake()

    def wake(self, *, everybody: bool = False) -> None:
        """End the waits for slots that are filled now, or all if the stream has ended."""
        ended = everybody or self.ended or self.state.closed
        for waiter, slot in list(self.waiters.items()):
            if ended or slot < self.state.tail:
                del self.waiters[waiter]
                if not waiter.done():
                    waiter.set_result(True)
