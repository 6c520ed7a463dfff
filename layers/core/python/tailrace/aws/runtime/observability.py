"""What a function says about itself: logs, metrics and traces, with Powertools.

One line per request carries its metrics in CloudWatch's embedded format, and beside them, not as
metrics, what tells the request apart. A name, once published, is part of the product: `METRICS` has
them all, and a test fails when `docs/metrics.md` does not.
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

from tailrace.aws.client.json_client import OUTCOMES, Call
from tailrace.settings import Settings
from tailrace.web.asgi import App, Message, Receive, Scope, Send
from tailrace.web.messages import is_id
from tailrace.web.paths import PREFIXES

COUNT: Final = "Count"


def _ended(outcome: str) -> str:
    """The metric of an outcome of calls to DynamoDB."""
    return f"dynamodb_{outcome.replace('-', '_')}_total"


METRICS: Final[dict[str, tuple[str, str]]] = {
    "ds_requests_total": (COUNT, "Reads of streams that were let in: catch-up, long-poll and SSE."),
    "ds_poll_requests_total": (COUNT, "Long-polls among them."),
    "ds_poll_clients_num": (COUNT, "Long-polls under way in the environment that reports."),
    "ds_sse_requests_total": (COUNT, "SSE reads among them."),
    "ds_sse_clients_num": (COUNT, "SSE reads under way in the environment that reports."),
    "answers_2xx_total": (COUNT, "Answers with status 200 to 299."),
    "answers_3xx_total": (COUNT, "Answers with status 304."),
    "answers_4xx_total": (COUNT, "Answers that say the client's request cannot be done."),
    "answers_5xx_total": (COUNT, "Answers that say the service could not do its part."),
    "request_ms": ("Milliseconds", "How long a request took, waiting included."),
    "cold_starts_total": (COUNT, "Environments that served their first request."),
    "appends_appended_total": (COUNT, "Appends that were stored."),
    "appends_lost_total": (COUNT, "Attempts to append that lost their slot to another writer."),
    "appends_recovered_total": (COUNT, "Appends whose answer was lost and found again."),
    "dynamodb_calls_total": (COUNT, "Calls to DynamoDB."),
    "dynamodb_retries_total": (COUNT, "Attempts of calls to DynamoDB beyond the first."),
    "dynamodb_read_units": (COUNT, "Read units consumed."),
    "dynamodb_write_units": (COUNT, "Write units consumed."),
    "dispatched_records_total": (COUNT, "Changes of the log that came through the table's stream."),
    "purged_streams_total": (COUNT, "Deleted streams that the edge was told to forget."),
    "cable_connects_total": (COUNT, "WebSockets that asked to be let in."),
    "cable_messages_total": (COUNT, "Frames that clients of WebSockets have sent."),
    "cable_posts_total": (COUNT, "Frames that were sent to clients of WebSockets."),
    "cable_gone_total": (COUNT, "Frames for clients that were no longer there."),
    "cable_doubtful_total": (COUNT, "Frames of unclear fate, whose clients had to come back."),
    "cable_oversized_total": (COUNT, "Messages too large for API Gateway, which were left out."),
} | {
    _ended(outcome): (COUNT, f"Calls to DynamoDB that ended {outcome}.")
    for outcome in OUTCOMES.values()
}

_LIVE: Final = {"long-poll": "poll", "sse": "sse"}


class Observer:
    """The logs and metrics of one function."""

    def __init__(self, function: str, settings: Settings) -> None:
        # It is the logger of this name that the whole product uses.
        self.log = Logger(service="tailrace", level=settings.log_level.upper())
        service = os.environ.get("POWERTOOLS_SERVICE_NAME", "tailrace")
        self.metrics = EphemeralMetrics(namespace="Tailrace", service=service)
        self.metrics.set_default_dimensions(function=function)
        self._counts: defaultdict[str, float] = defaultdict(float)

    def called(self, call: Call) -> None:
        """One call to DynamoDB was made."""
        counts = self._counts
        counts["dynamodb_calls_total"] += 1
        counts["dynamodb_retries_total"] += call.attempts - 1
        counts["dynamodb_read_units"] += call.read_units
        counts["dynamodb_write_units"] += call.write_units
        if call.outcome != "ok":
            counts[_ended(call.outcome)] += 1

    def count(self, name: str, value: float = 1) -> None:
        self._counts[name] += value

    def flush(self, **told: Any) -> None:
        """Publish what was counted, beside what else is to be told."""
        for name, value in self._counts.items():
            if value:
                self.metrics.add_metric(name, METRICS[name][0], value)
        self._counts.clear()
        if not self.metrics.metric_set:
            return
        for key, value in told.items():
            self.metrics.add_metadata(key, value)
        self.metrics.flush_metrics()


class Observed:
    """An application that is watched at work."""

    def __init__(self, app: App, observer: Observer, outcomes: Counter[str]) -> None:
        """`outcomes` are the store's; what is in there is published and counted anew."""
        self._app = app
        self._observer = observer
        self._outcomes = outcomes
        self._under_way: Counter[str] = Counter()
        self._cold = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope, keys = _named(scope)
        live = _live(scope)
        observer = self._observer
        observer.log.thread_safe_append_keys(**keys)
        self._under_way[live] += 1
        begun = time.perf_counter()
        try:
            async with _segment(scope, keys):
                await self._app(scope, receive, watch)
        finally:
            milliseconds = (time.perf_counter() - begun) * 1000
            if scope["method"] == "GET" and "stream" in keys and status not in (401, 403):
                self._count_read(live)
            observer.count(f"answers_{status // 100 or 5}xx_total")
            observer.count("cold_starts_total", int(self._cold))
            for outcome, times in self._outcomes.items():
                observer.count(f"appends_{outcome}_total", times)
            self._outcomes.clear()
            self._cold = False
            self._under_way[live] -= 1
            observer.metrics.add_metric("request_ms", METRICS["request_ms"][0], milliseconds)
            observer.flush(**keys, method=scope["method"], status=status)
            observer.log.thread_safe_clear_keys()

    def _count_read(self, live: str) -> None:
        self._observer.count("ds_requests_total")
        if live:
            self._observer.count(f"ds_{live}_requests_total")
            self._observer.count(f"ds_{live}_clients_num", self._under_way[live])


def _named(scope: Scope) -> tuple[Scope, dict[str, str]]:
    """A request with Lambda's name for it, unless it has one, and what the logs tell it by."""
    context = scope.get("aws.context")
    keys = {"request_id": getattr(context, "aws_request_id", "")}
    given = dict(scope.get("headers", ())).get(b"x-request-id")
    if given is None and keys["request_id"]:
        named = (b"x-request-id", keys["request_id"].encode())
        scope = {**scope, "headers": [*scope.get("headers", ()), named]}
    elif given is not None and is_id(given):
        keys["client_request_id"] = given.decode()
    path: str = scope["path"]
    for prefix in PREFIXES:
        if path.startswith(prefix):
            keys["stream"] = path[len(prefix) :]
    return scope, keys


def _live(scope: Scope) -> str:
    if scope["method"] != "GET":
        return ""
    asked = parse_qs(scope["query_string"].decode("latin-1")).get("live", [""])
    return _LIVE.get(asked[-1], "")


@asynccontextmanager
async def _segment(scope: Scope, keys: dict[str, str]) -> AsyncIterator[None]:
    """The request as a part of its trace; X-Ray's SDK is loaded only when a trace is wanted."""
    if "Sampled=1" not in os.environ.get("_X_AMZN_TRACE_ID", ""):
        yield
        return
    from aws_lambda_powertools import Tracer

    tracer = Tracer(service="tailrace", auto_patch=False)
    async with tracer.provider.in_subsegment_async(f"## {scope['method']}") as segment:
        for key, value in keys.items():
            segment.put_annotation(key, value)
        yield
