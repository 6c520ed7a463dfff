"""The CloudWatch dashboard, from readers at the edge down to the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.alarms import PERIOD, READERS, edge_metric, function_metric
from infra.components import Components
from infra.containers import Containers
from infra.deployment import Deployment
from infra.lambda_function import LambdaFunction
from infra.stage import Plan
from infra.websocket_api import WebSocketApi

WIDTH: Final = 12
"""Two graphs side by side."""


def create_dashboard(
    scope: Construct, name: str, deployment: Deployment, components: Components
) -> str:
    """Create the dashboard and return its URL in the console."""
    plan, storage, websocket_api = deployment.plan, deployment.storage, deployment.websocket_api
    functions, distribution = components.http_functions, components.distribution
    dispatch, history_jobs = components.dispatch, components.history_jobs
    serving = [
        each for each in (functions.http, functions.wait, functions.live) if each is not None
    ]
    readers = READERS[: len(serving)]
    metric = partial(function_metric, plan)
    graphs = [
        _graph("Requests at the edge", [edge_metric(distribution, "Requests", "sum")]),
        _graph(
            "Errors at the edge, %",
            [edge_metric(distribution, name, "avg") for name in ("4xxErrorRate", "5xxErrorRate")],
        ),
        _graph(
            "Reads that reach a function",
            [
                metric(name, function)
                for name, function in zip(
                    ("ds_requests_total", "ds_poll_requests_total", "ds_sse_requests_total"),
                    READERS,
                    strict=True,
                )
                if function in readers
            ],
        ),
        _graph(
            "Reads that the edge could not verify",
            [metric("unverified_reads_total", name) for name in readers],
        ),
        _waiting_readers(plan, components),
        _graph(
            "Responses", [metric(f"answers_{status}xx_total", "http") for status in (2, 3, 4, 5)]
        ),
        _graph(
            "Appends",
            [
                metric(f"appends_{outcome}_total", "http")
                for outcome in ("appended", "lost", "recovered")
            ],
        ),
        _graph(
            "Request duration, ms",
            [metric("request_ms", "http", percentile) for percentile in ("p50", "p99")],
        ),
        _graph("Concurrency", [_concurrency(each) for each in serving]),
        _graph(
            "Throttles and errors",
            [each.function.metric_throttles(period=PERIOD) for each in serving]
            + [each.function.metric_errors(period=PERIOD) for each in serving],
        ),
        _graph(
            "DynamoDB units",
            [
                storage.table.metric_consumed_read_capacity_units(period=PERIOD),
                storage.table.metric_consumed_write_capacity_units(period=PERIOD),
            ],
        ),
        _graph(
            "Age of the oldest unprocessed change, ms",
            [
                each.function.metric("IteratorAge", statistic="max", period=PERIOD)
                for each in [components.purge.purge, *([dispatch.dispatch] if dispatch else [])]
            ],
        ),
        _graph("Streams purged from the edge", [metric("purged_streams_total", "purge")]),
    ]
    if components.containers is not None:
        graphs += _container_graphs(components.containers)
    if plan.edge_metrics:
        graphs[2:2] = [
            _graph("Cache hit rate, %", [edge_metric(distribution, "CacheHitRate", "avg")]),
            _graph("Origin latency, ms", [edge_metric(distribution, "OriginLatency", "p99")]),
        ]
    if websocket_api is not None:
        graphs += [
            _graph(
                "WebSocket connections and messages",
                [
                    _websocket_metric(websocket_api, name)
                    for name in ("ConnectCount", "MessageCount")
                ],
            ),
            _graph(
                "Messages sent to WebSockets, and clients found disconnected",
                [metric(f"cable_{event}_total", "dispatch") for event in ("posts", "gone")],
            ),
        ]
    if history_jobs is not None:
        graphs += [
            _graph(
                "Entries that compaction archived, trimmed, or left",
                [
                    history_jobs.compact.metric(name)
                    for name in (
                        "history_archived_total",
                        "history_trimmed_total",
                        "history_waiting_num",
                    )
                ],
            ),
            _graph(
                "Segments refused by compaction, problems found by the audit",
                [
                    history_jobs.compact.metric("history_refused_total"),
                    history_jobs.audit.metric("history_problems_num"),
                ],
            ),
        ]
    rows = [graphs[i : i + 2] for i in range(0, len(graphs), 2)]
    dashboard = cloudwatch.Dashboard(scope, name, widgets=rows)
    region = cdk.Stack.of(scope).region
    return (
        f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
        f"#dashboards/dashboard/{dashboard.dashboard_name}"
    )


def _waiting_readers(plan: Plan, components: Components) -> cloudwatch.GraphWidget:
    containers = components.containers
    if containers is None:
        metrics = [
            function_metric(plan, "ds_poll_clients_num", "wait", "max"),
            function_metric(plan, "ds_sse_clients_num", "live", "max"),
        ]
        return _graph("Waiting readers per environment", metrics)
    statistics = ("avg", "max")
    metrics = [containers.connections_metric(plan, statistic) for statistic in statistics]
    return _graph("Connections of a container", metrics)


def _container_graphs(containers: Containers) -> list[cloudwatch.GraphWidget]:
    service, metrics = containers.service, containers.targets.metrics
    return [
        _graph(
            "Use of containers, %",
            [
                service.metric_cpu_utilization(statistic="max", period=PERIOD),
                service.metric_memory_utilization(statistic="max", period=PERIOD),
            ],
        ),
        _graph(
            "Containers",
            [
                metrics.healthy_host_count(statistic="max", period=PERIOD),
                metrics.unhealthy_host_count(statistic="max", period=PERIOD),
            ],
        ),
    ]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=WIDTH, period=PERIOD)


def _websocket_metric(websocket_api: WebSocketApi, name: str) -> cloudwatch.IMetric:
    return cloudwatch.Metric(
        namespace="AWS/ApiGateway",
        metric_name=name,
        dimensions_map={"ApiId": websocket_api.id},
        statistic="sum",
        period=PERIOD,
    )


def _concurrency(function: LambdaFunction) -> cloudwatch.IMetric:
    return function.function.metric("ConcurrentExecutions", statistic="max", period=PERIOD)
