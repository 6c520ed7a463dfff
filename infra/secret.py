"""The secrets: one between CloudFront and the functions, one that says who may do what."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.findings import acknowledge
from infra.stage import Plan

LENGTH: Final = 48


class OriginSecret(secretsmanager.Secret):
    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(
            scope,
            name,
            description=f"{plan.name}: what CloudFront shows to the functions",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=LENGTH, exclude_punctuation=True
            ),
        )
        self.id = _id(self)


class AccessSecret(secretsmanager.Secret):
    """A JSON object of access settings. The first one is made here; the rest is up to operators."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(
            scope,
            name,
            description=f"{plan.name}: who may do what",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template="{}",  # noqa: S106 - nothing beside the generated one
                generate_string_key="secret",
                password_length=LENGTH,
                exclude_punctuation=True,
            ),
            removal_policy=plan.removal,
        )
        self.id = _id(self, "AccessSecret")
        acknowledge(
            self, "AwsSolutions-SMG4", "Whoever signs has to know a new value before it counts."
        )


def _id(secret: secretsmanager.Secret, name: str | None = None) -> str:
    """Its ARN: what `Ref` gives on AWS, but not on every local engine."""
    resource = secret.node.default_child
    assert isinstance(resource, secretsmanager.CfnSecret)
    if name is not None:
        resource.override_logical_id(name)
    return resource.attr_id
