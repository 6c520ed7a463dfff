"""The line of a container's metrics."""

from __future__ import annotations

import orjson

from tailrace.aws.client.json_client import Call
from tailrace.aws.runtime.container_metrics import ContainerMetrics
from tailrace.aws.runtime.metrics import METRICS


def test_a_line_has_the_sums_since_the_last_one() -> None:
    metrics = ContainerMetrics("tailrace-dev")
    metrics.record_call(Call("GetItem", "ok", 1, 0.01, 0.5, 0))
    metrics.record_call(Call("PutItem", "throttled", 3, 0.01, 0, 1))
    metrics.outcomes["appended"] += 2
    line = orjson.loads(metrics.line(7))
    values = {name: line[name] for name in METRICS if name in line}
    assert values == {
        "connections_num": 7,
        "appends_appended_total": 2,
        "dynamodb_calls_total": 2,
        "dynamodb_retries_total": 2,
        "dynamodb_read_units": 0.5,
        "dynamodb_write_units": 1,
        "dynamodb_throttled_total": 1,
    }
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert {each["Name"]: each["Unit"] for each in directive["Metrics"]} == {
        name: METRICS[name][0] for name in values
    }


def test_the_number_of_connections_is_always_there() -> None:
    metrics = ContainerMetrics("tailrace-dev")
    metrics.record_call(Call("GetItem", "ok", 1, 0.01, 0.5, 0))
    metrics.line(1)
    line = orjson.loads(metrics.line(0))
    assert [name for name in METRICS if name in line] == ["connections_num"]
