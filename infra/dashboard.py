"""The dashboard: what one likes to look at, from the readers down to the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.dispatch import Dispatch
from infra.edge import Edge
from infra.functions import COMMON, Function, Functions
from infra.gateway import Gateway
from infra.history import History
from infra.observe import PERIOD, edge_metric
from infra.stage import Plan
from infra.storage import Storage

WIDTH: Final = 12
"""Two graphs side by side."""


def dashboard(
    scope: Construct,
    name: str,
    *,
    plan: Plan,
    storage: Storage,
    functions: Functions,
    edge: Edge,
    dispatch: Dispatch,
    gateway: Gateway | None,
    history: History | None,
) -> str:
    """The address of the new dashboard."""
    http, live = functions.http, functions.live
    own = partial(_own, plan)
    graphs = [
        _graph("Requests at the edge", [edge_metric(edge, "Requests", "sum")]),
        _graph(
            "Failures at the edge, %",
            [edge_metric(edge, name, "avg") for name in ("4xxErrorRate", "5xxErrorRate")],
        ),
        _graph(
            "Reads that reached a function",
            [
                own("ds_requests_total", "http"),
                own("ds_poll_requests_total", "http"),
                own("ds_sse_requests_total", "live"),
            ],
        ),
        _graph(
            "Readers waiting in one environment",
            [
                own("ds_poll_clients_num", "http", "max"),
                own("ds_sse_clients_num", "live", "max"),
            ],
        ),
        _graph("Answers", [own(f"answers_{status}xx_total", "http") for status in (2, 3, 4, 5)]),
        _graph(
            "Appends",
            [own(f"appends_{came}_total", "http") for came in ("appended", "lost", "recovered")],
        ),
        _graph(
            "Time of a request, ms", [own("request_ms", "http", each) for each in ("p50", "p99")]
        ),
        _graph("Concurrency", [_concurrency(http), _concurrency(live)]),
        _graph(
            "Turned away or failed",
            [each.function.metric_throttles(period=PERIOD) for each in (http, live)]
            + [each.function.metric_errors(period=PERIOD) for each in (http, live)],
        ),
        _graph(
            "DynamoDB units",
            [
                storage.table.metric_consumed_read_capacity_units(period=PERIOD),
                storage.table.metric_consumed_write_capacity_units(period=PERIOD),
            ],
        ),
        _graph(
            "Age of the oldest change not dispatched, ms",
            [dispatch.dispatch.function.metric("IteratorAge", statistic="max", period=PERIOD)],
        ),
        _graph("Streams purged from the edge", [own("purged_streams_total", "dispatch")]),
    ]
    if plan.edge_metrics:
        graphs[2:2] = [
            _graph("Answered by the edge itself, %", [edge_metric(edge, "CacheHitRate", "avg")]),
            _graph("Waiting for the origin, ms", [edge_metric(edge, "OriginLatency", "p99")]),
        ]
    if gateway is not None:
        graphs += [
            _graph(
                "WebSockets opened, and messages on them",
                [_websockets(gateway, name) for name in ("ConnectCount", "MessageCount")],
            ),
            _graph(
                "Entries posted to WebSockets, and clients found gone",
                [own(f"cable_{what}_total", "dispatch") for what in ("posts", "gone")],
            ),
        ]
    if history is not None:
        graphs += [
            _graph(
                "Entries that compaction moved, let go, or left",
                [
                    history.compact.metric(name)
                    for name in (
                        "history_archived_total",
                        "history_trimmed_total",
                        "history_waiting_num",
                    )
                ],
            ),
            _graph(
                "What compaction refused, and the audit found",
                [
                    history.compact.metric("history_refused_total"),
                    history.audit.metric("history_problems_num"),
                ],
            ),
        ]
    rows = [graphs[i : i + 2] for i in range(0, len(graphs), 2)]
    made = cloudwatch.Dashboard(scope, name, widgets=rows)
    region = cdk.Stack.of(scope).region
    return (
        f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
        f"#dashboards/dashboard/{made.dashboard_name}"
    )


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=WIDTH, period=PERIOD)


def _own(plan: Plan, name: str, function: str, statistic: str = "sum") -> cloudwatch.IMetric:
    """A metric that `tailrace.aws.runtime.observability` publishes."""
    return cloudwatch.Metric(
        namespace=COMMON["POWERTOOLS_METRICS_NAMESPACE"],
        metric_name=name,
        dimensions_map={"function": function, "service": plan.name},
        statistic=statistic,
        label=f"{name} {statistic}" if statistic.startswith("p") else name,
        period=PERIOD,
    )


def _websockets(gateway: Gateway, name: str) -> cloudwatch.IMetric:
    return cloudwatch.Metric(
        namespace="AWS/ApiGateway",
        metric_name=name,
        dimensions_map={"ApiId": gateway.id},
        statistic="sum",
        period=PERIOD,
    )


def _concurrency(function: Function) -> cloudwatch.IMetric:
    return function.function.metric("ConcurrentExecutions", statistic="max", period=PERIOD)
