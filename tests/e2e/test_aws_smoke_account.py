"""Checks of `scripts/aws-smoke` that ask an account; ministack has its logs, metrics and jobs.

The requests go to the local AWS. So this proves that the checks ask for the right things and read
the answers, and nothing about AWS.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from devtools.aws_smoke.findings import Finding, NotMeasured, Outcome
from devtools.aws_smoke.functions import measure_snapshots, measure_utilization
from devtools.aws_smoke.operations import measure_job, measure_rotation
from devtools.aws_smoke.target import Target
from devtools.engines.ministack import Ministack
from devtools.local_aws.environments import REGION
from devtools.local_aws.stack import AwsLocal
from devtools.processes import fresh_name
from tests.e2e.private import ACCESS


class Account:
    """An account on ministack."""

    def __init__(self, ministack: Ministack) -> None:
        self._url = ministack.url
        self.outputs: dict[str, str] = {}

    def client(self, service: str, region: str | None = None) -> Any:
        return boto3.client(
            service,
            endpoint_url=self._url,
            region_name=region or REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def output(self, name: str) -> str:
        return self.outputs[name]

    def log(self, output: str, *messages: str) -> None:
        """Create the log group of an output, with messages."""
        logs, group = self.client("logs"), fresh_name("group")
        logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName=group, logStreamName="s")
        now = int(time.time() * 1_000)
        events = [{"timestamp": now, "message": each} for each in messages]
        if events:
            logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=events)
        self.outputs[output] = group


@pytest.fixture
def account(ministack: Ministack) -> Account:
    return Account(ministack)


@pytest.fixture
def target(closed_local: AwsLocal, account: Account) -> Target:
    local = Target.from_local(closed_local, ACCESS["secret"].split()[0])
    return replace(local, account=account, pace=replace(local.pace, metrics=60))


def report(**metrics: float) -> str:
    return json.dumps({"type": "platform.report", "record": {"metrics": metrics}})


def passed(finding: Finding) -> Finding:
    assert finding.outcome is Outcome.PASS, finding
    return finding


def test_starts_are_read_from_the_logs(target: Target, account: Account) -> None:
    account.log("HttpLogGroup", report(restoreDurationMs=310.0), report(durationMs=4.0))
    account.log("WaitLogGroup", report(initDurationMs=410.0))
    account.log("LiveLogGroup", report(initDurationMs=720.0))
    numbers = passed(measure_snapshots(target)).numbers
    assert (numbers["restore_max_ms"], numbers["init_of_live_max_ms"]) == (310.0, 720.0)


def test_without_any_start_in_the_logs_nothing_is_measured(
    target: Target, account: Account
) -> None:
    account.log("HttpLogGroup", report(durationMs=4.0))
    account.log("WaitLogGroup")
    account.log("LiveLogGroup")
    with pytest.raises(NotMeasured, match="no report"):
        measure_snapshots(replace(target, pace=replace(target.pace, metrics=0)))


def test_the_utilization_is_read_from_the_metric_of_each_edge_function(
    target: Target, account: Account
) -> None:
    name = fresh_name("viewer-request")
    arn = f"arn:aws:cloudfront::000000000000:function/{name}"
    account.outputs["DistributionId"] = create_distribution(account, arn)
    account.client("cloudwatch", "us-east-1").put_metric_data(
        Namespace="AWS/CloudFront",
        MetricData=[
            {
                "MetricName": "FunctionComputeUtilization",
                "Dimensions": [
                    {"Name": "FunctionName", "Value": name},
                    {"Name": "Region", "Value": "Global"},
                ],
                "Value": 37.0,
                "Timestamp": datetime.now(UTC),
            }
        ],
    )
    finding = passed(measure_utilization(target))
    assert finding.numbers[f"{name} FunctionComputeUtilization"] == 37.0


def create_distribution(account: Account, function: str) -> str:
    association = {"EventType": "viewer-request", "FunctionARN": function}
    origin = {
        "Id": "http",
        "DomainName": "abc.lambda-url.us-east-1.on.aws",
        "CustomOriginConfig": {
            "HTTPPort": 80,
            "HTTPSPort": 443,
            "OriginProtocolPolicy": "https-only",
        },
    }
    created = account.client("cloudfront").create_distribution(
        DistributionConfig={
            "CallerReference": fresh_name("distribution"),
            "Comment": "",
            "Enabled": True,
            "Origins": {"Quantity": 1, "Items": [origin]},
            "DefaultCacheBehavior": {
                "TargetOriginId": "http",
                "ViewerProtocolPolicy": "https-only",
                "CachePolicyId": "658327ea-f89d-4fab-a63d-7e88639e58f6",
                "FunctionAssociations": {"Quantity": 1, "Items": [association]},
            },
        }
    )
    identifier: str = created["Distribution"]["Id"]
    return identifier


def test_a_run_of_the_job_is_followed_to_its_end(target: Target, account: Account) -> None:
    job = fresh_name("job")
    account.client("glue").create_job(
        Name=job, Role="role", Command={"Name": "glueetl", "ScriptLocation": "s3://any/job.py"}
    )
    account.outputs["CompactHistoryJobName"] = job
    assert passed(measure_job(target)).numbers["state"] == "SUCCEEDED"


def test_requests_go_on_while_the_secret_is_rotated(target: Target, account: Account) -> None:
    secrets = account.client("secretsmanager")
    secret = secrets.create_secret(Name=fresh_name("secret"), SecretString="one")["ARN"]
    account.outputs["OriginSecretArn"] = secret
    finding = passed(measure_rotation(target))
    assert finding.numbers["failed_requests"] == 0
