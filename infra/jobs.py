"""How a Glue job is made: with a role, a log and a schedule of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.assets import Assets
from infra.findings import acknowledge
from infra.functions import BODIES, COMMON, LOGS, SEGMENTS, WILDCARD, allow
from infra.stage import Plan
from infra.storage import Storage
from scripts.package_glue import GLUE_VERSION, ZIP, script

WORKER: Final = "G.1X"
"""4 processors, 16 GB: a worker holds one piece of a stream at a time, so more do more."""

TIMEOUT: Final = cdk.Duration.hours(4)
"""A run that hangs costs money until then. One that is ended goes on with the next."""

EXPORT: Final = "export/*"
"""Where the exported history is."""

DYNAMODB_EXPORTS: Final = "AWSDynamoDB/*"
"""Where DynamoDB puts an export of a table unless told otherwise."""

NAMESPACES: Final = (COMMON["POWERTOOLS_METRICS_NAMESPACE"], "Glue")
"""The metrics of the jobs, and those that Glue publishes in their name."""

ARGUMENTS: Final = {
    "--job-language": "python",
    # What a job has done is in the table.
    "--job-bookmark-option": "job-bookmark-disable",
    # The number of workers is the most that there will be.
    "--enable-auto-scaling": "true",
    "--enable-metrics": "true",
    # The wheels are all there is: nothing is fetched from anywhere else.
    "--python-modules-installer-option": "--no-index",
    # Bodies that Spark puts onto its workers' disks.
    "--conf": "spark.io.encryption.enabled=true",
}


class Job(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        plan: Plan,
        assets: Assets,
        storage: Storage,
        does: str,
        schedule: str | None,
        flags: Mapping[str, str],
        allowed: Sequence[iam.PolicyStatement],
        flex: bool = False,
    ) -> None:
        super().__init__(scope, name.title().replace("-", ""))
        code, wheels = assets.file(script(name)), assets.file(ZIP)
        self.schedule = schedule
        self._key = name
        self._table = storage.table.table_name
        self.name = f"{plan.name}-{name}"
        self.log_prefix = f"/{plan.name}/{name}"
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("glue.amazonaws.com"),
            description=f"What the job {name} of {plan.name} may do",
        )
        groups = [
            # The names are Glue's, so one that stayed would be in the way of the next deployment.
            logs.LogGroup(
                self,
                kind.capitalize(),
                log_group_name=f"{self.log_prefix}/{kind}",
                retention=LOGS[plan.stage],
                removal_policy=cdk.RemovalPolicy.DESTROY,
            ).log_group_arn
            for kind in ("output", "error")
        ]
        for statement in [
            *allowed,
            # What AWS's own policy for jobs has, but of these two groups only.
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
            description=does,
            role=role.role_arn,
            command=glue.CfnJob.JobCommandProperty(
                name="glueetl", python_version="3", script_location=code.url
            ),
            glue_version=GLUE_VERSION,
            worker_type=WORKER,
            number_of_workers=plan.history_workers,
            execution_class="FLEX" if flex else "STANDARD",
            # Two at once would be safe, and pay twice for the same.
            execution_property=glue.CfnJob.ExecutionPropertyProperty(max_concurrent_runs=1),
            max_retries=0,
            timeout=TIMEOUT.to_minutes(),
            default_arguments={
                **ARGUMENTS,
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
        acknowledge(role, f"{WILDCARD}[Resource::*]", "Metrics have a namespace, no resource.")
        for objects in (BODIES, SEGMENTS, EXPORT, DYNAMODB_EXPORTS):
            acknowledge(
                role,
                f"{WILDCARD}[Resource::{storage.bucket_finding}/{objects}]",
                "Every large body, segment and exported file is an object of its own.",
            )
        acknowledge(
            job, "AwsSolutions-GL1", "CloudWatch encrypts the logs itself; they hold no bodies."
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
