"""The WebSocket API: its endpoint, and the permission to send to its connections."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.findings import acknowledge
from infra.stage import Plan
from infra.storage import StorageStack

STAGE: Final = "cable"
"""Also the path at CloudFront, which passes it on unchanged."""

LOGICAL_ID: Final = "CableApi"
"""Tools, and the findings of the security rules, use this id."""

METHODS: Final = ("POST", "DELETE")
"""On a connection: send a frame, disconnect."""


class WebSocketApi(Construct):
    """Created before the functions, which need its endpoint; its routes are added after them."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        stack = cdk.Stack.of(self)
        self.api = apigateway.WebSocketApi(
            self, "Api", api_name=plan.name, description="Action Cable"
        )
        resource = self.api.node.default_child
        assert isinstance(resource, cdk.CfnResource)
        resource.override_logical_id(LOGICAL_ID)
        self.id = self.api.api_id
        self.host = f"{self.id}.execute-api.{stack.region}.{stack.url_suffix}"
        self.endpoint = f"https://{self.host}/{STAGE}"

    def environment(self, storage: StorageStack) -> dict[str, str]:
        """For the functions that deliver messages to connections."""
        return {
            "TAILRACE_TABLE": storage.table.table_name,
            "TAILRACE_BUCKET": storage.bucket.bucket_name,
            "TAILRACE_CABLE_ENDPOINT": self.endpoint,
        }

    def allow_management(self) -> iam.PolicyStatement:
        stack = cdk.Stack.of(self)
        return iam.PolicyStatement(
            actions=["execute-api:ManageConnections"],
            resources=[
                stack.format_arn(
                    service="execute-api", resource=self.id, resource_name=_connections(method)
                )
                for method in METHODS
            ],
        )

    def acknowledge_management(self, function: Construct) -> None:
        """Acknowledge the wildcard of `allow_management`."""
        stack = cdk.Stack.of(self)
        region = _finding_text(stack.region, "Region")
        account = _finding_text(stack.account, "AccountId")
        for method in METHODS:
            arn = f"arn:<AWS::Partition>:execute-api:{region}:{account}:<{LOGICAL_ID}>"
            acknowledge(
                function,
                f"AwsSolutions-IAM5[Resource::{arn}/{_connections(method)}]",
                "Connection ids are only known at run time.",
            )


def _finding_text(value: str, name: str) -> str:
    """A value as the security rules write it: by name if it is only known at deployment."""
    return f"<AWS::{name}>" if cdk.Token.is_unresolved(value) else value


def _connections(method: str) -> str:
    return f"{STAGE}/{method}/@connections/*"
