"""Patterns of paths: what they match, in which spelling, and in bounded time."""

from __future__ import annotations

import time
from functools import cache
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import BadPath
from tailrace.log.paths import canonical, compile_pattern, encode_name, fits

bounded = settings(max_examples=100, deadline=None, derandomize=True)


def matches(pattern: str, path: str) -> bool:
    """By the definition, one character after the other."""
    pieces: list[str] = []
    for character in pattern:
        if character == "*" and pieces and pieces[-1].startswith("*"):
            pieces[-1] = "**"
        else:
            pieces.append(character)

    @cache
    def from_here(piece: int, at: int) -> bool:
        if piece == len(pieces):
            return at == len(path)
        if pieces[piece].startswith("*"):
            takes = at < len(path) and (pieces[piece] == "**" or path[at] != "/")
            return from_here(piece + 1, at) or (takes and from_here(piece, at + 1))
        return at < len(path) and path[at] == pieces[piece] and from_here(piece + 1, at + 1)

    return from_here(0, 0)


@bounded
@given(pattern=st.text("ab/**", max_size=10), path=st.text("ab/", max_size=10))
def test_a_pattern_matches_what_its_definition_says(pattern: str, path: str) -> None:
    assert fits(pattern, path) is matches(pattern, path)
    assert bool(compile_pattern(pattern).fullmatch(path)) is matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path", "fit"),
    [
        ("chat/room-1", "chat/room-1", True),
        ("chat/room-1", "chat/room-10", False),
        ("chat/room-1", "chat/room-1/", False),
        ("chat/*", "chat/room-1", True),
        ("chat/*", "chat/", True),
        ("chat/*", "chat/a/b", False),
        ("chat/*", "chat", False),
        ("chat/**", "chat/a/b", True),
        ("chat/**", "chatter", False),
        ("**/errors", "a/b/errors", True),
        ("**/errors", "errors", False),
        ("users/*/inbox/*", "users/7/inbox/1", True),
        ("users/*/inbox/*", "users/7/8/inbox/1", False),
        ("*", "a", True),
        ("**", "a/b", True),
        ("***", "a/b", True),
        ("", "a", False),
        ("a.b", "axb", False),
        ("a\\d", "a1", False),
        ("[ab]", "a", False),
    ],
)
def test_examples(pattern: str, path: str, fit: bool) -> None:
    assert fits(pattern, path) is fit


# How they are spelled


@pytest.mark.parametrize(
    "pattern", ["комната/*", "%D0%BA%D0%BE%D0%BC%D0%BD%D0%B0%D1%82%D0%B0/*",
                "%d0%ba%d0%be%d0%bc%d0%bd%d0%b0%d1%82%d0%b0/*"],
)  # fmt: skip
def test_characters_that_urls_encode_may_stand_unencoded(pattern: str) -> None:
    assert fits(pattern, canonical("%D0%BA%D0%BE%D0%BC%D0%BD%D0%B0%D1%82%D0%B0/1"))


def test_an_encoded_star_means_itself() -> None:
    assert fits("a%2A", "a*")
    assert not fits("a%2A", "ab")
    assert fits("%2A%2a/**", "**/b")
    assert not fits("%2A%2a/**", "a/b")


def test_an_encoded_slash_is_part_of_a_segment() -> None:
    assert fits("a%2Fb", canonical("a%2fb"))
    assert not fits("a%2Fb", "a/b")
    assert not fits("a/b", canonical("a%2Fb"))
    assert fits("*", canonical("a%2Fb"))
    assert not fits("a/*", canonical("a%2Fb"))


def test_a_percent_sign_that_encodes_nothing_means_itself() -> None:
    assert fits("100%", canonical("100%25"))
    assert fits("100%25", canonical("100%25"))


def test_bytes_of_the_environment_that_are_no_text_match_nothing() -> None:
    assert not fits("\udcff", "a")
    assert not fits("\udcff*b", "ab")


names = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1),
    min_size=1,
    max_size=4,
).map("/".join)


@bounded
@given(name=names)
def test_a_name_is_spelled_as_the_server_spells_its_path(name: str) -> None:
    try:
        path = canonical(quote(name))
    except BadPath:  # a segment of dots
        return
    assert encode_name(name) == path


@bounded
@given(name=names)
def test_a_path_is_a_pattern_of_itself_alone(name: str) -> None:
    path = encode_name(name)
    literal = path.replace("*", "%2A")
    assert fits(literal, path)
    assert not fits(literal, path + "x")


# What they cost


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 500 + "*b", "**a" * 300 + "b", "**a*a*a*a*a*b", "**" + "a*" * 400 + "b**c",
     "**a*b**a*b**a*c"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["a" * 1024, "ab" * 512, "a/" * 512])
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    compile_pattern(pattern)
    begun = time.process_time()
    fits(pattern, path)
    assert time.process_time() - begun < 0.5
