"""The metrics in CloudWatch: their names, which are part of the public interface, their units and
meanings. A test compares them with `docs/metrics.md`.
"""

from __future__ import annotations

from typing import Final

from tailrace.aws.client.json_client import OUTCOMES

NAMESPACE: Final = "Tailrace"

COUNT: Final = "Count"


def outcome_metric(outcome: str) -> str:
    """The name of the metric for an outcome of calls to DynamoDB."""
    return f"dynamodb_{outcome.replace('-', '_')}_total"


METRICS: Final[dict[str, tuple[str, str]]] = {
    "ds_requests_total": (COUNT, "Authorized reads of streams: catch-up, long-poll and SSE."),
    "ds_poll_requests_total": (COUNT, "Long-polls among these reads."),
    "ds_poll_clients_num": (COUNT, "Concurrent long-polls in the reporting environment."),
    "ds_sse_requests_total": (COUNT, "SSE reads among these reads."),
    "ds_sse_clients_num": (COUNT, "Concurrent SSE reads in the reporting environment."),
    "unverified_reads_total": (
        COUNT,
        "Those of them that the edge could not verify, and so could not share.",
    ),
    "answers_2xx_total": (COUNT, "Responses with status 200 to 299."),
    "answers_3xx_total": (COUNT, "Responses with status 304."),
    "answers_4xx_total": (COUNT, "Responses with status 400 to 499: errors of the client."),
    "answers_5xx_total": (COUNT, "Responses with status 500 to 599: errors of the service."),
    "request_ms": ("Milliseconds", "Duration of a request, including time spent waiting for data."),
    "cold_starts_total": (COUNT, "Environments that served their first request."),
    "appends_appended_total": (COUNT, "Appends that were stored."),
    "appends_lost_total": (COUNT, "Attempts to append that lost their slot to another writer."),
    "appends_recovered_total": (
        COUNT,
        "Appends that were stored although the response of DynamoDB was lost.",
    ),
    "dynamodb_calls_total": (COUNT, "Calls to DynamoDB."),
    "dynamodb_retries_total": (COUNT, "Attempts of calls to DynamoDB beyond the first."),
    "dynamodb_read_units": (COUNT, "Read units consumed."),
    "dynamodb_write_units": (COUNT, "Write units consumed."),
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
