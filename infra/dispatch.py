"""The two functions behind the table's stream: `dispatch` delivers new entries to cables and wakes
subscriptions, `purge` purges deleted streams from CloudFront. Each reads the stream on its own, so
that neither waits for the other; more than two may not."""

from __future__ import annotations

import json
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.deployment import Deployment
from infra.distribution import Distribution
from infra.findings import acknowledge
from infra.lambda_function import (
    BODIES,
    READ,
    WRITE_ALL,
    LambdaFunction,
    acknowledge_objects,
    allow,
    allow_invoking,
)
from infra.storage import StorageStack
from infra.subscriptions import Subscriptions

SECONDS: Final = 60

PURGE_MEGABYTES: Final = 256
DELIVERY_MEGABYTES: Final = 512
"""Each entry is one call per subscriber, and subscribers wait for it."""

TOMBSTONES: Final[list[dict[str, Any]]] = [
    {
        "eventName": ["INSERT"],
        "dynamodb": {"Keys": {"p": {"S": [{"prefix": "C"}]}}, "NewImage": {"h": {"N": ["1"]}}},
    }
]
"""Event filter of `purge`: the tombstones of `tailrace.store.dynamodb.layout.is_purge`. Filtered
events cost nothing."""

NEW_ENTRIES_AND_NAMES: Final[list[dict[str, Any]]] = [
    {"eventName": ["INSERT"], "dynamodb": {"Keys": {"p": {"S": [{"prefix": kind}]}}}}
    for kind in ("C", "N")
]
"""Event filter of `dispatch`: entries, and names because clients may subscribe to a stream before
it exists."""

DUE_SUBSCRIPTIONS: Final[list[dict[str, Any]]] = [
    {
        "eventName": ["INSERT", "MODIFY"],
        "dynamodb": {
            "Keys": {"p": {"S": [{"prefix": "YS"}]}},
            "NewImage": {"d": {"N": [{"exists": True}]}},
        },
    }
]
"""The same of subscriptions that have something due."""

BATCH_SIZE: Final = 100
PURGE_BATCH_SIZE: Final = 1000
"""One call may purge 3,000 tags, and that many may be in progress."""

WINDOW_SECONDS: Final = 2
"""Streams that are deleted together are purged by one call. `dispatch` has no such window, since it
would delay messages."""

PARALLELIZATION: Final = 10
"""Lambda's maximum of concurrent batches per shard, for cables. Changes of one item stay in order,
and entries are ordered by their slots."""

ATTEMPTS: Final = 10
MAX_AGE_HOURS: Final = 6
"""After these a failing batch goes to the queue, and the shard continues with the next. A purge is
repeated for as long: CloudFront takes a limited number at a time."""


class Dispatch(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        deployment: Deployment,
        *,
        subscriptions: Subscriptions | None,
    ) -> None:
        super().__init__(scope, name)
        storage, websocket_api = deployment.storage, deployment.websocket_api
        self.failed = _dead_letters(self)
        environment = {
            "TAILRACE_TABLE": storage.table.table_name,
            "TAILRACE_BUCKET": storage.bucket.bucket_name,
        }
        allowed = []
        if websocket_api is not None:
            environment |= websocket_api.environment(storage)
            allowed.append(websocket_api.allow_management())
        if subscriptions is not None:
            environment["TAILRACE_WEBHOOKS"] = subscriptions.webhooks.function.function_name
        self.dispatch = LambdaFunction(
            self,
            "dispatch",
            deployment,
            seconds=SECONDS,
            megabytes=DELIVERY_MEGABYTES,
            environment=environment,
            allowed=[
                *_allow_following(storage, self.failed),
                allow([*READ, *WRITE_ALL], storage.table.table_arn),
                allow(["s3:GetObject"], storage.bucket.arn_for_objects(BODIES)),
                *allowed,
            ],
        )
        invoked = [] if subscriptions is None else [subscriptions.webhooks]
        allow_invoking(self, "Parts", self.dispatch, self.dispatch, *invoked)
        acknowledge_objects(self.dispatch, storage, BODIES)
        if websocket_api is not None:
            websocket_api.acknowledge_management(self.dispatch)
        _follow(
            self,
            storage,
            self.dispatch,
            self.failed,
            NEW_ENTRIES_AND_NAMES + ([] if subscriptions is None else DUE_SUBSCRIPTIONS),
            batch_size=BATCH_SIZE,
            maximum_batching_window_in_seconds=0,
            parallelization_factor=PARALLELIZATION,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_retry_attempts=ATTEMPTS,
        )


class Purge(Construct):
    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, distribution: Distribution
    ) -> None:
        super().__init__(scope, name)
        storage = deployment.storage
        self.failed = _dead_letters(self)
        self.purge = LambdaFunction(
            self,
            "purge",
            deployment,
            seconds=SECONDS,
            megabytes=PURGE_MEGABYTES,
            environment={"TAILRACE_DISTRIBUTION": distribution.id},
            allowed=[
                *_allow_following(storage, self.failed),
                allow(["cloudfront:CreateInvalidation"], distribution.arn),
            ],
        )
        _follow(
            self,
            storage,
            self.purge,
            self.failed,
            TOMBSTONES,
            batch_size=PURGE_BATCH_SIZE,
            maximum_batching_window_in_seconds=WINDOW_SECONDS,
        )


def _dead_letters(scope: Construct) -> sqs.Queue:
    queue = sqs.Queue(
        scope,
        "Failed",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=cdk.Duration.days(14),
    )
    acknowledge(queue, "AwsSolutions-SQS3", "It is a dead-letter queue itself.")
    return queue


def _stream(storage: StorageStack) -> str:
    stream = storage.table.table_stream_arn
    assert stream is not None
    return stream


def _allow_following(storage: StorageStack, failed: sqs.Queue) -> list[iam.PolicyStatement]:
    return [
        allow(
            [
                "dynamodb:DescribeStream",
                "dynamodb:GetRecords",
                "dynamodb:GetShardIterator",
                "dynamodb:ListStreams",
            ],
            _stream(storage),
        ),
        allow(["sqs:SendMessage"], failed.queue_arn),
    ]


def _follow(
    scope: Construct,
    storage: StorageStack,
    function: LambdaFunction,
    failed: sqs.Queue,
    patterns: list[dict[str, Any]],
    **options: Any,
) -> None:
    """Have Lambda invoke a function with the records of the table's stream that match a pattern."""
    lambda_.CfnEventSourceMapping(
        scope,
        "Changes",
        function_name=function.function.function_arn,
        event_source_arn=_stream(storage),
        starting_position="TRIM_HORIZON",
        maximum_record_age_in_seconds=MAX_AGE_HOURS * 3600,
        destination_config={"onFailure": {"destination": failed.queue_arn}},
        filter_criteria={"filters": [{"pattern": json.dumps(each)} for each in patterns]},
        **options,
    )
