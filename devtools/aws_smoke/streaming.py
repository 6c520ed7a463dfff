"""Checks of streamed responses: held-back chunks, readers that join late, headers for a viewer."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import httpx

from devtools.aws_smoke.findings import Finding, NotMeasured, Number, judge
from devtools.aws_smoke.target import Client, Target

JOIN_SECONDS: Final = 3.0
"""How late the second reader joins."""
SSE_SECONDS: Final = 75.0
"""Longer than any streamed response."""


def measure_hold_back(target: Target) -> Finding:
    """Append small messages one by one, and see when an SSE reader gets each of them."""
    with target.direct("live") as live:
        direct = _follow(target, live, "hold-back-direct")
    with target.viewer() as viewer:
        distributed = _follow(target, viewer, "hold-back")
    return judge_hold_back(direct, distributed, target.pace.prompt)


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from the acknowledgement of each message to its arrival, and to the first bytes."""

    messages: Sequence[float]
    first: float


def judge_hold_back(direct: Delays, distributed: Delays, prompt: float) -> Finding:
    """A message is held back if it is not there after `prompt` seconds: the next is sent then."""
    ways = {"function_url": direct, "cloudfront": distributed}
    held = {name: sum(each > prompt for each in ways[name].messages) for name in ways}
    numbers: dict[str, Number] = {}
    for name, delays in ways.items():
        numbers[f"{name}_held_back"] = held[name]
        numbers[f"{name}_p50_ms"] = statistics.median(delays.messages) * 1_000
        numbers[f"{name}_max_ms"] = max(delays.messages) * 1_000
        numbers[f"{name}_first_bytes_ms"] = delays.first * 1_000
    summary = "each message arrives by itself"
    if any(held.values()):
        summary = (
            f"of {len(direct.messages)} messages the function URL held back"
            f" {held['function_url']}, and both together {held['cloudfront']}"
        )
    return judge(not any(held.values()), summary, **numbers)


def _follow(target: Target, reader: Client, name: str) -> Delays:
    """Append messages while a reader follows: the next when the last has arrived, or is late."""
    path, pace = target.stream(name), target.pace
    acknowledged: list[float] = []
    arrived: list[float] = []
    arrival = threading.Semaphore(0)

    def write(writer: Client) -> None:
        for number in range(pace.events):
            time.sleep(pace.gap)
            writer.append(path, f"{number:04d}")
            acknowledged.append(time.monotonic())
            arrival.acquire(timeout=pace.prompt)

    with target.viewer() as writer, ThreadPoolExecutor(1) as pool:
        writer.create(path)
        begun = time.monotonic()
        with reader.open(path, offset="-1", live="sse") as answer:
            _require_events(answer)
            lines = answer.iter_lines()
            next(lines)
            first = time.monotonic() - begun
            writing = pool.submit(write, writer)
            for data in data_lines(lines):
                for _ in range(len(data) // 4):
                    arrived.append(time.monotonic())
                    arrival.release()
                if len(arrived) >= pace.events or writing.done():
                    break
            writing.result()
    if len(arrived) < pace.events:
        raise AssertionError(
            f"{len(arrived)} of {pace.events} messages arrived before the response ended;"
            " with sse=shared it ends after its first data"
        )
    # A message may arrive before its acknowledgement.
    delays = [max(0.0, there - here) for here, there in zip(acknowledged, arrived, strict=True)]
    return Delays(delays, first)


def _require_events(answer: httpx.Response) -> None:
    kind = answer.headers.get("content-type", "")
    if answer.status_code != 200 or not kind.startswith("text/event-stream"):
        answer.read()
        raise AssertionError(f"SSE: {answer.status_code} {kind} {answer.text[:300]}")


def data_lines(lines: Iterator[str]) -> Iterator[str]:
    """The payloads of data events; not those of control events."""
    kind = ""
    for line in lines:
        if line.startswith("event:"):
            kind = line.removeprefix("event:").strip()
        elif line.startswith("data:") and kind == "data":
            yield line.removeprefix("data:").strip()


def measure_late_joiner(target: Target) -> Finding:
    """Two readers of one streamed response that may be shared; the second comes seconds later."""
    path = target.stream("late-joiner")
    with target.viewer() as writer, target.probe() as probe:
        writer.create(path)
        readers = [_Reader(probe, path), _Reader(probe, path)]
        readers[0].start()
        time.sleep(JOIN_SECONDS)
        readers[1].start()
        time.sleep(JOIN_SECONDS)
        writer.append(path, "news")
        for reader in readers:
            reader.join(SSE_SECONDS * 2)
    first, second = readers
    for reader in readers:
        if reader.failure is not None:
            raise AssertionError(f"a reader of the probe failed: {reader.failure}")
    return judge_late_joiner(first.seen, second.seen)


@dataclass(slots=True)
class Seen:
    """A reader's view of a streamed response; times in seconds of one clock."""

    begun: float
    request_id: str = ""
    x_cache: str = ""
    first: float | None = None
    news: float | None = None
    ended: float = 0.0


def judge_late_joiner(first: Seen, second: Seen) -> Finding:
    shared = first.request_id == second.request_id
    along = second.first is not None and second.first < first.ended
    summary = "a late reader gets a response of its own"
    if shared:
        summary = "a late reader waits until the response has ended"
        if along:
            summary = "a late reader streams along with the response under way"
    return judge(
        shared and along,
        summary,
        shared=shared,
        first_lasted_s=first.ended - first.begun,
        second_first_bytes_s=None if second.first is None else second.first - second.begun,
        second_news_s=None if second.news is None else second.news - second.begun,
        x_cache=[first.x_cache, second.x_cache],
    )


class _Reader(threading.Thread):
    def __init__(self, client: Client, path: str) -> None:
        super().__init__(daemon=True)
        self.seen = Seen(0.0)
        self.failure: Exception | None = None
        self._client = client
        self._path = path

    def run(self) -> None:
        seen = self.seen
        seen.begun = time.monotonic()
        try:
            with self._client.open(self._path, offset="-1", live="sse") as answer:
                _require_events(answer)
                seen.request_id = answer.headers.get("x-request-id", "")
                seen.x_cache = answer.headers.get("x-cache", "")
                for line in answer.iter_lines():
                    now = time.monotonic()
                    seen.first = seen.first or now
                    if line.startswith("data:") and "news" in line:
                        seen.news = seen.news or now
        except (httpx.HTTPError, AssertionError) as error:
            self.failure = error
        seen.ended = time.monotonic()


def measure_viewer_header(target: Target) -> Finding:
    """Read what the functions of the second distribution do with a header.

    Its viewer-request function sets one that is not part of the cache key, and its viewer-response
    function copies it into the response."""
    path = target.stream("viewer-header")
    with target.viewer() as writer, target.probe() as probe:
        writer.create(path)
        writer.append(path, "shared")
        answers = [probe.read(path) for _ in range(3)]
    for answer in answers:
        if answer.status_code != 200:
            raise NotMeasured(f"the probe answers {answer.status_code}: {answer.text[:200]}")
    return judge_viewer_header(
        [answer.headers.get("x-smoke-seen", "") for answer in answers],
        [answer.headers.get("x-cache", "") for answer in answers],
    )


def judge_viewer_header(seen: Sequence[str], x_cache: Sequence[str]) -> Finding:
    own = all(seen) and len(set(seen)) == len(seen)
    hits = sum(each.startswith("Hit") for each in x_cache)
    summary = "the viewer-response function does not see the header"
    if own:
        summary = "each viewer gets its own header, on shared responses, too"
        if not hits:
            summary = "each viewer gets its own header, but no response was shared"
    return judge(own and hits > 0, summary, headers=list(seen), shared_responses=hits)
