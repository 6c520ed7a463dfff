"""The metrics in CloudWatch: their names, which are part of the public interface, their units and
meanings. A test compares them with `docs/metrics.md`.
"""

from __future__ import annotations

from typing import Final

from tailrace import metrics
from tailrace.aws.client.json_client import OUTCOMES

NAMESPACE: Final = "Tailrace"

COUNT: Final = "Count"


def outcome_metric(outcome: str) -> str:
    """The name of the metric for an outcome of calls to DynamoDB."""
    return f"dynamodb_{outcome.replace('-', '_')}_total"


SHARED: Final = (
    "ds_requests_total",
    "ds_poll_requests_total",
    "ds_poll_clients_num",
    "ds_sse_requests_total",
    "ds_sse_clients_num",
    "answers_2xx_total",
    "answers_3xx_total",
    "answers_4xx_total",
    "answers_5xx_total",
    "appends_appended_total",
    "appends_lost_total",
    "appends_recovered_total",
    "dynamodb_calls_total",
    "dynamodb_retries_total",
    "dynamodb_read_units",
    "dynamodb_write_units",
)
"""Metrics that servers have by the same names."""

METRICS: Final[dict[str, tuple[str, str]]] = {
    **{name: (COUNT, metrics.METRICS[name].text) for name in SHARED},
    "request_ms": ("Milliseconds", metrics.METRICS["request_ms"].text),
    "unverified_reads_total": (
        COUNT,
        "Reads that the edge could not verify, and so could not share.",
    ),
    "cold_starts_total": (COUNT, "Environments that served their first request."),
    "connections_num": (COUNT, "Open connections of a container, with those that are idle."),
    "dispatched_records_total": (COUNT, "Records of the table's stream that were processed."),
    "purged_streams_total": (COUNT, "Deleted streams that were purged from CloudFront."),
    "cable_connects_total": (COUNT, "WebSocket handshakes."),
    "cable_messages_total": (COUNT, "Frames received from WebSocket clients."),
    "cable_posts_total": (COUNT, "Frames sent to WebSocket clients."),
    "cable_gone_total": (COUNT, "Frames for clients that had disconnected."),
    "cable_doubtful_total": (
        COUNT,
        "Frames whose delivery is unknown; their clients were told to reconnect.",
    ),
    "cable_oversized_total": (
        COUNT,
        "Messages that were skipped because they are too large for API Gateway.",
    ),
} | {
    outcome_metric(outcome): (COUNT, f"Calls to DynamoDB with the outcome {outcome}.")
    for outcome in OUTCOMES.values()
}
