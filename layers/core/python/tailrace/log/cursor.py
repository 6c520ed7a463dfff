"""The cursor that lets caches collapse live readers without ever looping.

Time since the epoch is cut into intervals; readers in one interval share a cursor and so a URL.
A reader that already holds the current cursor gets a later one, so its next URL is a new one.
"""

from __future__ import annotations

import random
from typing import Final

from tailrace.limits import CURSOR_DIGITS

EPOCH_MS: Final = 1_728_432_000_000  # 2024-10-09T00:00:00Z
INTERVAL_S: Final = 20
JITTER_S: Final = 3600


def next_cursor(held: str | None, now_ms: int) -> int:
    """The cursor for an answer to a reader that sent `held`."""
    current = (now_ms - EPOCH_MS) // (INTERVAL_S * 1000)
    if not held or len(held) > CURSOR_DIGITS or not (held.isascii() and held.isdigit()):
        return current
    if int(held) < current:
        return current
    return int(held) + max(1, -(-random.randint(1, JITTER_S) // INTERVAL_S))  # noqa: S311 - no secret
