"""What happens without a request: what is new reaches those who listen on cables, deleted streams
leave the edge, and the secret is rotated."""

from __future__ import annotations

import json
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.assets import Assets
from infra.edge import Edge
from infra.findings import acknowledge
from infra.functions import BODIES, CHANGE, READ, Function, acknowledge_objects, allow
from infra.gateway import Gateway
from infra.secret import OriginSecret
from infra.stage import Plan
from infra.storage import Storage

DISPATCH_SECONDS: Final = 60
ROTATE_SECONDS: Final = 900
"""As long as there is: a change of the distribution takes minutes to be everywhere."""

MEGABYTES: Final = 256
DELIVERING_MEGABYTES: Final = 512
"""With cables: each entry is a call for everybody who listens, and they wait for it."""

WAKES: Final[list[dict[str, Any]]] = [
    {
        "dynamodb": {
            "Keys": {"p": {"S": [{"prefix": "C"}]}},
            "NewImage": {"r": {"S": [{"suffix": '"g":1}'}]}},
        }
    }
]
"""The changes of the table that the function hears of: entries whose state is `gone`, for that is
the last thing that `tailrace.store.codec.rest_of` writes. Everything else costs nothing."""

CABLE_WAKES: Final[list[dict[str, Any]]] = [
    {"eventName": ["INSERT"], "dynamodb": {"Keys": {"p": {"S": [{"prefix": kind}]}}}}
    for kind in ("C", "N")
]
"""With cables: all new entries, and new names, for somebody may listen before there is a stream."""

BATCH: Final = 100
WINDOW_SECONDS: Final = 1
"""Streams that are deleted together are purged by one call. With cables nobody waits for more."""

AT_ONCE: Final = 10
"""Batches of one shard that are delivered to cables side by side: the most that Lambda allows. The
changes of an item stay in order, and entries are put in order by their slots."""

ATTEMPTS: Final = 10
HOURS: Final = 6
"""Then a batch that cannot be worked on goes to the queue, and those behind it go on."""


class Dispatch(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        storage: Storage,
        edge: Edge,
        gateway: Gateway | None,
    ) -> None:
        super().__init__(scope, name)
        stream = storage.table.table_stream_arn
        assert stream is not None
        self.failed = sqs.Queue(
            self,
            "Failed",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
        )
        acknowledge(self.failed, "AwsSolutions-SQS3", "It is where failed batches end up itself.")
        self.dispatch = Function(
            self,
            "dispatch",
            plan=plan,
            assets=assets,
            seconds=DISPATCH_SECONDS,
            megabytes=MEGABYTES if gateway is None else DELIVERING_MEGABYTES,
            environment={
                "TAILRACE_DISTRIBUTION": edge.id,
                **({} if gateway is None else gateway.environment(storage)),
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
                allow(["cloudfront:CreateInvalidation"], edge.arn),
                allow(["sqs:SendMessage"], self.failed.queue_arn),
                *([] if gateway is None else _deliver(storage, gateway)),
            ],
        )
        if gateway is not None:
            acknowledge_objects(self.dispatch, storage, BODIES)
            gateway.acknowledge(self.dispatch)
        wakes = WAKES if gateway is None else CABLE_WAKES
        lambda_.CfnEventSourceMapping(
            self,
            "Changes",
            function_name=self.dispatch.function.function_arn,
            event_source_arn=stream,
            starting_position="TRIM_HORIZON",
            batch_size=BATCH,
            maximum_batching_window_in_seconds=WINDOW_SECONDS if gateway is None else 0,
            parallelization_factor=None if gateway is None else AT_ONCE,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            maximum_retry_attempts=ATTEMPTS,
            maximum_record_age_in_seconds=HOURS * 3600,
            destination_config={"onFailure": {"destination": self.failed.queue_arn}},
            filter_criteria={"filters": [{"pattern": json.dumps(wake)} for wake in wakes]},
        )


def _deliver(storage: Storage, gateway: Gateway) -> list[iam.PolicyStatement]:
    return [
        allow([*READ, *CHANGE], storage.table.table_arn),
        allow(["s3:GetObject"], storage.bucket.arn_for_objects(BODIES)),
        gateway.manage(),
    ]


class Rotation(Construct):
    """A new origin secret from time to time, without a request being refused."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        secret: OriginSecret,
        edge: Edge,
        firewall: str | None,
    ) -> None:
        super().__init__(scope, name)
        # CloudFront asks this of whoever updates a distribution behind one.
        read_firewall = [] if firewall is None else [allow(["wafv2:GetWebACL"], firewall)]
        self.rotate_secret = Function(
            self,
            "rotate_secret",
            plan=plan,
            assets=assets,
            seconds=ROTATE_SECONDS,
            megabytes=MEGABYTES,
            environment={
                "TAILRACE_DISTRIBUTION": edge.id,
                "TAILRACE_ORIGIN_SECRET": secret.id,
            },
            allowed=[
                allow(
                    [
                        "secretsmanager:DescribeSecret",
                        "secretsmanager:GetSecretValue",
                        "secretsmanager:PutSecretValue",
                        "secretsmanager:UpdateSecretVersionStage",
                    ],
                    secret.secret_arn,
                ),
                allow(
                    [
                        "cloudfront:GetDistribution",
                        "cloudfront:GetDistributionConfig",
                        "cloudfront:UpdateDistribution",
                    ],
                    edge.arn,
                ),
                *read_firewall,
            ],
        )
        permission = lambda_.CfnPermission(
            self,
            "Permission",
            action="lambda:InvokeFunction",
            function_name=self.rotate_secret.function.function_arn,
            principal="secretsmanager.amazonaws.com",
            source_account=cdk.Aws.ACCOUNT_ID,
            source_arn=secret.secret_arn,
        )
        if plan.rotation_days is None:
            acknowledge(secret, "AwsSolutions-SMG4", "Rotation was turned off by rotation_days=0.")
            return
        secretsmanager.CfnRotationSchedule(
            self,
            "Schedule",
            secret_id=secret.secret_arn,
            rotation_lambda_arn=self.rotate_secret.function.function_arn,
            rotation_rules={"automaticallyAfterDays": plan.rotation_days},
        ).node.add_dependency(permission)
