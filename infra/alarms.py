"""The alarms, and the topic that they notify."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.components import Components
from infra.containers import OPEN_FILES, Containers
from infra.deployment import Deployment
from infra.distribution import Distribution
from infra.history_jobs import HistoryJobs
from infra.lambda_function import COMMON_ENVIRONMENT, LambdaFunction
from infra.schedule import hours_between
from infra.stage import EDGE_REGION, Plan

PERIOD: Final = cdk.Duration.minutes(5)

FEW: Final = 5
"""Failures in five minutes from which on an alarm is raised: fewer are normal."""

NEARLY: Final = 0.9
"""The fraction of a limit from which on an alarm is raised."""

NEARLY_BUSY: Final = 0.8
"""The fraction of a function's concurrency from which on an alarm is raised: readers that wait are
refused beyond it."""

LATE_MINUTES: Final = 5
"""Purges and deliveries normally take seconds; this delay raises an alarm."""

RUNS: Final = 3
"""Consecutive runs of a job that have to fail before an alarm is raised."""

READERS: Final = ("http", "wait", "live")
"""The functions that serve reads of streams."""

UNVERIFIED_PERCENT: Final = 50
UNVERIFIED_READS: Final = 100
"""Reads in five minutes from which on their share means something."""

OPERATIONS: Final = {"Read": "Query", "Write": "PutItem"}
"""The DynamoDB operation of every read, and of every append."""


class Alarms(Construct):
    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, components: Components
    ) -> None:
        super().__init__(scope, name)
        plan, storage = deployment.plan, deployment.storage
        functions, websocket_functions = components.http_functions, components.websocket_functions
        dispatch, rotation = components.dispatch, components.rotation
        purge = components.purge
        self._topic = sns.Topic(self, "Topic", enforce_ssl=True, display_name=plan.name)
        # `enforce_ssl` adds a policy, which replaces the default that lets CloudWatch publish.
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
            if function is not None:
                self._add_function(title, function)
                self._add_duration(title, function)
        if functions.wait is not None:
            # Its requests normally take nearly as long as its timeout: the duration says nothing.
            self._add_function("Wait", functions.wait)
        if components.containers is not None:
            self._add_containers(plan, components.containers)
        for name, function, concurrency in (
            ("wait", functions.wait, plan.wait_concurrency),
            ("live", functions.live, plan.live_concurrency),
        ):
            if function is not None and concurrency is not None:
                self._alarm(
                    f"{name.title()}Concurrency",
                    function.function.metric(
                        "ConcurrentExecutions", statistic="max", period=PERIOD
                    ),
                    concurrency * NEARLY_BUSY,
                    f"The {name} function has nearly reached its concurrency: raise"
                    f" {name}_concurrency.",
                )
        if plan.at_the_edge:
            # An alarm reads the metrics of its own region, and CloudFront's are in one region only.
            self._alarm(
                "EdgeErrors",
                edge_metric(components.distribution, "5xxErrorRate", "avg"),
                1,
                "More than 1 % of the distribution's responses are 5xx.",
                periods=3,
            )
        if dispatch is not None:
            self._add_follower(
                "Dispatch",
                dispatch.dispatch,
                dispatch.failed,
                "Cables do not get new messages, and subscriptions are not woken",
            )
        self._add_follower(
            "Purge", purge.purge, purge.failed, "Deleted streams are not purged from the edge"
        )
        self._alarm(
            "RotationFailed",
            rotation.rotate_secret.function.metric_errors(period=PERIOD),
            1,
            "Rotating the origin secret failed; the previous value remains valid.",
        )
        if components.edge_keys is not None:
            # The function runs once a minute, so this means that every run fails.
            self._alarm(
                "KeysFailed",
                components.edge_keys.edge_keys.function.metric_errors(period=PERIOD),
                FEW,
                "The edge does not get changed keys: see the log of the edge_keys function.",
            )
            self._add_unverified(plan)
        if websocket_functions is not None:
            self._add_function("Cable", websocket_functions.cable)
            self._alarm(
                "HeartbeatFailed",
                websocket_functions.heartbeat.function.metric_errors(period=PERIOD),
                FEW,
                "Cables get no pings, so their clients disconnect: see the log of the heartbeat"
                " function.",
            )
        for title, operation in OPERATIONS.items():
            self._alarm(
                f"Table{title}Throttles",
                storage.table.metric(f"{title}ThrottleEvents", statistic="sum", period=PERIOD),
                2 * FEW,
                "DynamoDB throttles calls: the traffic of a stream or of the table grew too fast.",
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
                "DynamoDB answers calls with server errors.",
            )

        if components.history_jobs is not None:
            self._add_jobs(components.history_jobs)

    def _add_jobs(self, history_jobs: HistoryJobs) -> None:
        self._notify_of_failed_runs([job.name for job in history_jobs.jobs.values()])
        self._alarm(
            "HistoryProblems",
            history_jobs.audit.metric("history_problems_num", "max", PERIOD),
            1,
            "The audit found problems in the store: see its log.",
            missing=cloudwatch.TreatMissingData.IGNORE,
        )
        schedule = history_jobs.compact.schedule
        hours = None if schedule is None else hours_between(schedule)
        if hours is None:
            return  # An alarm's periods together are at most a week.
        every = cdk.Duration.hours(hours)
        self._alarm(
            "HistoryWaiting",
            history_jobs.compact.metric("history_waiting_num", "min", every),
            1,
            "Compaction leaves entries in the table that fill segments: see its log.",
            periods=RUNS,
            missing=cloudwatch.TreatMissingData.IGNORE,
        )
        self._alarm(
            "CompactionLate",
            history_jobs.compact.metric("history_runs_total", "sum", every),
            1,
            "Compaction has not completed a run in three scheduled intervals.",
            periods=RUNS,
            below=True,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _notify_of_failed_runs(self, jobs: list[str]) -> None:
        """Send Glue's events to the topic: it has no metric of failed runs."""
        event = events.EventField.from_path
        rule = events.Rule(
            self,
            "JobFailed",
            description="Failed runs of jobs",
            event_pattern=events.EventPattern(
                source=["aws.glue"],
                detail_type=["Glue Job State Change"],
                detail={"jobName": jobs, "state": ["FAILED", "TIMEOUT", "ERROR"]},
            ),
        )
        # Lets every rule publish: EventBridge does not support conditions in a topic's policy.
        rule.add_target(
            targets.SnsTopic(
                self._topic,
                message=events.RuleTargetInput.from_text(
                    f"The job {event('$.detail.jobName')} ended {event('$.detail.state')}:"
                    f" {event('$.detail.message')} (run {event('$.detail.jobRunId')})"
                ),
            )
        )

    def _add_containers(self, plan: Plan, containers: Containers) -> None:
        self._alarm(
            "ContainersUnhealthy",
            containers.targets.metrics.unhealthy_host_count(statistic="max", period=PERIOD),
            1,
            "A container has not been healthy for a quarter of an hour: see the containers' log.",
            periods=3,
        )
        self._alarm(
            "ContainersMissing",
            containers.targets.metrics.healthy_host_count(statistic="max", period=PERIOD),
            1,
            "No container is healthy, so live reads fail: see the events of the service.",
            below=True,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )
        self._alarm(
            "ContainersErrors",
            containers.targets.metrics.http_code_target(
                elb.HttpCodeTarget.TARGET_5XX_COUNT, period=PERIOD
            ),
            FEW,
            "Containers answer with server errors: see their log.",
        )
        self._alarm(
            "ContainersBusy",
            containers.service.metric_cpu_utilization(statistic="avg", period=PERIOD),
            100 * NEARLY_BUSY,
            "Containers are busy although more of them may not be added: raise containers_max or"
            " container_cpu.",
            periods=3,
        )
        self._alarm(
            "ContainersFull",
            containers.connections_metric(plan, "max"),
            OPEN_FILES * NEARLY_BUSY,
            "A container has nearly as many connections as it may open: raise containers_max.",
        )

    def _add_function(self, title: str, function: LambdaFunction) -> None:
        self._alarm(
            f"{title}Errors",
            function.function.metric_errors(period=PERIOD),
            FEW,
            "The function failed or timed out: see its log.",
        )
        self._alarm(
            f"{title}Throttles",
            function.function.metric_throttles(period=PERIOD),
            1,
            "Lambda throttles the function: its concurrency, or the account's, is used up.",
        )

    def _add_unverified(self, plan: Plan) -> None:
        """Watch the share of reads that the edge did not verify: these are not shared, so that the
        cost grows with the audience. Of the verified ones, only some reach a function."""
        readers = READERS[:1] if plan.containers else READERS
        reads, unverified = (
            {f"{kind}_{name}": function_metric(plan, metric, name) for name in readers}
            for kind, metric in (
                ("reads", "ds_requests_total"),
                ("unverified", "unverified_reads_total"),
            )
        )
        total, part = ("+".join(f"FILL({name},0)" for name in each) for each in (reads, unverified))
        self._alarm(
            "EdgeUnverified",
            cloudwatch.MathExpression(
                expression=f"IF({total} >= {UNVERIFIED_READS}, 100 * ({part}) / ({total}), 0)",
                using_metrics={**reads, **unverified},
                period=PERIOD,
            ),
            UNVERIFIED_PERCENT,
            "The edge does not verify most reads, so readers do not share responses: see"
            " docs/edge.md, private streams.",
            periods=3,
        )

    def _add_follower(
        self, title: str, function: LambdaFunction, failed: sqs.Queue, effect: str
    ) -> None:
        """Watch a function behind the table's stream."""
        name = title.lower()
        self._alarm(
            f"{title}Lag",
            function.function.metric("IteratorAge", statistic="max", period=PERIOD),
            LATE_MINUTES * 60_000,
            f"{effect}: see the log of the {name} function.",
        )
        self._alarm(
            f"{title}Failed",
            failed.metric_approximate_number_of_messages_visible(statistic="max", period=PERIOD),
            1,
            f"The {name} function gave up on a batch of changes: the queue says which.",
        )

    def _add_duration(self, title: str, function: LambdaFunction) -> None:
        self._alarm(
            f"{title}Duration",
            function.function.metric_duration(statistic="max", period=PERIOD),
            function.seconds * 1000 * NEARLY,
            "A request took nearly as long as the function's timeout.",
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


def edge_metric(distribution: Distribution, name: str, statistic: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/CloudFront",
        metric_name=name,
        dimensions_map={"DistributionId": distribution.id, "Region": "Global"},
        statistic=statistic,
        period=PERIOD,
        region=EDGE_REGION,
    )


def function_metric(
    plan: Plan, name: str, function: str, statistic: str = "sum"
) -> cloudwatch.Metric:
    """A metric that `tailrace.aws.runtime.observability` publishes."""
    return cloudwatch.Metric(
        namespace=COMMON_ENVIRONMENT["POWERTOOLS_METRICS_NAMESPACE"],
        metric_name=name,
        dimensions_map={"function": function, "service": plan.name},
        statistic=statistic,
        label=f"{name} {statistic}" if statistic.startswith("p") else name,
        period=PERIOD,
    )
