"""Action Cable: WebSockets at API Gateway, and the two functions behind them."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_integrations import WebSocketLambdaIntegration
from constructs import Construct

from infra import protocols
from infra.assets import Assets
from infra.findings import acknowledge
from infra.functions import (
    BODIES,
    CHANGE,
    READ,
    SEGMENTS,
    Function,
    acknowledge_objects,
    allow,
)
from infra.gateway import STAGE, Gateway
from infra.secret import AccessSecret, OriginSecret
from infra.stage import Plan
from infra.storage import Storage
from tailrace.store.dynamodb.layout import DUE_INDEX

CABLE_SECONDS: Final = 30
"""API Gateway itself waits for 29."""

CABLE_MEGABYTES: Final = 512

HEARTBEAT_SECONDS: Final = 300
"""It goes on while somebody is connected, and then hands over to itself."""

HEARTBEAT_MEGABYTES: Final = 256

EVERY: Final = cdk.Duration.minutes(1)
"""How late a heartbeat may begin that has stopped, or that nobody has started."""

ROUTES: Final = ("$connect", "$disconnect", "$default")


class Cable(Construct):
    """`cable` hears what clients say, `heartbeat` does what has its time."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        storage: Storage,
        gateway: Gateway,
        secret: OriginSecret,
        access: AccessSecret | None,
    ) -> None:
        super().__init__(scope, name)
        table, bucket = storage.table.table_arn, storage.bucket
        secrets = [each.secret_arn for each in (secret, access) if each is not None]
        environment = {**gateway.environment(storage), **protocols.cable(plan)}
        self.heartbeat = Function(
            self,
            "heartbeat",
            plan=plan,
            assets=assets,
            seconds=HEARTBEAT_SECONDS,
            megabytes=HEARTBEAT_MEGABYTES,
            environment={
                **gateway.environment(storage),
                "TAILRACE_PING_INTERVAL": str(plan.ping_interval),
            },
            allowed=[
                allow([*READ, *CHANGE], table),
                allow(["dynamodb:Query"], f"{table}/index/{DUE_INDEX}"),
                gateway.manage(),
            ],
            starts_itself=True,
            # The next minute is the next attempt.
            attempts=1,
        )
        self.cable = Function(
            self,
            "cable",
            plan=plan,
            assets=assets,
            seconds=CABLE_SECONDS,
            megabytes=CABLE_MEGABYTES,
            environment={
                **environment,
                "TAILRACE_ORIGIN_SECRET": secret.id,
                "TAILRACE_ACCESS": plan.access,
                "TAILRACE_ACCESS_SECRET": "" if access is None else access.id,
                "TAILRACE_ALLOWED_ORIGINS": plan.allowed_origins,
                "TAILRACE_HEARTBEAT": self.heartbeat.function.function_name,
            },
            allowed=[
                allow([*READ, *CHANGE], table),
                allow(["s3:GetObject"], *map(bucket.arn_for_objects, (BODIES, SEGMENTS))),
                allow(["secretsmanager:GetSecretValue"], *secrets),
                gateway.manage(),
            ],
            starts_itself=True,
        )
        acknowledge_objects(self.cable, storage, BODIES, SEGMENTS)
        for each in (self.cable, self.heartbeat):
            gateway.acknowledge(each)
        self._may_start("Cable", self.cable, self.cable, self.heartbeat)
        self._may_start("Heartbeat", self.heartbeat, self.heartbeat)
        self._listen(gateway, self.cable.function)
        events.Rule(
            self,
            "EveryMinute",
            description=f"{plan.name}: pings, and what is due",
            schedule=events.Schedule.rate(EVERY),
            targets=[targets.LambdaFunction(self.heartbeat.function, retry_attempts=0)],
        )

    def _may_start(self, name: str, function: Function, *others: Function) -> None:
        """In a policy of its own: a function waits for those of its role, and this one for it."""
        role = function.function.role
        assert role is not None
        iam.Policy(
            self,
            f"{name}Starts",
            roles=[role],
            statements=[
                allow(["lambda:InvokeFunction"], *(each.function.function_arn for each in others))
            ],
        )

    def _listen(self, gateway: Gateway, function: lambda_.IFunction) -> None:
        stage = apigateway.WebSocketStage(
            self, "Stage", web_socket_api=gateway.api, stage_name=STAGE, auto_deploy=True
        )
        for route in ROUTES:
            # Each its own integration: the permission to call the function is for one route.
            integration = WebSocketLambdaIntegration(f"On{route.strip('$').title()}", function)
            made = gateway.api.add_route(route, integration=integration)
            # Nothing can be deployed that has no routes.
            stage.node.add_dependency(made)
            acknowledge(
                made,
                "AwsSolutions-APIG4",
                "The function verifies tokens itself, and says why it refuses.",
            )
        acknowledge(
            stage,
            "AwsSolutions-APIG1",
            "The function logs what reaches it; an access log would keep every reader's address.",
        )
