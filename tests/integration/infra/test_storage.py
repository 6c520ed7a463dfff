"""The table and the bucket that a deployment would create."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.store.dynamodb.provision import table_definition
from tests.integration.infra.conftest import stacks_of
from tests.integration.infra.stacks import Resource, Stacks

TABLE = "AWS::DynamoDB::GlobalTable"
BUCKET = "AWS::S3::Bucket"


def test_the_table_is_the_one_that_the_store_would_create(dev: Stacks) -> None:
    table, wanted = dev.only(TABLE), table_definition("any")
    for name in ("KeySchema", "GlobalSecondaryIndexes", "BillingMode"):
        assert table[name] == wanted[name]
    assert sorted(table["AttributeDefinitions"], key=str) == sorted(
        wanted["AttributeDefinitions"], key=str
    )


def test_the_table_streams_and_can_be_recovered(prod: Stacks) -> None:
    table = prod.only(TABLE)
    (replica,) = table["Replicas"]
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True


@pytest.mark.parametrize(
    ("stage", "policy", "protected"), [("dev", "Delete", False), ("prod", "Retain", True)]
)
def test_only_prod_keeps_its_data(stage: str, policy: str, protected: bool) -> None:
    stacks = stacks_of(stage)
    storage = stacks.templates[f"tailrace-{stage}-storage"]["Resources"].values()
    kept = {
        resource["Type"]: resource["DeletionPolicy"]
        for resource in storage
        if resource["Type"] in (TABLE, BUCKET)
    }
    (replica,) = stacks.only(TABLE)["Replicas"]
    assert kept == {TABLE: policy, BUCKET: policy}
    assert replica["DeletionProtectionEnabled"] is protected


def history(stacks: Stacks, kind: str) -> list[Resource]:
    """The resources of a kind that are about the bucket of history."""
    return [each for name, each in stacks.resources(kind).items() if name.startswith("History")]


def test_a_bucket_of_dev_is_emptied_so_that_it_can_be_removed(dev: Stacks, prod: Stacks) -> None:
    def emptied(stacks: Stacks) -> list[str]:
        return [name[:7] for name in stacks.resources("Custom::S3AutoDeleteObjects")]

    # The files of the console are those of the release in either stage.
    assert (emptied(dev), emptied(prod)) == (["History", "EdgeCon"], ["EdgeCon"])


def test_the_bucket_is_private_encrypted_and_takes_only_tls(prod: Stacks) -> None:
    (bucket,) = history(prod, BUCKET)
    assert bucket["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    }
    (encryption,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    statements: list[Any] = history(prod, "AWS::S3::BucketPolicy")[0]["PolicyDocument"]["Statement"]
    assert any(
        statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for statement in statements
    )


def test_objects_have_one_version_and_unfinished_uploads_go(prod: Stacks) -> None:
    (bucket,) = history(prod, BUCKET)
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    assert "VersioningConfiguration" not in bucket
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
