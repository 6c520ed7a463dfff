"""Parses the dates and times of requests, and formats those of responses."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 10**9
_END: Final = 253_402_300_800 * _NANOSECONDS
"""The end of the year 9999, after which no time can be formatted."""

_DATE_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)([Tt ])(\d\d:\d\d:\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d)(:?)(\d\d))?",
    re.ASCII,
)
_NUMBER: Final = re.compile(r"\+?([0-9]+)")
_SECONDS_DIGITS: Final = 11
"""A number with at most this many digits is in seconds, a longer one in milliseconds."""


def parse_instant(text: str) -> int:
    """Parse an instant to nanoseconds since 1970; a ValueError lists the accepted formats."""
    text = text.strip()
    if number := _NUMBER.fullmatch(text):
        return _parse_number(number[1])
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError(_EXPECTED)
    day, separator, clock, fraction, _, sign, hours, colon, minutes = match.groups()
    if sign and not colon and separator != " ":
        raise ValueError(_EXPECTED)
    try:
        # Newer versions of Python accept 24:00 as midnight of the next day.
        _check_clock(int(clock[:2]), int(clock[3:5]))
        instant = datetime.fromisoformat(f"{day}T{clock}+00:00")
        if sign:
            _check_clock(int(hours), int(minutes))
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            instant = instant - offset if sign == "+" else instant + offset
    except (ValueError, OverflowError):
        raise ValueError(f"no such date or time: {text[:60]}") from None
    whole = (instant - _EPOCH) // timedelta(seconds=1)
    return whole * _NANOSECONDS + int((fraction or "0")[:9].ljust(9, "0"))


_EXPECTED: Final = (
    "expected RFC 3339 such as 2026-01-31T12:00:00Z, with UTC as the default offset, or seconds or"
    " milliseconds since 1970"
)


def _parse_number(digits: str) -> int:
    number = int(digits) if len(digits) < 64 else _END
    instant = number * (_NANOSECONDS if len(str(number)) <= _SECONDS_DIGITS else 10**6)
    if instant >= _END:
        raise ValueError("the instant is after the year 9999")
    return instant


def to_milliseconds(instant: int) -> int:
    """Round an instant down to the milliseconds of the log.

    A replay from this instant may begin with notifications that were stored earlier in the same
    millisecond. Rounding up would lose those stored after it."""
    return instant // 10**6


def format_seconds(milliseconds: int) -> str:
    """Format a time for control frames: in whole seconds, rounded down."""
    # strftime does not pad years before 1000.
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC).replace(tzinfo=None).isoformat()}Z"


def format_timestamp(milliseconds: int) -> str:
    """Format a time for notifications: with milliseconds unless they are zero."""
    rest = milliseconds % 1000
    text = format_seconds(milliseconds)
    return f"{text[:-1]}.{rest:03d}Z" if rest else text


_DAY: Final = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)", re.ASCII)
_ORDINAL: Final = re.compile(r"(\d{4})-(\d{3})", re.ASCII)


def parse_day(text: str) -> date | None:
    """Parse YYYY-MM-DD, YYYYMMDD or YYYY-DDD; None if invalid."""
    try:
        if match := _ORDINAL.fullmatch(text):
            first = date(int(match[1]), 1, 1)
            day = first + timedelta(days=int(match[2]) - 1)
            return day if day.year == first.year else None
        if (match := _DAY.fullmatch(text)) and text.count("-") in (0, 2):
            return date(int(match[1]), int(match[2]), int(match[3]))
    except (ValueError, OverflowError):
        pass
    return None


_CLOCK: Final = re.compile(r"(\d{1,2})(?::(\d\d))?|(\d\d)(\d\d)", re.ASCII)


def parse_clock(text: str) -> str | None:
    """Convert H, HH, H:MM, HH:MM or HHMM to HHMM; None if invalid."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute = int(match[1] or match[3]), int(match[2] or match[4] or 0)
    try:
        _check_clock(hour, minute)
    except ValueError:
        return None
    return f"{hour:02d}{minute:02d}"


def _check_clock(hour: int, minute: int) -> None:
    if hour > 23 or minute > 59:
        raise ValueError(f"{hour:02d}:{minute:02d} is not a time")
