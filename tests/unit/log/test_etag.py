from __future__ import annotations

from itertools import product

import pytest

from tailrace.protocols.durable_streams.caching import etag, matches

TAG = etag(0xABC, 0, 7, tail=True, closed=False)


def test_a_tag_is_quoted_and_strong() -> None:
    assert TAG.startswith('"')
    assert TAG.endswith('"')
    assert TAG.count('"') == 2
    assert TAG.isascii()
    assert TAG.isprintable()


def test_everything_that_changes_the_answer_changes_the_tag() -> None:
    """Its bytes, and what it says about them: that they are the tail, or the end."""
    tags = [
        etag(incarnation, start, end, tail=tail, closed=closed, encoding=encoding)
        for incarnation, start, end, (tail, closed), encoding in product(
            (1, 11, 1 << 61),
            (0, 1, 11),
            (1, 11, 111),
            ((False, False), (True, False), (True, True)),
            ("", "gzip", "br", "zstd"),
        )
    ]
    assert len(set(tags)) == len(tags)


def test_the_same_answer_has_the_same_tag() -> None:
    assert etag(5, 1, 2, tail=True, closed=True) == etag(5, 1, 2, tail=True, closed=True)


def test_closing_changes_the_tag_of_the_same_range() -> None:
    before, after = (etag(5, 1, 2, tail=True, closed=closed) for closed in (False, True))
    assert before != after


def test_an_append_behind_a_full_chunk_changes_its_tag() -> None:
    """The chunk has the same bytes, but its reader is up to date no more."""
    before, after = (etag(5, 1, 2, tail=tail, closed=False) for tail in (True, False))
    assert before != after


@pytest.mark.parametrize(
    "held",
    [
        TAG,
        f"W/{TAG}",
        f" {TAG} ",
        f'"other", {TAG}',
        f'{TAG}, "other"',
        f'"other",{TAG},"more"',
        f'W/"other" , W/{TAG}',
        f'"", {TAG}',
        f'"a,b", {TAG}',
        f'"*", {TAG}',
        "*",
        " * ",
    ],
)
def test_a_client_that_holds_the_tag_has_it(held: str) -> None:
    assert matches(held, TAG)


@pytest.mark.parametrize(
    "held",
    [
        "",
        '""',
        '"other"',
        'W/"other"',
        '"other", "more"',
        TAG.strip('"'),
        TAG[:-1],
        TAG[1:],
        TAG.upper(),
        TAG.replace('"', "'"),
        f'"x{TAG[1:]}',
        f'{TAG[:-1]}x"',
        f'"a{TAG}b"',
        etag(0xABC, 0, 7, tail=True, closed=True),
        etag(0xABC, 0, 7, tail=False, closed=False),
        etag(0xABC, 0, 8, tail=True, closed=False),
        etag(0xABC, 1, 7, tail=True, closed=False),
        etag(0xABD, 0, 7, tail=True, closed=False),
        etag(0xABC, 0, 7, tail=True, closed=False, encoding="gzip"),
        '"*"',
        'W/"*"',
        '"a*b", "*"',
    ],
)
def test_a_client_that_holds_something_else_has_not(held: str) -> None:
    assert not matches(held, TAG)


@pytest.mark.parametrize("held", ["a*", '"a*', '*"a', 'W/*"'])
def test_a_star_means_any_only_where_it_stands_alone(held: str) -> None:
    assert not matches(held, TAG)
