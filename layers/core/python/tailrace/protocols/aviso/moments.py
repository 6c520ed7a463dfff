"""Dates and times: what requests may say, and how answers say them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = 10**9
_MOST: Final = 2**63 - 1

_DATE_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)([Tt ])(\d\d:\d\d:\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d)(:?)(\d\d))?",
    re.ASCII,
)
_NUMBER: Final = re.compile(r"\+?([0-9]+)")
_SECONDS_DIGITS: Final = 11
"""A number of at most so many digits counts seconds, a longer one milliseconds."""


def parse_instant(text: str) -> int:
    """Nanoseconds since 1970; ValueError says what is taken."""
    text = text.strip()
    if number := _NUMBER.fullmatch(text):
        return _from_number(number[1])
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError(_WANTED)
    day, separator, clock, fraction, _, sign, hours, colon, minutes = match.groups()
    if sign and not colon and separator != " ":
        raise ValueError(_WANTED)
    try:
        # Newer Pythons take 24:00 for the next day's midnight.
        _require_clock(int(clock[:2]), int(clock[3:5]))
        moment = datetime.fromisoformat(f"{day}T{clock}+00:00")
        if sign:
            _require_clock(int(hours), int(minutes))
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            moment = moment - offset if sign == "+" else moment + offset
    except (ValueError, OverflowError):
        raise ValueError(f"there is no such date or time: {text[:60]}") from None
    whole = (moment - _EPOCH) // timedelta(seconds=1)
    return whole * _NANOSECONDS + int((fraction or "0")[:9].ljust(9, "0"))


_WANTED: Final = (
    "expected RFC 3339 such as 2026-01-31T12:00:00Z, the same without an offset for UTC, or seconds"
    " or milliseconds since 1970"
)


def _from_number(digits: str) -> int:
    number = int(digits) if len(digits) < 64 else _MOST + 1
    if number > _MOST:
        raise ValueError("the number does not fit 64 bits")
    scale = _NANOSECONDS if len(str(number)) <= _SECONDS_DIGITS else 10**6
    return number * scale


def milliseconds(instant: int) -> int:
    """The millisecond of an instant. What was stored in it may have been stored before the instant
    or after it: the log has no more digits, and nothing that came after may be missed."""
    return instant // 10**6


def shown_seconds(milliseconds: int) -> str:
    """As in control frames: whole seconds, and what is beyond them cut off."""
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def shown(milliseconds: int) -> str:
    """As in events: with a fraction where there is one."""
    whole, rest = divmod(milliseconds, 1000)
    text = f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{rest:03d}Z" if rest else f"{text}Z"


_DAY: Final = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)", re.ASCII)
_ORDINAL: Final = re.compile(r"(\d{4})-(\d{3})", re.ASCII)


def parse_day(text: str) -> date | None:
    """From YYYY-MM-DD, YYYYMMDD or YYYY-DDD; None when it is none of these, or no day."""
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
    """HHMM from H, HH, H:MM, HH:MM or HHMM; None when it is none of these, or no time."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute = int(match[1] or match[3]), int(match[2] or match[4] or 0)
    try:
        _require_clock(hour, minute)
    except ValueError:
        return None
    return f"{hour:02d}{minute:02d}"


def _require_clock(hour: int, minute: int) -> None:
    if hour > 23 or minute > 59:
        raise ValueError(f"{hour:02d}:{minute:02d} is no time")
