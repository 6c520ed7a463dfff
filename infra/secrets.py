"""The secrets: one shared by CloudFront and the functions, one that configures access."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.findings import acknowledge
from infra.stage import Plan

LENGTH: Final = 48


class OriginSecret(secretsmanager.Secret):
    """CloudFront sends it with every request, and the functions accept no request without it."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(
            scope,
            name,
            description=f"{plan.name}: proves to the functions that a request is CloudFront's",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=LENGTH, exclude_punctuation=True
            ),
        )
        self.id = secret_id(self)


class AccessSecret(secretsmanager.Secret):
    """A JSON object of access settings, created with a random `secret`; operators edit the rest."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(
            scope,
            name,
            description=f"{plan.name}: access settings",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template="{}",  # noqa: S106 - no fields but the generated one
                generate_string_key="secret",
                password_length=LENGTH,
                exclude_punctuation=True,
            ),
            removal_policy=plan.removal,
        )
        self.id = secret_id(self, "AccessSecret")
        acknowledge(
            self,
            "AwsSolutions-SMG4",
            "Applications that sign tokens need a new value before it takes effect.",
        )


class AccessControl(Construct):
    """The access secret, and the key-value store with its copy at the edge."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        self.secret = AccessSecret(self, "Secret", plan=plan)
        self.keys = cloudfront.KeyValueStore(
            self, "Keys", comment=f"{plan.name}: keys with which the edge verifies credentials"
        )


def secret_id(secret: secretsmanager.Secret, logical_id: str | None = None) -> str:
    """The secret's ARN by `GetAtt`: `Ref` is the ARN on AWS, but not on every local engine."""
    resource = secret.node.default_child
    assert isinstance(resource, secretsmanager.CfnSecret)
    if logical_id is not None:
        resource.override_logical_id(logical_id)
    return resource.attr_id
