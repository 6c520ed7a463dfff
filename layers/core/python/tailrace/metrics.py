"""Metrics of the process: counters, histograms, and gauges that are read when somebody asks.

Counting is an addition to a number in a dictionary, since appends take microseconds. A server shows
all metrics at `/metrics`; functions on AWS send theirs with their log (`tailrace.aws.runtime`), by
the same names. `docs/metrics.md` lists them, and a test fails when one is missing there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple


class Metric(NamedTuple):
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_ROUTE: Final = ("route", "event_type")

METRICS: Final[Mapping[str, Metric]] = {
    # Requests
    "answers_2xx_total": Metric("counter", "Responses with status 200 to 299."),
    "answers_3xx_total": Metric("counter", "Responses with status 304."),
    "answers_4xx_total": Metric(
        "counter", "Responses with status 400 to 499: errors of the client."
    ),
    "answers_5xx_total": Metric(
        "counter", "Responses with status 500 to 599: errors of the service."
    ),
    "request_ms": Metric(
        "histogram", "Duration of a request, including time spent waiting for data."
    ),
    # Streams, by the names of AnyCable
    "ds_requests_total": Metric(
        "counter", "Authorized reads of streams: catch-up, long-poll and SSE."
    ),
    "ds_poll_requests_total": Metric("counter", "Long-polls among these reads."),
    "ds_sse_requests_total": Metric("counter", "SSE reads among these reads."),
    "ds_poll_clients_num": Metric("gauge", "Concurrent long-polls in the reporting environment."),
    "ds_sse_clients_num": Metric("gauge", "Concurrent SSE reads in the reporting environment."),
    # Appends
    "appends_appended_total": Metric("counter", "Appends that were stored."),
    "appends_bytes_total": Metric("counter", "Bytes of their bodies."),
    "appends_duplicates_total": Metric(
        "counter", "Requests of producers that had been stored before."
    ),
    "appends_refused_total": Metric(
        "counter",
        "Appends that were refused, by the code of the error: conflicts, closed streams and more.",
        ("code",),
    ),
    "appends_lost_total": Metric(
        "counter", "Attempts to append that lost their slot to another writer."
    ),
    "appends_recovered_total": Metric(
        "counter", "Appends that were stored although the response of DynamoDB was lost."
    ),
    # The embedded store
    "commits_total": Metric("counter", "Commits of the embedded store."),
    "commit_ms": Metric("histogram", "Duration of a commit, until it is on disk."),
    "commit_writes": Metric("histogram", "Writes that share a commit: appends and others."),
    "database_bytes": Metric(
        "gauge", "Size of the database: what compaction has not moved into segments yet, and more."
    ),
    "compacted_entries_total": Metric("counter", "Entries that were moved into segments."),
    "damaged_objects_num": Metric("gauge", "Damaged objects that were found since the start."),
    # DynamoDB
    "dynamodb_calls_total": Metric("counter", "Calls to DynamoDB."),
    "dynamodb_retries_total": Metric("counter", "Attempts of calls to DynamoDB beyond the first."),
    "dynamodb_read_units": Metric("counter", "Read units consumed."),
    "dynamodb_write_units": Metric("counter", "Write units consumed."),
    "dynamodb_failures_total": Metric(
        "counter", "Calls to DynamoDB that did not succeed, by their outcome.", ("outcome",)
    ),
    # Readers
    "delivery_lag_ms": Metric(
        "histogram", "Time from an append to the moment when it is sent to waiting readers."
    ),
    # Action Cable, by the names of AnyCable
    "clients_num": Metric("gauge", "Clients of Action Cable that are connected."),
    "clients_uniq_num": Metric("gauge", "Different identifiers among them."),
    "broadcast_streams_num": Metric("gauge", "Streams that they are subscribed to."),
    "failed_auths_total": Metric("counter", "Handshakes that were refused."),
    "client_msg_total": Metric("counter", "Messages from clients."),
    "failed_client_msg_total": Metric("counter", "Messages from clients that are no commands."),
    "server_msg_total": Metric("counter", "Messages to clients."),
    "disconnected_slow_clients_total": Metric(
        "counter", "Clients that were disconnected because they did not read."
    ),
    "broadcast_msg_total": Metric("counter", "Broadcasts that were accepted."),
    "failed_broadcast_msg_total": Metric("counter", "Broadcasts that were refused."),
    "data_sent_total": Metric("counter", "Bytes of messages to clients."),
    "data_rcvd_total": Metric("counter", "Bytes of messages from clients."),
    "rpc_call_total": Metric("counter", "Calls of the application."),
    "rpc_error_total": Metric("counter", "Calls of the application that failed."),
    # Aviso, by its own names
    "aviso_build_info": Metric("gauge", "1, with the version.", ("version",)),
    "aviso_http_requests_total": Metric(
        "counter", "Requests to Aviso.", ("route", "method", "status_code")
    ),
    "aviso_notifications_total": Metric(
        "counter", "Notifications, by their outcome.", ("event_type", "status")
    ),
    "aviso_sse_connections_total": Metric("counter", "Watches and replays.", _ROUTE),
    "aviso_sse_connections_active": Metric("gauge", "Those that are open.", _ROUTE),
    "aviso_sse_events_sent_total": Metric("counter", "Notifications sent on them.", _ROUTE),
    # The process
    "longest_block_ms": Metric(
        "gauge", "How long one thing held up all requests, at most, in the last minute."
    ),
    "log_lines_dropped_total": Metric(
        "counter", "Lines of requests that were not written, because the log is too slow."
    ),
}

BUCKETS: Final[Mapping[str, tuple[float, ...]]] = {
    "request_ms": (
        0.5,
        1,
        2,
        5,
        10,
        25,
        50,
        100,
        250,
        500,
        1000,
        2500,
        5000,
        10_000,
        30_000,
        60_000,
    ),
    "commit_ms": (0.1, 0.25, 0.5, 1, 2, 5, 10, 25, 50, 100, 250, 1000),
    "commit_writes": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "delivery_lag_ms": (0.5, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 5000),
}
"""Upper bounds of the buckets of each histogram."""

Gauge = Callable[[], float | Mapping[tuple[str, ...], float]]


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


counts: Final[defaultdict[tuple[str, ...], float]] = defaultdict(float)
"""Counters, by their name and the values of their labels."""

histograms: Final = {name: Histogram(bounds) for name, bounds in BUCKETS.items()}

gauges: Final[dict[str, Gauge]] = {}
"""Functions that read the gauges of the components that run."""

_ANSWERS: Final = {kind: (f"answers_{kind}xx_total",) for kind in (2, 3, 4, 5)}
_request_ms: Final = histograms["request_ms"]


def count(name: str, *labels: str, by: float = 1) -> None:
    counts[(name, *labels)] += by


@contextmanager
def level(name: str, *labels: str) -> Iterator[None]:
    """Count one more of a gauge until the context ends."""
    counts[(name, *labels)] += 1
    try:
        yield
    finally:
        counts[(name, *labels)] -= 1


def observe(name: str, value: float) -> None:
    histograms[name].observe(value)


def count_answer(status: int, seconds: float) -> None:
    counts[_ANSWERS.get(status // 100, _ANSWERS[2])] += 1
    _request_ms.observe(seconds * 1000)


def read_gauges() -> Iterator[tuple[str, tuple[str, ...], float]]:
    for name, read in gauges.items():
        value = read()
        if isinstance(value, Mapping):
            for labels, number in value.items():
                yield name, labels, number
        else:
            yield name, (), value
