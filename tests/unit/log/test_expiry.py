from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import BadHeader
from tailrace.log.expiry import (
    deadline,
    expired,
    format_instant,
    parse_decimal,
    parse_instant,
    renewal_slack,
)
from tailrace.log.state import Config

NOON = 1_893_499_200_000
"""2030-01-01T12:00:00Z, in milliseconds."""

bounded = settings(max_examples=60, deadline=None, derandomize=True)


# Stream-TTL and Stream-Fork-Sub-Offset


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("60", 60),
        ("3600", 3600),
        ("9007199254740991", 2**53 - 1),
    ],
)
def test_a_decimal_is_digits_without_decoration(text: str, value: int) -> None:
    assert parse_decimal("Stream-TTL", text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "abc",
        "-1",
        "-0",
        "+60",
        "00060",
        "00",
        "05",
        "60.5",
        "60.0",
        "1.5",
        "1e3",
        "0x10",
        "1_000",
        "1,000",
        " 60",
        "60 ",
        "60\n",
        "60s",
        "٦٠",
        "²",
        "９",
        "NaN",
        "Infinity",
        "9007199254740992",
        "99999999999999999",
        "9" * 5000,
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadHeader, match="Stream-TTL"):
        parse_decimal("Stream-TTL", text)


# Stream-Expires-At


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2030-01-01T12:00:00Z", NOON),
        ("2030-01-01T12:00:00z", NOON),
        ("2030-01-01t12:00:00Z", NOON),
        ("2030-01-01T12:00:00+00:00", NOON),
        ("2030-01-01T12:00:00-00:00", NOON),
        ("2030-01-01T13:30:00+01:30", NOON),
        ("2030-01-01T04:00:00-08:00", NOON),
        ("2030-01-02T11:59:00+23:59", NOON),
        ("2029-12-31T12:01:00-23:59", NOON),
        ("2030-01-01T12:00:00.0Z", NOON),
        ("2030-01-01T12:00:00.5Z", NOON + 500),
        ("2030-01-01T12:00:00.05Z", NOON + 50),
        ("2030-01-01T12:00:00.123Z", NOON + 123),
        ("2030-01-01T12:00:00.123+00:00", NOON + 123),
        ("2030-01-01T12:00:00.1239Z", NOON + 123),
        ("2030-01-01T12:00:00.123999999Z", NOON + 123),
        ("2030-01-01T12:00:00.000000001Z", NOON),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("2000-02-29T00:00:00Z", 951_782_400_000),
    ],
)
def test_an_instant_is_rfc_3339_to_the_millisecond(text: str, instant: int) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "tomorrow",
        "1893499200",
        "1893499200000",
        "2030",
        "2030-01-01",
        "2030-01-01T12:00Z",
        "2030-01-01T12Z",
        "2030-01-01T12:00:00",
        "2030-01-01 12:00:00Z",
        "2030-01-01T12:00:00 Z",
        "2030-01-01T12:00:00.Z",
        "2030-01-01T12:00:00,5Z",
        "2030-01-01T12:00:00.0000000000Z",
        "2030-01-01T12:00:00UTC",
        "2030-01-01T12:00:00+0100",
        "2030-01-01T12:00:00+01",
        "2030-01-01T12:00:00+1:00",
        "2030-01-01T12:00:00+01:00:00",
        "2030-01-01T12:00:00Z+01:00",
        "20300101T120000Z",
        "2030-1-1T12:00:00Z",
        "+2030-01-01T12:00:00Z",
        "-2030-01-01T12:00:00Z",
        "12030-01-01T12:00:00Z",
        "2030-W01-2T12:00:00Z",
        "2030-001T12:00:00Z",
        "Tue, 01 Jan 2030 12:00:00 GMT",
        " 2030-01-01T12:00:00Z",
        "2030-01-01T12:00:00Z ",
        "2030-01-01T12:00:00Z\n",
        "٢٠٣٠-01-01T12:00:00Z",
    ],
)
def test_a_time_that_is_not_rfc_3339_is_rejected(text: str) -> None:
    with pytest.raises(BadHeader):
        parse_instant(text)


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "2030-00-01T12:00:00Z",
        "2030-13-01T12:00:00Z",
        "2030-01-00T12:00:00Z",
        "2030-01-32T12:00:00Z",
        "2030-02-29T12:00:00Z",
        "2100-02-29T12:00:00Z",
        "2030-01-01T24:00:00Z",
        "2030-01-01T25:00:00Z",
        "2030-01-01T12:60:00Z",
        "2030-01-01T12:00:61Z",
        "2030-01-01T12:00:00+24:00",
        "2030-01-01T12:00:00-99:00",
        "2030-01-01T12:00:00+01:60",
        "2030-01-01T12:00:00+00:99",
    ],
)
def test_a_time_that_does_not_exist_is_rejected(text: str) -> None:
    with pytest.raises(BadHeader):
        parse_instant(text)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOON, "2030-01-01T12:00:00.000Z"),
        (NOON + 7, "2030-01-01T12:00:00.007Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_shown_in_utc(instant: int, text: str) -> None:
    assert format_instant(instant) == text


@bounded
@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001
def test_an_instant_that_is_shown_reads_back(moment: datetime) -> None:
    instant = parse_instant(moment.replace(tzinfo=UTC).isoformat())
    assert parse_instant(format_instant(instant)) == instant


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_an_instant_that_is_accepted_can_be_shown(text: str) -> None:
    """A time that cannot be formatted would fail every HEAD of the stream, so it is refused."""
    try:
        instant = parse_instant(text)
    except BadHeader:
        return
    assert parse_instant(format_instant(instant)) == instant


# The clock


FOREVER = Config("text/plain", 0)
SLIDING = Config("text/plain", 0, ttl=2)
FIXED = Config("text/plain", 0, expires_at=5_000)
AT_ONCE = Config("text/plain", 0, ttl=0)
FOR_AGES = Config("text/plain", 0, ttl=2**53 - 1)


@pytest.mark.parametrize(
    ("config", "accessed", "expected"),
    [
        (FOREVER, 0, None),
        (FOREVER, 10**12, None),
        (SLIDING, 0, 2_000),
        (SLIDING, 1_500, 3_500),
        (FIXED, 0, 5_000),
        (FIXED, 4_999, 5_000),
        (AT_ONCE, 7, 7),
    ],
)
def test_the_deadline_slides_with_access_or_stands_still(
    config: Config, accessed: int, expected: int | None
) -> None:
    assert deadline(config, accessed) == expected


@pytest.mark.parametrize(
    ("config", "accessed", "now", "expected"),
    [
        (FOREVER, 0, 10**15, False),
        (SLIDING, 0, 1_999, False),
        (SLIDING, 0, 2_000, True),
        (SLIDING, 0, 2_001, True),
        (SLIDING, 1, 2_000, False),
        (SLIDING, 1, 2_001, True),
        (FIXED, 0, 4_999, False),
        (FIXED, 4_999, 5_000, True),
        (FIXED, 6_000, 6_000, True),
        (AT_ONCE, 0, 0, True),
        (FOR_AGES, 0, 10**15, False),
    ],
)
def test_a_stream_expires_to_the_millisecond(
    config: Config, accessed: int, now: int, expected: bool
) -> None:
    assert expired(config, accessed, now) is expected


def test_the_latest_deadline_fits_a_64_bit_integer() -> None:
    latest = deadline(FOR_AGES, parse_instant("9999-12-31T00:00:00Z"))
    assert latest is not None
    assert latest + renewal_slack(2**53 - 1) < 2**63


@pytest.mark.parametrize(
    ("ttl", "slack"),
    [(0, 0), (1, 100), (2, 200), (60, 6_000), (599, 59_900), (600, 60_000), (601, 60_000),
     (86_400, 60_000), (2**53 - 1, 60_000)],
)  # fmt: skip
def test_the_stored_clock_may_lag_a_tenth_of_the_window_but_a_minute_at_most(
    ttl: int, slack: int
) -> None:
    assert renewal_slack(ttl) == slack
