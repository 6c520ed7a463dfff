"""A model of the edge in virtual time: one location, one stream, and readers that long-poll it.

`.venv/bin/python -m devtools.load.edge_model` prints what docs/collapsing.md says is modelled.
`tests/integration/edge/test_shared_cursors.py` compares its cursors with the deployed functions.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from tailrace.limits import LIVE_CACHE_SECONDS
from tailrace.protocols.durable_streams.caching import EPOCH_MS, INTERVAL_S, next_cursor

EMPTY_SECONDS: Final = 1.0
"""How long the edge keeps an answer without data."""
NEVER: Final = float("inf")
FAST: Final = (0.0, 0.03)
SLOW: Final = (0.3, 1.5)
"""From an answer to the arrival of the next request at the edge, in seconds: least and most."""
KEPT: Final = (1, 2, 5, 10, 20)
ORIGIN_SECONDS: Final = 0.05
"""How long the origin takes for data that is there, in seconds."""


def key_cursor(held: int, now: float, wait: int) -> int:
    """The cursor of the cache key, as `viewer_request.js` counts it."""
    since = now - EPOCH_MS / 1000
    return int(since // wait) + (held > since // INTERVAL_S)


def given_cursor(answer: int, held: int) -> int:
    """The cursor that a reader gets with a shared answer, as `viewer_response.js` counts it."""
    return max(answer, held + 1)


@dataclass(eq=False, slots=True)
class Answer:
    """An answer of the origin, or what will become one."""

    until: float = NEVER
    cursor: int = 0
    end: int = 0
    waiting: list[Reader] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Reader:
    offset: int
    leaves: float
    cursor: int = 0
    caught_up: float = NEVER
    """When it first was at the end."""
    round_trip: tuple[float, float] = FAST
    delays: list[float] = field(default_factory=list)
    """How old the oldest message of each answer was."""
    got: Counter[Answer] = field(default_factory=Counter)


class Audience:
    """One stream, its readers, and an edge with one location between them and the origin."""

    def __init__(
        self, seed: int, wait: int, *, skew: float = 0, data_seconds: float = LIVE_CACHE_SECONDS
    ) -> None:
        """`wait`: how long a long-poll waits. `skew`: how much later the origin's clock is than the
        edge's. `data_seconds`: how long the edge keeps an answer with data."""
        self.chance = random.Random(seed)
        self.now = EPOCH_MS / 1000 + self.chance.uniform(10**8, 2 * 10**8)
        self.origin_requests = 0
        self.answers = 0
        self.tail = 0
        self._written_at: list[float] = []
        self._wait = wait
        self._skew = skew
        self._data_seconds = data_seconds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._cache: dict[tuple[int, int], Answer] = {}
        self._pending: list[tuple[tuple[int, int], Answer]] = []
        self.readers: list[Reader] = []

    def run(
        self, *, seconds: float, arrivals: float = 0, stay: float = 60, writes: float = 0
    ) -> None:
        """`arrivals`, `writes`: per second. `stay`: the mean, in seconds."""
        end = self.now + seconds
        expect = self.chance.expovariate
        for rate, event in ((arrivals, lambda: self._arrive(stay)), (writes, self._write)):
            at = self.now + expect(rate) if rate else end
            while at < end:
                self._at(at, event)
                at += expect(rate)
        while self._events and (event_at := self._events[0][0]) < end:
            self.now = event_at
            heapq.heappop(self._events)[2]()

    def _at(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._number), event))

    def _arrive(self, stay: float) -> None:
        self.come(self.tail, self.now + self.chance.expovariate(1 / stay))

    def come(self, offset: int, leaves: float, round_trip: tuple[float, float] = FAST) -> Reader:
        """A reader comes that has read up to an offset."""
        reader = Reader(offset, leaves, round_trip=round_trip)
        # Some have been here before.
        current = int((self.now - EPOCH_MS / 1000) // INTERVAL_S)
        reader.cursor = self.chance.choice([0, 0, current, current + 1, current + 500])
        self.readers.append(reader)
        self._ask(reader)
        return reader

    def _ask(self, reader: Reader) -> None:
        if self.now >= reader.leaves:
            return
        key = reader.offset, key_cursor(reader.cursor, self.now, self._wait)
        answer = self._cache.get(key)
        if answer is None or answer.until <= self.now:
            answer = self._cache[key] = Answer()
            self._forward(key, answer)
        if answer.until == NEVER:
            answer.waiting.append(reader)
        else:
            self._give(reader, answer)

    def _forward(self, key: tuple[int, int], answer: Answer) -> None:
        self.origin_requests += 1
        if key[0] < self.tail:
            self._at(self.now + ORIGIN_SECONDS, lambda: self._answer(key, answer))
            return
        self._pending.append((key, answer))
        self._at(self.now + self._wait + 0.01, lambda: self._answer(key, answer))

    def _write(self) -> None:
        self.tail += 1
        self._written_at.append(self.now)
        pending, self._pending = self._pending, []
        for key, answer in pending:
            self._at(
                self.now + self.chance.uniform(0.005, 0.04), partial(self._answer, key, answer)
            )

    def _answer(self, key: tuple[int, int], answer: Answer) -> None:
        if answer.until != NEVER:
            return
        self._pending = [each for each in self._pending if each[1] is not answer]
        answer.end = self.tail
        kept = self._data_seconds if answer.end > key[0] else EMPTY_SECONDS
        answer.until = self.now + kept
        at = int((self.now + self._skew) * 1000)
        answer.cursor = next_cursor(str(key[1]), at, self._wait)
        waiting, answer.waiting = answer.waiting, []
        for reader in waiting:
            self._give(reader, answer)

    def _give(self, reader: Reader, answer: Answer) -> None:
        self.answers += 1
        held, reader.cursor = reader.cursor, given_cursor(answer.cursor, reader.cursor)
        assert reader.cursor > held
        assert answer.end >= reader.offset
        if answer.end > reader.offset:
            reader.delays.append(self.now - self._written_at[reader.offset])
        reader.offset = answer.end
        reader.got[answer] += 1
        if answer.end == self.tail:
            reader.caught_up = min(reader.caught_up, self.now)
        pause = self.chance.uniform(*reader.round_trip)
        self._at(self.now + pause, lambda: self._ask(reader))


def crowds() -> None:
    """Print the origin requests of large audiences."""
    print("| readers | mean stay | a write every | origin requests per write | readers of each |")
    print("|---|---|---|---|---|")
    for readers, stay, every in ((1000, 60, 1), (1000, 600, 1), (1000, 600, 5), (10_000, 600, 1)):
        audience = Audience(seed=1, wait=25)
        for _ in range(readers):
            audience.come(0, audience.now + audience.chance.expovariate(1 / stay))
        seconds = 60 if readers < 5000 else 20
        audience.run(seconds=seconds, arrivals=readers / stay, stay=stay, writes=1 / every)
        print(
            f"| {readers:,} | {stay // 60} min | {every} s"
            f" | {audience.origin_requests / audience.tail:.2f}"
            f" | {audience.answers / audience.origin_requests:,.0f} |"
        )


def slow_readers(kept: float, writes: float) -> str:
    """A row of the table: readers with slow connections among fast ones, by how long the edge keeps
    data."""
    audience = Audience(seed=1, wait=25, data_seconds=kept)
    for number in range(70):
        audience.come(0, NEVER, round_trip=SLOW if number < 20 else FAST)
    audience.run(seconds=20, writes=writes)
    before, tail = audience.origin_requests, audience.tail
    for reader in audience.readers:
        reader.delays.clear()
    audience.run(seconds=60, writes=writes)
    asked = (audience.origin_requests - before) / (audience.tail - tail)
    delays = [
        sorted(d for reader in audience.readers if reader.round_trip == each for d in reader.delays)
        for each in (FAST, SLOW)
    ]
    cells = [
        f"{each[len(each) // 2]:.2f} s | {each[len(each) * 99 // 100]:.2f} s" for each in delays
    ]
    return f"| {kept:g} s | {writes:g} | {asked:.2f} | {' | '.join(cells)} |"


def laggards(kept: float) -> str:
    """A row: readers that come 15 s behind the end of a stream with ten writes a second."""
    audience = Audience(seed=1, wait=25, data_seconds=kept)
    audience.run(seconds=30, arrivals=3, stay=60, writes=10)
    before, tail = audience.origin_requests, audience.tail
    late = []
    for _ in range(40):
        audience.run(seconds=1, arrivals=1, stay=60, writes=10)
        reader = audience.come(max(0, audience.tail - 150), NEVER)
        late.append((reader, audience.now))
    audience.run(seconds=25, arrivals=1, stay=60, writes=10)
    asked = (audience.origin_requests - before) / (audience.tail - tail)
    times = sorted(reader.caught_up - came for reader, came in late)
    return f"| {kept:g} s | {asked:.2f} | {times[len(times) // 2]:.2f} s | {times[-1]:.2f} s |"


def main() -> None:
    crowds()
    print("\n| kept | writes/s | origin requests per write | fast p50 | p99 | slow p50 | p99 |")
    print("|" + "---|" * 7)
    for writes in (1, 10):
        for kept in KEPT:
            print(slow_readers(kept, writes))
    print("\n| kept | origin requests per write | median | longest |")
    print("|" + "---|" * 4)
    for kept in KEPT:
        print(laggards(kept))


if __name__ == "__main__":
    main()
