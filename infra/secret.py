"""The secret between CloudFront and the functions."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

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
        resource = self.node.default_child
        assert isinstance(resource, secretsmanager.CfnSecret)
        self.id = resource.attr_id
        """Its ARN: what `Ref` gives on AWS, but not on every local engine."""
