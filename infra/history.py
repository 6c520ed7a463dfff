"""History: the Glue jobs that move it out of the table and keep it healthy."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_glue as glue
from constructs import Construct

from infra.assets import Assets
from infra.functions import BODIES, CHANGE, READ, SEGMENTS, allow
from infra.jobs import DYNAMODB_EXPORTS, EXPORT, Job
from infra.schedule import expression
from infra.stage import Plan
from infra.storage import Storage
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import DUE_INDEX

SCAN: Final = ("dynamodb:DescribeTable", "dynamodb:Scan", *READ)

DATA_TABLE: Final = "messages"
"""The export job makes it in the database, and adds to it."""

CATALOGUE: Final = (
    "glue:BatchCreatePartition",
    "glue:CreateTable",
    "glue:GetDatabase",
    "glue:GetTable",
    "glue:UpdateTable",
)


class History(Construct):
    def __init__(
        self, scope: Construct, name: str, *, plan: Plan, assets: Assets, storage: Storage
    ) -> None:
        super().__init__(scope, name)
        stack = cdk.Stack.of(self)
        self.database = plan.name.replace("-", "_")
        catalogue = [
            stack.format_arn(service="glue", resource=resource)
            for resource in (
                "catalog",
                f"database/{self.database}",
                f"table/{self.database}/{DATA_TABLE}",
            )
        ]
        glue.CfnDatabase(
            self,
            "Database",
            catalog_id=cdk.Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self.database, description=f"The history of {plan.name}"
            ),
        )
        table, bucket = storage.table.table_arn, storage.bucket
        bodies, segments, export, dynamodb_exports = map(
            bucket.arn_for_objects, (BODIES, SEGMENTS, EXPORT, DYNAMODB_EXPORTS)
        )
        index = f"{table}/index/{DUE_INDEX}"
        listing = allow(["s3:ListBucket"], bucket.bucket_arn)
        settings = Settings()
        grace = {"--trim-grace": str(settings.trim_grace)}
        self.compact = Job(
            self,
            "compact-history",
            plan=plan,
            assets=assets,
            storage=storage,
            does="Moves older entries from the table into segments in the bucket.",
            schedule=expression(plan.compact_schedule, hour=1, minute=7),
            flags={
                **grace,
                "--segment-max-messages": str(settings.segment_max_messages),
                "--segment-max-bytes": str(settings.segment_max_bytes),
                "--segment-target-bytes": str(settings.segment_target_bytes),
            },
            allowed=[
                allow([*SCAN, *CHANGE], table),
                allow(["s3:GetObject"], bodies, segments, dynamodb_exports),
                allow(["s3:PutObject"], segments),
                listing,
            ],
        )
        self.export = Job(
            self,
            "export-history",
            plan=plan,
            assets=assets,
            storage=storage,
            does="Writes history as Parquet, for Athena.",
            schedule=expression(plan.export_schedule, hour=2, minute=27),
            flags={"--database": self.database},
            allowed=[
                allow(["dynamodb:DescribeTable", *READ, "dynamodb:UpdateItem"], table),
                allow(["s3:GetObject"], segments, export),
                allow(["s3:PutObject", "s3:DeleteObject"], export),
                listing,
                allow(CATALOGUE, *catalogue),
            ],
            flex=True,
        )
        self.sweep = Job(
            self,
            "sweep",
            plan=plan,
            assets=assets,
            storage=storage,
            does="Removes what retention, deletions and ended grace periods have left to remove.",
            schedule=expression(plan.sweep_schedule, hour=3, minute=47),
            flags={
                **grace,
                "--dry-run": str(plan.sweep_dry_run).lower(),
                **({} if plan.retention is None else {"--retention": plan.retention}),
            },
            allowed=[
                allow([*SCAN, *CHANGE], table),
                allow(["dynamodb:Query"], index),
                allow(["s3:GetObject"], segments),
                allow(["s3:DeleteObject"], bodies, segments),
                listing,
            ],
        )
        self.audit = Job(
            self,
            "audit",
            plan=plan,
            assets=assets,
            storage=storage,
            does="Proves the whole store, and changes nothing.",
            schedule=expression(plan.audit_schedule, hour=5, minute=17),
            flags=grace,
            allowed=[
                allow(SCAN, table),
                allow(["s3:GetObject"], bodies, segments),
                listing,
            ],
            flex=True,
        )
        self.jobs = {
            "CompactHistory": self.compact,
            "ExportHistory": self.export,
            "Sweep": self.sweep,
            "Audit": self.audit,
        }
