"""Subscriptions: the secret of their keys, and the function that sends webhooks and waits."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.deployment import Deployment
from infra.findings import acknowledge
from infra.lambda_function import LambdaFunction, allow, allow_invoking
from infra.secrets import LENGTH, secret_id
from infra.stage import Plan
from tailrace.store.dynamodb.layout import DUE_INDEX

SECONDS: Final = 120
"""The timer runs while anything is due soon, and invokes its successor before it times out."""

MEGABYTES: Final = 256

INTERVAL: Final = cdk.Duration.minutes(1)
"""How often the timer looks for what is due within a minute, if it does not run anyway."""

ITEMS: Final = ("YS*", "YL*", "YT")
"""Partitions of the table that `webhooks` may use: subscriptions, their links, and the timer's
lease. It reaches no stream."""

DUE: Final = "y*"
"""Partitions of the index `due` that have subscriptions."""


class SubscriptionKeys(secretsmanager.Secret):
    """The keys of webhooks and of wakes are derived from it."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(
            scope,
            name,
            description=f"{plan.name}: keys of subscriptions",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=LENGTH, exclude_punctuation=True
            ),
            removal_policy=plan.removal,
        )
        self.id = secret_id(self, "SubscriptionKeys")
        acknowledge(
            self,
            "AwsSolutions-SMG4",
            "Receivers verify signatures with published keys; `tailrace keys rotate` changes it.",
        )


class Subscriptions(Construct):
    """`webhooks` sends webhooks, ends leases, and waits for what is due soon."""

    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, keys: SubscriptionKeys
    ) -> None:
        super().__init__(scope, name)
        table = deployment.storage.table
        self.webhooks = LambdaFunction(
            self,
            "webhooks",
            deployment,
            seconds=SECONDS,
            megabytes=MEGABYTES,
            environment={
                "TAILRACE_TABLE": table.table_name,
                "TAILRACE_SUBSCRIPTION_KEYS": keys.id,
                # Never in a deployment: receivers are on the internet.
                "TAILRACE_WEBHOOK_LOOPBACK": "false",
            },
            allowed=[
                iam.PolicyStatement(
                    actions=[
                        "dynamodb:GetItem",
                        "dynamodb:Query",
                        "dynamodb:UpdateItem",
                        "dynamodb:DeleteItem",
                    ],
                    resources=[table.table_arn],
                    conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [*ITEMS]}},
                ),
                iam.PolicyStatement(
                    actions=["dynamodb:Query"],
                    resources=[f"{table.table_arn}/index/{DUE_INDEX}"],
                    conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [DUE]}},
                ),
                allow(["secretsmanager:GetSecretValue"], keys.secret_arn),
            ],
            invokes_itself=True,
            # What failed is still due, and the next tick finds it.
            attempts=1,
        )
        allow_invoking(self, "Starts", self.webhooks, self.webhooks)
        events.Rule(
            self,
            "EveryMinute",
            description=f"{deployment.plan.name}: does what subscriptions have due",
            schedule=events.Schedule.rate(INTERVAL),
            targets=[targets.LambdaFunction(self.webhooks.function, retry_attempts=0)],
        )
