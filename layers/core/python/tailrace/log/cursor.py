"""The cursor that lets caches collapse live readers without ever looping.

Time since the epoch is cut into intervals; readers in one interval share a cursor and so a URL.
A reader that already holds the current cursor gets a later one, so its next URL is a new one. The
protocol allows for any step up to an hour, at random; it is always the smallest here, so that those
who hold the same cursor go on sharing, and those who hold another meet again when time catches up.
"""

from __future__ import annotations

from typing import Final

from tailrace.limits import CURSOR_DIGITS

EPOCH_MS: Final = 1_728_432_000_000  # 2024-10-09T00:00:00Z
INTERVAL_S: Final = 20


def next_cursor(held: str | None, now_ms: int) -> int:
    """The cursor for an answer to a reader that sent `held`."""
    current = (now_ms - EPOCH_MS) // (INTERVAL_S * 1000)
    if not held or len(held) > CURSOR_DIGITS or not (held.isascii() and held.isdigit()):
        return current
    if int(held) < current:
        return current
    return int(held) + 1
