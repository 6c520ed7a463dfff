"""The WebSocket API: where it is, and who may write to those who are connected."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.findings import acknowledge
from infra.stage import Plan
from infra.storage import Storage

STAGE: Final = "cable"
"""Also the path at the edge, for CloudFront passes it on as it is."""

API: Final = "CableApi"
"""What people, and the findings of the security rules, call it."""

METHODS: Final = ("POST", "DELETE")
"""Of a connection: to say something on it, and to end it."""


class Gateway(Construct):
    """Made before the functions, which have to know where it is; its routes come after them."""

    def __init__(self, scope: Construct, name: str, *, plan: Plan) -> None:
        super().__init__(scope, name)
        stack = cdk.Stack.of(self)
        self.api = apigateway.WebSocketApi(
            self, "Api", api_name=plan.name, description="Action Cable"
        )
        resource = self.api.node.default_child
        assert isinstance(resource, cdk.CfnResource)
        resource.override_logical_id(API)
        self.id = self.api.api_id
        self.host = f"{self.id}.execute-api.{stack.region}.{stack.url_suffix}"
        self.endpoint = f"https://{self.host}/{STAGE}"

    def environment(self, storage: Storage) -> dict[str, str]:
        """For everybody who delivers."""
        return {
            "TAILRACE_TABLE": storage.table.table_name,
            "TAILRACE_BUCKET": storage.bucket.bucket_name,
            "TAILRACE_CABLE_ENDPOINT": self.endpoint,
        }

    def manage(self) -> iam.PolicyStatement:
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

    def acknowledge(self, function: Construct) -> None:
        """That `manage` is about every connection."""
        stack = cdk.Stack.of(self)
        region = _shown(stack.region, "Region")
        account = _shown(stack.account, "AccountId")
        for method in METHODS:
            arn = f"arn:<AWS::Partition>:execute-api:{region}:{account}:<{API}>"
            acknowledge(
                function,
                f"AwsSolutions-IAM5[Resource::{arn}/{_connections(method)}]",
                "Who is connected is known by then only.",
            )


def _shown(value: str, name: str) -> str:
    """As the security rules write what is known only when it is deployed."""
    return f"<AWS::{name}>" if cdk.Token.is_unresolved(value) else value


def _connections(method: str) -> str:
    return f"{STAGE}/{method}/@connections/*"
