"""Cursors of readers that share long-polls, in virtual time, with a model of the edge."""

from __future__ import annotations

import heapq
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from devtools.node import find_node
from infra.viewer_functions import request_code, response_code
from tailrace.protocols.durable_streams.caching import EPOCH_MS, INTERVAL_S, next_cursor

SHARED_SECONDS = 1.0
"""How long the edge keeps an answer. Answers with data may be kept longer, but their offset is not
asked for again."""

PAIRS = """
import { readFileSync } from "node:fs"
import { fromRequest, toEvent, toResponseEvent } from "./devtools/local_aws/viewer_event.mjs"
import { loadFunction } from "./devtools/local_aws/viewer_runtime.mjs"

const given = JSON.parse(readFileSync(process.argv[1], "utf8"))
let now = 0
const before = loadFunction(given.request, { origins: ["wait"], now: () => now })
const after = loadFunction(given.response)
const made = []
for (const [held, at, answer] of given.cases) {
  now = at
  const query = `offset=now&live=long-poll&cursor=${held}`
  const headers = [["host", "a.example"]]
  const event = toEvent({ method: "GET", path: "/v1/stream/a", query, headers })
  const changed = fromRequest((await before.run(event)).request, event, query)
  const answered = new Map([["stream-cursor", [answer]]])
  const { response } = await after.run(toResponseEvent(changed, { statusCode: 204 }, answered))
  const cursor = Object.fromEntries(response.headers)["stream-cursor"]
  made.push([changed.query.split("cursor=")[1], cursor])
}
process.stdout.write(JSON.stringify(made))
"""


def key_cursor(held: int, now: float, wait: int) -> int:
    """The cursor of the cache key, as `viewer_request.js` counts it."""
    since = now - EPOCH_MS / 1000
    return int(since // wait) + (held > since // INTERVAL_S)


def given_cursor(answer: int, held: int) -> int:
    """The cursor that a reader gets with a shared answer, as `viewer_response.js` counts it."""
    return max(answer, held + 1)


@pytest.mark.parametrize("wait", [2, 20, 110])
def test_the_model_counts_as_the_functions_do(tmp_path: Path, wait: int) -> None:
    chance = random.Random(wait)
    cases = []
    for _ in range(300):
        at = EPOCH_MS + chance.randrange(10**11)
        current = (at - EPOCH_MS) // (INTERVAL_S * 1000)
        held = current + chance.choice([-1000, -1, 0, 1, 2, 1000, 10**15 - 1 - current])
        cases.append((str(max(0, held)), at, str(current + chance.randrange(2))))
    file = tmp_path / "cases.json"
    source = {"request": request_code("open", wait=wait), "response": response_code()}
    file.write_text(json.dumps({**source, "cases": cases}))
    command = [find_node(), "--input-type=module", "--eval", PAIRS, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        [str(key_cursor(int(held), at / 1000, wait)), str(given_cursor(int(answer), int(held)))]
        for held, at, answer in cases
    ]


@dataclass(eq=False, slots=True)
class Answer:
    """An answer of the origin, or what will become one."""

    until: float = float("inf")
    cursor: int = 0
    end: int = 0
    data: bool = False
    waiting: list[Reader] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Reader:
    offset: int
    leaves: float
    cursor: int = 0
    missed: int = 0
    got: Counter[Answer] = field(default_factory=Counter)


class Audience:
    """One stream, its readers, and an edge with one location between them and the origin."""

    def __init__(self, seed: int, wait: int, *, skew: float = 0) -> None:
        """`skew`: how much later the origin's clock is than the edge's, in seconds."""
        self.chance = random.Random(seed)
        self.now = EPOCH_MS / 1000 + self.chance.uniform(10**8, 2 * 10**8)
        self.origin_requests = 0
        self.answers = 0
        self.tail = 0
        self._wait = wait
        self._skew = skew
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._cache: dict[tuple[int, int], Answer] = {}
        self._pending: list[tuple[tuple[int, int], Answer]] = []
        self.readers: list[Reader] = []

    def run(self, *, seconds: float, arrivals: float, stay: float, writes: float) -> None:
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
        reader = Reader(self.tail, self.now + self.chance.expovariate(1 / stay))
        # Some have been here before.
        current = int((self.now - EPOCH_MS / 1000) // INTERVAL_S)
        reader.cursor = self.chance.choice([0, 0, current, current + 1, current + 500])
        self.readers.append(reader)
        self._ask(reader)

    def _ask(self, reader: Reader) -> None:
        if self.now >= reader.leaves:
            return
        key = reader.offset, key_cursor(reader.cursor, self.now, self._wait)
        answer = self._cache.get(key)
        if answer is None or answer.until <= self.now:
            answer = self._cache[key] = Answer()
            self._forward(key, answer)
        if answer.until == float("inf"):
            answer.waiting.append(reader)
        else:
            self._give(reader, answer)

    def _forward(self, key: tuple[int, int], answer: Answer) -> None:
        self.origin_requests += 1
        if key[0] < self.tail:
            self._at(self.now + 0.02, lambda: self._answer(key, answer))
            return
        self._pending.append((key, answer))
        self._at(self.now + self._wait + 0.01, lambda: self._answer(key, answer))

    def _write(self) -> None:
        self.tail += 1
        pending, self._pending = self._pending, []
        for key, answer in pending:
            self._at(
                self.now + self.chance.uniform(0.005, 0.04), partial(self._answer, key, answer)
            )

    def _answer(self, key: tuple[int, int], answer: Answer) -> None:
        if answer.until != float("inf"):
            return
        self._pending = [each for each in self._pending if each[1] is not answer]
        answer.until = self.now + SHARED_SECONDS
        answer.end, answer.data = self.tail, self.tail > key[0]
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
        reader.offset = answer.end
        reader.got[answer] += 1
        pause = self.chance.choice([0.0, 0.002, self.chance.uniform(0, 0.1)])
        self._at(self.now + pause, lambda: self._ask(reader))


@pytest.mark.parametrize("wait", [2, 20, 110])
@pytest.mark.parametrize("writes", [0, 0.05, 1])
@pytest.mark.parametrize("skew", [0.0, 0.4, -0.4])
def test_no_reader_meets_its_own_204_again_and_again(wait: int, writes: float, skew: float) -> None:
    audience = Audience(seed=wait, wait=wait, skew=skew)
    audience.run(seconds=900, arrivals=0.5, stay=120, writes=writes)
    times = Counter(n for reader in audience.readers for n in reader.got.values())
    assert audience.answers > 300
    # Once more at most: an interval of 20 s may begin between an answer and the next request.
    assert max(times) <= 2
    assert times[2] <= sum(times.values()) * 0.05


@pytest.mark.parametrize("wait", [20, 110])
@pytest.mark.parametrize(("writes", "stay"), [(1, 60), (1, 600), (0.2, 600)])
def test_readers_that_come_at_any_time_share_a_few_requests(
    wait: int, writes: float, stay: float
) -> None:
    audience = Audience(seed=7, wait=wait)
    audience.run(seconds=300, arrivals=1, stay=stay, writes=writes)
    print(f"{audience.origin_requests / audience.tail:.2f} origin requests per write")
    assert audience.origin_requests <= 4 * audience.tail
    assert audience.answers > 10 * audience.origin_requests


@pytest.mark.parametrize("wait", [20, 110])
def test_a_quiet_stream_has_two_origin_requests_at_a_time(wait: int) -> None:
    audience = Audience(seed=7, wait=wait)
    audience.run(seconds=2200, arrivals=0.5, stay=600, writes=0)
    assert audience.origin_requests <= 2 * 2200 / wait + 3
