from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.protocols.subscriptions.core.globs import literal_prefix, matches, prefixes

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
