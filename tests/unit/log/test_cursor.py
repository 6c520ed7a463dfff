from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocols.durable_streams.caching import next_cursor

EPOCH = 1_728_432_000_000
"""2024-10-09T00:00:00Z, in milliseconds."""

NOW = EPOCH + 1_000 * 20_000
"""The thousandth interval."""

bounded = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("now", "cursor"),
    [
        (EPOCH, 0),
        (EPOCH + 19_999, 0),
        (EPOCH + 20_000, 1),
        (EPOCH + 39_999, 1),
        (EPOCH + 40_000, 2),
        (1_767_225_600_000, 1_939_680),  # 2026-01-01T00:00:00Z
    ],
)
def test_intervals_of_20_seconds_since_the_epoch(now: int, cursor: int) -> None:
    assert next_cursor(None, now) == cursor


@pytest.mark.parametrize(
    "held",
    [
        None,
        "",
        " ",
        "abc",
        "-1",
        "+1001",
        "1001 ",
        " 1001",
        "1001\n",
        "1001.5",
        "1e9",
        "0x3e9",
        "1_001",
        "١٠٠١",
        "²",
        "1001,1002",
        "9" * 19,
        "9" * 5000,
    ],
)
def test_an_invalid_cursor_is_answered_with_the_current_one(held: str | None) -> None:
    assert next_cursor(held, NOW) == 1000


@pytest.mark.parametrize("held", ["0", "1", "999", "0999", "000000000000000999"])
def test_an_old_cursor_gets_the_current_one(held: str) -> None:
    assert next_cursor(held, NOW) == 1000


@bounded
@given(st.integers(1000, 10**15))
def test_a_current_or_later_cursor_gets_a_strictly_later_one(held: int) -> None:
    step = next_cursor(str(held), NOW) - held
    assert 1 <= step <= 3600 // 20


@bounded
@given(st.integers(1000, 10**15))
def test_readers_with_the_same_cursor_get_the_same_next_one(held: int) -> None:
    assert next_cursor(str(held), NOW) == next_cursor(str(held), NOW + 19_999)


@pytest.mark.parametrize("seconds", [2, 25, 110])
def test_a_cursor_of_the_edge_says_how_far_its_key_is_ahead(seconds: int) -> None:
    interval = (NOW - EPOCH) // (seconds * 1000)
    for ahead, wanted in ((-1, 1000), (0, 1001), (1, 1002), (2, 1002), (10**9, 1002)):
        assert next_cursor(str(interval + ahead), NOW, seconds) == wanted
    assert next_cursor("", NOW, seconds) == 1000


def test_a_reader_that_follows_its_cursors_never_sees_one_twice() -> None:
    seen, cursor = set[int](), next_cursor(None, NOW)
    for _ in range(200):
        assert cursor not in seen
        seen.add(cursor)
        cursor = next_cursor(str(cursor), NOW)
