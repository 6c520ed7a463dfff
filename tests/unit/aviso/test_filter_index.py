"""The index finds exactly the filters that a notification matches."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocols.aviso import envelope
from tailrace.protocols.aviso.constraints import NumberRange
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.filter_index import FilterIndex, IntervalTree
from tailrace.protocols.aviso.filters import Filter, Matcher
from tailrace.protocols.aviso.request_body import parse_notification, parse_query
from tests.support.aviso import parse

BOUNDS = st.one_of(st.integers(-5, 5), st.just(math.inf), st.just(-math.inf))
SPANS = st.builds(NumberRange, BOUNDS, BOUNDS, st.booleans(), st.booleans()).filter(
    lambda span: span.low <= span.high and span.low < math.inf and span.high > -math.inf
)


@settings(max_examples=40, deadline=None)
@given(st.lists(SPANS, max_size=20), st.one_of(st.integers(-6, 6), st.floats(-6, 6)))
def test_an_interval_tree_finds_the_ranges_that_contain_a_number(
    spans: list[NumberRange], number: float
) -> None:
    items: list[int] = []
    if spans:
        IntervalTree([(span, i) for i, span in enumerate(spans)]).find(number, items)
    assert sorted(items) == [i for i, span in enumerate(spans) if span.contains(number)]


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
    sent = parse(RequestKind.NOTIFICATION, event_type="product", identifier=identifier)
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
    sent = parse(RequestKind.REPLAY, event_type="product", identifier=identifier, from_id="0")
    return parse_query(sent).filter


@pytest.mark.parametrize("seed", [0, 6], ids=["40 filters", "200 filters"])
def test_the_index_agrees_with_each_filter(seed: int) -> None:
    index_agrees(seed)


def index_agrees(seed: int) -> None:
    chance = random.Random(seed)
    filters = [a_filter(chance) for _ in range(chance.choice([3, 40, 200]))]
    index: FilterIndex[int] = FilterIndex(filters[0].event)
    added: set[int] = set()
    for _ in range(60):
        for i in chance.sample(range(len(filters)), len(filters) // 3):
            (index.remove if i in added else index.add)(filters[i], i)
            added ^= {i}
        raw = a_notification(chance)
        notification = envelope.Notification.parse(raw)
        assert notification is not None
        matching = list(index.match(notification))
        assert len(matching) == len(set(matching))
        assert set(matching) == {i for i in added if Matcher(filters[i]).match(raw)}


@pytest.mark.parametrize("number", [0, 5, 10])
def test_an_interval_tree_finds_a_range_at_both_of_its_bounds(number: int) -> None:
    items: list[str] = []
    IntervalTree([(NumberRange(0, 10), "a"), (NumberRange(4, 6), "b")]).find(number, items)
    assert sorted(items) == (["a", "b"] if number == 5 else ["a"])


def test_equal_filters_share_one_group() -> None:
    filters = [a_filter(random.Random(7)) for _ in range(50)]
    index: FilterIndex[int] = FilterIndex(filters[0].event)
    for i, each in enumerate(filters):
        index.add(each, i)
    assert len(index) == 1
    for i, each in enumerate(filters):
        index.remove(each, i)
    assert len(index) == 0


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3))
def test_a_text_filter_matches_only_its_own_text(one: str, other: str) -> None:
    identifier = {"name": one}
    area = {"event_type": "latest", "identifier": identifier}
    sent = parse(RequestKind.NOTIFICATION, **area)
    raw = envelope.encode(parse_notification(sent), "id", "http://localhost", 0)
    for name in (one, other):
        sent = parse(RequestKind.WATCH, event_type="latest", identifier={"name": name})
        passes = Matcher(parse_query(sent).filter).match(raw) is not None
        assert passes is (name in (one, "*"))


def test_notifications_of_another_schema_do_not_match() -> None:
    raw = a_notification(random.Random(1))
    sent = parse(RequestKind.WATCH, event_type="product", identifier={"step": {"gte": 0}})
    filter_ = parse_query(sent).filter
    assert Matcher(filter_).match(raw)
    index: FilterIndex[str] = FilterIndex(filter_.event)
    index.add(filter_, "it")
    # The last one is valid JSON, but not valid Unicode.
    others = (b"prod.more.", b"other.", b"prod.%.", b"prod.\\ud800.")
    for stale in (raw.replace(b"prod.", other) for other in others):
        assert Matcher(filter_).match(stale) is None
        notification = envelope.Notification.parse(stale)
        assert notification is not None
        assert list(index.match(notification)) == []
