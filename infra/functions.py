"""The Lambda functions: how each is made, and the two that answer requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import protocols
from infra.assets import Assets
from infra.findings import acknowledge
from infra.gateway import Gateway
from infra.names import camel_case, logical_id
from infra.secret import AccessSecret, OriginSecret
from infra.stage import Plan, Stage
from infra.storage import Storage

HTTP_SECONDS: Final = 30
"""A long-poll, 20 s, and a cold start fit in."""

LIVE_SECONDS: Final = 60
"""An SSE response, 50 s, and a cold start fit in."""

HTTP_MEGABYTES: Final = 1024
"""More than half a processor: a writer waits for little else."""

LIVE_MEGABYTES: Final = 512
"""It waits nearly all the time, and every megabyte is paid for meanwhile."""

LOGS: Final = {
    Stage.DEV: logs.RetentionDays.ONE_WEEK,
    Stage.PROD: logs.RetentionDays.THREE_MONTHS,
}

ALIAS: Final = "current"
"""Where the function URLs point: code, layers and settings change at one moment."""

READ: Final = ("dynamodb:GetItem", "dynamodb:Query")
WRITE: Final = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem")
"""A transaction needs the permissions of its parts."""

BATCHES: Final = "dynamodb:BatchWriteItem"
CHANGE: Final = (*WRITE, BATCHES, "dynamodb:ConditionCheckItem")

BODIES: Final = "bodies/*"
"""Where `tailrace.store.dynamodb` puts large bodies."""

SEGMENTS: Final = "segments/*"
"""Where history is."""

WILDCARD: Final = "AwsSolutions-IAM5"
PUBLISH: Final = "@aws-cdk/aws-lambda:snapStartRequirePublish"

COMMON: Final = {
    "POWERTOOLS_METRICS_NAMESPACE": "Tailrace",
    "TAILRACE_LOG_LEVEL": "info",
    # AWS's own; here because `sam local invoke` replaces only variables that are there.
    "TAILRACE_ENDPOINT_URL": "",
}

ANSWERING: Final = {
    # Lambda takes and gives 6 MB, and base64 makes four bytes of three.
    "TAILRACE_MAX_BODY_BYTES": str(3 << 20),
    "TAILRACE_CHUNK_BYTES": str(1 << 20),
    "TAILRACE_LONG_POLL_TIMEOUT": "20",
    "TAILRACE_SSE_LIFETIME": "50",
    "TAILRACE_SSE_KEEP_ALIVE": "10",
}


class Function(Construct):
    """A function with a role and a log of its own."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        seconds: int,
        megabytes: int,
        environment: Mapping[str, str],
        allowed: Sequence[iam.PolicyStatement],
        handler: str = "handler.handler",
        concurrency: int | None = None,
        snap_start: bool = False,
        starts_itself: bool = False,
        attempts: int | None = None,
    ) -> None:
        """`starts_itself`: Lambda would end that after 16 times, for a mistake.
        `attempts`: of an invocation that nobody waits for; None: three, as Lambda has it."""
        super().__init__(scope, camel_case(name))
        self.seconds = seconds
        self.log_group = logs.LogGroup(
            self, "Logs", retention=LOGS[plan.stage], removal_policy=plan.removal
        )
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What the function {name} of {plan.name} may do",
        )
        self.log_group.grant_write(role)
        for statement in allowed:
            role.add_to_policy(statement)
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"{plan.name} {name}",
            runtime=assets.runtime,
            architecture=assets.architecture,
            code=assets.code(name),
            layers=assets.layers(name),
            handler=handler,
            timeout=cdk.Duration.seconds(seconds),
            memory_size=megabytes,
            environment={**COMMON, "POWERTOOLS_SERVICE_NAME": plan.name, **environment},
            role=role,
            log_group=self.log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE,
            reserved_concurrent_executions=concurrency,
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if starts_itself else None,
            retry_attempts=None if attempts is None else attempts - 1,
        )
        resource = self.function.node.default_child
        assert isinstance(resource, cdk.CfnResource)
        resource.override_logical_id(logical_id(name))
        acknowledge(self.function, PUBLISH, "The alias behind the URL publishes a version.")
        acknowledge(role, f"{WILDCARD}[Resource::*]", "X-Ray knows no resource to send traces to.")

    def url(self, mode: lambda_.InvokeMode) -> str:
        """A URL that is open to all: see `tailrace.aws.edge.origin_guard` for who is let in."""
        alias = lambda_.Alias(
            self, "Alias", alias_name=ALIAS, version=self.function.current_version
        )
        return alias.add_function_url(
            auth_type=lambda_.FunctionUrlAuthType.NONE, invoke_mode=mode
        ).url


class Functions(Construct):
    """`http` answers with a length, `live` goes on."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        storage: Storage,
        secret: OriginSecret,
        access: AccessSecret | None,
        gateway: Gateway | None,
    ) -> None:
        super().__init__(scope, name)
        secrets = [each.secret_arn for each in (secret, access) if each is not None]
        table, bucket = storage.table.table_arn, storage.bucket
        bodies, segments = map(bucket.arn_for_objects, (BODIES, SEGMENTS))
        environment = {
            **ANSWERING,
            **protocols.cable(plan),
            **protocols.events(plan),
            **protocols.aviso(plan),
            "TAILRACE_TABLE": storage.table.table_name,
            "TAILRACE_BUCKET": storage.bucket.bucket_name,
            "TAILRACE_ORIGIN_SECRET": secret.id,
            "TAILRACE_ACCESS": plan.access,
            "TAILRACE_ACCESS_SECRET": "" if access is None else access.id,
            # What the sweep is to remove must not stay in caches for long.
            "TAILRACE_RETENTION": plan.retention or "",
            "TAILRACE_ALLOWED_ORIGINS": plan.allowed_origins,
        }
        # Transient broadcasts are in no log: `http` posts them itself.
        endpoint = {} if gateway is None else {"TAILRACE_CABLE_ENDPOINT": gateway.endpoint}
        posts = [] if gateway is None else [allow([BATCHES], table), gateway.manage()]
        self.http = Function(
            self,
            "http",
            plan=plan,
            assets=assets,
            seconds=HTTP_SECONDS,
            megabytes=HTTP_MEGABYTES,
            environment={**environment, **endpoint},
            allowed=[
                allow([*READ, *WRITE], table),
                allow(["s3:GetObject"], bodies, segments),
                allow(["s3:PutObject"], bodies),
                allow(["secretsmanager:GetSecretValue"], *secrets),
                *protocols.read_schema(plan),
                *posts,
            ],
            concurrency=plan.http_concurrency,
            snap_start=plan.snap_start,
        )
        self.live = Function(
            self,
            "live",
            plan=plan,
            assets=assets,
            handler="handler.app",
            seconds=LIVE_SECONDS,
            megabytes=LIVE_MEGABYTES,
            environment={**environment, "AWS_LAMBDA_EXEC_WRAPPER": "/opt/asgi-stream"},
            allowed=[
                allow(READ, table),
                allow(["s3:GetObject"], bodies, segments),
                allow(["secretsmanager:GetSecretValue"], *secrets),
                *protocols.read_schema(plan),
            ],
            concurrency=plan.live_concurrency,
        )
        for each in (self.http, self.live):
            acknowledge_objects(each, storage, BODIES, SEGMENTS)
        if gateway is not None:
            gateway.acknowledge(self.http)
        self.http_url = self.http.url(lambda_.InvokeMode.BUFFERED)
        self.live_url = self.live.url(lambda_.InvokeMode.RESPONSE_STREAM)


def acknowledge_objects(function: Function, storage: Storage, *objects: str) -> None:
    for each in objects:
        acknowledge(
            function,
            f"{WILDCARD}[Resource::{storage.bucket_finding}/{each}]",
            "Every large body, and every segment of history, is an object of its own.",
        )


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))
