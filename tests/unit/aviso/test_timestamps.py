"""Parsing of instants in requests, and formatting of times."""

from __future__ import annotations

import pytest

from tailrace.protocols.aviso import timestamps

NOON = 1_769_860_800
"""2026-01-31 12:00:00 UTC."""


@pytest.mark.parametrize(
    ("text", "seconds", "nanoseconds"),
    [
        ("2026-01-31T12:00:00Z", NOON, 0),
        ("2026-01-31t12:00:00z", NOON, 0),
        ("2026-01-31 12:00:00Z", NOON, 0),
        ("2026-01-31T14:00:00+02:00", NOON, 0),
        ("2026-01-31T07:30:00-04:30", NOON, 0),
        ("2026-01-31T12:00:00.5Z", NOON, 500_000_000),
        ("2026-01-31T12:00:00.123456789Z", NOON, 123_456_789),
        ("2026-01-31T12:00:00.1234567891234Z", NOON, 123_456_789),
        ("2026-01-31T12:00:00.000000+00:00", NOON, 0),
        ("2026-01-31 12:00:00+0000", NOON, 0),
        ("2026-01-31 14:00:00.25+0200", NOON, 250_000_000),
        ("2026-01-31 12:00:00+00:00", NOON, 0),
        ("2026-01-31T12:00:00", NOON, 0),
        ("2026-01-31 12:00:00", NOON, 0),
        ("2026-01-31T12:00:00.75", NOON, 750_000_000),
        ("2026-01-31 12:00:00.75", NOON, 750_000_000),
        ("  2026-01-31T12:00:00Z  ", NOON, 0),
        (str(NOON), NOON, 0),
        (f"+{NOON}", NOON, 0),
        (f"000000{NOON}", NOON, 0),
        (f"{NOON}250", NOON, 250_000_000),
        ("0", 0, 0),
        ("99999999999", 99_999_999_999, 0),
        ("100000000000", 100_000_000, 0),
        ("1969-12-31T23:59:59Z", -1, 0),
    ],
)
def test_valid_instants_are_parsed(text: str, seconds: int, nanoseconds: int) -> None:
    assert timestamps.parse_instant(text) == seconds * 10**9 + nanoseconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "2026-01-31", "2026-01-31T12:00", "2026-01-31T12:00Z", "2026-01-31T12:00:00+0200",
     "-1", "1.5", "1e9", "yesterday", "now", "253402300800000", "9" * 70,
     "2026-02-30T12:00:00Z",
     "2026-01-31T24:00:00Z", "2026-01-31T12:61:00Z", "2026-01-31T12:00:00+24:00",
     "2026-01-31T12:00:00+02:60", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00 Z",
     "20260131T120000Z",
     "mars@5", "2026-1-31T12:00:00Z", "٢026-01-31T12:00:00Z", "0000-01-01T00:00:00Z",
     "0001-01-01T00:00:00+01:00"],
)  # fmt: skip
def test_invalid_instants_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no such|after the year"):
        timestamps.parse_instant(text)


@pytest.mark.parametrize(
    ("instant", "millisecond"), [(0, 0), (999_999, 0), (1_000_000, 1), (1_000_001, 1), (-1, -1)]
)
def test_bounds_are_rounded_down_to_milliseconds(instant: int, millisecond: int) -> None:
    assert timestamps.to_milliseconds(instant) == millisecond


def test_control_frames_have_whole_seconds() -> None:
    assert timestamps.format_seconds(NOON * 1000 + 999) == "2026-01-31T12:00:00Z"
    assert timestamps.format_seconds(-1) == "1969-12-31T23:59:59Z"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_every_instant_can_be_formatted(text: str) -> None:
    instant = timestamps.parse_instant(text)
    assert timestamps.format_seconds(timestamps.to_milliseconds(instant)) == text


def test_notifications_have_milliseconds_unless_they_are_zero() -> None:
    assert timestamps.format_timestamp(NOON * 1000) == "2026-01-31T12:00:00Z"
    assert timestamps.format_timestamp(NOON * 1000 + 7) == "2026-01-31T12:00:00.007Z"
