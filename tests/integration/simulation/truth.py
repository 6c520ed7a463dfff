"""The true history of a world, as the changes of its table tell it.

Clients do not know which incarnation an append went to, whether a call that was never answered was
carried out, or when a stream expired. The table does; with its help the events become a history
that `devtools.linearizability.checker` can check.

There, what a fork inherits does not count: a fork is a stream that begins where its own data
begin. What is read of the rest is compared with the source here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from devtools.dynamodb_simulator.engine import Change
from devtools.dynamodb_simulator.values import Item
from devtools.linearizability import checker as happened
from devtools.linearizability.checker import Acknowledged, Duplicate, Final, History, Incarnation
from tailrace.log.offsets import parse, token
from tailrace.log.state import State, Stream
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import Stored
from tests.integration.simulation.world import Call, World

Write = happened.Append | happened.Close


class Past:
    """An incarnation with every entry that it ever had."""

    def __init__(self, stream: Stream, born: float) -> None:
        self.stream = stream
        self.born = born
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

    @property
    def begin(self) -> tuple[int, int]:
        """The slot and the offset at which what it does not inherit begins."""
        fork = self.stream.config.fork
        slot, offset, _ = self.stream.config.base
        return (slot + 1, offset + fork.sub_offset) if fork and fork.sub_offset else (slot, offset)

    @property
    def lineage(self) -> list[int]:
        fork = self.stream.config.fork
        return [ancestor.id for ancestor in fork.lineage] if fork else []

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
    def tokens(self) -> dict[str, int]:
        """The offsets that clients may have been told, and the slot of each."""
        slot, offset = self.begin
        slots = {token(slot, offset): slot}
        for n, body in sorted(self.bodies.items()):
            if n >= slot:
                offset += len(body)
                slots[token(n + 1, offset)] = n + 1
        return slots

    @cached_property
    def final(self) -> Final:
        own = (body for n, body in sorted(self.bodies.items()) if n >= self.begin[0])
        return Final(b"".join(own), self.rebased(self.last.next_offset), self.last.closed)

    def earliest(self, at: float = math.inf) -> int:
        """The first slot that can be read by then."""
        given_up = [slot for when, slot in self.forgotten if when <= at]
        return max(given_up, default=self.stream.config.earliest)

    def rebased(self, offset: str) -> str:
        """An offset as if the stream began where its own data begin."""
        slot, units = (int(part) for part in offset.split("_"))
        begin, before = self.begin
        return offset if slot < begin else token(slot - begin, units - before)

    def slots_of(self, write: Write) -> list[int]:
        """The slots that may have been filled by it."""
        if isinstance(write, happened.Append):
            return [n for n, body in self.bodies.items() if body == write.body]
        states = {n: entry.state for n, entry in self.entries.items()}
        return [n for n, state in states.items() if state.closed and not state.deleted]

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
        self._known: set[tuple[Past, int]] = set()
        """The slots for which the call that filled them was found."""
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

    def content(self, past: Past) -> list[bytes]:
        """The body in each slot, what a fork inherits included."""
        bodies: list[bytes] = []
        fork = past.stream.config.fork
        for chain, until in fork.lineage if fork else ():
            bodies += [self.pasts[chain].bodies[n] for n in range(len(bodies), until)]
        return [*bodies, *(past.bodies[n] for n in sorted(past.bodies))]

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
                self.pasts[stream.id] = Past(stream, change.at)

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
            for n in past.slots_of(write):
                tail = past.entries[n].state.tail
                if isinstance(outcome, Duplicate):
                    if end >= tail:
                        return past
                elif (
                    end == tail and write.invoked <= past.filled[n] and (past, n) not in self._known
                ):
                    self._known.add((past, n))
                    return past
        return None

    def _read(self, read: happened.Read) -> Iterator[happened.Read]:
        past = self.pasts[read.incarnation]
        begin, _ = past.begin
        start, end = parse(read.start), parse(read.next_offset)
        inherited = max(0, begin - start)
        expected = self.content(past)[start:begin][: len(read.bodies)] if inherited else []
        if list(read.bodies[:inherited]) != expected:
            self.found.append(f"saw what {past} does not inherit: {read}")
        elif end < begin and (read.up_to_date or read.closed or not read.bodies):
            self.found.append(f"was told that {past} ends within what it inherits: {read}")
        elif end > begin or read.up_to_date or not inherited:
            yield replace(
                read,
                start=token(max(0, start - begin), 0),
                bodies=read.bodies[inherited:],
                next_offset=past.rebased(read.next_offset),
            )


def _lasting(item: Item) -> Item:
    """The part of an entry that never changes."""
    return {name: value for name, value in item.items() if name not in ("g", "d")}


def _moment(
    kind: type[happened.Create | happened.Delete], stream: str, incarnation: int, at: float
) -> happened.Event:
    return kind(stream=stream, incarnation=incarnation, invoked=at, returned=at)
