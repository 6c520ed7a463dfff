"""The two functions behind the WebSocket API, its routes, and the heartbeat's schedule."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_integrations import WebSocketLambdaIntegration
from constructs import Construct

from infra import protocols
from infra.deployment import Deployment
from infra.findings import acknowledge
from infra.lambda_function import (
    BODIES,
    READ,
    SEGMENTS,
    WRITE_ALL,
    LambdaFunction,
    acknowledge_objects,
    allow,
    allow_invoking,
)
from infra.websocket_api import STAGE, WebSocketApi
from tailrace.store.dynamodb.layout import DUE_INDEX

CABLE_SECONDS: Final = 30
"""API Gateway gives up on a response after 29 seconds."""

CABLE_MEGABYTES: Final = 512

HEARTBEAT_SECONDS: Final = 300
"""It runs while clients are connected, and invokes its successor before it times out."""

HEARTBEAT_MEGABYTES: Final = 256

INTERVAL: Final = cdk.Duration.minutes(1)
"""How long pings may be missing if a heartbeat has died, or was never started."""

ROUTES: Final = ("$connect", "$disconnect", "$default")


class WebSocketFunctions(Construct):
    """`cable` handles WebSocket events, `heartbeat` sends pings and expires connections."""

    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, websocket_api: WebSocketApi
    ) -> None:
        super().__init__(scope, name)
        plan, storage = deployment.plan, deployment.storage
        table, bucket = storage.table.table_arn, storage.bucket
        self.heartbeat = LambdaFunction(
            self,
            "heartbeat",
            deployment,
            seconds=HEARTBEAT_SECONDS,
            megabytes=HEARTBEAT_MEGABYTES,
            environment={
                **websocket_api.environment(storage),
                "TAILRACE_PING_INTERVAL": str(plan.ping_interval),
            },
            allowed=[
                allow([*READ, *WRITE_ALL], table),
                allow(["dynamodb:Query"], f"{table}/index/{DUE_INDEX}"),
                websocket_api.allow_management(),
            ],
            invokes_itself=True,
            # The schedule starts the next attempt a minute later.
            attempts=1,
        )
        self.cable = LambdaFunction(
            self,
            "cable",
            deployment,
            seconds=CABLE_SECONDS,
            megabytes=CABLE_MEGABYTES,
            environment={
                **websocket_api.environment(storage),
                **protocols.cable_environment(plan),
                "TAILRACE_ORIGIN_SECRET": deployment.origin_secret.id,
                "TAILRACE_ACCESS": plan.access,
                "TAILRACE_ACCESS_SECRET": deployment.access_secret,
                "TAILRACE_ALLOWED_ORIGINS": plan.allowed_origins,
                "TAILRACE_HEARTBEAT": self.heartbeat.function.function_name,
            },
            allowed=[
                allow([*READ, *WRITE_ALL], table),
                allow(["s3:GetObject"], *map(bucket.arn_for_objects, (BODIES, SEGMENTS))),
                allow(["secretsmanager:GetSecretValue"], *deployment.secret_arns),
                websocket_api.allow_management(),
            ],
            invokes_itself=True,
        )
        acknowledge_objects(self.cable, storage, BODIES, SEGMENTS)
        for function in (self.cable, self.heartbeat):
            websocket_api.acknowledge_management(function)
        allow_invoking(self, "CableStarts", self.cable, self.cable, self.heartbeat)
        allow_invoking(self, "HeartbeatStarts", self.heartbeat, self.heartbeat)
        self._add_routes(websocket_api, self.cable.function)
        events.Rule(
            self,
            "EveryMinute",
            description=f"{plan.name}: starts the heartbeat if connections need one",
            schedule=events.Schedule.rate(INTERVAL),
            targets=[targets.LambdaFunction(self.heartbeat.function, retry_attempts=0)],
        )

    def _add_routes(self, websocket_api: WebSocketApi, function: lambda_.IFunction) -> None:
        stage = apigateway.WebSocketStage(
            self, "Stage", web_socket_api=websocket_api.api, stage_name=STAGE, auto_deploy=True
        )
        for route_key in ROUTES:
            # One integration per route: the permission to invoke the function is for one route.
            integration = WebSocketLambdaIntegration(f"On{route_key.strip('$').title()}", function)
            route = websocket_api.api.add_route(route_key, integration=integration)
            # API Gateway cannot deploy a stage that has no routes yet.
            stage.node.add_dependency(route)
            acknowledge(
                route,
                "AwsSolutions-APIG4",
                "The function verifies tokens itself, and tells the client why it refuses one.",
            )
        acknowledge(
            stage,
            "AwsSolutions-APIG1",
            "The function logs its events; an access log would keep every reader's address.",
        )
