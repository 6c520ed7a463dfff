"""How a Lambda function is deployed, and the permissions that functions and jobs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.deployment import Deployment
from infra.findings import acknowledge
from infra.names import camel_case, logical_id
from infra.storage import StorageStack

LOG_RETENTION: Final = {
    False: logs.RetentionDays.ONE_WEEK,
    True: logs.RetentionDays.THREE_MONTHS,
}
"""By whether the stage keeps data."""

ALIAS: Final = "current"
"""The alias behind each function URL: code, layers and settings change in one step."""

READ: Final = ("dynamodb:GetItem", "dynamodb:Query")
WRITE: Final = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem")
"""A transaction needs the permissions of its operations."""

BATCH_WRITE: Final = "dynamodb:BatchWriteItem"
WRITE_ALL: Final = (*WRITE, BATCH_WRITE, "dynamodb:ConditionCheckItem")

BODIES: Final = "bodies/*"
"""Where `tailrace.store.dynamodb` puts large bodies."""

SEGMENTS: Final = "segments/*"
"""Where jobs put segments."""

WILDCARD: Final = "AwsSolutions-IAM5"
PUBLISH: Final = "@aws-cdk/aws-lambda:snapStartRequirePublish"

COMMON_ENVIRONMENT: Final = {
    "POWERTOOLS_METRICS_NAMESPACE": "Tailrace",
    "TAILRACE_LOG_LEVEL": "info",
    # Empty means AWS. It is set because `sam local invoke` only replaces variables that exist.
    "TAILRACE_ENDPOINT_URL": "",
}


class LambdaFunction(Construct):
    """A function with its own role and log group."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        deployment: Deployment,
        *,
        seconds: int,
        megabytes: int,
        environment: Mapping[str, str],
        allowed: Sequence[iam.PolicyStatement],
        handler: str = "handler.handler",
        concurrency: int | None = None,
        snap_start: bool = False,
        invokes_itself: bool = False,
        attempts: int | None = None,
    ) -> None:
        """`invokes_itself`: turns off Lambda's loop detection, which stops the 16th invocation.
        `attempts`: how often Lambda tries an asynchronous invocation; None: three times."""
        super().__init__(scope, camel_case(name))
        plan, assets = deployment.plan, deployment.assets
        self.seconds = seconds
        self.log_group = logs.LogGroup(
            self,
            "Logs",
            retention=LOG_RETENTION[plan.stage.keeps_data],
            removal_policy=plan.removal,
        )
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Role of the function {name} of {plan.name}",
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
            environment={**COMMON_ENVIRONMENT, "POWERTOOLS_SERVICE_NAME": plan.name, **environment},
            role=role,
            log_group=self.log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            # Lambda would add two lines to each invocation, as long as the one that we write.
            system_log_level_v2=lambda_.SystemLogLevel.WARN,
            tracing=lambda_.Tracing.ACTIVE if plan.traces else lambda_.Tracing.DISABLED,
            reserved_concurrent_executions=concurrency,
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if invokes_itself else None,
            retry_attempts=None if attempts is None else attempts - 1,
        )
        resource = self.function.node.default_child
        assert isinstance(resource, cdk.CfnResource)
        resource.override_logical_id(logical_id(name))
        acknowledge(self.function, PUBLISH, "The alias behind the URL publishes a version.")
        if plan.traces:
            acknowledge(
                role,
                f"{WILDCARD}[Resource::*]",
                "X-Ray has no resource-level permissions for traces.",
            )

    def create_url(self, mode: lambda_.InvokeMode) -> str:
        """Create a public function URL; `tailrace.aws.edge.origin_guard` admits CloudFront only."""
        alias = lambda_.Alias(
            self, "Alias", alias_name=ALIAS, version=self.function.current_version
        )
        return alias.add_function_url(
            auth_type=lambda_.FunctionUrlAuthType.NONE, invoke_mode=mode
        ).url


def acknowledge_objects(function: LambdaFunction, storage: StorageStack, *objects: str) -> None:
    for pattern in objects:
        acknowledge(
            function,
            f"{WILDCARD}[Resource::{storage.bucket_finding}/{pattern}]",
            "Every large body and every segment is an object of its own.",
        )


def allow_invoking(
    scope: Construct, name: str, caller: LambdaFunction, *callees: LambdaFunction
) -> None:
    """In a separate policy: a function depends on the policies of its role, so one of them that
    named the function would be a cycle."""
    role = caller.function.role
    assert role is not None
    arns = [callee.function.function_arn for callee in callees]
    iam.Policy(scope, name, roles=[role], statements=[allow(["lambda:InvokeFunction"], *arns)])


def allow(actions: Sequence[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources))
