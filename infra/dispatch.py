"""The function behind the table's stream: it delivers new entries to cables, and purges deleted
streams from CloudFront."""

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
)
from infra.storage import StorageStack
from infra.websocket_api import WebSocketApi

SECONDS: Final = 60

PURGE_MEGABYTES: Final = 256
DELIVERY_MEGABYTES: Final = 512
"""With cables: each entry is one call per subscriber, and subscribers wait for it."""

TOMBSTONES: Final[list[dict[str, Any]]] = [
    {
        "dynamodb": {
            "Keys": {"p": {"S": [{"prefix": "C"}]}},
            "NewImage": {"r": {"S": [{"suffix": '"g":1}'}]}},
        }
    }
]
"""Event filter without cables: entries whose state is `gone`, which
`tailrace.store.codec.rest_of` writes last. Filtered events cost nothing."""

NEW_ENTRIES_AND_NAMES: Final[list[dict[str, Any]]] = [
    {"eventName": ["INSERT"], "dynamodb": {"Keys": {"p": {"S": [{"prefix": kind}]}}}}
    for kind in ("C", "N")
]
"""Event filter with cables: entries, and names because clients may subscribe to a stream before it
exists."""

BATCH_SIZE: Final = 100
WINDOW_SECONDS: Final = 1
"""Without cables: streams that are deleted together are purged by one call. With cables the window
is 0, since it would delay messages."""

PARALLELIZATION: Final = 10
"""Lambda's maximum of concurrent batches per shard, for cables. Changes of one item stay in order,
and entries are ordered by their slots."""

ATTEMPTS: Final = 10
MAX_AGE_HOURS: Final = 6
"""After these a failing batch goes to the queue, and the shard continues with the next."""


class Dispatch(Construct):
    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, distribution: Distribution
    ) -> None:
        super().__init__(scope, name)
        storage, websocket_api = deployment.storage, deployment.websocket_api
        stream = storage.table.table_stream_arn
        assert stream is not None
        self.failed = sqs.Queue(
            self,
            "Failed",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
        )
        acknowledge(self.failed, "AwsSolutions-SQS3", "It is a dead-letter queue itself.")
        self.dispatch = LambdaFunction(
            self,
            "dispatch",
            deployment,
            seconds=SECONDS,
            megabytes=PURGE_MEGABYTES if websocket_api is None else DELIVERY_MEGABYTES,
            environment={
                "TAILRACE_DISTRIBUTION": distribution.id,
                **({} if websocket_api is None else websocket_api.environment(storage)),
            },
            allowed=[
                allow(
                    [
                        "dynamodb:DescribeStream",
                        "dynamodb:GetRecords",
                        "dynamodb:GetShardIterator",
                        "dynamodb:ListStreams",
                    ],
                    stream,
                ),
                allow(["cloudfront:CreateInvalidation"], distribution.arn),
                allow(["sqs:SendMessage"], self.failed.queue_arn),
                *([] if websocket_api is None else _allow_delivery(storage, websocket_api)),
            ],
        )
        if websocket_api is not None:
            acknowledge_objects(self.dispatch, storage, BODIES)
            websocket_api.acknowledge_management(self.dispatch)
        patterns = TOMBSTONES if websocket_api is None else NEW_ENTRIES_AND_NAMES
        lambda_.CfnEventSourceMapping(
            self,
            "Changes",
            function_name=self.dispatch.function.function_arn,
            event_source_arn=stream,
            starting_position="TRIM_HORIZON",
            batch_size=BATCH_SIZE,
            maximum_batching_window_in_seconds=WINDOW_SECONDS if websocket_api is None else 0,
            parallelization_factor=None if websocket_api is None else PARALLELIZATION,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_retry_attempts=ATTEMPTS,
            maximum_record_age_in_seconds=MAX_AGE_HOURS * 3600,
            destination_config={"onFailure": {"destination": self.failed.queue_arn}},
            filter_criteria={"filters": [{"pattern": json.dumps(each)} for each in patterns]},
        )


def _allow_delivery(
    storage: StorageStack, websocket_api: WebSocketApi
) -> list[iam.PolicyStatement]:
    return [
        allow([*READ, *WRITE_ALL], storage.table.table_arn),
        allow(["s3:GetObject"], storage.bucket.arn_for_objects(BODIES)),
        websocket_api.allow_management(),
    ]
