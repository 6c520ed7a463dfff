"""Checks of the functions: how much of its time the edge function uses, how long snapshots take."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from devtools.aws_smoke.findings import Finding, NotMeasured, Number, judge
from devtools.aws_smoke.requests import wait_for_edge
from devtools.aws_smoke.target import Account, Target, wait_until

EDGE_REGION: Final = "us-east-1"
"""CloudFront's metrics are in this region."""
UTILIZATION: Final = "FunctionComputeUtilization"
FAILURES: Final = ("FunctionExecutionErrors", "FunctionThrottles")
MOST_UTILIZATION: Final = 80.0
"""Percent of the limit of a CloudFront function; above 100 viewers get 503."""
REQUESTS: Final = 100
METRIC_PAUSE: Final = 20.0
LOOKBACK: Final = timedelta(hours=3)

COLD_STARTS: Final = 20
"""Requests at the same time, each of which needs an environment of its own."""
RESTORE_SECONDS: Final = 2.0
LOG_PAUSE: Final = 10.0


def measure_utilization(target: Target) -> Finding:
    """Let the edge function verify credentials, then read CloudFront's metric."""
    account = target.in_account
    wait_for_edge(target)
    path = target.stream("utilization")
    with target.viewer() as viewer:
        viewer.create(path)
        for _ in range(REQUESTS):
            viewer.read(path)
    names = edge_functions(account)
    found: dict[str, dict[str, float]] = {}

    def complete() -> bool:
        for name in names:
            utilization = _most(account, name, UTILIZATION)
            if utilization is None:
                return False
            # A metric of something that has not happened has no data.
            found[name] = {
                UTILIZATION: utilization,
                **{metric: _most(account, name, metric) or 0.0 for metric in FAILURES},
            }
        return True

    if not wait_until(complete, target.pace.metrics, METRIC_PAUSE):
        missing = ", ".join(sorted(set(names) - found.keys()))
        raise NotMeasured(f"CloudWatch has no {UTILIZATION} of {missing}")
    return judge_utilization(found)


def judge_utilization(found: Mapping[str, Mapping[str, float]]) -> Finding:
    most = max(each[UTILIZATION] for each in found.values())
    failed = sum(each[metric] for each in found.values() for metric in FAILURES)
    summary = f"the edge functions use up to {most:.0f} % of their time limit"
    if failed:
        summary += f", and {failed:.0f} times a minute they failed or were throttled"
    numbers: dict[str, Number] = {
        f"{name} {metric}": value for name, each in found.items() for metric, value in each.items()
    }
    return judge(most < MOST_UTILIZATION and not failed, summary, **numbers)


def edge_functions(account: Account) -> list[str]:
    """The names of the CloudFront functions of the distribution."""
    config = account.client("cloudfront").get_distribution_config(
        Id=account.output("DistributionId")
    )["DistributionConfig"]
    behaviors = [config["DefaultCacheBehavior"], *config.get("CacheBehaviors", {}).get("Items", ())]
    return sorted(
        {
            each["FunctionARN"].rpartition("/")[2]
            for behavior in behaviors
            for each in behavior.get("FunctionAssociations", {}).get("Items", ())
        }
    )


def _most(account: Account, function: str, metric: str) -> float | None:
    """The highest value of a minute, or the highest sum of one; None without any data."""
    now = datetime.now(UTC)
    statistic = "Maximum" if metric == UTILIZATION else "Sum"
    points = account.client("cloudwatch", EDGE_REGION).get_metric_statistics(
        Namespace="AWS/CloudFront",
        MetricName=metric,
        Dimensions=[
            {"Name": "FunctionName", "Value": function},
            {"Name": "Region", "Value": "Global"},
        ],
        StartTime=now - LOOKBACK,
        EndTime=now,
        Period=60,
        Statistics=[statistic],
    )["Datapoints"]
    return max((point[statistic] for point in points), default=None)


def measure_snapshots(target: Target) -> Finding:
    """Send many requests at once, then read from the logs how the environments started."""
    account = target.in_account
    path = target.stream("snapshots")
    begun = time.time()
    with target.viewer() as viewer, ThreadPoolExecutor(COLD_STARTS) as pool:
        list(pool.map(lambda n: viewer.create(f"{path}/{n}"), range(COLD_STARTS)))
    groups = {name: account.output(f"{name}LogGroup") for name in ("Http", "Wait", "Live")}
    reports: dict[str, list[Mapping[str, float]]] = {}

    def complete() -> bool:
        # From before the burst, too: earlier checks have started environments.
        since = begun - LOOKBACK.total_seconds()
        for name, group in groups.items():
            reports[name] = start_metrics(_messages(account, group, since))
        return any("restoreDurationMs" in each for each in reports["Http"])

    found = wait_until(complete, target.pace.metrics, LOG_PAUSE)
    if not found and not any(reports.values()):
        raise NotMeasured("the logs have no report of an environment's start")
    return judge_snapshots(reports)


def judge_snapshots(reports: Mapping[str, Sequence[Mapping[str, float]]]) -> Finding:
    """`Http` and `Wait` start from a snapshot, `Live` does not."""
    restores = [
        each["restoreDurationMs"] for each in reports["Http"] if "restoreDurationMs" in each
    ]
    numbers: dict[str, Number] = {"restores_of_http": len(restores)}
    for name, started in reports.items():
        inits = [each["initDurationMs"] for each in started if "initDurationMs" in each]
        if inits:
            numbers[f"init_of_{name.lower()}_p50_ms"] = statistics.median(inits)
            numbers[f"init_of_{name.lower()}_max_ms"] = max(inits)
    if not restores:
        return judge(False, "no environment of http started from a snapshot", **numbers)
    numbers["restore_p50_ms"] = statistics.median(restores)
    numbers["restore_max_ms"] = max(restores)
    return judge(
        statistics.median(restores) <= RESTORE_SECONDS * 1_000,
        f"half of the restores took {statistics.median(restores):.0f} ms or less",
        **numbers,
    )


def start_metrics(messages: Iterable[str]) -> list[Mapping[str, float]]:
    """The metrics of the invocations that started an environment, from Lambda's JSON logs."""
    found = []
    for message in messages:
        try:
            record = json.loads(message)
        except ValueError:
            continue
        metrics = record.get("record", {}).get("metrics", {}) if isinstance(record, dict) else {}
        if metrics.keys() & {"initDurationMs", "restoreDurationMs"}:
            found.append(metrics)
    return found


def _messages(account: Account, group: str, since: float) -> list[str]:
    pages: Any = (
        account.client("logs")
        .get_paginator("filter_log_events")
        .paginate(
            logGroupName=group,
            startTime=int(since * 1_000),
            filterPattern='{ $.type = "platform.report" }',
        )
    )
    return [event["message"] for page in pages for event in page["events"]]
