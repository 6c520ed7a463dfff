"""The Glue jobs of a deployment: what each is, knows and may do, and when it runs."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import pytest
from aws_cdk import aws_glue as glue

from glue_jobs.shared.job import METRICS
from infra.schedule import hours_between
from scripts.package import ROOT
from scripts.package_glue import GLUE_VERSION, JOBS, script
from tailrace.settings import Settings
from tests.integration.infra.stacks import Resource, Stacks
from tests.integration.infra.test_functions import actions, resources
from tests.integration.infra.test_observe import HISTORY, alarms

TRIGGER = "AWS::Glue::Trigger"

LOGS = {"logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"}
METRIC = {"cloudwatch:PutMetricData"}
CODE = {"s3:GetObject"}
READ = {"dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan"}
CHANGE = {
    "dynamodb:BatchWriteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
}
MAY = {
    "compact-history": READ | CHANGE | {"s3:GetObject", "s3:ListBucket", "s3:PutObject"},
    "export-history": (READ - {"dynamodb:Scan"})
    | {
        "dynamodb:UpdateItem",
        "glue:BatchCreatePartition",
        "glue:CreateTable",
        "glue:GetDatabase",
        "glue:GetTable",
        "glue:UpdateTable",
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
    },
    "sweep": READ | CHANGE | {"s3:DeleteObject", "s3:GetObject", "s3:ListBucket"},
    "audit": READ | {"s3:GetObject", "s3:ListBucket"},
}
"""The permissions of each job, beside its code, its log and its metrics: all of them."""

OBJECTS: dict[str, dict[str, set[str]]] = {
    "compact-history": {
        "s3:GetObject": {"AWSDynamoDB", "bodies", "segments"},
        "s3:PutObject": {"segments"},
    },
    "export-history": {
        "s3:GetObject": {"export", "segments"},
        "s3:PutObject": {"export"},
        "s3:DeleteObject": {"export"},
    },
    "sweep": {"s3:GetObject": {"segments"}, "s3:DeleteObject": {"bodies", "segments"}},
    "audit": {"s3:GetObject": {"bodies", "segments"}},
}
"""Where in the bucket a job may do what."""


def text(value: Any) -> str:
    """A resource's ARN, or what there is of it."""
    if isinstance(value, str):
        return value
    ((how, parts),) = value.items()
    if how == "Fn::Join":
        return "".join(map(text, parts[1]))
    return f"<{json.dumps(parts)}>" if how != "Fn::Sub" else str(parts)


def arguments(stacks: Stacks, name: str) -> dict[str, Any]:
    given: dict[str, Any] = stacks.job(name)["DefaultArguments"]
    return given


def schedules(stacks: Stacks) -> dict[str, str]:
    return {
        trigger["Name"].split("-", 2)[2]: trigger["Schedule"]
        for trigger in stacks.resources(TRIGGER).values()
    }


def uploaded(stacks: Stacks, stack: str) -> dict[str, Resource]:
    """The files that the CDK uploads, by their keys in its bucket."""
    manifest = json.loads((stacks.folder / f"{stack}.assets.json").read_bytes())
    return {
        destination["objectKey"]: file["source"]
        for file in manifest["files"].values()
        for destination in file["destinations"].values()
    }


# What a job is


def test_there_are_four_jobs_with_names_that_people_know(dev: Stacks, prod: Stacks) -> None:
    for stage, stacks in (("dev", dev), ("prod", prod)):
        names = {job["Name"] for job in stacks.resources("AWS::Glue::Job").values()}
        assert names == {f"tailrace-{stage}-{job}" for job in JOBS}


def test_they_can_be_left_out(bare: Stacks) -> None:
    assert "AWS::Glue" not in json.dumps(bare.templates)
    assert "AWS::Events" not in json.dumps(bare.templates)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_on_the_glue_that_its_wheels_are_for(dev: Stacks, name: str) -> None:
    job = dev.job(name)
    assert job["GlueVersion"] == GLUE_VERSION
    assert f"V{GLUE_VERSION.replace('.', '_')}" in glue.GlueVersion.__members__
    assert job["WorkerType"] == "G.1X"
    assert job["Command"]["Name"] == "glueetl"


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_bounded(dev: Stacks, prod: Stacks, name: str) -> None:
    assert dev.job(name)["NumberOfWorkers"] == 2
    assert prod.job(name)["NumberOfWorkers"] == 10
    for stacks in (dev, prod):
        job = stacks.job(name)
        assert job["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
        assert job["MaxRetries"] == 0
        assert job["Timeout"] == 240
        assert arguments(stacks, name)["--enable-auto-scaling"] == "true"


def test_flexible_jobs_use_the_flex_execution_class(dev: Stacks) -> None:
    flexible = [name for name in JOBS if dev.job(name)["ExecutionClass"] == "FLEX"]
    assert flexible == ["export-history", "audit"]


def test_the_number_of_workers_is_a_switch(afar: Stacks) -> None:
    assert {afar.job(name)["NumberOfWorkers"] for name in JOBS} == {5}


# Its code


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_its_script_and_the_wheels(dev: Stacks, name: str) -> None:
    files = uploaded(dev, "tailrace-dev")
    code = text(dev.job(name)["Command"]["ScriptLocation"]).rpartition("/")[2]
    wheels = text(arguments(dev, name)["--additional-python-modules"]).rpartition("/")[2]
    assert files[code]["path"].endswith(f"/{script(name)}")
    # Glue goes by the end of the name.
    assert wheels.endswith(".gluewheels.zip")
    assert files[wheels]["packaging"] == "file"
    assert files[wheels]["path"].endswith(".gluewheels.zip")


@pytest.mark.parametrize("name", JOBS)
def test_no_package_is_fetched_from_an_index(dev: Stacks, name: str) -> None:
    assert arguments(dev, name)["--python-modules-installer-option"] == "--no-index"


# What it knows


@pytest.mark.parametrize("name", JOBS)
def test_a_job_gets_the_table_the_bucket_and_the_region(dev: Stacks, name: str) -> None:
    known = arguments(dev, name)
    assert "Log" in known["--table"]["Fn::ImportValue"]
    assert "History" in known["--bucket"]["Fn::ImportValue"]
    assert known["--region"] == {"Ref": "AWS::Region"}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_accepts_its_configured_flags(
    afar: Stacks, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of_glue = {
        "--additional-python-modules",
        "--conf",
        "--custom-logGroup-prefix",
        "--enable-auto-scaling",
        "--enable-metrics",
        "--job-bookmark-option",
        "--job-language",
        "--python-modules-installer-option",
    }
    with pytest.raises(SystemExit):
        importlib.import_module(f"glue_jobs.{script(name)[:-3]}").main(["--help"])
    told = capsys.readouterr().out.split()
    assert arguments(afar, name).keys() - of_glue <= set(told)


def test_compaction_has_the_defaults_of_the_settings(dev: Stacks) -> None:
    known, settings = arguments(dev, "compact-history"), Settings()
    for setting in (
        "trim_grace",
        "segment_max_messages",
        "segment_max_bytes",
        "segment_target_bytes",
    ):
        assert known[f"--{setting.replace('_', '-')}"] == str(getattr(settings, setting))


def test_the_sweep_removes_unless_configured(dev: Stacks, prod: Stacks, afar: Stacks) -> None:
    for stacks in (dev, prod):
        assert arguments(stacks, "sweep")["--dry-run"] == "false"
        assert "--retention" not in arguments(stacks, "sweep")
    assert arguments(afar, "sweep")["--dry-run"] == "true"
    assert arguments(afar, "sweep")["--retention"] == "chat/**=30d,1GB; **=forever"


def test_the_export_gets_its_database(dev: Stacks, prod: Stacks) -> None:
    for stage, stacks in (("dev", dev), ("prod", prod)):
        database = stacks.only("AWS::Glue::Database")["DatabaseInput"]["Name"]
        assert database == f"tailrace_{stage}"
        assert arguments(stacks, "export-history")["--database"] == database


@pytest.mark.parametrize("name", JOBS)
def test_bodies_on_the_disks_of_workers_are_encrypted(dev: Stacks, name: str) -> None:
    assert arguments(dev, name)["--conf"] == "spark.io.encryption.enabled=true"


# What it may do


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_exactly_the_listed_permissions(dev: Stacks, name: str) -> None:
    allowed = set[str]().union(*map(actions, dev.allowed(dev.job(name))))
    assert allowed == MAY[name] | CODE | LOGS | METRIC


@pytest.mark.parametrize("name", JOBS)
def test_a_job_reaches_only_its_part_of_the_bucket(dev: Stacks, name: str) -> None:
    found: dict[str, set[str]] = {}
    for statement in dev.allowed(dev.job(name)):
        for action in actions(statement) & {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}:
            for arn in map(text, resources(statement)):
                prefix, _, rest = arn.partition("/")
                if "assets" not in prefix:
                    found.setdefault(action, set()).add(rest.removesuffix("/*"))
                else:
                    assert action == "s3:GetObject"
                    assert "*" not in arn
                    found.setdefault(action, set())
    assert found == OBJECTS[name]


@pytest.mark.parametrize("name", JOBS)
def test_only_metrics_go_to_no_resource_in_particular(dev: Stacks, name: str) -> None:
    for statement in dev.allowed(dev.job(name)):
        if actions(statement) == METRIC:
            assert statement["Resource"] == "*"
            assert statement["Condition"] == {
                "StringEquals": {"cloudwatch:namespace": ["Tailrace", "Glue"]}
            }
        elif not any(action.startswith("s3:") for action in actions(statement)):
            assert "*" not in json.dumps(statement["Resource"]), statement


def test_the_export_reaches_only_its_own_table_of_the_catalogue(dev: Stacks) -> None:
    (statement,) = (
        statement
        for statement in dev.allowed(dev.job("export-history"))
        if "glue:GetTable" in actions(statement)
    )
    named = [text(arn).rpartition(":")[2] for arn in resources(statement)]
    assert named == ["catalog", "database/tailrace_dev", "table/tailrace_dev/messages"]


def test_the_export_may_change_only_its_catalogue_table() -> None:
    code = (ROOT / "glue_jobs/exporting/catalogue.py").read_text()
    called = {
        f"glue:{name.title().replace('_', '')}"
        for name in re.findall(r"self\._glue\.([a-z]+_[a-z_]+)", code)
    }
    granted = {action for action in MAY["export-history"] if action.startswith("glue:")}
    # The database is there before the job.
    assert called - {"glue:CreateDatabase"} == granted


def test_only_the_sweep_asks_the_index(dev: Stacks) -> None:
    asking = [name for name in JOBS if "/index/due" in json.dumps(dev.allowed(dev.job(name)))]
    assert asking == ["sweep"]


def test_every_job_has_a_role_of_its_own_without_managed_policies(dev: Stacks) -> None:
    roles = [dev.job(name)["Role"]["Fn::GetAtt"][0] for name in JOBS]
    assert len(set(roles)) == len(JOBS)
    for role in roles:
        properties = dev.resources("AWS::IAM::Role")[role]
        (trusted,) = properties["AssumeRolePolicyDocument"]["Statement"]
        assert trusted["Principal"] == {"Service": "glue.amazonaws.com"}
        assert "ManagedPolicyArns" not in properties
        assert "Policies" not in properties


@pytest.mark.parametrize("name", JOBS)
def test_a_job_writes_to_logs_that_do_not_grow_for_ever(prod: Stacks, name: str) -> None:
    prefix = arguments(prod, name)["--custom-logGroup-prefix"]
    groups = {
        group.get("LogGroupName"): group for group in prod.resources("AWS::Logs::LogGroup").values()
    }
    assert prefix == f"/tailrace-prod/{name}"
    for kind in ("output", "error"):
        assert groups[f"{prefix}/{kind}"]["RetentionInDays"] == 90


# When it runs


def test_dev_runs_few_jobs_by_schedule(dev: Stacks) -> None:
    assert schedules(dev) == {
        "compact-history": "cron(7 1 * * ? *)",
        "sweep": "cron(47 3 * * ? *)",
    }


def test_prod_keeps_up(prod: Stacks) -> None:
    assert schedules(prod) == {
        "compact-history": "cron(7 1 * * ? *)",
        "export-history": "cron(27 2 * * ? *)",
        "sweep": "cron(47 3 * * ? *)",
        "audit": "cron(17 5 ? * SUN *)",
    }
    for trigger in prod.resources(TRIGGER).values():
        assert trigger["StartOnCreation"] is True
        assert trigger["Type"] == "SCHEDULED"


def test_a_schedule_may_be_any_expression(afar: Stacks) -> None:
    assert schedules(afar)["compact-history"] == "cron(0 0/6 * * ? *)"


@pytest.mark.parametrize(
    ("expression", "hours"),
    [
        ("cron(7 * * * ? *)", 1),
        ("cron(0/15 * ? * * *)", 1),
        ("cron(7 1 * * ? *)", 24),
        ("cron(0 0/6 * * ? *)", 24),
        ("cron(7 1 ? * SUN *)", None),
        ("cron(7 1 1 * ? *)", None),
        ("cron(7 1 * 6 ? *)", None),
    ],
)
def test_a_schedule_says_when_a_run_is_late(expression: str, hours: int | None) -> None:
    assert hours_between(expression) == hours


# Who is told


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_three_runs_may_go_wrong(dev: Stacks, prod: Stacks, stage: str) -> None:
    found = alarms({"dev": dev, "prod": prod}[stage])
    for name in ("HistoryWaiting", "CompactionLate"):
        assert found[name]["Period"] == 86_400
        assert found[name]["EvaluationPeriods"] == 3
    late = found["CompactionLate"]
    assert (late["Threshold"], late["ComparisonOperator"]) == (1, "LessThanThreshold")


def test_alarms_use_metrics_that_the_jobs_publish(dev: Stacks) -> None:
    jobs = {"HistoryProblems": "audit"}
    for name in HISTORY:
        alarm = alarms(dev)[name]
        seen = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
        assert alarm["Namespace"] == "Tailrace"
        assert alarm["MetricName"] in METRICS
        assert seen.keys() == {"job", "table"}
        assert seen["job"] == jobs.get(name, "compact-history")
        assert "Log" in seen["table"]["Fn::ImportValue"]


def test_a_failed_run_is_reported_immediately(dev: Stacks) -> None:
    rules = dev.resources("AWS::Events::Rule").values()
    (rule,) = (rule for rule in rules if "EventPattern" in rule)
    (topic,) = dev.resources("AWS::SNS::Topic")
    (target,) = rule["Targets"]
    assert rule["EventPattern"] == {
        "source": ["aws.glue"],
        "detail-type": ["Glue Job State Change"],
        "detail": {
            "jobName": [f"tailrace-dev-{name}" for name in JOBS],
            "state": ["FAILED", "TIMEOUT", "ERROR"],
        },
    }
    assert target["Arn"] == {"Ref": topic}
    assert set(target["InputTransformer"]["InputPathsMap"].values()) == {
        "$.detail.jobName",
        "$.detail.state",
        "$.detail.message",
        "$.detail.jobRunId",
    }
