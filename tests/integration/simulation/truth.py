"""The true history of a world, as the changes of its table tell it.

Clients do not know which incarnation an append went to, whether a call that was never answered was
carried out, or when a stream expired. The table does; with its help the events become a history
that `devtools.linearizability.checker` can check.

There, what a fork inherits does not count: a fork is a stream that begins where its own data
begin. What is read of the rest is compared with the source here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from devtools.dynamodb_simulator.engine import Change
from devtools.dynamodb_simulator.values import Item
from devtools.linearizability import checker as happened
from devtools.linearizability.checker import Acknowledged, Duplicate, Final, History, Incarnation
from tailrace.log.offsets import Position, parse, token
from tailrace.log.slots import appends
from tailrace.log.state import Producer, State, Stream
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import Stored
from tests.integration.simulation.world import Call, World

Write = happened.Append | happened.Close


class Placed(NamedTuple):
    """An append where it is stored."""

    slot: int
    begin: int
    """The offset before it."""
    end: int
    """The offset after it."""
    body: bytes
    author: Producer | None


class Place(NamedTuple):
    """Where a write may have gone."""

    slot: int
    offset: int
    """The offset after it."""
    next_offset: str
    """Where a reader goes on who has all up to it."""
    closing: bool
    """Whether it is a mark without data."""


class Past:
    """An incarnation with every entry that it ever had."""

    def __init__(self, stream: Stream, born: float, pasts: Mapping[int, Past]) -> None:
        self.stream = stream
        self.born = born
        self.parent: Past | None = None
        """The stream that it is a fork of."""
        self.lineage: Sequence[tuple[Past, int]] = ()
        """The chains that it reads through, each up to a slot."""
        fork = stream.config.fork
        if fork is not None:
            self.parent = pasts[fork.parent]
            self.lineage = [(pasts[each.id], each.until) for each in fork.lineage]
        self.died = math.inf
        self.released = math.inf
        """When the name was free again: later than the death, if forks needed the data."""
        self.entries: dict[int, Stored] = {}
        self.filled: dict[int, float] = {}
        """When each slot was."""
        self.bodies: dict[int, bytes] = {}
        self.archived: dict[int, float] = {}
        """Since when each slot has been in a segment."""
        self.forgotten: list[tuple[float, int]] = []
        """When retention gave up the slots before which one."""

    def __str__(self) -> str:
        return f"{self.stream.path} ({self.stream.id:016x})"

    @cached_property
    def copied(self) -> Sequence[Placed]:
        """The appends that it has of the slot where it left its source."""
        fork, slot = self.stream.config.fork, self.stream.config.base[0]
        if fork is None or self.parent is None:
            return ()
        # It has nothing of a slot that was not filled yet, nor of the one after that it asked for.
        if slot != fork.slot or slot >= self.parent.tail(self.born):
            return ()
        content = self.parent.content
        return [each for each in content if each.slot == slot and each.end <= fork.offset]

    @cached_property
    def begin(self) -> tuple[int, int]:
        """The slot and the offset at which what it does not have of its source begins."""
        fork = self.stream.config.fork
        slot, offset, _ = self.stream.config.base
        if self.copied:
            offset = self.copied[-1].end
        if fork is not None and fork.sub_offset:
            offset += fork.sub_offset
        elif not self.copied:
            return slot, offset
        return slot + 1, offset

    @property
    def expires(self) -> bool:
        config = self.stream.config
        return config.ttl is not None or config.expires_at is not None

    @cached_property
    def last(self) -> State:
        """The state, if need be as it was before the tombstone."""
        states = (self.entries[n].state for n in sorted(self.entries, reverse=True))
        initial = self.stream.config.initial_state()
        return next((state for state in states if not state.deleted), initial)

    @cached_property
    def placed(self) -> Sequence[Placed]:
        """The appends of its chain, in order."""
        found: list[Placed] = []
        offset = self.stream.config.base[1]
        for slot, body in sorted(self.bodies.items()):
            entry = self.entries[slot]
            for one, end, _, author in appends(body, entry.parts, entry.state):
                found.append(Placed(slot, offset, end, one, author))
                offset = end
        return found

    @cached_property
    def own(self) -> Sequence[Placed]:
        """Those that it does not have of its source."""
        return [each for each in self.placed if each.slot >= self.begin[0]]

    @cached_property
    def content(self) -> Sequence[Placed]:
        """All appends of the stream, what it inherits included."""
        found: list[Placed] = []
        slot = 0
        for chain, until in self.lineage:
            found += [each for each in chain.placed if slot <= each.slot < until]
            slot = until
        return [*found, *self.placed]

    @cached_property
    def ends(self) -> Sequence[str]:
        """For each append of its content the token of a reader who has all up to it."""
        last = {each.slot: each.end for each in self.content}
        return [
            token(each.slot + (each.end == last[each.slot]), each.end, self.epoch)
            for each in self.content
        ]

    @property
    def own_ends(self) -> Sequence[str]:
        return self.ends[len(self.content) - len(self.own) :]

    @cached_property
    def tokens(self) -> dict[str, int]:
        """The tokens that clients may have been told, and the offset of each."""
        ends = (each.end for each in self.own)
        return {
            token(*self.begin, self.epoch): self.begin[1],
            **dict(zip(self.own_ends, ends, strict=True)),
        }

    @cached_property
    def final(self) -> Final:
        content = b"".join(each.body for each in self.own)
        return Final(content, self.rebased(self.next_offset), self.last.closed)

    @property
    def next_offset(self) -> str:
        return self.last.next_offset(self.epoch)

    @property
    def epoch(self) -> int:
        return self.stream.config.epoch

    def tail(self, at: float) -> int:
        """The first slot that was not filled by then."""
        return self.stream.config.base[0] + sum(when <= at for when in self.filled.values())

    def offset(self, at: float) -> int:
        """The offset at which the stream ended then."""
        filled = (self.entries[slot].offset for slot, when in self.filled.items() if when <= at)
        return max(filled, default=self.stream.config.base[1])

    def earliest(self, at: float = math.inf) -> int:
        """The first slot that can be read by then."""
        given_up = [slot for when, slot in self.forgotten if when <= at]
        return max(given_up, default=self.stream.config.earliest)

    def rebased(self, offset: str) -> str:
        """An offset as if the stream began where its own data begin."""
        return token(0, max(0, parse(offset).offset - self.begin[1]))

    def places_of(self, write: Write) -> Iterator[Place]:
        """Iterate over the places where it may be."""
        if isinstance(write, happened.Append):
            for each, next_offset in zip(self.own, self.own_ends, strict=True):
                if each.body == write.body:
                    yield Place(each.slot, each.end, next_offset, closing=False)
            return
        for slot, entry in self.entries.items():
            state = entry.state
            if state.closed and not state.deleted:
                next_offset = state.next_offset(self.epoch)
                yield Place(slot, state.offset, next_offset, closing=True)

    def ends_at(self, position: Position, at: float) -> bool:
        """Whether a reader at a position had all data then."""
        return position.epoch in (0, self.epoch) and position.offset == self.offset(at)

    def saw(self, event: happened.Event) -> bool:
        """Whether it may have been there when the event happened."""
        return self.born <= event.returned and event.invoked <= self.died

    def spans(self, call: Call) -> bool:
        """Whether it was there all the time that the call took."""
        return self.born < call.invoked and call.returned < self.died


class Truth:
    def __init__(self, world: World) -> None:
        self.world = world
        self.pasts: dict[int, Past] = {}
        self.removed: list[tuple[float, Past, int]] = []
        """Slots that were emptied, and when."""
        self.segments: set[str] = set()
        """The objects of segments that were ever committed."""
        self.unnamed: dict[str, float] = {}
        """Objects that entries and segments had, and since when they have not."""
        self.found: list[str] = []
        """The violations."""
        self._known: set[tuple[Past, Place]] = set()
        """The places for which the call that wrote there was found."""
        for change in world.table.changes:
            match change.key[0][0]:
                case "N":
                    self._named(change)
                case "C":
                    self._filled(change)
                case "S":
                    self._archived(change)

    def at(self, path: str) -> list[Past]:
        return [past for past in self.pasts.values() if past.stream.path == path]

    def final(self) -> dict[Incarnation, Final]:
        pasts = self.pasts.values()
        return {Incarnation(past.stream.path, past.stream.id): past.final for past in pasts}

    def history(self) -> History:
        """Everybody's events, as one who knows everything would tell them."""
        history = History()
        for event in self.world.history.events:
            for told in self._told(event):
                history.record(told)
        for past in self.pasts.values():
            stream, incarnation = past.stream.path, past.stream.id
            history.record(_moment(happened.Create, stream, incarnation, past.born))
            if past.died < math.inf:
                history.record(_moment(happened.Delete, stream, incarnation, past.died))
        return history

    # The changes

    def _named(self, change: Change) -> None:
        before, after = change.before, change.after
        if (
            after is not None
            and layout.RETAINED in after
            and after[layout.RETAINED] != (before or {}).get(layout.RETAINED)
        ):
            past = self.pasts[int(after["incarnation"]["S"], 16)]
            past.forgotten.append((change.at, int(after[layout.RETAINED]["N"])))
        if after is None:
            assert before is not None
            self.pasts[int(before["incarnation"]["S"], 16)].released = change.at
        elif before is None or before["incarnation"] != after["incarnation"]:
            stream = layout.name_of(after).stream
            if before is not None:
                self.found.append(f"{stream} took a name from {before}")
            if stream.id in self.pasts:
                self.found.append(f"{self.pasts[stream.id]} got its name again at {change.at}")
            else:
                self.pasts[stream.id] = Past(stream, change.at, self.pasts)

    def _filled(self, change: Change) -> None:
        past, slot = self.pasts[int(change.key[0][1:], 16)], int(change.key[1])
        if change.after is None:
            self.removed.append((change.at, past, slot))
            self._unnamed(change)
            return
        if change.before is not None and _lasting(change.before) == _lasting(change.after):
            return
        if slot in past.entries:
            self.found.append(f"slot {slot} of {past} was filled again at {change.at}")
        entry = past.entries[slot] = layout.entry_of(change.after)
        past.filled[slot] = change.at
        if entry.object_key is not None:
            past.bodies[slot] = self.world.objects.ever.get(entry.object_key, b"")
        elif entry.has_data:
            past.bodies[slot] = entry.body
        if entry.state.deleted:
            past.died = change.at

    def _archived(self, change: Change) -> None:
        self._unnamed(change)
        if change.after is not None:
            manifest = layout.manifest_of(change.after)
            self.segments.add(manifest.key)
            past = self.pasts[manifest.chain]
            for n in range(manifest.first, manifest.stop):
                past.archived.setdefault(n, change.at)

    def _unnamed(self, change: Change) -> None:
        before = layout.object_key_of(change.before or {})
        if before is not None and before != layout.object_key_of(change.after or {}):
            self.unnamed[before] = change.at

    # The events

    def _told(self, event: happened.Event) -> Iterator[happened.Event]:
        match event:
            case happened.Create(incarnation=incarnation, new=True):
                past = self.pasts.get(incarnation)
                if past is None or not event.invoked <= past.born <= event.returned:
                    self.found.append(f"nothing was created: {event}")
            case happened.Read():
                yield from self._read(event)
            case happened.Append() | happened.Close():
                yield self._written(event)
            case _:
                yield event

    def _written(self, write: Write) -> Write:
        outcome = write.outcome
        if not isinstance(outcome, Acknowledged | Duplicate):
            return write
        past = self._target(write, outcome)
        if past is None:
            return write
        return replace(
            write,
            invoked=max(write.invoked, past.born),
            returned=min(write.returned, past.died),
            outcome=type(outcome)(past.rebased(outcome.next_offset)),
        )

    def _target(self, write: Write, outcome: Acknowledged | Duplicate) -> Past | None:
        """The incarnation that was written to: a retry may have gone to another one."""
        for past in filter(lambda past: past.saw(write), self.at(write.stream)):
            end = past.tokens.get(outcome.next_offset, -1)
            for place in past.places_of(write):
                if isinstance(outcome, Duplicate):
                    if end >= place.offset:
                        return past
                elif (
                    outcome.next_offset == place.next_offset
                    and write.invoked <= past.filled[place.slot]
                    and (past, place) not in self._known
                ):
                    self._known.add((past, place))
                    return past
        return None

    def _read(self, read: happened.Read) -> Iterator[happened.Read]:
        past, position = self.pasts[read.incarnation], parse(read.start)
        content, before = past.content, past.begin[1]
        first = next_append(content, position)
        start = content[first].begin if first < len(content) else past.last.offset
        last, end = first + len(read.bodies), parse(read.next_offset).offset
        inherited = max(0, len(content) - len(past.own) - first)
        expected = [each.body for each in content[first:last][:inherited]]
        if self._half_born(past, read):
            return
        if position.epoch not in (0, past.epoch):
            self.found.append(f"read {past} from an offset of another stream: {read}")
        elif read.next_offset not in (past.ends[last - 1 : last] if read.bodies else past.tokens):
            self.found.append(f"is told to go on where {past} does not: {read}")
        elif list(read.bodies[:inherited]) != expected:
            self.found.append(f"saw what {past} does not inherit: {read}")
        elif end < before and (read.up_to_date or read.closed or not read.bodies):
            self.found.append(f"was told that {past} ends within what it inherits: {read}")
        elif end > before or read.up_to_date or not inherited:
            yield replace(
                read,
                start=token(0, max(0, start - before)),
                bodies=read.bodies[inherited:],
                next_offset=past.rebased(read.next_offset),
            )

    def _half_born(self, past: Past, read: happened.Read) -> bool:
        """Whether a query has seen the name of a fork, but not yet what it has of a slot: a query
        may see a transaction half done."""
        slot, offset, _ = past.stream.config.base
        ends_before = read.next_offset == token(slot, offset, past.epoch)
        at_birth = read.invoked <= past.born + self.world.mix.latency[1]
        return ends_before and (slot, offset) != past.begin and at_birth


def next_append(content: Sequence[Placed], position: Position) -> int:
    """Return the place of the append that a reader at a position gets next."""
    wanted = (position.slot, position.offset)
    return bisect_right(content, wanted, key=lambda each: (each.slot, each.end))


def _lasting(item: Item) -> Item:
    """The part of an entry that never changes."""
    return {name: value for name, value in item.items() if name not in ("g", "d")}


def _moment(
    kind: type[happened.Create | happened.Delete], stream: str, incarnation: int, at: float
) -> happened.Event:
    return kind(stream=stream, incarnation=incarnation, invoked=at, returned=at)
