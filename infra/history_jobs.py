"""The Glue jobs that move entries into segments, export, sweep and audit them."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_glue as glue
from constructs import Construct

from infra.deployment import Deployment
from infra.glue_job import DYNAMODB_EXPORTS, EXPORT, GlueJob
from infra.lambda_function import BODIES, READ, SEGMENTS, WRITE_ALL, allow
from infra.schedule import cron_expression
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import DUE_INDEX

SCAN: Final = ("dynamodb:DescribeTable", "dynamodb:Scan", *READ)

CATALOGUE_TABLE: Final = "messages"
"""The table that the export job creates in the database and adds columns to."""

CATALOGUE_ACTIONS: Final = (
    "glue:BatchCreatePartition",
    "glue:CreateTable",
    "glue:GetDatabase",
    "glue:GetTable",
    "glue:UpdateTable",
)


class HistoryJobs(Construct):
    def __init__(self, scope: Construct, name: str, deployment: Deployment) -> None:
        super().__init__(scope, name)
        plan, storage = deployment.plan, deployment.storage
        stack = cdk.Stack.of(self)
        self.database = plan.name.replace("-", "_")
        catalogue = [
            stack.format_arn(service="glue", resource=resource)
            for resource in (
                "catalog",
                f"database/{self.database}",
                f"table/{self.database}/{CATALOGUE_TABLE}",
            )
        ]
        glue.CfnDatabase(
            self,
            "Database",
            catalog_id=cdk.Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self.database, description=f"Exported messages of {plan.name}"
            ),
        )
        table, bucket = storage.table.table_arn, storage.bucket
        bodies, segments, export, dynamodb_exports = map(
            bucket.arn_for_objects, (BODIES, SEGMENTS, EXPORT, DYNAMODB_EXPORTS)
        )
        index = f"{table}/index/{DUE_INDEX}"
        list_bucket = allow(["s3:ListBucket"], bucket.bucket_arn)
        settings = Settings()
        grace = {"--trim-grace": str(settings.trim_grace)}
        self.compact = GlueJob(
            self,
            "compact-history",
            deployment,
            description="Moves older entries from the table into segments in the bucket.",
            schedule=cron_expression(plan.compact_schedule, hour=1, minute=7),
            flags={
                **grace,
                "--segment-max-messages": str(settings.segment_max_messages),
                "--segment-max-bytes": str(settings.segment_max_bytes),
                "--segment-target-bytes": str(settings.segment_target_bytes),
            },
            allowed=[
                allow([*SCAN, *WRITE_ALL], table),
                allow(["s3:GetObject"], bodies, segments, dynamodb_exports),
                allow(["s3:PutObject"], segments),
                list_bucket,
            ],
        )
        self.export = GlueJob(
            self,
            "export-history",
            deployment,
            description="Exports segments as Parquet, for Athena.",
            schedule=cron_expression(plan.export_schedule, hour=2, minute=27),
            flags={"--database": self.database},
            allowed=[
                allow(["dynamodb:DescribeTable", *READ, "dynamodb:UpdateItem"], table),
                allow(["s3:GetObject"], segments, export),
                allow(["s3:PutObject", "s3:DeleteObject"], export),
                list_bucket,
                allow(CATALOGUE_ACTIONS, *catalogue),
            ],
            flex=True,
        )
        self.sweep = GlueJob(
            self,
            "sweep",
            deployment,
            description="Removes expired, deleted and orphaned data, and data past its retention.",
            schedule=cron_expression(plan.sweep_schedule, hour=3, minute=47),
            flags={
                **grace,
                "--dry-run": str(plan.sweep_dry_run).lower(),
                **({} if plan.retention is None else {"--retention": plan.retention}),
            },
            allowed=[
                allow([*SCAN, *WRITE_ALL], table),
                allow(["dynamodb:Query"], index),
                allow(["s3:GetObject"], segments),
                allow(["s3:DeleteObject"], bodies, segments),
                list_bucket,
            ],
        )
        self.audit = GlueJob(
            self,
            "audit",
            deployment,
            description="Verifies the whole store; changes nothing.",
            schedule=cron_expression(plan.audit_schedule, hour=5, minute=17),
            flags=grace,
            allowed=[
                allow(SCAN, table),
                allow(["s3:GetObject"], bodies, segments),
                list_bucket,
            ],
            flex=True,
        )
        self.jobs = {
            "CompactHistory": self.compact,
            "ExportHistory": self.export,
            "Sweep": self.sweep,
            "Audit": self.audit,
        }
