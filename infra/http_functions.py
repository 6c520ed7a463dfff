"""The functions that answer HTTP requests: three, or one beside containers."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import protocols
from infra.deployment import Deployment
from infra.lambda_function import (
    BATCH_WRITE,
    BODIES,
    READ,
    SEGMENTS,
    WRITE,
    LambdaFunction,
    acknowledge_objects,
    allow,
)
from infra.stage import Plan
from tailrace.store.dynamodb.layout import WAIT_PERMITS

HTTP_SECONDS: Final = 30
"""Room for large bodies, retries and a cold start."""

WAIT_LEEWAY: Final = 3
"""How much longer than its long-polls `wait` may take, in seconds. A cold start does not count."""

LIVE_SECONDS: Final = 60
"""Room for an SSE response of 50 s and a cold start."""

HTTP_MEGABYTES: Final = 1024
"""More than half a processor: processing time is most of an append's latency."""

WAIT_MEGABYTES: Final = 256
LIVE_MEGABYTES: Final = 512
"""These functions mostly wait, and Lambda bills their memory for all of that time."""

NAMES: Final = "N*"
"""The partitions of the table with the names of streams, which have the clocks of their TTLs."""

MISSING_PART: Final = 2
"""One in so many executions may wait for a stream that does not exist."""

MISSING_WAITS: Final = 100
"""The same where no concurrency is reserved."""

SERVER_ENVIRONMENT: Final = {
    # A Lambda payload has at most 6 MB, and base64 makes four bytes of three.
    "TAILRACE_MAX_BODY_BYTES": str(3 << 20),
    "TAILRACE_CHUNK_BYTES": str(1 << 20),
    "TAILRACE_SSE_LIFETIME": "50",
    # The distribution has it from a bucket.
    "TAILRACE_CONSOLE": "false",
}


class HttpFunctions(Construct):
    """`http` serves buffered responses, `wait` long-polls, and `live` streams; containers take the
    place of the last two."""

    wait: LambdaFunction | None = None
    live: LambdaFunction | None = None
    wait_url: str = ""
    live_url: str = ""

    def __init__(self, scope: Construct, name: str, deployment: Deployment) -> None:
        super().__init__(scope, name)
        plan, storage = deployment.plan, deployment.storage
        websocket_api = deployment.websocket_api
        table, bucket = storage.table.table_arn, storage.bucket
        bodies, segments = map(bucket.arn_for_objects, (BODIES, SEGMENTS))
        streams = {
            **SERVER_ENVIRONMENT,
            **stream_environment(deployment),
            "TAILRACE_MISSING_WAITS": str(_missing_waits(plan)),
        }
        environment = {
            **streams,
            **protocols.cable_environment(plan),
            **protocols.events_environment(plan),
            **protocols.aviso_environment(plan),
        }
        # Transient broadcasts are never stored: `http` sends them to the connections itself.
        endpoint, broadcast = {}, []
        if websocket_api is not None:
            endpoint = {"TAILRACE_CABLE_ENDPOINT": websocket_api.endpoint}
            broadcast = [allow([BATCH_WRITE], table), websocket_api.allow_management()]
        subscriptions = []
        if deployment.subscription_keys is not None:
            keys = deployment.subscription_keys.secret_arn
            subscriptions = [
                allow([BATCH_WRITE], table),
                allow(["secretsmanager:GetSecretValue"], keys),
            ]
        self.http = LambdaFunction(
            self,
            "http",
            deployment,
            seconds=HTTP_SECONDS,
            megabytes=HTTP_MEGABYTES,
            environment={
                **environment,
                **endpoint,
                **protocols.subscription_environment(deployment),
            },
            allowed=[
                allow([*READ, *WRITE], table),
                allow(["s3:GetObject"], bodies, segments),
                allow(["s3:PutObject"], bodies),
                allow(["secretsmanager:GetSecretValue"], *deployment.secret_arns),
                *protocols.allow_reading_schema(plan),
                *broadcast,
                *subscriptions,
            ],
            concurrency=plan.http_concurrency,
            snap_start=plan.snap_start,
        )
        acknowledge_objects(self.http, storage, BODIES, SEGMENTS)
        if websocket_api is not None:
            websocket_api.acknowledge_management(self.http)
        self.http_url = self.http.create_url(lambda_.InvokeMode.BUFFERED)
        if not plan.containers:
            self._create_waiting(deployment, streams, environment)

    def _create_waiting(
        self, deployment: Deployment, streams: dict[str, str], environment: dict[str, str]
    ) -> None:
        """Create the functions that mostly wait."""
        plan, storage = deployment.plan, deployment.storage
        table, bucket = storage.table.table_arn, storage.bucket
        bodies, segments = map(bucket.arn_for_objects, (BODIES, SEGMENTS))
        shared = plan.sse == "shared"
        waiting = plan.long_poll_timeout + WAIT_LEEWAY
        waits = wait_environment(plan)
        reads = [
            allow(READ, table),
            allow(["s3:GetObject"], bodies, segments),
            allow(["secretsmanager:GetSecretValue"], *deployment.secret_arns),
        ]
        self.wait = LambdaFunction(
            self,
            "wait",
            deployment,
            seconds=waiting,
            megabytes=WAIT_MEGABYTES,
            environment={**streams, **waits},
            allowed=[*reads, allow_renewing(table), _allow_wait_permits(table)],
            concurrency=plan.wait_concurrency,
            snap_start=plan.snap_start,
        )
        self.live = LambdaFunction(
            self,
            "live",
            deployment,
            handler="handler.app",
            seconds=max(LIVE_SECONDS, waiting) if shared else LIVE_SECONDS,
            megabytes=LIVE_MEGABYTES,
            environment={
                **environment,
                **(waits if shared else {}),
                "TAILRACE_SSE_SHARED": str(shared).lower(),
                "AWS_LAMBDA_EXEC_WRAPPER": "/opt/asgi-stream",
            },
            allowed=[*reads, _allow_wait_permits(table), *protocols.allow_reading_schema(plan)],
            concurrency=plan.live_concurrency,
        )
        for function in (self.wait, self.live):
            acknowledge_objects(function, storage, BODIES, SEGMENTS)
        self.wait_url = self.wait.create_url(lambda_.InvokeMode.BUFFERED)
        self.live_url = self.live.create_url(lambda_.InvokeMode.RESPONSE_STREAM)


def stream_environment(deployment: Deployment) -> dict[str, str]:
    """For functions and containers that serve streams."""
    plan, storage = deployment.plan, deployment.storage
    return {
        "TAILRACE_DS_PATH": plan.ds_path,
        "TAILRACE_POLL_FASTEST": f"{plan.poll_fastest:g}",
        "TAILRACE_POLL_SLOWEST": f"{plan.poll_slowest:g}",
        "TAILRACE_TABLE": storage.table.table_name,
        "TAILRACE_BUCKET": storage.bucket.bucket_name,
        "TAILRACE_ORIGIN_SECRET": deployment.origin_secret.id,
        "TAILRACE_ACCESS": plan.access,
        "TAILRACE_ACCESS_SECRET": deployment.access_secret,
        # Data that the sweep is about to remove must not stay in caches for long.
        "TAILRACE_RETENTION": plan.retention or "",
        "TAILRACE_ALLOWED_ORIGINS": plan.allowed_origins,
    }


def wait_environment(plan: Plan) -> dict[str, str]:
    """For functions and containers whose responses wait, and are shared at the edge."""
    return {
        "TAILRACE_LONG_POLL_TIMEOUT": str(plan.long_poll_timeout),
        "TAILRACE_CURSOR_INTERVAL": str(plan.long_poll_timeout),
    }


def allow_renewing(table: str) -> iam.PolicyStatement:
    """Permission to store that a stream with a TTL was read."""
    return iam.PolicyStatement(
        actions=["dynamodb:UpdateItem"],
        resources=[table],
        conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [NAMES]}},
    )


def _missing_waits(plan: Plan) -> int:
    """A part of the concurrency of the smaller function: waits for streams that do not exist must
    leave room for those that do."""
    reserved = [each for each in (plan.wait_concurrency, plan.live_concurrency) if each is not None]
    return max(1, min(reserved, default=MISSING_WAITS * MISSING_PART) // MISSING_PART)


def _allow_wait_permits(table: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        actions=["dynamodb:UpdateItem", "dynamodb:DeleteItem"],
        resources=[table],
        conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [WAIT_PERMITS]}},
    )
