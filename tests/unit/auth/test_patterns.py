from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.log.paths import EVERYTHING, NOTHING, Patterns


@pytest.mark.parametrize("text", ["a/*,b", "a/*, b", "a/* b", " a/*\n\tb ", ",a/*,,b,", "a/* ,b"])
def test_patterns_are_separated_by_commas_or_white_space(text: str) -> None:
    assert Patterns.parse(text).each == ("a/*", "b")


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_no_pattern_matches_nothing(text: str) -> None:
    assert Patterns.parse(text) == NOTHING
    assert not NOTHING.matches("a")
    assert not NOTHING.matches("")
    assert not NOTHING.covers("")


def test_one_matching_pattern_is_enough() -> None:
    patterns = Patterns.parse("a/*, b")
    assert patterns.matches("a/1")
    assert patterns.matches("b")
    assert not patterns.matches("c")


def test_a_comma_in_a_path_is_encoded() -> None:
    assert Patterns.parse("a%2Cb").matches("a,b")
    assert not Patterns.parse("a,b").matches("a,b")


@pytest.mark.parametrize(
    ("pattern", "prefix", "covered"),
    [
        ("**", "", True),
        ("**", "a", True),
        ("chat/**", "chat/", True),
        ("chat/**", "chat/a/b", True),
        ("chat/**", "chat", False),
        ("chat/**", "", False),
        ("chat/*", "chat/", False),
        ("chat/a", "chat/a", False),
        ("*/a/**", "x/a/", True),
        ("*/a/**", "x/", False),
        ("**/a", "b/a", False),
        ("a%2A%2A", "a", False),
    ],
)
def test_a_prefix_is_covered_by_a_pattern_for_everything_below_it(
    pattern: str, prefix: str, covered: bool
) -> None:
    assert Patterns((pattern,)).covers(prefix) is covered


def test_everything_is_everything() -> None:
    assert EVERYTHING.covers("")
    assert EVERYTHING.matches("a/b/c")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    patterns=st.lists(st.text("ab/**", max_size=6), max_size=3),
    prefix=st.text("ab/", max_size=5),
    rest=st.text("ab/", max_size=5),
)
def test_all_below_a_covered_prefix_matches(patterns: list[str], prefix: str, rest: str) -> None:
    these = Patterns(tuple(patterns))
    assert these.matches(prefix + rest) or not these.covers(prefix)
