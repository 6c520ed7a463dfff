"""Slots of several appends: batching changes the numbers of slots, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import StreamClosed, TailraceError
from tailrace.log import producers
from tailrace.log.append import Append, decide
from tailrace.log.offsets import parse
from tailrace.log.slots import appends, bodies_after, merge, position, share
from tailrace.log.state import Config, Entry, Part, Producer, State

NOW = 1_000_000
BEFORE = State(3, 30, 33, 900_000, seq="k", producers={"p": (5, 9)})
P, Q = Producer("p", 5, 10), Producer("q", 0, 0)

ONE = Entry(3, b"one", State(4, 33, 36, NOW, seq="k", producers={"p": (5, 9)}), note="n")
TWO = Entry(4, b"[2],3", State(5, 35, 41, NOW + 1, None, None, "m", {"p": (5, 10)}, produced=True))
LAST = Entry(
    4, b"end", State(5, 38, 44, NOW + 2, 5, Q, "m", {"p": (5, 10), "q": (0, 0)}, produced=True)
)
MARK = Entry(4, None, State(5, 33, 36, NOW + 2, 4, None, "k", {"p": (5, 9)}))

SHARED = [ONE, share(TWO), share(LAST)]
"""The three appends of slot 3."""
PARTS = [Part(3, 3, note="n"), Part(5, 2, P), Part(3, 3, Q)]
BODY = b"one[2],3end"


# How appends become one entry


@pytest.mark.parametrize(
    ("entry", "end"), [(TWO, None), (LAST, 4), (MARK, 4)], ids=["open", "closing", "closing mark"]
)
def test_an_append_that_shares_moves_into_the_slot_before(entry: Entry, end: int | None) -> None:
    state = entry.state._replace(slot=4, end=end)
    assert share(entry) == entry._replace(slot=3, state=state)


def test_a_slot_that_holds_one_append_is_the_entry_of_that() -> None:
    assert merge(BEFORE, [ONE]) is ONE


def test_appends_become_one_entry_that_says_where_each_begins() -> None:
    state = LAST.state._replace(slot=4, end=4)
    assert merge(BEFORE, SHARED) == Entry(3, BODY, state, parts=PARTS)


def test_a_closing_mark_that_shares_adds_no_part() -> None:
    merged = merge(BEFORE, [ONE, share(MARK)])
    assert (merged.body, merged.parts) == (b"one", [Part(3, 3, note="n")])
    assert (merged.state.slot, merged.state.end, merged.state.tail) == (4, 4, 4)


def test_producers_that_leave_the_state_leave_it_with_the_slot() -> None:
    entries = [
        ONE._replace(spill={"a": (0, 1), "b": (0, 1)}),
        share(TWO._replace(spill={"a": (0, 2)})),
    ]
    assert merge(BEFORE, entries).spill == {"a": (0, 2), "b": (0, 1)}


# Where the readers of each go on


@pytest.mark.parametrize(
    ("entries", "slots"),
    [
        ([ONE], [4]),
        (SHARED, [3, 3, 4]),
        # A closing mark holds no data: the append before it is the last.
        ([ONE, share(MARK)], [4, 4]),
        ([Entry(3, None, BEFORE._replace(slot=4, end=3))], [3]),
    ],
    ids=["one", "three", "with a closing mark", "a closing mark alone"],
)
def test_a_reader_goes_on_in_the_slot_until_it_has_its_last_append(
    entries: Sequence[Entry], slots: list[int]
) -> None:
    assert [position(entries, index) for index in range(len(entries))] == slots


# How an entry is taken apart


def test_an_entry_consists_of_its_appends() -> None:
    merged = merge(BEFORE, SHARED)
    assert list(appends(BODY, PARTS, merged.state)) == [
        (b"one", 33, 36, None), (b"[2],3", 35, 41, P), (b"end", 38, 44, Q),
    ]  # fmt: skip
    assert list(appends(b"end", (), LAST.state)) == [(b"end", 38, 44, Q)]


@pytest.mark.parametrize(
    ("after", "bodies"),
    [
        (0, [b"one", b"[2],3", b"end"]),
        (30, [b"one", b"[2],3", b"end"]),
        (32, [b"one", b"[2],3", b"end"]),
        (33, [b"[2],3", b"end"]),
        (34, [b"[2],3", b"end"]),
        (35, [b"end"]),
        (37, [b"end"]),
        (38, []),
        (99, []),
    ],
)
def test_a_reader_gets_the_appends_that_it_lacks_whole(after: int, bodies: list[bytes]) -> None:
    assert list(bodies_after(BODY, PARTS, 38, after)) == bodies
    assert list(bodies_after(b"end", (), 38, after)) == ([b"end"] if after < 38 else [])


# Any batching of any requests


@dataclass
class Log:
    """A stream that puts requests into slots, several into one where it is told to."""

    config: Config
    slots: list[Entry] = field(default_factory=list)
    spilled: dict[str, tuple[int, int]] = field(default_factory=dict)
    outcomes: list[Any] = field(default_factory=list)
    """Of each request: the error, or whether it is new, and the place it ends at."""
    positions: dict[int, int] = field(default_factory=dict)
    """The slot to go on at, by the offset that a caller was told."""

    def __post_init__(self) -> None:
        self.state = self.before = self.config.initial_state()
        self._waiting: list[Entry] = []

    def append(self, request: Append, *, join: bool) -> None:
        if not join:
            self.commit()
        try:
            accepted = decide(self.config, self.state, request, NOW, self._lookup(request))
        except StreamClosed as error:
            self.outcomes.append((StreamClosed, parse(error.next_offset).offset))
        except TailraceError as error:
            self.outcomes.append((type(error), str(error)))
        else:
            new = accepted.entry is not None
            self.outcomes.append((new, accepted.state.offset, accepted.producer_seq))
            if accepted.entry is not None:
                self._put(accepted.entry)

    def commit(self) -> None:
        if not self._waiting:
            return
        entry = merge(self.before, self._waiting)
        self.slots.append(entry)
        self.spilled |= entry.spill
        for index, one in enumerate(self._waiting):
            self.positions[one.state.offset] = position(self._waiting, index)
        self._waiting = []

    def _put(self, entry: Entry) -> None:
        if self._waiting:
            entry = share(entry)
        else:
            self.before = self.state
        self._waiting.append(entry)
        self.state = entry.state

    def _lookup(self, request: Append) -> tuple[int, int] | None:
        """A producer that is not in the state is looked up in what is committed."""
        producer = request.producer
        if producer is None or not self.state.spilled or producer.id in self.state.producers:
            return None
        self.commit()
        return self.spilled.get(producer.id)

    # What readers see

    def appends(self) -> list[tuple[bytes, int, int, Producer | None]]:
        return [
            one
            for entry in self.slots
            if entry.body is not None
            for one in appends(entry.body, entry.parts, entry.state)
        ]

    def notes(self) -> list[str | None]:
        with_data = (entry for entry in self.slots if entry.body is not None)
        return [
            note
            for entry in with_data
            for note in ([part.note for part in entry.parts] or [entry.note])
        ]

    def read(self, slot: int, after: int) -> Iterator[bytes]:
        for entry in self.slots[slot : self.state.tail]:
            assert entry.body is not None
            yield from bodies_after(entry.body, entry.parts, entry.state.offset, after)
            after = 0


@dataclass
class Sender:
    """A producer whose requests go on counting, whatever becomes of them."""

    name: str
    epoch: int = 0
    seq: int = 0

    def next(self, kind: str) -> Producer:
        match kind:
            case "next":
                self.seq += 1
            case "gap":
                return Producer(self.name, self.epoch, self.seq + 1)
            case "takes over":
                self.epoch, self.seq = self.epoch + 1, 1
            case "fenced":
                return Producer(self.name, max(0, self.epoch - 1), self.seq)
        return Producer(self.name, self.epoch, self.seq - 1)


KINDS = ["next", "next", "next", "repeated", "gap", "takes over", "fenced"]
BODIES = [b"1", b"[2,3]", b'{"a":[1,2]}', b"[[4],[5]]", b"[]", b"{", b" "]

writes = st.tuples(
    st.none() | st.tuples(st.integers(0, 4), st.sampled_from(KINDS)),
    st.sampled_from(BODIES),
    st.none() | st.sampled_from(["1", "2", "3"]),
    st.none() | st.just("note"),
    st.sampled_from([""] * 12 + ["with the body", "alone"]),
)


def requests_of(config: Config, history: Sequence[Any]) -> Iterator[Append]:
    senders = [Sender(f"p{number}") for number in range(5)]
    for who, body, seq, note, closing in history:
        producer = None if who is None else senders[who[0]].next(who[1])
        if producer is not None and producer.seq < 0:
            producer = producer._replace(seq=0)
        content = b"" if closing == "alone" else body
        yield Append(content, config.content_type, bool(closing), seq, producer, note)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(["text/plain", "application/json"]),
    st.lists(st.tuples(writes, st.booleans()), max_size=40),
)
def test_any_batching_reads_and_answers_like_none(
    content_type: str, history: list[tuple[Any, bool]]
) -> None:
    config = Config(content_type, NOW)
    plain, batched = Log(config), Log(config)
    # So small that a few producers fill it.
    with patch.object(producers, "PRODUCER_STATE_BYTES", 130):
        requests = requests_of(config, [write for write, _ in history])
        for request, (_, join) in zip(requests, history, strict=True):
            plain.append(request, join=False)
            batched.append(request, join=join)
    plain.commit()
    batched.commit()

    assert batched.outcomes == plain.outcomes
    assert without_slots(batched.state) == without_slots(plain.state)
    assert batched.appends() == plain.appends()
    assert batched.notes() == plain.notes()
    assert batched.spilled == plain.spilled

    for log in (plain, batched):
        assert [entry.slot for entry in log.slots] == list(range(len(log.slots)))
        told = sorted(log.positions.items())
        assert all(before[1] <= after[1] for before, after in pairwise(told))
        for offset, slot in told:
            missing = [body for body, end, *_ in plain.appends() if end > offset]
            assert list(log.read(slot, offset)) == missing
        assert log.positions.get(log.state.offset, 0) == log.state.tail
        assert log.state.slot == len(log.slots)
        assert log.state.tail == sum(entry.body is not None for entry in log.slots)


def without_slots(state: State) -> State:
    return state._replace(slot=0, end=None if state.end is None else 0)
