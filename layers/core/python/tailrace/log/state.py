"""The parts of the log: streams, entries in their slots, and the state each leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from tailrace.log.content import Mode, mode
from tailrace.log.offsets import token


class Chunk(NamedTuple):
    """Consecutive bodies of a chain, one for each append, and where the next slot begins."""

    bodies: Sequence[bytes]
    slot: int
    offset: int
    size: int
    cold: bool = False
    """Whether all of it comes from segments: it has been there for a while."""


class SlotInfo(NamedTuple):
    """Offset and time of a slot, by which slots are searched for."""

    offset: int
    """That of the stream after it."""
    written_at: int
    """When it was filled, in milliseconds."""


class Producer(NamedTuple):
    """The producer of a request, and the request's place in the producer's order."""

    id: str
    epoch: int
    seq: int


Producers = Mapping[str, tuple[int, int]]
"""Producer id to (epoch, last accepted sequence), the coldest first."""

NO_PRODUCERS: Final[Producers] = MappingProxyType({})


class State(NamedTuple):
    """A stream after an entry. The last entry's state is the stream's state."""

    slot: int
    """The next slot: the one that writers race for."""
    offset: int
    """Bytes so far, messages in JSON mode."""
    size: int
    """Stored bytes so far; chunks of a catch-up read end at multiples of it."""
    written_at: int
    """When, in milliseconds; never less than in the entry before."""
    end: int | None = None
    """Once closed: the slot at which readers stop."""
    closer: Producer | None = None
    """The producer request that closed the stream, if one did."""
    seq: str | None = None
    """The last Stream-Seq."""
    producers: Producers = NO_PRODUCERS
    spilled: int = 0
    """How often producers were moved to rows of their own."""
    deleted: bool = False
    """Whether the entry is a tombstone."""
    produced: bool = False
    """Whether a producer wrote the entry: then it is the last of `producers`."""

    @property
    def author(self) -> Producer | None:
        """The producer request that wrote the entry, if one did."""
        if not self.produced:
            return None
        producer, last = list(self.producers.items())[-1]
        return Producer(producer, *last)

    @property
    def closed(self) -> bool:
        return self.end is not None

    @property
    def tail(self) -> int:
        """The slot that a reader with all data reads next.

        A slot that only says "closed" holds no data, so closing does not move a reader's offset.
        """
        return self.slot if self.end is None else self.end

    def next_offset(self, epoch: int) -> str:
        """Return the token of a reader with all data, in a stream of this epoch."""
        return token(self.tail, self.offset, epoch)


class Part(NamedTuple):
    """One of several appends that share a slot."""

    length: int
    """Of its body."""
    step: int
    """By how much it advances the offset."""
    author: Producer | None = None
    """The producer request that wrote it, if one did."""
    note: str | None = None


class Entry(NamedTuple):
    """An entry, which fills a slot with one append or with several."""

    slot: int
    body: bytes | None
    """Data, as it is stored: the bodies of its appends one after the other; None for a slot that
    only closes or deletes."""
    state: State
    """The state after the last append."""
    spill: Producers = NO_PRODUCERS
    """Producers that leave the state with this entry, to be stored in the same write."""
    note: str | None = None
    """Goes with it to subscribers that get it at once; no reader sees it."""
    parts: Sequence[Part] = ()
    """The appends; empty when it is one."""


class Ancestor(NamedTuple):
    """A chain that a fork reads through: slots below `until` that no later chain covers."""

    id: int
    until: int


class Fork(NamedTuple):
    """Where a fork left its source."""

    source: str
    parent: int
    """The source's incarnation."""
    slot: int
    """The slot at which the fork was asked for."""
    sub_offset: int
    lineage: tuple[Ancestor, ...]
    """All chains below this one, the oldest first."""
    offset: int = 0
    """The offset at which it was asked for; 0 if the request named none."""


class Config(NamedTuple):
    """The configuration that a stream was created with; it never changes."""

    content_type: str
    created: int
    ttl: int | None = None
    """Seconds without access after which the stream expires."""
    expires_at: int | None = None
    """The instant, in milliseconds, at which the stream expires."""
    fork: Fork | None = None
    own_expiry: bool = True
    """False when a fork took its source's expiry because the request named none."""
    base: tuple[int, int, int] = (0, 0, 0)
    """Slot, offset and size at which the chain begins."""
    earliest: int = 0
    """The first slot that a fork's source still had: nothing before it can be read."""
    epoch: int = 0
    """The number by which tokens of this stream and its forks differ from others; 0: none does."""

    @property
    def mode(self) -> Mode:
        return mode(self.content_type)

    def initial_state(self) -> State:
        return State(*self.base, self.created)


class Stream(NamedTuple):
    """A name and the incarnation it stands for now."""

    path: str
    id: int
    config: Config


class Listed(NamedTuple):
    """A stream in a listing."""

    stream: Stream
    state: State
