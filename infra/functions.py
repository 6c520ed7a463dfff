"""The Lambda functions: how each is made, and the two that answer requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.assets import Assets
from infra.findings import acknowledge
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

BODIES: Final = "bodies/*"
"""Where `tailrace.store.dynamo` puts large bodies."""

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
    ) -> None:
        super().__init__(scope, name.capitalize())
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
        )
        # What `sam local invoke` and people call it.
        resource = self.function.node.default_child
        assert isinstance(resource, cdk.CfnResource)
        resource.override_logical_id(f"{name.capitalize()}Function")
        acknowledge(self.function, PUBLISH, "The alias behind the URL publishes a version.")
        acknowledge(role, f"{WILDCARD}[Resource::*]", "X-Ray knows no resource to send traces to.")

    def url(self, mode: lambda_.InvokeMode) -> str:
        """A URL that is open to all: see `tailrace.aws.door` for who is let in."""
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
    ) -> None:
        super().__init__(scope, name)
        secrets = [each.secret_arn for each in (secret, access) if each is not None]
        table, bucket = storage.table.table_arn, storage.bucket
        bodies, segments = map(bucket.arn_for_objects, (BODIES, SEGMENTS))
        environment = {
            **ANSWERING,
            "TAILRACE_TABLE": storage.table.table_name,
            "TAILRACE_BUCKET": storage.bucket.bucket_name,
            "TAILRACE_ORIGIN_SECRET": secret.id,
            "TAILRACE_ACCESS": plan.access,
            "TAILRACE_ACCESS_SECRET": "" if access is None else access.id,
            # What the sweep is to remove must not stay in caches for long.
            "TAILRACE_RETENTION": plan.retention or "",
            "TAILRACE_ALLOWED_ORIGINS": plan.allowed_origins,
        }
        self.http = Function(
            self,
            "http",
            plan=plan,
            assets=assets,
            seconds=HTTP_SECONDS,
            megabytes=HTTP_MEGABYTES,
            environment=environment,
            allowed=[
                allow([*READ, *WRITE], table),
                allow(["s3:GetObject"], bodies, segments),
                allow(["s3:PutObject"], bodies),
                allow(["secretsmanager:GetSecretValue"], *secrets),
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
            ],
            concurrency=plan.live_concurrency,
        )
        for each in (self.http, self.live):
            for objects in (BODIES, SEGMENTS):
                acknowledge(
                    each,
                    f"{WILDCARD}[Resource::{storage.bucket_finding}/{objects}]",
                    "Every large body, and every segment of history, is an object of its own.",
                )
        self.http_url = self.http.url(lambda_.InvokeMode.BUFFERED)
        self.live_url = self.live.url(lambda_.InvokeMode.RESPONSE_STREAM)


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))
