"""Alarms and the dashboard."""

from __future__ import annotations

import json
from typing import Any

from glue_jobs.shared.job import METRICS as JOB_METRICS
from infra.names import camel_case
from tailrace.aws.runtime.metrics import METRICS
from tests.integration.infra.stacks import Resource, Stacks

ALARM = "AWS::CloudWatch::Alarm"

EVERYWHERE = {
    "HttpErrors",
    "HttpThrottles",
    "HttpDuration",
    "WaitErrors",
    "WaitThrottles",
    "LiveErrors",
    "LiveThrottles",
    "LiveDuration",
    "PurgeLag",
    "PurgeFailed",
    "RotationFailed",
    "TableReadThrottles",
    "TableReadErrors",
    "TableWriteThrottles",
    "TableWriteErrors",
}


CABLE = {"CableErrors", "CableThrottles", "HeartbeatFailed", "DispatchLag", "DispatchFailed"}

HISTORY = {
    "HistoryProblems": "ignore",
    "HistoryWaiting": "ignore",
    "CompactionLate": "breaching",
}
"""The alarms of the jobs, and what they make of silence: between two runs nothing changes."""


def alarms(stacks: Stacks) -> dict[str, Resource]:
    """By the names that they have in the code."""
    return {
        name.removeprefix("Alarms")[:-8]: alarm for name, alarm in stacks.resources(ALARM).items()
    }


def test_each_variant_has_the_expected_alarms(dev: Stacks, bare: Stacks, afar: Stacks) -> None:
    history = HISTORY.keys()
    assert alarms(dev).keys() == EVERYWHERE | CABLE | history | {
        "EdgeErrors",
        "WaitConcurrency",
        "LiveConcurrency",
        "KeysFailed",
        "EdgeUnverified",
    }
    assert alarms(bare).keys() == EVERYWHERE | {"EdgeErrors"}
    busy = {"WaitConcurrency", "LiveConcurrency"}
    edge = {"KeysFailed", "EdgeUnverified"}
    assert alarms(afar).keys() == EVERYWHERE | CABLE | history | busy | edge


def test_a_few_failed_heartbeats_raise_no_alarm(dev: Stacks) -> None:
    failed = alarms(dev)["HeartbeatFailed"]
    assert (failed["MetricName"], failed["Threshold"], failed["Period"]) == ("Errors", 5, 300)
    assert failed["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": "HeartbeatFunction"}}]


def test_every_alarm_has_a_description_and_notifies_the_topic(prod: Stacks) -> None:
    (topic,) = prod.resources("AWS::SNS::Topic")
    for name, alarm in alarms(prod).items():
        assert alarm["AlarmActions"] == [{"Ref": topic}]
        assert alarm["AlarmDescription"].endswith(".")
        assert alarm["TreatMissingData"] == HISTORY.get(name, "notBreaching")


def test_only_alarms_and_events_may_tell_the_topic(dev: Stacks, bare: Stacks) -> None:
    alarms, events = ({"Service": f"{name}.amazonaws.com"} for name in ("cloudwatch", "events"))
    for stacks, wanted in ((dev, [alarms, events]), (bare, [alarms])):
        statements = stacks.only("AWS::SNS::TopicPolicy")["PolicyDocument"]["Statement"]
        allowed = [each for each in statements if each["Effect"] == "Allow"]
        assert [each["Principal"] for each in allowed] == wanted


def test_alarms_can_be_sent_by_email(dev: Stacks, afar: Stacks) -> None:
    assert not dev.resources("AWS::SNS::Subscription")
    subscription = afar.only("AWS::SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "somebody@example.org")


def test_alarms_are_raised_before_limits_are_reached(prod: Stacks) -> None:
    for name in ("http", "live"):
        duration = alarms(prod)[f"{camel_case(name)}Duration"]
        assert duration["Threshold"] == prod.function(name)["Timeout"] * 1000 * 0.9
    for name in ("wait", "live"):
        reserved = prod.function(name)["ReservedConcurrentExecutions"]
        assert alarms(prod)[f"{camel_case(name)}Concurrency"]["Threshold"] == reserved * 0.8


def test_the_share_of_unverified_reads_raises_an_alarm(dev: Stacks) -> None:
    alarm = alarms(dev)["EdgeUnverified"]
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (50, 3)
    metrics = {each["Id"]: each for each in alarm["Metrics"]}
    (expression,) = (each["Expression"] for each in metrics.values() if "Expression" in each)
    wanted = {
        f"{kind}_{name}": (metric, name)
        for name in ("http", "wait", "live")
        for kind, metric in (
            ("reads", "ds_requests_total"),
            ("unverified", "unverified_reads_total"),
        )
    }
    for identifier, (metric, function) in wanted.items():
        assert f"FILL({identifier},0)" in expression
        described = metrics[identifier]["MetricStat"]["Metric"]
        dimensions = {each["Name"]: each["Value"] for each in described["Dimensions"]}
        assert described["MetricName"] == metric
        assert dimensions == {"function": function, "service": "tailrace-dev"}


# The dashboard


def graphed(stacks: Stacks) -> set[tuple[str, str]]:
    """Namespace and name of every metric on the dashboard."""
    body = stacks.only("AWS::CloudWatch::Dashboard")["DashboardBody"]
    text = "".join(each if isinstance(each, str) else "x" for each in body["Fn::Join"][1])
    widgets: list[dict[str, Any]] = json.loads(text)["widgets"]
    return {
        (metric[0], metric[1]) for widget in widgets for metric in widget["properties"]["metrics"]
    }


def test_the_dashboard_shows_only_metrics_that_are_published(dev: Stacks) -> None:
    own = {name for namespace, name in graphed(dev) if namespace == "Tailrace"}
    assert own <= METRICS.keys() | JOB_METRICS.keys()


def test_the_dashboard_shows_every_reader(dev: Stacks) -> None:
    own = {name for namespace, name in graphed(dev) if namespace == "Tailrace"}
    assert own >= {name for name in METRICS if name.startswith("ds_")}


def test_the_dashboard_covers_edge_to_table(dev: Stacks, prod: Stacks, bare: Stacks) -> None:
    wanted = {
        ("AWS/CloudFront", "Requests"),
        ("AWS/Lambda", "ConcurrentExecutions"),
        ("AWS/Lambda", "IteratorAge"),
        ("AWS/DynamoDB", "ConsumedReadCapacityUnits"),
        ("AWS/DynamoDB", "ConsumedWriteCapacityUnits"),
    }
    assert graphed(dev) >= wanted | {
        ("AWS/ApiGateway", "ConnectCount"),
        ("AWS/ApiGateway", "MessageCount"),
        ("Tailrace", "cable_posts_total"),
        ("Tailrace", "cable_gone_total"),
    }
    assert not {namespace for namespace, _ in graphed(bare)} & {"AWS/ApiGateway"}
    assert graphed(prod) >= wanted | {("AWS/CloudFront", "CacheHitRate")}
