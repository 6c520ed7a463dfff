"""A stream as this process knows it: its name, its tail, and who waits there."""

from __future__ import annotations

import asyncio
from typing import Final

from tailrace.limits import TAIL_TRUST_SECONDS
from tailrace.log.expiry import renewal_slack
from tailrace.log.retention import earliest
from tailrace.log.state import State
from tailrace.store.dynamodb.layout import Name
from tailrace.store.dynamodb.pace import Pace

UNKNOWN: Final = -1e9
"""A time so long ago that nothing known since then is trusted."""

LOSSES: Final = 2
"""Races lost in a row after which it is cheaper to look for the tail than to run after it."""

RIVAL_SECONDS: Final = 10.0
"""How long others who write to a stream are reckoned with after a race was lost to one of them."""

FRESH_SECONDS: Final = 0.02
"""Among rivals a tail that was seen longer ago than this is probably outdated: a read that finds
the new one takes as long as a write that is lost, and costs less."""


class Chain:
    __slots__ = (
        "_touched",
        "active",
        "buried",
        "certain",
        "clock",
        "earliest",
        "forked",
        "known",
        "losses",
        "pace",
        "polling",
        "rival",
        "soft_deleted",
        "spare",
        "state",
        "stored",
        "stream",
        "taken",
        "waiters",
        "watchers",
    )

    def __init__(self, name: Name) -> None:
        self.stream = name.stream
        self.state = name.stream.config.initial_state()
        """Never that of a tombstone: whoever holds the chain may be about to answer with it."""
        self.buried = False
        """Whether the tombstone was seen."""
        self.known = UNKNOWN
        """When, by the loop's clock, `state` was last seen to be the tail."""
        self.taken = UNKNOWN
        """When, by the loop's clock, a writer last took the state from memory."""
        self.certain = False
        """Whether the store was asked for the state since then."""
        self.clock = asyncio.Lock()
        """Held while the time of access is being stored."""
        self.losses = 0
        self.rival = UNKNOWN
        """When, by the loop's clock, a race was last lost to another process."""
        self.pace = Pace()
        self.active = UNKNOWN
        """When, by the loop's clock, the last entry was written."""
        self.spare: tuple[bytes, str] | None = None
        """A large body that was uploaded for an entry that lost its race, and its object's key."""
        self.waiters: dict[asyncio.Future[bool], int] = {}
        """Who waits, and for which slot."""
        self.watchers = 0
        """Waits that have not returned yet; some may have been woken already."""
        self.polling: asyncio.Task[None] | None = None
        self._touched = 0
        self.renamed(name)

    def renamed(self, name: Name) -> None:
        """What the name item says now."""
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
    def gone(self) -> bool:
        return self.soft_deleted or self.buried

    def take(self, now: float) -> None:
        """A writer is going to conclude something from what is remembered."""
        self.taken = now
        self.certain = False

    def touched(self, now: int) -> None:
        self._touched = max(self._touched, now)

    def trusted(self, now: float) -> bool:
        """Whether a writer may build on the tail without asking.

        This is one half of the rule in `log.trimming`: no slot that was empty when this tail was
        seen can have been filled and removed again in so short a time."""
        if now - self.known >= TAIL_TRUST_SECONDS or self.losses >= LOSSES:
            return False
        # Who has just lost a race was told what to go on from.
        return bool(self.losses) or not self.has_rivals(now) or now - self.known < FRESH_SECONDS

    def has_rivals(self, now: float) -> bool:
        return now - self.rival < RIVAL_SECONDS

    def learn(self, state: State, seen: float, silence: float) -> None:
        """The tail was `state` at the time `seen`, and its last entry is `silence` seconds old."""
        self.hear(state, seen - silence)
        if state.slot == self.state.slot:
            self.known = max(self.known, seen)

    def hear(self, state: State, written: float) -> None:
        """An entry left this state behind, whether or not it is still the last one.

        That makes no tail trusted for longer: what came after it may be as old as it is."""
        if state.deleted:
            self.buried = True
        elif state.slot > self.state.slot or self.active == UNKNOWN:
            self.active = written
            if state.slot > self.state.slot:
                self.state = state
        self.wake()

    def merge(self, other: Chain) -> None:
        """What another look at the same chain has found."""
        self.stored = max(self.stored, other.stored)
        self.forked = other.forked
        self.earliest = max(self.earliest, other.earliest)
        self.soft_deleted = self.soft_deleted or other.soft_deleted
        self.buried = self.buried or other.buried
        if other.state.slot >= self.state.slot:
            self.state = other.state
            self.active = max(self.active, other.active)
            self.known = max(self.known, other.known)
        self.wake()

    def wake(self, *, everybody: bool = False) -> None:
        """End the waits for slots that are filled now, or for a stream that has ended."""
        ended = everybody or self.gone or self.state.closed
        for waiter, slot in list(self.waiters.items()):
            if ended or slot < self.state.tail:
                del self.waiters[waiter]
                if not waiter.done():
                    waiter.set_result(True)
