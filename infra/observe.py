"""Alarms: what somebody has to look at. The dashboard is in `infra.dashboard`."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.access import Keys
from infra.cable import Cable
from infra.dispatch import Dispatch, Rotation
from infra.edge import Edge
from infra.functions import Function, Functions
from infra.history import History
from infra.schedule import hours_between
from infra.stage import EDGE_REGION, Plan
from infra.storage import Storage

PERIOD: Final = cdk.Duration.minutes(5)

FEW: Final = 5
"""Failures in five minutes that nobody has to get up for are fewer."""

NEARLY: Final = 0.9
"""How much of a limit may be used before somebody should know."""

LATE_MINUTES: Final = 5
"""Deleted streams leave the edge, and entries reach cables, within seconds; this is too long."""

RUNS: Final = 3
"""Runs of a job that may go wrong before somebody should know."""

OPERATIONS: Final = {"Read": "Query", "Write": "PutItem"}
"""Every read of a stream has the one, every append the other."""


class Alarms(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        storage: Storage,
        functions: Functions,
        edge: Edge,
        dispatch: Dispatch,
        rotation: Rotation,
        keys: Keys | None,
        cable: Cable | None,
        history: History | None,
    ) -> None:
        super().__init__(scope, name)
        self._topic = sns.Topic(self, "Topic", enforce_ssl=True, display_name=plan.name)
        # The policy for TLS takes the place of one that lets CloudWatch in.
        self._topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self._topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}},
            )
        )
        if plan.alarm_email is not None:
            self._topic.add_subscription(subscriptions.EmailSubscription(plan.alarm_email))
        for title, function in (("Http", functions.http), ("Live", functions.live)):
            self._watch(title, function)
            self._watch_duration(title, function)
        if plan.live_concurrency is not None:
            self._alarm(
                "LiveConcurrency",
                functions.live.function.metric(
                    "ConcurrentExecutions", statistic="max", period=PERIOD
                ),
                plan.live_concurrency * NEARLY,
                "Hardly another SSE reader has room: raise live_concurrency.",
            )
        if plan.at_the_edge:
            # An alarm sees the metrics of its own region only, and CloudFront has one region.
            self._alarm(
                "EdgeErrors",
                edge_metric(edge, "5xxErrorRate", "avg"),
                1,
                "More than one request in a hundred got a 5xx from the distribution.",
                periods=3,
            )
        waiting = "" if cable is None else ", and what is new does not reach cables"
        self._alarm(
            "DispatchLag",
            dispatch.dispatch.function.metric("IteratorAge", statistic="max", period=PERIOD),
            LATE_MINUTES * 60_000,
            f"Deleted streams do not leave the edge{waiting}: look at the log of the dispatch"
            " function.",
        )
        self._alarm(
            "DispatchFailed",
            dispatch.failed.metric_approximate_number_of_messages_visible(
                statistic="max", period=PERIOD
            ),
            1,
            "Changes of the log were given up; the queue says which.",
        )
        self._alarm(
            "RotationFailed",
            rotation.rotate_secret.function.metric_errors(period=PERIOD),
            1,
            "The origin secret could not be rotated; the old one still works.",
        )
        if keys is not None:
            # Once a minute: so many failures are all of them.
            self._alarm(
                "KeysFailed",
                keys.edge_keys.function.metric_errors(period=PERIOD),
                FEW,
                "The edge does not hear of changed keys: look at the log of the keys function.",
            )
        if cable is not None:
            self._watch("Cable", cable.cable)
            self._alarm(
                "PulseFailed",
                cable.heartbeat.function.metric_errors(period=PERIOD),
                FEW,
                "Nobody pings cables, and their clients give up: look at the log of the heartbeat"
                " function.",
            )
        for title, operation in OPERATIONS.items():
            self._alarm(
                f"Table{title}Throttles",
                storage.table.metric(f"{title}ThrottleEvents", statistic="sum", period=PERIOD),
                2 * FEW,
                "DynamoDB turns calls away: a stream is too hot, or the table grows too fast.",
            )
            self._alarm(
                f"Table{title}Errors",
                storage.table.metric(
                    "SystemErrors",
                    statistic="sum",
                    period=PERIOD,
                    dimensions_map={
                        "TableName": storage.table.table_name,
                        "Operation": operation,
                    },
                ),
                FEW,
                "DynamoDB itself fails.",
            )

        if history is not None:
            self._watch_jobs(history)

    def _watch_jobs(self, history: History) -> None:
        self._tell_of_failures([job.name for job in history.jobs.values()])
        self._alarm(
            "HistoryProblems",
            history.audit.metric("history_problems_num", "max", PERIOD),
            1,
            "The audit found history that is not as it should be; its log says what.",
            missing=cloudwatch.TreatMissingData.IGNORE,
        )
        schedule = history.compact.schedule
        hours = None if schedule is None else hours_between(schedule)
        if hours is None:
            return  # An alarm looks back a week at most.
        every = cdk.Duration.hours(hours)
        self._alarm(
            "HistoryWaiting",
            history.compact.metric("history_waiting_num", "min", every),
            1,
            "Compaction leaves entries behind that fill segments; its log says why.",
            periods=RUNS,
            missing=cloudwatch.TreatMissingData.IGNORE,
        )
        self._alarm(
            "CompactionLate",
            history.compact.metric("history_runs_total", "sum", every),
            1,
            "Compaction has not come to its end for three times as long as it should take.",
            periods=RUNS,
            below=True,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _tell_of_failures(self, jobs: list[str]) -> None:
        """Glue has no metric of failed runs; it has an event."""
        event = events.EventField.from_path
        rule = events.Rule(
            self,
            "JobFailed",
            description="Runs of jobs that failed",
            event_pattern=events.EventPattern(
                source=["aws.glue"],
                detail_type=["Glue Job State Change"],
                detail={"jobName": jobs, "state": ["FAILED", "TIMEOUT", "ERROR"]},
            ),
        )
        # Lets every rule in: EventBridge gives a topic nothing that a condition could look at.
        rule.add_target(
            targets.SnsTopic(
                self._topic,
                message=events.RuleTargetInput.from_text(
                    f"The job {event('$.detail.jobName')} ended {event('$.detail.state')}:"
                    f" {event('$.detail.message')} (run {event('$.detail.jobRunId')})"
                ),
            )
        )

    def _watch(self, title: str, function: Function) -> None:
        watched = function.function
        self._alarm(
            f"{title}Errors",
            watched.metric_errors(period=PERIOD),
            FEW,
            "Requests ended without an answer of ours: look at the function's log.",
        )
        self._alarm(
            f"{title}Throttles",
            watched.metric_throttles(period=PERIOD),
            1,
            "Lambda turned requests away: the reserved, or the account's, concurrency is used up.",
        )

    def _watch_duration(self, title: str, function: Function) -> None:
        self._alarm(
            f"{title}Duration",
            function.function.metric_duration(statistic="max", period=PERIOD),
            function.seconds * 1000 * NEARLY,
            "A request took nearly as long as it may.",
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        description: str,
        *,
        periods: int = 1,
        below: bool = False,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        compare = cloudwatch.ComparisonOperator
        cloudwatch.Alarm(
            self,
            name,
            alarm_description=description,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            comparison_operator=compare.LESS_THAN_THRESHOLD
            if below
            else compare.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=missing,
        ).add_alarm_action(actions.SnsAction(self._topic))


def edge_metric(edge: Edge, name: str, statistic: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/CloudFront",
        metric_name=name,
        dimensions_map={"DistributionId": edge.id, "Region": "Global"},
        statistic=statistic,
        period=PERIOD,
        region=EDGE_REGION,
    )
