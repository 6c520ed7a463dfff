from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocols.subscriptions.core.globs import (
    PatternIndex,
    literal_prefix,
    matches,
    prefixes,
)

MATCHES = {
    "events/*": ["events/a", "events/"],
    "events/**": ["events", "events/a", "events/a/b"],
    "**": ["a", "a/b", ""],
    "*": ["a", ""],
    "**/inbox": ["inbox", "a/inbox", "a/b/inbox"],
    "a/**/z": ["a/z", "a/b/z", "a/b/c/z"],
    "a/*/z": ["a/b/z", "a//z"],
    "a*": ["a*"],
    "**/**": ["a", "a/b"],
}
OTHERS = {
    "events/*": ["events", "events/a/b", "event/a", "x/events/a"],
    "events/**": ["event", "events2", "x/events"],
    "*": ["a/b"],
    "**/inbox": ["inbox/a", "a/inboxes"],
    "a/**/z": ["a", "z", "a/b", "b/z"],
    "a/*/z": ["a/z", "a/b/c/z"],
    "a*": ["a", "ab"],
}


@pytest.mark.parametrize(("pattern", "path"), [(p, each) for p in MATCHES for each in MATCHES[p]])
def test_a_pattern_matches(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(("pattern", "path"), [(p, each) for p in OTHERS for each in OTHERS[p]])
def test_a_pattern_does_not_match(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


segments = st.sampled_from(["a", "b", "", "*"])


def as_expression(pattern: str) -> str:
    """The pattern as a regular expression on segments that each end with a slash."""
    parts = {"*": "[^/]*/", "**": "(?:[^/]*/)*"}
    return "".join(parts.get(each, re.escape(each) + "/") for each in pattern.split("/"))


@given(
    st.lists(st.sampled_from(["a", "b", "", "*", "**"]), min_size=1, max_size=5).map("/".join),
    st.lists(segments, min_size=1, max_size=6).map("/".join),
)
def test_matching_agrees_with_a_regular_expression(pattern: str, path: str) -> None:
    expected = re.fullmatch(as_expression(pattern), path + "/") is not None
    assert matches(pattern, path) == expected
    if expected:
        assert literal_prefix(pattern) in set(prefixes(path))


def test_matching_takes_no_exponential_time() -> None:
    assert not matches("/".join(["**", "a"] * 100), "/".join(["a"] * 500 + ["b"]))


patterns = st.lists(st.sampled_from(["a", "b", "", "*", "**"]), min_size=1, max_size=5).map(
    "/".join
)


@given(
    st.lists(patterns, max_size=8),
    st.lists(st.integers(min_value=0, max_value=7), max_size=8),
    st.lists(st.sampled_from(["a", "b", "", "*", "**"]), min_size=1, max_size=6).map("/".join),
)
def test_the_index_finds_what_matches(each: list[str], removed: list[int], path: str) -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, pattern in enumerate(each):
        index.add(pattern, number)
    for number in removed:
        if number < len(each):
            index.remove(each[number], number)
    left = set(range(len(each))) - set(removed)
    assert index.match(path) == {number for number in left if matches(each[number], path)}
    if index.match(path):
        assert sum(path.startswith(prefix) for prefix in index.literal_prefixes()) == 1
    for number in left:
        index.remove(each[number], number)
    assert index._root.children == {}


def test_the_prefixes_of_patterns_are_as_few_as_possible() -> None:
    index: PatternIndex[int] = PatternIndex()
    for number, pattern in enumerate(["a/b/*", "a/b/c/**", "a/bc", "d", "e/*/f", "e/g"]):
        index.add(pattern, number)
    assert index.literal_prefixes() == ["a/b", "d", "e"]
    index.add("**/x", 9)
    assert index.literal_prefixes() == [""]


def test_removing_a_pattern_that_is_not_there_changes_nothing() -> None:
    index: PatternIndex[int] = PatternIndex()
    index.add("a/b", 1)
    index.remove("a", 1)
    index.remove("a/b/c", 1)
    index.remove("a/b", 2)
    assert index.match("a/b") == {1}


def test_the_index_takes_no_exponential_time() -> None:
    index: PatternIndex[int] = PatternIndex()
    index.add("/".join(["**", "a"] * 100), 1)
    index.add("/".join(["*", "**"] * 100), 2)
    assert index.match("/".join(["a"] * 500 + ["b"])) == {2}


def test_patterns_that_cannot_match_cost_nothing() -> None:
    """Fewer steps than patterns: the nodes that are looked at are counted."""
    looked = 0

    class Counting(dict[Any, Any]):
        def get(self, *args: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().get(*args)

    index: PatternIndex[int] = PatternIndex()
    for number in range(10_000):
        index.add(f"**/t{number}", number)
        index.add(f"*/{number}/**", number)
        index.add(f"a/{number}/*", number)

    def count(node: Any) -> None:
        for child in node.children.values():
            count(child)
        node.children = Counting(node.children)

    count(index._root)
    assert index.match("a/7/b/c/t5") == {7, 5}
    assert looked < 60
