"""The functions of a deployment: what each is, knows and may do."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from infra.http_functions import SERVER_ENVIRONMENT
from infra.names import logical_id
from scripts.package import LAYERS, PYTHON_VERSION
from tailrace.configuration import load_settings
from tailrace.settings import Settings, variable
from tailrace.store.dynamodb.layout import name_key, wait_permit_key
from tests.integration.infra.stacks import Resource, Stacks

FUNCTIONS = list(LAYERS)

LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
TRACES = {"xray:PutTelemetryRecords", "xray:PutTraceSegments"}
CHANGE = {
    "dynamodb:BatchWriteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
}
CONNECTIONS = "execute-api:ManageConnections"
MAY = {
    "http": {
        "dynamodb:BatchWriteItem",
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "s3:GetObject",
        "s3:PutObject",
        "secretsmanager:GetSecretValue",
        CONNECTIONS,
    },
    "wait": {
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "s3:GetObject",
        "secretsmanager:GetSecretValue",
    },
    "live": {
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "s3:GetObject",
        "secretsmanager:GetSecretValue",
    },
    "cable": {
        *CHANGE,
        "lambda:InvokeFunction",
        "s3:GetObject",
        "secretsmanager:GetSecretValue",
        CONNECTIONS,
    },
    "heartbeat": {*CHANGE, "lambda:InvokeFunction", CONNECTIONS},
    "dispatch": {
        *CHANGE,
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
        "lambda:InvokeFunction",
        "s3:GetObject",
        "sqs:SendMessage",
        CONNECTIONS,
    },
    "webhooks": {
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "lambda:InvokeFunction",
        "secretsmanager:GetSecretValue",
    },
    "purge": {
        "cloudfront:CreateInvalidation",
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
        "sqs:SendMessage",
    },
    "rotate_secret": {
        "cloudfront:GetDistribution",
        "cloudfront:GetDistributionConfig",
        "cloudfront:UpdateDistribution",
        "secretsmanager:DescribeSecret",
        "secretsmanager:GetSecretValue",
        "secretsmanager:PutSecretValue",
        "secretsmanager:UpdateSecretVersionStage",
        "wafv2:GetWebACL",
    },
    "edge_keys": {
        "cloudfront-keyvaluestore:DescribeKeyValueStore",
        "cloudfront-keyvaluestore:ListKeys",
        "cloudfront-keyvaluestore:UpdateKeys",
        "secretsmanager:GetSecretValue",
    },
}
"""The permissions of each function, beside its log and its traces: all of them."""

WRITES = {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}


def deployed(stacks: Stacks) -> list[str]:
    return [
        name for name in FUNCTIONS if logical_id(name) in stacks.resources("AWS::Lambda::Function")
    ]


def actions(statement: Resource) -> set[str]:
    named = statement["Action"]
    return {named} if isinstance(named, str) else set(named)


def resources(statement: Resource) -> list[Any]:
    named = statement["Resource"]
    return named if isinstance(named, list) else [named]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_exactly_the_listed_permissions(dev: Stacks, name: str) -> None:
    allowed = set[str]().union(*(actions(statement) for statement in dev.statements(name)))
    assert allowed == MAY[name] | LOGS | TRACES


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_traces_go_to_no_resource_in_particular(dev: Stacks, name: str) -> None:
    for statement in dev.statements(name):
        for resource in resources(statement):
            if actions(statement) == TRACES:
                assert resource == "*"
            elif actions(statement) == {"s3:PutObject"}:
                assert resource["Fn::Join"][1][1] == "/bodies/*"
            elif actions(statement) == {"s3:GetObject"}:
                assert resource["Fn::Join"][1][1] in ("/bodies/*", "/segments/*")
            elif actions(statement) == {CONNECTIONS}:
                assert resource["Fn::Join"][1][-1] in (
                    "/cable/POST/@connections/*",
                    "/cable/DELETE/@connections/*",
                )
            else:
                assert "*" not in json.dumps(resource), statement


def test_without_cables_functions_have_fewer_permissions(bare: Stacks) -> None:
    allowed = set[str]().union(*map(actions, bare.statements("http"))) - LOGS - TRACES
    assert allowed == MAY["http"] - {"dynamodb:BatchWriteItem", CONNECTIONS}


def test_wait_may_only_change_names_and_permits(dev: Stacks) -> None:
    changes = [each for each in dev.statements("wait") if actions(each) & WRITES]
    assert [(actions(each), each["Condition"]) for each in changes] == [
        (
            {"dynamodb:UpdateItem"},
            {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["N*"]}},
        ),
        (
            {"dynamodb:UpdateItem", "dynamodb:DeleteItem"},
            {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["W"]}},
        ),
    ]
    assert name_key("a/b")["p"]["S"].startswith("N")
    assert wait_permit_key(1)["p"]["S"] == "W"


def test_live_may_only_change_permits(dev: Stacks) -> None:
    (change,) = (each for each in dev.statements("live") if actions(each) & WRITES)
    assert change["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["W"]}}


def test_without_a_firewall_no_function_may_read_one(bare: Stacks) -> None:
    assert "wafv2" not in json.dumps(bare.statements("rotate_secret"))


def test_few_functions_may_query_the_index(dev: Stacks) -> None:
    asking = {name for name in FUNCTIONS if "index" in json.dumps(dev.statements(name))}
    assert asking == {"heartbeat", "webhooks"}


def test_every_function_has_a_role_of_its_own_without_managed_policies(dev: Stacks) -> None:
    roles = [dev.function(name)["Role"]["Fn::GetAtt"][0] for name in FUNCTIONS]
    assert len(set(roles)) == len(FUNCTIONS)
    for role in roles:
        properties = dev.resources("AWS::IAM::Role")[role]
        assert "ManagedPolicyArns" not in properties
        assert "Policies" not in properties


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_runs_on_lambdas_python_and_cheaper_processor(dev: Stacks, name: str) -> None:
    function = dev.function(name)
    assert function["Runtime"] == f"python{PYTHON_VERSION}"
    assert function["Architectures"] == ["arm64"]
    assert len(function["Layers"]) == len(LAYERS[name])


@pytest.mark.parametrize(
    ("name", "handler", "seconds", "megabytes"),
    [
        ("http", "handler.handler", 30, 1024),
        ("live", "handler.app", 60, 512),
        ("cable", "handler.handler", 30, 512),
        ("heartbeat", "handler.handler", 300, 256),
        ("dispatch", "handler.handler", 60, 512),
        ("purge", "handler.handler", 60, 256),
        ("webhooks", "handler.handler", 120, 256),
        ("rotate_secret", "handler.handler", 900, 256),
        ("edge_keys", "handler.handler", 30, 256),
    ],
)
def test_a_function_is_bounded(
    dev: Stacks, name: str, handler: str, seconds: int, megabytes: int
) -> None:
    function = dev.function(name)
    assert function["Handler"] == handler
    assert function["Timeout"] == seconds
    assert function["MemorySize"] == megabytes


@pytest.mark.parametrize(("stage", "days"), [("dev", 7), ("prod", 90)])
def test_log_retention_depends_on_the_stage(
    dev: Stacks, prod: Stacks, stage: str, days: int
) -> None:
    stacks = {"dev": dev, "prod": prod}[stage]
    groups = stacks.resources("AWS::Logs::LogGroup")
    for name in FUNCTIONS:
        logging = stacks.function(name)["LoggingConfig"]
        assert groups[logging["LogGroup"]["Ref"]]["RetentionInDays"] == days


def test_only_dev_pays_for_traces(dev: Stacks, prod: Stacks) -> None:
    for name in FUNCTIONS:
        assert dev.function(name)["TracingConfig"] == {"Mode": "Active"}
        assert "TracingConfig" not in prod.function(name)
        assert not set[str]().union(*map(actions, prod.statements(name))) & TRACES


def test_lambda_adds_no_lines_to_the_log_of_an_invocation(dev: Stacks) -> None:
    for name in FUNCTIONS:
        assert dev.function(name)["LoggingConfig"]["SystemLogLevel"] == "WARN"


# Settings


def variables(stacks: Stacks, name: str) -> dict[str, Any]:
    found: dict[str, Any] = stacks.function(name)["Environment"]["Variables"]
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_variable_is_a_setting_that_takes_the_value(dev: Stacks, name: str) -> None:
    settings = {
        key: value
        for key, value in variables(dev, name).items()
        if key.startswith("TAILRACE_") and isinstance(value, str)
    }
    known = {variable(setting) for setting in fields(Settings)}
    assert settings.keys() <= known
    load_settings(settings)


def test_responses_end_before_the_functions_timeout(dev: Stacks) -> None:
    waits = float(variables(dev, "wait")["TAILRACE_LONG_POLL_TIMEOUT"])
    assert waits + 3 <= dev.function("wait")["Timeout"]
    known = variables(dev, "live")
    for name in ("SSE_LIFETIME", "EVENTS_LIFETIME", "AVISO_MAX_DURATION"):
        assert float(known[f"TAILRACE_{name}"]) + 5 <= dev.function("live")["Timeout"]


def test_bodies_and_chunks_fit_into_lambda_payloads() -> None:
    most = 6 * 1024 * 1024
    for name in ("TAILRACE_MAX_BODY_BYTES", "TAILRACE_CHUNK_BYTES"):
        assert int(SERVER_ENVIRONMENT[name]) * 4 / 3 < most
    # A chunk ends at the first entry past its size.
    together = int(SERVER_ENVIRONMENT["TAILRACE_MAX_BODY_BYTES"]) + int(
        SERVER_ENVIRONMENT["TAILRACE_CHUNK_BYTES"]
    )
    assert together * 4 / 3 < most


def test_serving_functions_get_the_table_the_bucket_and_the_secret(dev: Stacks) -> None:
    for name in ("http", "wait", "live", "cable"):
        known = variables(dev, name)
        assert known.items() >= (SERVER_ENVIRONMENT.items() if name != "cable" else {}.items())
        assert "Log" in known["TAILRACE_TABLE"]["Fn::ImportValue"]
        assert "History" in known["TAILRACE_BUCKET"]["Fn::ImportValue"]
        assert "OriginSecret" in known["TAILRACE_ORIGIN_SECRET"]["Fn::GetAtt"][0]


def test_waits_for_missing_streams_leave_room_for_others(dev: Stacks, prod: Stacks) -> None:
    for stacks in (dev, prod):
        waiting = ("wait", "live")
        least = min(stacks.function(name)["ReservedConcurrentExecutions"] for name in waiting)
        for name in waiting:
            assert int(variables(stacks, name)["TAILRACE_MISSING_WAITS"]) == least // 2


def test_only_live_streams(dev: Stacks) -> None:
    wrapped = {name: "AWS_LAMBDA_EXEC_WRAPPER" in variables(dev, name) for name in FUNCTIONS}
    assert [name for name in FUNCTIONS if wrapped[name]] == ["live"]
    assert variables(dev, "live")["AWS_LAMBDA_EXEC_WRAPPER"] == "/opt/asgi-stream"


def test_purge_and_rotate_secret_get_the_distribution(dev: Stacks) -> None:
    for name in ("purge", "rotate_secret"):
        assert variables(dev, name)["TAILRACE_DISTRIBUTION"] == {"Ref": "Distribution"}


# Concurrency and snapshots


def test_functions_of_readers_and_writers_have_separate_reserved_concurrency(
    dev: Stacks, prod: Stacks
) -> None:
    for name, small, large in (("http", 50, 300), ("wait", 50, 300), ("live", 20, 200)):
        assert dev.function(name)["ReservedConcurrentExecutions"] == small
        assert prod.function(name)["ReservedConcurrentExecutions"] == large


def test_reserved_concurrency_can_be_turned_off(bare: Stacks) -> None:
    for name in deployed(bare):
        assert "ReservedConcurrentExecutions" not in bare.function(name)


def test_pauses_between_polls_are_switches(dev: Stacks, bare: Stacks) -> None:
    pauses = ("TAILRACE_POLL_FASTEST", "TAILRACE_POLL_SLOWEST")
    for deployed, expected in ((dev, ["0.025", "0.25"]), (bare, ["0.05", "2"])):
        for name in ("http", "wait", "live"):
            assert [variables(deployed, name)[pause] for pause in pauses] == expected


def test_only_http_and_wait_have_snap_start(dev: Stacks, bare: Stacks) -> None:
    assert [name for name in FUNCTIONS if "SnapStart" in dev.function(name)] == ["http", "wait"]
    assert not [name for name in deployed(bare) if "SnapStart" in bare.function(name)]
