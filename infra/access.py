"""Who may do what: the secret that says so, and the copy of its keys at the edge."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from infra.assets import Assets
from infra.functions import Function, allow
from infra.secret import AccessSecret, OriginSecret
from infra.stage import Plan

SECONDS: Final = 30
MEGABYTES: Final = 256

EVERY: Final = cdk.Duration.minutes(1)
"""How soon the edge hears of a change. The functions look every five minutes."""


class Access(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        self.secret = AccessSecret(self, "Secret", plan=plan)
        self.keys = cloudfront.KeyValueStore(
            self, "Keys", comment=f"{plan.name}: what the edge verifies credentials with"
        )


class Keys(Construct):
    """Copies what the edge has to know of the secrets."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        secret: OriginSecret,
        access: Access,
    ) -> None:
        super().__init__(scope, name)
        store = access.keys.key_value_store_arn
        self.edge_keys = Function(
            self,
            "edge_keys",
            plan=plan,
            assets=assets,
            seconds=SECONDS,
            megabytes=MEGABYTES,
            environment={
                "TAILRACE_ORIGIN_SECRET": secret.id,
                "TAILRACE_ACCESS_SECRET": access.secret.id,
                "TAILRACE_EDGE_KEYS": store,
            },
            allowed=[
                allow(
                    ["secretsmanager:GetSecretValue"], secret.secret_arn, access.secret.secret_arn
                ),
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
            description=f"{plan.name}: brings the keys of the edge up to date",
            schedule=events.Schedule.rate(EVERY),
            # The next minute is the next attempt.
            targets=[targets.LambdaFunction(self.edge_keys.function, retry_attempts=0)],
        )
