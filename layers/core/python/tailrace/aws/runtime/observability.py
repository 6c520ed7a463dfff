"""Logs, metrics and traces of a function, with Powertools.

Each request logs one line with its metrics in CloudWatch's embedded format, and with fields that
identify the request; appends without incident share one within ten seconds. Names of metrics are
part of the public interface: `tailrace.aws.runtime.metrics` has them all.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qs

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics

from tailrace.aws.client.json_client import Call
from tailrace.aws.edge.origin_secret import EDGE_TOKEN_HEADER
from tailrace.aws.runtime.metrics import METRICS, NAMESPACE, outcome_metric
from tailrace.configuration import find_misspelt
from tailrace.settings import Settings
from tailrace.web.asgi import App, Message, Receive, Scope, Send
from tailrace.web.messages import is_id
from tailrace.web.urls import StreamUrls

LINE_SECONDS: Final = 10.0
"""How long the metrics of plain appends may wait for a line. Lines are paid for by their length:
that of an append costs half as much as its write."""

LINE_APPENDS: Final = 90
"""How many of them may wait: the format takes 100 values of a metric."""

PLAIN: Final = frozenset(
    {
        "answers_2xx_total",
        "appends_appended_total",
        "dynamodb_calls_total",
        "dynamodb_read_units",
        "dynamodb_write_units",
    }
)
"""The metrics of an append without incident."""

_LIVE: Final = {"long-poll": "poll", "sse": "sse"}


class Observer:
    """The logs and metrics of one function."""

    def __init__(self, function: str, settings: Settings) -> None:
        self.urls: Final = StreamUrls(settings.ds_path)
        self.closed: Final = settings.access == "closed"
        """Whether reads need credentials, which the edge verifies if it can."""
        # All of Tailrace logs to the logger with this name.
        self.log = Logger(service="tailrace", level=settings.log_level.upper())
        for sentence in find_misspelt(os.environ):
            self.log.warning(sentence)
        service = os.environ.get("POWERTOOLS_SERVICE_NAME", "tailrace")
        self.metrics = EphemeralMetrics(namespace=NAMESPACE, service=service)
        self.metrics.set_default_dimensions(function=function)
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._written_at = 0.0
        """When the last line was written."""

    @property
    def is_plain(self) -> bool:
        """Whether all that was counted since the last line is what plain appends count."""
        return {name for name, value in self._counts.items() if value} <= PLAIN

    def may_wait(self, seconds: float) -> bool:
        """Whether a line was written so recently that the next one may come later."""
        return time.time() - self._written_at < seconds

    def record_call(self, call: Call) -> None:
        """Count a call to DynamoDB."""
        counts = self._counts
        counts["dynamodb_calls_total"] += 1
        counts["dynamodb_retries_total"] += call.attempts - 1
        counts["dynamodb_read_units"] += call.read_units
        counts["dynamodb_write_units"] += call.write_units
        if call.outcome != "ok":
            counts[outcome_metric(call.outcome)] += 1

    def count(self, name: str, value: float = 1) -> None:
        self._counts[name] += value

    def flush(self, **metadata: Any) -> None:
        """Publish the counts, with metadata on the same log line."""
        for name, value in self._counts.items():
            if value:
                self.metrics.add_metric(name, METRICS[name][0], value)
        self._counts.clear()
        self._written_at = time.time()
        if not self.metrics.metric_set:
            return
        for key, value in metadata.items():
            self.metrics.add_metadata(key, value)
        self.metrics.flush_metrics()


class ObservedApp:
    """An ASGI application whose requests are logged, counted and traced."""

    def __init__(self, app: App, observer: Observer, outcomes: Counter[str]) -> None:
        """`outcomes`: the store's counts of appends; published and reset by each request."""
        self._app = app
        self._observer = observer
        self._outcomes = outcomes
        self._active: Counter[str] = Counter()
        self._cold = True
        self._waiting = 0
        """Appends whose metrics wait for a line."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope, keys = _identify(scope, self._observer.urls)
        mode = _live_mode(scope)
        observer = self._observer
        observer.log.thread_safe_append_keys(**keys)
        self._active[mode] += 1
        begun = time.perf_counter()
        try:
            async with _segment(scope, keys):
                await self._app(scope, receive, send_and_note_status)
        finally:
            milliseconds = (time.perf_counter() - begun) * 1000
            if scope["method"] == "GET" and "stream" in keys and status not in (401, 403):
                self._count_read(mode, verified=_has_edge_token(scope))
            observer.count(f"answers_{status // 100 or 5}xx_total")
            observer.count("cold_starts_total", int(self._cold))
            for outcome, times in self._outcomes.items():
                observer.count(f"appends_{outcome}_total", times)
            self._outcomes.clear()
            self._cold = False
            self._active[mode] -= 1
            duration = round(milliseconds, 2)
            observer.metrics.add_metric("request_ms", METRICS["request_ms"][0], duration)
            if scope["method"] == "POST" and observer.is_plain and self._may_wait():
                self._waiting += 1
            else:
                others = {"others": self._waiting} if self._waiting else {}
                self._waiting = 0
                observer.flush(**keys, method=scope["method"], status=status, **others)
            observer.log.thread_safe_clear_keys()

    def _may_wait(self) -> bool:
        return self._waiting < LINE_APPENDS and self._observer.may_wait(LINE_SECONDS)

    def _count_read(self, mode: str, *, verified: bool) -> None:
        self._observer.count("ds_requests_total")
        if self._observer.closed and not verified:
            self._observer.count("unverified_reads_total")
        if mode:
            self._observer.count(f"ds_{mode}_requests_total")
            self._observer.count(f"ds_{mode}_clients_num", self._active[mode])


def _identify(scope: Scope, urls: StreamUrls) -> tuple[Scope, dict[str, str]]:
    """Return the scope with a request id, Lambda's unless the client sent one, and the log keys."""
    context = scope.get("aws.context")
    keys = {"request_id": getattr(context, "aws_request_id", "")}
    client_id = dict(scope.get("headers", ())).get(b"x-request-id")
    if client_id is None and keys["request_id"]:
        header = (b"x-request-id", keys["request_id"].encode())
        scope = {**scope, "headers": [*scope.get("headers", ()), header]}
    elif client_id is not None and is_id(client_id):
        keys["client_request_id"] = client_id.decode()
    path: str = scope["path"]
    for prefix in urls.prefixes:
        if path.startswith(prefix):
            keys["stream"] = path[len(prefix) :]
    return scope, keys


def _has_edge_token(scope: Scope) -> bool:
    return any(name == EDGE_TOKEN_HEADER for name, _ in scope.get("headers", ()))


def _live_mode(scope: Scope) -> str:
    if scope["method"] != "GET":
        return ""
    values = parse_qs(scope["query_string"].decode("latin-1")).get("live", [""])
    return _LIVE.get(values[-1], "")


@asynccontextmanager
async def _segment(scope: Scope, keys: dict[str, str]) -> AsyncIterator[None]:
    """Trace the request as a subsegment; X-Ray's SDK is only imported for sampled requests."""
    if "Sampled=1" not in os.environ.get("_X_AMZN_TRACE_ID", ""):
        yield
        return
    from aws_lambda_powertools import Tracer

    tracer = Tracer(service="tailrace", auto_patch=False)
    async with tracer.provider.in_subsegment_async(f"## {scope['method']}") as segment:
        for key, value in keys.items():
            segment.put_annotation(key, value)
        yield
