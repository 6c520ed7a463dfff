"""Metrics of a container: one line of its log each minute, in CloudWatch's embedded format.

A process with thousands of readers would write thousands of lines if it wrote one for each request.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any, Final

import orjson

from tailrace.aws.client.json_client import Call
from tailrace.aws.runtime.metrics import METRICS, NAMESPACE, outcome_metric

NAME: Final = "containers"
"""The value of the dimension that has the name of a function for functions."""


class ContainerMetrics:
    def __init__(self, service: str) -> None:
        """`service`: the deployment's name."""
        self.outcomes: Counter[str] = Counter()
        """The store's counts of appends, which each line resets."""
        self._service = service
        self._counts: defaultdict[str, float] = defaultdict(float)

    def record_call(self, call: Call) -> None:
        """Count a call to DynamoDB."""
        counts = self._counts
        counts["dynamodb_calls_total"] += 1
        counts["dynamodb_retries_total"] += call.attempts - 1
        counts["dynamodb_read_units"] += call.read_units
        counts["dynamodb_write_units"] += call.write_units
        if call.outcome != "ok":
            counts[outcome_metric(call.outcome)] += 1

    def line(self, connections: int) -> str:
        """The counts since the last line; the number of connections is always there, since that of
        the containers follows it."""
        values = {name: value for name, value in self._counts.items() if value}
        values |= {f"appends_{outcome}_total": n for outcome, n in self.outcomes.items() if n}
        values["connections_num"] = connections
        self._counts.clear()
        self.outcomes.clear()
        embedded: dict[str, Any] = {
            "Timestamp": time.time_ns() // 1_000_000,
            "CloudWatchMetrics": [
                {
                    "Namespace": NAMESPACE,
                    "Dimensions": [["function", "service"]],
                    "Metrics": [{"Name": name, "Unit": METRICS[name][0]} for name in values],
                }
            ],
        }
        fields = {"_aws": embedded, "function": NAME, "service": self._service, **values}
        return orjson.dumps(fields).decode()
