"""Streams as this process knows them: names, tails, and waits for the next slot."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from typing import Final

from tailrace.limits import TAIL_CACHE_SECONDS
from tailrace.log.expiry import renewal_slack
from tailrace.log.retention import earliest
from tailrace.log.state import State
from tailrace.store.dynamodb.batches import Batches
from tailrace.store.dynamodb.layout import Name

ALONE: Final = 16
AMONG_RIVALS: Final = 4
"""Appends in a row after which a process pauses, so that others get in."""

COMPETING: Final = 0.2
"""Slots of others between two appends of a process, on average, from which on it pauses after each
append."""

GIVE_WAY: Final = 32
"""Most slots that a process lets pass."""

SMOOTHING: Final = 0.2


class AppendPacer:
    """Says when this process may write to one stream again, so that others get their share.

    The process that fills a slot knows the tail first, and would fill the next one, too. So it lets
    as many slots pass as others have filled since its last one. Those whose turn it is then are few
    and hardly lose to each other."""

    __slots__ = ("_ended", "_others", "_row", "_slot", "free_at", "seconds")

    def __init__(self) -> None:
        self.free_at = 0.0
        """When, by the loop's clock, the next append may be sent."""
        self.seconds = 0.005
        """How long an append takes, roughly."""
        self._ended = 0.0
        self._row = 0
        """Appends that followed each other without a pause."""
        self._slot = 0
        self._others = 0.0
        """Slots that others fill between two of this process, roughly."""

    def appended(self, slot: int, begun: float, ended: float, *, rivals: bool) -> None:
        """Note an append that filled its slot."""
        self._row = self._row + 1 if begun - self._ended <= self.seconds else 1
        self._others = (self._others + min(slot - self._slot - 1, GIVE_WAY)) / 2
        self._slot, self._ended = slot, ended
        self.seconds += (ended - begun - self.seconds) * SMOOTHING
        if self._row < self._most(rivals=rivals):
            return
        self._row = 0
        slots = max(1.0, self._others) if rivals else 1.0
        chance = random.uniform(1, 1.5)  # noqa: S311 - no secret
        self.free_at = ended + self.seconds * slots * chance

    def _most(self, *, rivals: bool) -> int:
        if not rivals:
            return ALONE
        return 1 if self._others >= COMPETING else AMONG_RIVALS


PRESUMED_SECONDS: Final = 4.0
"""Time in which others are presumed to fill a slot, before experience says more: Lambda spreads the
requests for a stream over processes, so that a tail is trusted for a second at first."""

EXPERIENCE: Final = 15 / 16
"""The part of its earlier observations that the estimate of other writers keeps at each append."""

LIKELY: Final = 0.25
"""Expected slots of others from which on the tail is read before a write. The read costs a fifth of
a lost write, and takes as long."""


class OtherWriters:
    """Estimates how many slots of a stream other processes fill.

    It counts them between two appends of this process: a process that is alone soon trusts its tail
    for as long as it may, and one of many reads the tail before each write."""

    __slots__ = ("_ended", "_seconds", "_slot", "_slots")

    def __init__(self) -> None:
        self._slot: int | None = None
        self._ended = 0.0
        self._slots = 1.0
        self._seconds = PRESUMED_SECONDS

    def appended(self, slot: int, ended: float) -> None:
        """Note that this process has filled a slot.

        After more than TAIL_CACHE_SECONDS it has read the tail anyway, and a pause between two
        bursts must not hide the writers in them."""
        seconds = ended - self._ended
        if self._slot is not None and seconds < TAIL_CACHE_SECONDS:
            self._slots = self._slots * EXPERIENCE + slot - self._slot - 1
            self._seconds = self._seconds * EXPERIENCE + seconds
        self._slot, self._ended = slot, ended

    def expected(self, seconds: float) -> float:
        """Return how many slots they fill in so many seconds, on average."""
        return seconds * self._slots / self._seconds


UNKNOWN: Final = -1e9
"""A time so long ago that nothing known since then is trusted."""

LOSSES: Final = 2
"""Races lost in a row after which a query for the tail is cheaper than another attempt."""

RIVAL_SECONDS: Final = 10.0
"""How long after a lost race other processes are assumed to write to the stream."""


class Chain:
    __slots__ = (
        "_touched",
        "access_lock",
        "archived",
        "batches",
        "committed",
        "confirmed",
        "deleted",
        "earliest",
        "forked",
        "known_at",
        "losses",
        "lost_at",
        "other_writers",
        "pacer",
        "polling",
        "seen_at",
        "soft_deleted",
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
        self.committed = name.stream.config.initial_state()
        """Never that of a tombstone: a request that holds the chain may still answer with it."""
        self.deleted = False
        """Whether the tombstone was seen."""
        self.seen_at = UNKNOWN
        """When, by the loop's clock, `committed` was last seen to be the tail."""
        self.known_at = UNKNOWN
        """When, by the loop's clock, this process was last told of the tail or an entry there, if
        only by a poll, which may lag a little."""
        self.used_at = UNKNOWN
        """When, by the loop's clock, a writer last used the state from memory."""
        self.confirmed = False
        """Whether the state was read from the table since then."""
        self.access_lock = asyncio.Lock()
        """Held while the time of access is being stored."""
        self.losses = 0
        self.lost_at = UNKNOWN
        """When, by the loop's clock, a race was last lost to another process."""
        self.other_writers = OtherWriters()
        self.pacer = AppendPacer()
        self.batches = Batches()
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
        self.archived = name.archived > name.stream.config.base[0]

    @property
    def state(self) -> State:
        return self.batches.last.state if self.batches else self.committed

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

        This is one half of the rule in `log.retention`: no slot that was empty when this tail was
        seen can have been filled and removed again in so short a time."""
        return now - self.seen_at < TAIL_CACHE_SECONDS

    def outdated(self, now: float) -> bool:
        """Whether the tail is to be read before a write: others have probably filled a slot, and a
        read that tells costs less than a lost write."""
        if not self.trusted(now) or self.losses >= LOSSES:
            return True
        age = now - self.known_at
        if age <= self.pacer.seconds:
            return False
        return self.has_rivals(now) or self.other_writers.expected(age) >= LIKELY

    def has_rivals(self, now: float) -> bool:
        return now - self.lost_at < RIVAL_SECONDS

    def learn_tail(self, state: State, seen: float, silence: float) -> None:
        """Note that the tail was `state` when `seen`, and its last entry `silence` seconds old."""
        self.observe(state, seen - silence)
        if state.slot == self.committed.slot:
            self.seen_at = max(self.seen_at, seen)

    def observe(self, state: State, written: float) -> None:
        """Note an entry that left this state behind, whether or not it is still the last one.

        The tail is trusted no longer for it: entries after it may be as old as it is."""
        if state.deleted:
            self.deleted = True
        elif state.slot > self.committed.slot or self.written_at == UNKNOWN:
            self.written_at = written
            if state.slot > self.committed.slot:
                self.committed = state
        self.wake()

    def merge(self, other: Chain) -> None:
        """Take over what another read of the same chain has found."""
        self.stored = max(self.stored, other.stored)
        self.forked = other.forked
        self.earliest = max(self.earliest, other.earliest)
        self.archived = self.archived or other.archived
        self.soft_deleted = self.soft_deleted or other.soft_deleted
        self.deleted = self.deleted or other.deleted
        if other.committed.slot >= self.committed.slot:
            self.committed = other.committed
            self.written_at = max(self.written_at, other.written_at)
            self.seen_at = max(self.seen_at, other.seen_at)
        self.wake()

    def wake(self, *, everybody: bool = False) -> None:
        """End the waits for slots that are filled now, or all if the stream has ended."""
        ended = everybody or self.ended or self.committed.closed
        for waiter, slot in list(self.waiters.items()):
            if ended or slot < self.committed.tail:
                del self.waiters[waiter]
                if not waiter.done():
                    waiter.set_result(True)


class OpenChains:
    """A cache of chains by path; the least recently used one is removed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._chains: OrderedDict[str, Chain] = OrderedDict()

    def get(self, path: str) -> Chain | None:
        chain = self._chains.get(path)
        if chain is not None:
            self._chains.move_to_end(path)
        return chain

    def keep(self, chain: Chain) -> Chain:
        """Keep a chain and return it; of two for one incarnation, the one that is held already."""
        path = chain.stream.path
        held = self._chains.get(path)
        if held is not None and held is not chain:
            if held.stream.id == chain.stream.id:
                held.merge(chain)
                return held
            self.forget(held)
        self._chains[path] = chain
        self._chains.move_to_end(path)
        while len(self._chains) > self._size:
            oldest = next(iter(self._chains.values()))
            if oldest.watched or oldest is chain:
                break
            self.forget(oldest)
        return chain

    def forget(self, chain: Chain) -> None:
        if self._chains.get(chain.stream.path) is chain:
            del self._chains[chain.stream.path]
        chain.wake(everybody=True)

    def distrust(self) -> None:
        """Have the next write to each stream read the tail first."""
        for chain in self._chains.values():
            chain.seen_at = UNKNOWN

    def wake(self) -> None:
        for chain in self._chains.values():
            chain.wake(everybody=True)
