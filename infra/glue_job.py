"""How a Glue job is deployed: with its own role, log groups and schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.deployment import Deployment
from infra.findings import acknowledge
from infra.lambda_function import (
    BODIES,
    COMMON_ENVIRONMENT,
    LOG_RETENTION,
    SEGMENTS,
    WILDCARD,
    allow,
)
from scripts.package_glue import GLUE_VERSION, ZIP, script

WORKER: Final = "G.1X"
"""4 processors, 16 GB. A worker holds one part of a stream at a time, so more workers do more than
larger ones."""

TIMEOUT: Final = cdk.Duration.hours(4)
"""Bounds the cost of a run that hangs. The next run continues where it was stopped."""

EXPORT: Final = "export/*"
"""Where `export-history` puts its files."""

DYNAMODB_EXPORTS: Final = "AWSDynamoDB/*"
"""Where DynamoDB puts an export of a table by default."""

NAMESPACES: Final = (COMMON_ENVIRONMENT["POWERTOOLS_METRICS_NAMESPACE"], "Glue")
"""The namespaces of the jobs' own metrics, and of those that Glue publishes with the job's role."""

DEFAULT_ARGUMENTS: Final = {
    "--job-language": "python",
    # Jobs keep their progress in the table.
    "--job-bookmark-option": "job-bookmark-disable",
    # `number_of_workers` is then the maximum.
    "--enable-auto-scaling": "true",
    "--enable-metrics": "true",
    # Install only the uploaded wheels; fetch nothing from a package index.
    "--python-modules-installer-option": "--no-index",
    # Spark may spill bodies to its workers' disks.
    "--conf": "spark.io.encryption.enabled=true",
}


class GlueJob(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        deployment: Deployment,
        *,
        description: str,
        schedule: str | None,
        flags: Mapping[str, str],
        allowed: Sequence[iam.PolicyStatement],
        flex: bool = False,
    ) -> None:
        super().__init__(scope, name.title().replace("-", ""))
        plan, storage = deployment.plan, deployment.storage
        code, wheels = deployment.assets.file(script(name)), deployment.assets.file(ZIP)
        self.schedule = schedule
        self._key = name
        self._table = storage.table.table_name
        self.name = f"{plan.name}-{name}"
        self.log_prefix = f"/{plan.name}/{name}"
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("glue.amazonaws.com"),
            description=f"Role of the job {name} of {plan.name}",
        )
        groups = [
            # Glue dictates the names, so a retained group would block the next deployment.
            logs.LogGroup(
                self,
                kind.capitalize(),
                log_group_name=f"{self.log_prefix}/{kind}",
                retention=LOG_RETENTION[plan.stage.keeps_data],
                removal_policy=cdk.RemovalPolicy.DESTROY,
            ).log_group_arn
            for kind in ("output", "error")
        ]
        for statement in [
            *allowed,
            # As in AWS's managed policy for jobs, but limited to these two groups.
            allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], *groups),
            allow(["s3:GetObject"], code.arn, wheels.arn),
            iam.PolicyStatement(
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                conditions={"StringEquals": {"cloudwatch:namespace": list(NAMESPACES)}},
            ),
        ]:
            role.add_to_policy(statement)
        job = glue.CfnJob(
            self,
            "Job",
            name=self.name,
            description=description,
            role=role.role_arn,
            command=glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=code.url
            ),
            glue_version=GLUE_VERSION,
            worker_type=WORKER,
            number_of_workers=plan.history_workers,
            execution_class="FLEX" if flex else "STANDARD",
            # Two concurrent runs would be safe, but do the same work twice.
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            max_retries=0,
            timeout=TIMEOUT.to_minutes(),
            default_arguments={
                **DEFAULT_ARGUMENTS,
                "--additional-python-modules": wheels.url,
                "--custom-logGroup-prefix": self.log_prefix,
                "--table": storage.table.table_name,
                "--bucket": storage.bucket.bucket_name,
                "--region": cdk.Aws.REGION,
                **flags,
            },
        )
        job.node.add_dependency(role)
        if schedule is not None:
            glue.CfnTrigger(
                self,
                "Schedule",
                name=self.name,
                type="SCHEDULED",
                schedule=schedule,
                start_on_creation=True,
                actions=[glue.CfnTrigger.ActionProperty(job_name=job.ref)],
            )
        acknowledge(
            role,
            f"{WILDCARD}[Resource::*]",
            "CloudWatch metrics have a namespace, but no resource.",
        )
        for objects in (BODIES, SEGMENTS, EXPORT, DYNAMODB_EXPORTS):
            acknowledge(
                role,
                f"{WILDCARD}[Resource::{storage.bucket_finding}/{objects}]",
                "Every large body, segment and exported file is an object of its own.",
            )
        acknowledge(
            job, "AwsSolutions-GL1", "CloudWatch encrypts the logs itself, and they hold no bodies."
        )
        acknowledge(job, "AwsSolutions-GL3", "There are no bookmarks to encrypt.")

    def metric(
        self, name: str, statistic: str = "sum", period: cdk.Duration | None = None
    ) -> cloudwatch.Metric:
        """A metric that `glue_jobs.shared.job` publishes."""
        return cloudwatch.Metric(
            namespace=NAMESPACES[0],
            metric_name=name,
            dimensions_map={"job": self._key, "table": self._table},
            statistic=statistic,
            period=period,
        )
