"""The synthesised storage stack: what a deployment would create."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Match, Template

from infra.app import build
from tailrace.store.dynamo.provision import table_definition


def synthesised(stage: str) -> Template:
    app = build(cdk.App(context={"stage": stage}))
    return Template.from_stack(app.node.find_child(f"tailrace-{stage}-storage"))  # type: ignore[arg-type]


def test_the_table_streams_and_can_be_recovered() -> None:
    synthesised("prod").has_resource_properties(
        "AWS::DynamoDB::GlobalTable",
        {
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": {"StreamViewType": "NEW_IMAGE"},
        },
    )


def test_the_table_is_the_one_that_the_store_would_create() -> None:
    wanted = table_definition("any")
    synthesised("dev").has_resource_properties(
        "AWS::DynamoDB::GlobalTable",
        {
            "KeySchema": wanted["KeySchema"],
            "AttributeDefinitions": Match.array_with(wanted["AttributeDefinitions"]),
            "GlobalSecondaryIndexes": wanted["GlobalSecondaryIndexes"],
            "BillingMode": wanted["BillingMode"],
        },
    )


@pytest.mark.parametrize(
    ("stage", "policy", "protected"), [("dev", "Delete", False), ("prod", "Retain", True)]
)
def test_only_prod_keeps_its_data(stage: str, policy: str, protected: bool) -> None:
    template = synthesised(stage)
    for kind in ("AWS::DynamoDB::GlobalTable", "AWS::S3::Bucket"):
        template.has_resource(kind, {"DeletionPolicy": policy})
    (table,) = template.find_resources("AWS::DynamoDB::GlobalTable").values()
    (replica,) = table["Properties"]["Replicas"]
    assert replica["DeletionProtectionEnabled"] is protected
    assert replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True


def test_the_bucket_is_private_and_takes_only_tls() -> None:
    template = synthesised("prod")
    template.has_resource_properties(
        "AWS::S3::Bucket",
        {
            "PublicAccessBlockConfiguration": {
                "BlockPublicAcls": True,
                "BlockPublicPolicy": True,
                "IgnorePublicAcls": True,
                "RestrictPublicBuckets": True,
            }
        },
    )
    (policy,) = template.find_resources("AWS::S3::BucketPolicy").values()
    statements: list[Any] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert any(
        statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for statement in statements
    )


def test_everything_is_tagged() -> None:
    (bucket,) = synthesised("dev").find_resources("AWS::S3::Bucket").values()
    tags = {tag["Key"]: tag["Value"] for tag in bucket["Properties"]["Tags"]}
    assert tags == {"application": "tailrace", "stage": "dev"}


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(SystemExit, match="dev or prod, not 'qa'"):
        synthesised("qa")
