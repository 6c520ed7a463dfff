"""The function behind the custom resources of containers: see `setup_function/index.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.findings import acknowledge
from infra.lambda_function import LOG_RETENTION, WILDCARD, allow
from infra.stage import Plan

CODE: Final = Path(__file__).parent / "setup_function"
SECONDS: Final = 60
ANSWER_MINUTES: Final = 30
"""How long CloudFormation waits for an answer, such as that of a build."""


class ContainerSetup(Construct):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=LOG_RETENTION[plan.stage.keeps_data],
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Builds the image of {plan.name}, and finds prefix lists",
        )
        log_group.grant_write(self.role)
        self.role.add_to_policy(allow(["ec2:DescribeManagedPrefixLists"], "*"))
        acknowledge(
            self.role,
            f"{WILDCARD}[Resource::*]",
            "EC2 has no resource-level permissions to describe prefix lists.",
        )
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"{plan.name} container setup",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            code=lambda_.Code.from_asset(str(CODE), exclude=["__pycache__"]),
            handler="index.handler",
            timeout=cdk.Duration.seconds(SECONDS),
            memory_size=256,
            role=self.role,
            log_group=log_group,
        )

    def prefix_list(self, scope: Construct, name: str, full_name: str) -> str:
        """The id of AWS's prefix list of a name, which differs between regions."""
        return self.resource(scope, f"{name}Addresses", "PrefixList", "Id", Name=full_name)

    def resource(
        self, scope: Construct, name: str, kind: str, attribute: str, **properties: str
    ) -> str:
        """An attribute of a custom resource."""
        return cdk.CustomResource(
            scope,
            name,
            service_token=self.function.function_arn,
            service_timeout=cdk.Duration.minutes(ANSWER_MINUTES),
            resource_type=f"Custom::{kind}",
            properties=properties,
        ).get_att_string(attribute)
