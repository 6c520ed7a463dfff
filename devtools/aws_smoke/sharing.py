"""The check of shared waits: readers of one position, and the requests that the origin gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import httpx

from devtools.aws_smoke.findings import Finding, judge
from devtools.aws_smoke.requests import wait_for_edge
from devtools.aws_smoke.target import Client, Target

MOST_ORIGIN_REQUESTS: Final = 2
"""For readers at one place: one edge location, or two if the requests come from both its caches."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A response to a reader that waited."""

    status: int
    body: str
    request_id: str
    """The function gives each of its responses an id, so shared ones have the same."""
    x_cache: str
    age: str
    seconds: float


def measure_collapsing(target: Target) -> Finding:
    """Readers with a token each wait for the same data, then for data that does not come."""
    wait_for_edge(target)
    path, pace = target.stream("collapsing"), target.pace
    with target.viewer() as viewer, ThreadPoolExecutor(pace.readers) as pool:
        offset = viewer.create(path)
        writing = threading.Timer(pace.settle + pace.wait, viewer.append, (path, "news"))
        writing.start()
        try:
            news = list(pool.map(lambda n: _wait(viewer, path, offset, n), range(pace.readers)))
        finally:
            writing.join()
        end = viewer.read(path).headers["stream-next-offset"]
        idle = list(pool.map(lambda n: _wait(viewer, path, end, n), range(pace.readers)))
        again = _wait(viewer, path, end, pace.readers)
    return judge_collapsing(news, idle, again)


def _wait(viewer: Client, path: str, offset: str, reader: int) -> Wait:
    begun = time.monotonic()
    query = httpx.QueryParams(offset=offset, live="long-poll")
    answer = viewer.send("GET", f"{path}?{query}", viewer.bearer("read", f"reader-{reader}"))
    return Wait(
        answer.status_code,
        answer.text,
        answer.headers.get("x-request-id", ""),
        answer.headers.get("x-cache", ""),
        answer.headers.get("age", ""),
        time.monotonic() - begun,
    )


def judge_collapsing(news: Sequence[Wait], idle: Sequence[Wait], again: Wait) -> Finding:
    """`again` came after the idle readers: within a second it gets their cached 204."""
    missed = sum((each.status, each.body) != (200, "news") for each in news)
    failed = sum(each.status != 204 for each in idle)
    requests = len({each.request_id for each in news})
    idle_requests = len({each.request_id for each in idle})
    shared = max(requests, idle_requests) <= MOST_ORIGIN_REQUESTS
    summary = f"{len(news)} waiting readers make {requests} origin requests"
    if missed or failed:
        summary = f"{missed} readers missed the data, {failed} got no 204"
    elif not shared:
        summary += f", and {idle_requests} if nothing comes: their waits are not shared"
    return judge(
        shared and not missed and not failed,
        summary,
        readers=len(news),
        origin_requests=requests,
        origin_requests_when_idle=idle_requests,
        cached_204_is_reused=again.request_id in {each.request_id for each in idle},
        age_of_cached_204=again.age,
        longest_wait_s=max(each.seconds for each in [*news, *idle]),
        x_cache=sorted({each.x_cache for each in [*news, *idle]}),
    )
