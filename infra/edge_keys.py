"""The function that copies the keys of both secrets to the edge, and its schedule."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.deployment import Deployment
from infra.lambda_function import LambdaFunction, allow
from infra.secrets import AccessControl

SECONDS: Final = 30
MEGABYTES: Final = 256

INTERVAL: Final = cdk.Duration.minutes(1)
"""How long the edge may use old keys. The functions read the secret every five minutes."""


class EdgeKeys(Construct):
    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, access: AccessControl
    ) -> None:
        super().__init__(scope, name)
        store = access.keys.key_value_store_arn
        self.edge_keys = LambdaFunction(
            self,
            "edge_keys",
            deployment,
            seconds=SECONDS,
            megabytes=MEGABYTES,
            environment={
                "TAILRACE_ORIGIN_SECRET": deployment.origin_secret.id,
                "TAILRACE_ACCESS_SECRET": deployment.access_secret,
                "TAILRACE_EDGE_KEYS": store,
            },
            allowed=[
                allow(["secretsmanager:GetSecretValue"], *deployment.secret_arns),
                allow(
                    [
                        "cloudfront-keyvaluestore:DescribeKeyValueStore",
                        "cloudfront-keyvaluestore:ListKeys",
                        "cloudfront-keyvaluestore:UpdateKeys",
                    ],
                    store,
                ),
            ],
        )
        events.Rule(
            self,
            "EveryMinute",
            description=f"{deployment.plan.name}: updates the keys at the edge",
            schedule=events.Schedule.rate(INTERVAL),
            # A failed run is repeated a minute later anyway.
            targets=[targets.LambdaFunction(self.edge_keys.function, retry_attempts=0)],
        )
