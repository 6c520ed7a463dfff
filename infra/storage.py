"""The stack of the log: a table for entries, a bucket for large bodies and segments."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.findings import acknowledge
from infra.stage import Plan


class StorageStack(cdk.Stack):
    def __init__(self, scope: Construct, *, plan: Plan) -> None:
        super().__init__(
            scope,
            f"{plan.name}-storage",
            env=plan.environment,
            description="Tailrace: the log",
        )
        self.table = dynamodb.TableV2(
            self,
            "Log",
            # `tailrace.store.dynamodb.layout` documents the items and their keys.
            partition_key=_key("p"),
            sort_key=_key("s"),
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name="due",
                    partition_key=_key("g"),
                    sort_key=_key("d", dynamodb.AttributeType.NUMBER),
                    projection_type=dynamodb.ProjectionType.KEYS_ONLY,
                )
            ],
            billing=dynamodb.Billing.on_demand(),
            dynamo_stream=dynamodb.StreamViewType.NEW_IMAGE,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=plan.deletion_protection,
            removal_policy=plan.removal,
        )
        self.bucket = s3.Bucket(
            self,
            "History",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            # An upload that is unfinished after a day was abandoned.
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=cdk.Duration.days(1))
            ],
            removal_policy=plan.removal,
            # CloudFormation removes only empty buckets, and local engines cannot run the custom
            # resource that empties them.
            auto_delete_objects=not plan.stage.keeps_data and plan.platform == "lambda",
        )
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            "Only functions and jobs of this application access the objects, and they log it.",
        )
        self.bucket_finding = f"{self.stack_name}:ExportsOutputFnGetAttHistoryC127576EArnC54CDD58"
        """The bucket's ARN as the security rules write it: the name of CDK's export of it."""
        cdk.CfnOutput(self, "TableName", value=self.table.table_name)
        cdk.CfnOutput(self, "BucketName", value=self.bucket.bucket_name)


def _key(
    name: str, kind: dynamodb.AttributeType = dynamodb.AttributeType.STRING
) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=kind)
