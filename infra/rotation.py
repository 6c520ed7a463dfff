"""The function that rotates the origin secret, and its schedule."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.deployment import Deployment
from infra.distribution import Distribution
from infra.findings import acknowledge
from infra.lambda_function import LambdaFunction, allow

SECONDS: Final = 900
"""Lambda's maximum: a change of the distribution takes minutes to reach every edge location."""

MEGABYTES: Final = 256


class OriginSecretRotation(Construct):
    """Rotates the origin secret without a request being refused."""

    def __init__(
        self, scope: Construct, name: str, deployment: Deployment, *, distribution: Distribution
    ) -> None:
        super().__init__(scope, name)
        plan, secret, firewall = deployment.plan, deployment.origin_secret, deployment.firewall
        # CloudFront requires this permission to update a distribution that has a web ACL.
        read_firewall = [] if firewall is None else [allow(["wafv2:GetWebACL"], firewall)]
        self.rotate_secret = LambdaFunction(
            self,
            "rotate_secret",
            deployment,
            seconds=SECONDS,
            megabytes=MEGABYTES,
            environment={
                "TAILRACE_DISTRIBUTION": distribution.id,
                "TAILRACE_ORIGIN_SECRET": secret.id,
            },
            allowed=[
                allow(
                    [
                        "secretsmanager:DescribeSecret",
                        "secretsmanager:GetSecretValue",
                        "secretsmanager:PutSecretValue",
                        "secretsmanager:UpdateSecretVersionStage",
                    ],
                    secret.secret_arn,
                ),
                allow(
                    [
                        "cloudfront:GetDistribution",
                        "cloudfront:GetDistributionConfig",
                        "cloudfront:UpdateDistribution",
                    ],
                    distribution.arn,
                ),
                *read_firewall,
            ],
        )
        permission = lambda_.CfnPermission(
            self,
            "Permission",
            action="lambda:InvokeFunction",
            function_name=self.rotate_secret.function.function_arn,
            principal="secretsmanager.amazonaws.com",
            source_account=cdk.Aws.ACCOUNT_ID,
            source_arn=secret.secret_arn,
        )
        if plan.rotation_days is None:
            acknowledge(secret, "AwsSolutions-SMG4", "Rotation was turned off by rotation_days=0.")
            return
        secretsmanager.CfnRotationSchedule(
            self,
            "Schedule",
            secret_id=secret.secret_arn,
            rotation_lambda_arn=self.rotate_secret.function.function_arn,
            rotation_rules={"automaticallyAfterDays": plan.rotation_days},
        ).node.add_dependency(permission)
