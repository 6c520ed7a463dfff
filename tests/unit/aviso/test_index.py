"""The index finds exactly those filters that a notification passes."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocols.aviso import envelope
from tailrace.protocols.aviso.constraints import Span
from tailrace.protocols.aviso.errors import Operation
from tailrace.protocols.aviso.filters import Filter, Test
from tailrace.protocols.aviso.index import FilterIndex
from tailrace.protocols.aviso.intervals import Intervals
from tailrace.protocols.aviso.requests import parse_notification, parse_subscription
from tests.support.aviso import body

BOUNDS = st.one_of(st.integers(-5, 5), st.just(math.inf), st.just(-math.inf))
SPANS = st.builds(Span, BOUNDS, BOUNDS, st.booleans(), st.booleans()).filter(
    lambda span: span.low <= span.high and span.low < math.inf and span.high > -math.inf
)


@settings(max_examples=40, deadline=None)
@given(st.lists(SPANS, max_size=20), st.one_of(st.integers(-6, 6), st.floats(-6, 6)))
def test_intervals_find_what_holds_a_number(spans: list[Span], number: float) -> None:
    found: list[int] = []
    if spans:
        Intervals([(span, i) for i, span in enumerate(spans)]).holding(number, found)
    assert sorted(found) == [i for i, span in enumerate(spans) if span.holds(number)]


def a_notification(chance: random.Random) -> bytes:
    identifier: dict[str, Any] = {
        "destination": chance.choice(["A", "B", "a.b", "*", '"', "é\\"]),
        "date": chance.choice(["20260101", "20260102"]),
        "time": chance.choice(["0", "12"]),
        "hazard": chance.choice(["storm", "flood", "fire"]),
        "expver": chance.choice(["1", "2"]),
        "step": chance.randint(0, 12),
        "level": chance.choice([-1.5, -0.0, 0.0, 0.5, 2.0]),
    }
    sent = body(Operation.NOTIFICATION, event_type="product", identifier=identifier)
    return envelope.encode(parse_notification(sent), "id", "http://localhost", 0)


def a_filter(chance: random.Random) -> Filter:
    choices: dict[str, list[Any]] = {
        "destination": ["A", "B", "a.b", "*", '"', "é\\", "C"],
        "date": ["20260101", "2026-01-02"],
        "time": ["0", "12:00"],
        "hazard": ["Storm", {"eq": "flood"}, {"in": ["fire", "storm"]}],
        "expver": ["1", "*"],
        "step": [5, {"eq": 5}, {"in": [1, 2, 3]}, {"gt": 5}, {"gte": 5}, {"lt": 5}, {"lte": 5},
                 {"between": [3, 7]}],
        "level": [0.5, 0, {"eq": 0}, {"in": [0.5, 2]}, {"gt": -1.5}, {"between": [-0.5, 1]}],
    }  # fmt: skip
    names = chance.sample(sorted(choices), chance.randint(0, 3))
    identifier = {name: chance.choice(choices[name]) for name in names}
    sent = body(Operation.REPLAY, event_type="product", identifier=identifier, from_id="0")
    return parse_subscription(sent).filter


@pytest.mark.parametrize("seed", range(2))
def test_the_index_agrees_with_asking_each_filter(seed: int) -> None:
    index_agrees(seed)


def index_agrees(seed: int) -> None:
    chance = random.Random(seed)
    filters = [a_filter(chance) for _ in range(chance.choice([3, 40, 200]))]
    index: FilterIndex[int] = FilterIndex(filters[0].event)
    here: set[int] = set()
    for _ in range(60):
        for i in chance.sample(range(len(filters)), len(filters) // 3):
            (index.remove if i in here else index.add)(filters[i], i)
            here ^= {i}
        raw = a_notification(chance)
        found = envelope.Notification.of(raw)
        assert found is not None
        passing = list(index.passing(found))
        assert len(passing) == len(set(passing))
        assert set(passing) == {i for i in here if Test(filters[i]).passes(raw)}


def test_filters_that_ask_for_the_same_are_one() -> None:
    wanted = [a_filter(random.Random(7)) for _ in range(50)]
    index: FilterIndex[int] = FilterIndex(wanted[0].event)
    for i, each in enumerate(wanted):
        index.add(each, i)
    assert len(index) == 1
    for i, each in enumerate(wanted):
        index.remove(each, i)
    assert len(index) == 0


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3))
def test_any_text_is_told_from_any_other(one: str, other: str) -> None:
    identifier = {"name": one}
    area = {"event_type": "latest", "identifier": identifier}
    sent = body(Operation.NOTIFICATION, **area)
    raw = envelope.encode(parse_notification(sent), "id", "http://localhost", 0)
    for name in (one, other):
        sent = body(Operation.WATCH, event_type="latest", identifier={"name": name})
        passes = Test(parse_subscription(sent).filter).passes(raw) is not None
        assert passes is (name in (one, "*"))


def test_what_another_schema_left_does_not_pass() -> None:
    raw = a_notification(random.Random(1))
    sent = body(Operation.WATCH, event_type="product", identifier={"step": {"gte": 0}})
    wanted = parse_subscription(sent).filter
    assert Test(wanted).passes(raw)
    index: FilterIndex[str] = FilterIndex(wanted.event)
    index.add(wanted, "it")
    # The last is JSON, but no text.
    others = (b"prod.more.", b"other.", b"prod.%.", b"prod.\\ud800.")
    for stale in (raw.replace(b"prod.", other) for other in others):
        assert Test(wanted).passes(stale) is None
        found = envelope.Notification.of(stale)
        assert found is not None
        assert list(index.passing(found)) == []
