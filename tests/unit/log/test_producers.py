from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import NewEpochNotAtZero, ProducerFenced, ProducerGap
from tailrace.limits import MAX_INTEGER, PRODUCER_ID_BYTES, PRODUCER_STATE_BYTES
from tailrace.log.producers import Duplicate, admit, advance
from tailrace.log.state import NO_PRODUCERS, Producer, Producers

bounded = settings(max_examples=60, deadline=None, derandomize=True)

ACCEPTED = None

# What is known of the producer (epoch, last sequence), what it sends, what comes of it.
TABLE = [
    # Nothing is known: a producer begins at 0, in any epoch.
    (None, (0, 0), ACCEPTED),
    (None, (7, 0), ACCEPTED),
    (None, (MAX_INTEGER, 0), ACCEPTED),
    (None, (0, 1), ProducerGap(0, 1)),
    (None, (0, MAX_INTEGER), ProducerGap(0, MAX_INTEGER)),
    (None, (7, 3), ProducerGap(0, 3)),
    # An older epoch is fenced off, whatever its sequence.
    ((5, 9), (4, 0), ProducerFenced(5)),
    ((5, 9), (4, 9), ProducerFenced(5)),
    ((5, 9), (4, 10), ProducerFenced(5)),
    ((5, 9), (0, 0), ProducerFenced(5)),
    # A newer epoch takes over, from 0.
    ((5, 9), (6, 0), ACCEPTED),
    ((5, 9), (99, 0), ACCEPTED),
    ((5, 9), (6, 1), NewEpochNotAtZero()),
    ((5, 9), (6, 9), NewEpochNotAtZero()),
    ((5, 9), (6, 10), NewEpochNotAtZero()),
    ((0, 0), (1, 1), NewEpochNotAtZero()),
    # The same epoch: what was accepted before is a duplicate and names the highest accepted.
    ((5, 9), (5, 9), Duplicate(9)),
    ((5, 9), (5, 8), Duplicate(9)),
    ((5, 9), (5, 0), Duplicate(9)),
    ((0, 0), (0, 0), Duplicate(0)),
    # The next one is accepted.
    ((5, 9), (5, 10), ACCEPTED),
    ((0, 0), (0, 1), ACCEPTED),
    ((0, MAX_INTEGER - 1), (0, MAX_INTEGER), ACCEPTED),
    # One further leaves a gap.
    ((5, 9), (5, 11), ProducerGap(10, 11)),
    ((0, 0), (0, 2), ProducerGap(1, 2)),
    ((0, 0), (0, MAX_INTEGER), ProducerGap(1, MAX_INTEGER)),
]


@pytest.mark.parametrize(("known", "sent", "outcome"), TABLE, ids=lambda value: str(value)[:40])
def test_a_producers_request_is_admitted_or_rejected(
    known: tuple[int, int] | None, sent: tuple[int, int], outcome: Duplicate | Exception | None
) -> None:
    request = Producer("p", *sent)
    if not isinstance(outcome, Exception):
        assert admit(known, request) == outcome
        return
    with pytest.raises(type(outcome)) as raised:
        admit(known, request)
    match outcome, raised.value:
        case ProducerGap(), ProducerGap() as gap:
            assert (gap.expected, gap.received) == (outcome.expected, outcome.received)
        case ProducerFenced(), ProducerFenced() as fenced:
            assert fenced.epoch == outcome.epoch


def test_an_accepted_request_is_remembered() -> None:
    assert advance(NO_PRODUCERS, Producer("p", 3, 0)) == ({"p": (3, 0)}, {})
    assert advance({"p": (3, 0)}, Producer("p", 3, 1)) == ({"p": (3, 1)}, {})
    assert advance({"p": (3, 1)}, Producer("p", 4, 0)) == ({"p": (4, 0)}, {})


def test_the_state_before_is_left_alone() -> None:
    before = {"a": (0, 0), "b": (0, 0)}
    advance(before, Producer("a", 0, 1))
    assert list(before.items()) == [("a", (0, 0)), ("b", (0, 0))]


def test_the_one_that_sent_last_is_the_warmest() -> None:
    producers: Producers = {"a": (0, 0), "b": (0, 0), "c": (0, 0)}
    producers, _ = advance(producers, Producer("a", 0, 1))
    assert list(producers) == ["b", "c", "a"]
    producers, _ = advance(producers, Producer("d", 0, 0))
    assert list(producers) == ["b", "c", "a", "d"]


def filled(width: int = 60) -> Producers:
    """As many producers as the budget holds, `0` the coldest."""
    producers: Producers = NO_PRODUCERS
    for number in range(1000):
        after, spilled = advance(producers, Producer(f"{number:0{width}d}", 1, 0))
        if spilled:
            return producers
        producers = after
    raise AssertionError("the budget holds everything")


def weight(producers: Producers) -> int:
    """The bytes of a state that these producers take, at most."""
    return sum(len(name.encode()) + 40 for name in producers)


def test_within_the_budget_nothing_is_spilled() -> None:
    producers = filled()
    assert PRODUCER_STATE_BYTES - 100 < weight(producers) <= PRODUCER_STATE_BYTES


def test_beyond_the_budget_the_coldest_half_leaves_at_once() -> None:
    producers = filled()
    new = "x" * 60
    kept, spilled = advance(producers, Producer(new, 0, 0))
    assert {**spilled, **kept} == {**producers, new: (0, 0)}
    assert [*spilled, *kept] == [*producers, new]
    assert PRODUCER_STATE_BYTES // 2 - 100 < weight(kept) <= PRODUCER_STATE_BYTES // 2


def test_a_known_producer_at_the_limit_spills_nothing() -> None:
    producers = filled()
    for name in producers:
        after, spilled = advance(producers, Producer(name, 1, 1))
        assert not spilled
        assert after.keys() == producers.keys()


def test_the_sender_itself_is_never_spilled() -> None:
    large = "x" * PRODUCER_ID_BYTES
    producers = filled()
    kept, spilled = advance(producers, Producer(large, 0, 0))
    assert kept[large] == (0, 0)
    assert large not in spilled


def test_the_budget_counts_bytes_not_characters() -> None:
    """An id may hold any Latin-1 character, which takes two bytes where it is stored."""
    producers: Producers = NO_PRODUCERS
    for number in range(200):
        producers, _ = advance(producers, Producer(f"{number:03d}" + "ä" * 100, 0, 0))
        assert weight(producers) <= PRODUCER_STATE_BYTES


names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=256)


@bounded
@given(st.lists(st.tuples(names, st.integers(0, MAX_INTEGER)), max_size=60))
def test_no_producer_is_ever_forgotten_and_the_budget_holds(sent: list[tuple[str, int]]) -> None:
    producers: Producers = NO_PRODUCERS
    stored: dict[str, tuple[int, int]] = {}
    latest: dict[str, tuple[int, int]] = {}
    for name, seq in sent:
        producers, spilled = advance(producers, Producer(name, 0, seq))
        assert producers.keys().isdisjoint(spilled)
        stored.update(spilled)
        latest[name] = (0, seq)
        assert {**stored, **producers} == latest
        assert weight(producers) <= PRODUCER_STATE_BYTES or len(producers) == 1
        assert list(producers)[-1] == name
