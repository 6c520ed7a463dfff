"""State shared by writers, readers and churn, and the invariants that the audit checks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devtools.load.client import Address

SHOWN_FAILURES = 20


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledged append.

    The offset is unknown if only the retry was acknowledged: a duplicate gets the stream's tail.
    """

    writer: int
    first: int
    count: int
    offset: str | None


@dataclass(slots=True)
class Ledger:
    """All acknowledged appends of one stream; each writer numbers its messages from 0."""

    next_index: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    appends: list[Acknowledged] = field(default_factory=list)

    def reserve(self, writer: int, count: int) -> int:
        first = self.next_index[writer]
        self.next_index[writer] = first + count
        return first

    def problems(self, stored: Iterable[Mapping[str, Any]]) -> list[str]:
        """The differences between the stored messages and the acknowledged ones, in order."""
        found = [(item["w"], item["i"]) for item in stored]
        per_writer: dict[int, list[int]] = defaultdict(list)
        for writer, index in found:
            per_writer[writer].append(index)
        problems = [
            f"writer {writer}: {_difference(per_writer.get(writer, []), list(range(count)))}"
            for writer, count in self.next_index.items()
            if per_writer.get(writer, []) != list(range(count))
        ]
        strangers = set(per_writer) - set(self.next_index)
        problems += [f"messages of writer {writer} nobody sent" for writer in strangers]
        placed = sorted(
            (append.offset, append.writer, append.first, append.count)
            for append in self.appends
            if append.offset is not None
        )
        expected = [
            (writer, index)
            for _, writer, first, count in placed
            for index in range(first, first + count)
        ]
        known = set(expected)
        if [key for key in found if key in known] != expected:
            problems.append("the order of messages is not the order of acknowledged offsets")
        return problems


def _difference(found: list[int], expected: list[int]) -> str:
    at = next(
        (at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(expected)),
    )
    return f"{len(found)} messages of {len(expected)}, different from number {at} on"


class Follower:
    """Checks that a live reader has no gaps and no repetitions, even across reconnects."""

    def __init__(self, from_start: bool) -> None:
        self._from_start = from_start
        self._last: dict[int, int] = {}
        self.seen = 0

    def see(self, messages: Iterable[Mapping[str, Any]]) -> str | None:
        """The first problem of these messages, if any."""
        for message in messages:
            writer, index = message["w"], message["i"]
            last = self._last.get(writer, -1 if self._from_start else None)
            if last is not None and index != last + 1:
                return f"writer {writer}: message {index} after {last}"
            self._last[writer] = index
            self.seen += 1
        return None

    def has_all(self, ledger: Ledger) -> bool:
        return all(
            self._last.get(writer, -1) == count - 1
            for writer, count in ledger.next_index.items()
            if self._from_start or writer in self._last
        )


@dataclass(slots=True)
class World:
    address: Address
    ledgers: dict[str, Ledger]
    stop_writing: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reading: asyncio.Event = field(default_factory=asyncio.Event)
    tally: Counter[str] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def writing(self) -> bool:
        return not self.stop_writing.is_set()

    @property
    def reading(self) -> bool:
        return not self.stop_reading.is_set()

    def fail(self, reason: str) -> None:
        self.tally["failures"] += 1
        if len(self.failures) < SHOWN_FAILURES:
            self.failures.append(reason)

    def note_delays(self, messages: Iterable[Mapping[str, Any]], live_since: float) -> None:
        """Record the age of messages that were sent while the reader was waiting."""
        now = time.monotonic()
        self.delays += [now - item["t"] for item in messages if item["t"] > live_since]
