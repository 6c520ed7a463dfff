"""Retention: rules from text, and the slots that a rule lets go of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.configuration import load_settings
from tailrace.errors import BadSetting
from tailrace.log.retention import Keep, Piece, Retention, earliest, first_kept, may_remove
from tailrace.log.state import Config, State

NOW = 1_700_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000

FOREVER = None


# Rules


def test_without_rules_everything_stays() -> None:
    assert Retention.parse("").keep("a") is FOREVER
    assert Retention.parse(" ; ").keep("a") is FOREVER


@pytest.mark.parametrize(
    ("limits", "keep"),
    [
        ("90s", Keep(90 * SECOND, None)),
        ("5m", Keep(5 * MINUTE, None)),
        ("36h", Keep(36 * HOUR, None)),
        ("7d", Keep(7 * DAY, None)),
        ("1B", Keep(None, 1)),
        ("2KB", Keep(None, 2_048)),
        ("3MB", Keep(None, 3_145_728)),
        ("4GB", Keep(None, 4_294_967_296)),
        ("5TB", Keep(None, 5_497_558_138_880)),
        ("7d,1GB", Keep(7 * DAY, 1 << 30)),
        ("1GB, 7d", Keep(7 * DAY, 1 << 30)),
        ("forever", FOREVER),
    ],
)
def test_a_rule_has_an_age_a_size_both_or_none(limits: str, keep: Keep | None) -> None:
    assert Retention.parse(f"a={limits}").keep("a") == keep
    assert Retention.parse(f"  a = {limits} ; ").keep("a") == keep


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a", "b/a", False),
        ("*", "a", True),
        ("*", "a/b", False),
        ("logs/*", "logs/a", True),
        ("logs/*", "logs", False),
        ("logs/*", "logs/a/b", False),
        ("logs/*/errors", "logs/a/errors", True),
        ("logs/*/errors", "logs/a/b/errors", False),
        ("**", "a/b/c", True),
        ("logs/**", "logs/a/b", True),
        ("logs/**", "logsa", False),
        ("**/errors", "a/b/errors", True),
        ("log-*.txt", "log-1.txt", True),
        ("log-*.txt", "log-1-txt", False),
        ("a=*", "a=b", True),
        ("a+(b)[c]?", "a+(b)%5Bc%5D%3F", True),
        ("a?", "ab", False),
    ],
)
def test_one_star_stays_within_a_segment_of_the_path_and_two_do_not(
    pattern: str, path: str, fits: bool
) -> None:
    assert (Retention.parse(f"{pattern}=1d").keep(path) is not FOREVER) is fits


def test_the_first_rule_that_matches_decides() -> None:
    rules = Retention.parse("logs/*=7d,1GB; audit/**=forever; **=90d")
    assert rules.keep("logs/a") == Keep(7 * DAY, 1 << 30)
    assert rules.keep("logs/a/b") == Keep(90 * DAY, None)
    assert rules.keep("audit/a/b") is FOREVER
    assert rules.keep("chat") == Keep(90 * DAY, None)


@pytest.mark.parametrize(
    "rule",
    ["7d", "=7d", "a=", "a=7", "a=d", "a=0d", "a=07d", "a=-1d", "a=1.5d", "a=7 d", "a=7D", "a=1gb",
     "a=1d,2d", "a=1B,1KB", "a=1d,", "a=1d,forever", "a=Forever", "a=1d 1GB", "a=1d,1B,1h"],
)  # fmt: skip
def test_a_bad_rule_is_named_together_with_what_it_takes(rule: str) -> None:
    with pytest.raises(BadSetting) as refused:
        load_settings({"TAILRACE_RETENTION": f"ok=1d; {rule}; fine=1B"})
    told = str(refused.value)
    assert told.startswith(f"TAILRACE_RETENTION has the rule '{rule}',")
    assert "PATTERN=LIMITS" in told
    assert "s, m, h, d" in told
    assert "B, KB, MB, GB, TB" in told
    assert "forever" in told


# What goes


def after(n: int, size: int) -> State:
    return State(n, size, size, NOW)


def test_entries_older_than_the_age_are_removed() -> None:
    pieces = [Piece(10, NOW - 3 * DAY, 1), Piece(20, NOW - 2 * DAY, 2), Piece(30, NOW - DAY, 3)]
    assert first_kept(Keep(2 * DAY, None), after(40, 4), 0, pieces, NOW) == 20
    assert first_kept(Keep(2 * DAY + 1, None), after(40, 4), 0, pieces, NOW) == 10
    assert first_kept(Keep(4 * DAY, None), after(40, 4), 5, pieces, NOW) == 5


def test_as_many_bytes_stay_as_the_size_says_and_no_piece_is_cut() -> None:
    pieces = [Piece(10, NOW, 100), Piece(20, NOW, 200), Piece(30, NOW, 300)]
    assert first_kept(Keep(None, 200), after(40, 400), 0, pieces, NOW) == 20
    assert first_kept(Keep(None, 201), after(40, 400), 0, pieces, NOW) == 10
    assert first_kept(Keep(None, 199), after(40, 400), 0, pieces, NOW) == 20
    assert first_kept(Keep(None, 400), after(40, 400), 0, pieces, NOW) == 0


def test_of_two_limits_the_one_that_is_reached_first_counts() -> None:
    old, large = Piece(1, NOW - DAY, 1), Piece(1, NOW, 1)
    assert may_remove(Keep(DAY, 100), after(3, 10), old, NOW)
    assert may_remove(Keep(DAY, 9), after(3, 10), large, NOW)
    assert not may_remove(Keep(DAY, 10), after(3, 10), large, NOW)


def test_the_last_entry_stays_however_old_it_is() -> None:
    pieces = [Piece(n + 1, 0, n + 1) for n in range(5)]
    assert first_kept(Keep(1, 1), after(5, 5), 0, pieces, NOW) == 4
    assert not may_remove(Keep(1, 1), after(5, 5), Piece(5, 0, 5), NOW)


def test_a_segment_that_holds_the_last_entry_stays_whole() -> None:
    assert first_kept(Keep(1, 1), after(5, 5), 0, [Piece(2, 0, 2), Piece(5, 0, 5)], NOW) == 2


def test_nothing_that_is_younger_than_the_grace_period_goes() -> None:
    piece = Piece(1, NOW - 600 * SECOND, 1)
    for keep in (Keep(1, None), Keep(None, 1)):
        assert may_remove(keep, after(3, 10), piece, NOW, grace=600)
        assert not may_remove(keep, after(3, 10), piece, NOW, grace=601)


def test_a_stream_without_pieces_keeps_its_beginning() -> None:
    assert first_kept(Keep(1, 1), after(0, 0), 7, [], NOW) == 7


bounded = settings(max_examples=60, deadline=None, derandomize=True)
limits = st.one_of(st.none(), st.integers(1, 50))


@bounded
@given(
    entries=st.lists(st.tuples(st.integers(1, 10), st.integers(0, 10)), min_size=1, max_size=30),
    age=limits,
    size=limits,
    cuts=st.sets(st.integers(1, 29)),
)
def test_exactly_the_entries_too_old_or_too_far_back_are_removed(
    entries: list[tuple[int, int]], age: int | None, size: int | None, cuts: set[int]
) -> None:
    """Of entries one by one exactly; of any pieces of them never more."""
    at, total, pieces = 0, 0, []
    for n, (length, pause) in enumerate(entries):
        at, total = at + pause, total + length
        pieces.append(Piece(n + 1, at, total))
    keep, state, now = Keep(age, size), after(len(entries), total), at + 5
    first = first_kept(keep, state, 0, pieces, now)
    for piece in pieces[:-1]:
        old = age is not None and piece.written_at + age <= now
        far = size is not None and total - piece.size >= size
        assert (piece.stop <= first) == (old or far)
    assert first < len(entries)
    larger = [piece for piece in pieces if piece.stop in cuts]
    assert first_kept(keep, state, 0, larger, now) <= first


# Where a stream begins


def test_a_stream_begins_where_its_own_slots_do_once_some_are_gone() -> None:
    plain = Config("text/plain", NOW)
    assert earliest(plain, 0) == 0
    assert earliest(plain, 7) == 7


def test_a_fork_begins_with_what_it_inherits_until_it_loses_slots_of_its_own() -> None:
    fork = Config("text/plain", NOW, base=(10, 0, 0), earliest=4)
    assert earliest(fork, 10) == 4
    assert earliest(fork, 11) == 11
