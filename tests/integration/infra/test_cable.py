"""Action Cable: the WebSocket API, and the functions behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.infra.stacks import Resource, Stacks
from tests.integration.infra.test_access import run_every_minute
from tests.integration.infra.test_functions import CONNECTIONS, actions, resources, variables
from tests.integration.infra.test_history import text

API = {"Ref": "CableApi"}
ROUTES = {"$connect", "$disconnect", "$default"}
SWITCHES = {
    "TAILRACE_TURBO_STREAMS": ("true", "false"),
    "TAILRACE_CABLE_READY": ("false", "true"),
    "TAILRACE_STREAMS_WHISPER": ("false", "true"),
    "TAILRACE_STREAMS_PRESENCE": ("true", "false"),
    "TAILRACE_PING_INTERVAL": ("3", "30"),
    "TAILRACE_CABLE_TTL": ("0", "86400"),
}
"""The settings that switches turn, in `dev` and in `afar`."""


def of_the_api(stacks: Stacks, kind: str) -> dict[str, Resource]:
    found = stacks.resources(f"AWS::ApiGatewayV2::{kind}")
    assert all(properties["ApiId"] == API for properties in found.values())
    return found


# The API


def test_the_websocket_api_has_three_routes(dev: Stacks) -> None:
    assert dev.only("AWS::ApiGatewayV2::Api")["ProtocolType"] == "WEBSOCKET"
    routes = of_the_api(dev, "Route").values()
    assert {route["RouteKey"] for route in routes} == ROUTES
    assert len(routes) == len(ROUTES)
    assert {route["AuthorizationType"] for route in routes} == {"NONE"}


def test_every_route_leads_to_the_function(dev: Stacks) -> None:
    integrations = of_the_api(dev, "Integration")
    for route in of_the_api(dev, "Route").values():
        _, name = route["Target"]["Fn::Join"][1]
        integration = integrations[name["Ref"]]
        assert integration["IntegrationType"] == "AWS_PROXY"
        assert {"Fn::GetAtt": ["CableFunction", "Arn"]} in integration["IntegrationUri"][
            "Fn::Join"
        ][1]


def test_only_api_gateway_may_invoke_the_function_for_each_route(dev: Stacks) -> None:
    permissions = [
        permission
        for permission in dev.resources("AWS::Lambda::Permission").values()
        if permission["FunctionName"] == {"Fn::GetAtt": ["CableFunction", "Arn"]}
    ]
    assert {permission["Principal"] for permission in permissions} == {"apigateway.amazonaws.com"}
    sources = [permission["SourceArn"]["Fn::Join"][1] for permission in permissions]
    assert {source[-1] for source in sources} == {f"/*{route}" for route in ROUTES}
    assert all(API in source for source in sources)


def test_the_stage_deploys_by_itself_once_there_is_something_to_deploy(dev: Stacks) -> None:
    (name,) = of_the_api(dev, "Stage")
    stage = dev.templates["tailrace-dev"]["Resources"][name]
    assert stage["Properties"]["StageName"] == "cable"
    assert stage["Properties"]["AutoDeploy"] is True
    assert set(stage["DependsOn"]) >= of_the_api(dev, "Route").keys()


# What the functions know


def endpoint(stacks: Stacks, name: str) -> str | None:
    value = variables(stacks, name).get("TAILRACE_CABLE_ENDPOINT")
    return None if value is None else text(value)


def test_only_delivering_functions_get_the_endpoint(dev: Stacks, afar: Stacks) -> None:
    for stacks, region in ((dev, '<"AWS::Region">'), (afar, "eu-west-3")):
        wanted = f'https://<"CableApi">.execute-api.{region}.<"AWS::URLSuffix">/cable'
        for name in ("http", "cable", "heartbeat", "dispatch"):
            assert endpoint(stacks, name) == wanted
            assert variables(stacks, name).keys() >= {"TAILRACE_TABLE", "TAILRACE_BUCKET"}
        for name in ("live", "purge", "rotate_secret", "edge_keys"):
            assert endpoint(stacks, name) is None


def test_cable_gets_the_heartbeat_function_and_access_settings(dev: Stacks, afar: Stacks) -> None:
    known, http = variables(afar, "cable"), variables(afar, "http")
    assert known["TAILRACE_HEARTBEAT"] == {"Ref": "HeartbeatFunction"}
    for name in ("ORIGIN_SECRET", "ACCESS", "ACCESS_SECRET", "ALLOWED_ORIGINS"):
        assert known[f"TAILRACE_{name}"] == http[f"TAILRACE_{name}"]
    assert known["TAILRACE_ALLOWED_ORIGINS"]
    assert "TAILRACE_HEARTBEAT" not in variables(dev, "heartbeat")


@pytest.mark.parametrize("name", ["cable", "http", "live"])
def test_serving_functions_get_the_switches(dev: Stacks, afar: Stacks, name: str) -> None:
    for at, stacks in enumerate((dev, afar)):
        known = variables(stacks, name)
        assert known.items() >= {key: values[at] for key, values in SWITCHES.items()}.items()


def test_the_heartbeat_gets_the_ping_interval(dev: Stacks, afar: Stacks) -> None:
    for stacks, seconds in ((dev, "3"), (afar, "30")):
        assert variables(stacks, "heartbeat")["TAILRACE_PING_INTERVAL"] == seconds


@pytest.mark.parametrize("name", ["http", "live"])
def test_events_are_served_unless_turned_off(dev: Stacks, bare: Stacks, name: str) -> None:
    known = variables(dev, name)
    assert (known["TAILRACE_EVENTS_PATH"], known["TAILRACE_EVENTS_LIFETIME"]) == ("/events", "50")
    assert variables(bare, name)["TAILRACE_EVENTS_PATH"] == ""


# What they may


@pytest.mark.parametrize("name", ["http", "cable", "heartbeat", "dispatch"])
def test_delivering_functions_may_manage_connections_of_this_api(dev: Stacks, name: str) -> None:
    (statement,) = (each for each in dev.statements(name) if actions(each) == {CONNECTIONS})
    arn = 'arn:<"AWS::Partition">:execute-api:<"AWS::Region">:<"AWS::AccountId">:<"CableApi">'
    assert [text(resource) for resource in resources(statement)] == [
        f"{arn}/cable/{method}/@connections/*" for method in ("DELETE", "POST")
    ]


def objects(stacks: Stacks, name: str) -> set[str]:
    return {
        text(resource).rpartition(">/")[2]
        for statement in stacks.statements(name)
        if actions(statement) == {"s3:GetObject"}
        for resource in resources(statement)
    }


def test_only_functions_that_replay_may_read_segments(dev: Stacks) -> None:
    assert objects(dev, "cable") == {"bodies/*", "segments/*"}
    assert objects(dev, "dispatch") == {"bodies/*"}
    assert objects(dev, "heartbeat") == set()


def test_the_heartbeat_may_query_the_index_and_write_only_the_table(dev: Stacks) -> None:
    asked = [
        (actions(statement), text(resource))
        for statement in dev.statements("heartbeat")
        for resource in resources(statement)
        if any(action.startswith("dynamodb:") for action in actions(statement))
    ]
    index = [each for each in asked if each[1].endswith("/index/due")]
    assert [of for of, _ in index] == [{"dynamodb:Query"}]
    assert len(asked) == 2


# Who starts whom


def starts(stacks: Stacks, name: str) -> list[Any]:
    return [
        resource["Fn::GetAtt"][0]
        for statement in stacks.statements(name)
        if actions(statement) == {"lambda:InvokeFunction"}
        for resource in resources(statement)
    ]


def test_functions_may_invoke_themselves_and_cable_the_heartbeat(dev: Stacks) -> None:
    assert starts(dev, "cable") == ["CableFunction", "HeartbeatFunction"]
    assert starts(dev, "heartbeat") == ["HeartbeatFunction"]
    assert starts(dev, "dispatch") == ["DispatchFunction", "WebhooksFunction"]


def test_a_function_does_not_wait_for_the_policy_that_names_it(dev: Stacks) -> None:
    template = dev.templates["tailrace-dev"]["Resources"]
    for name in ("CableFunction", "HeartbeatFunction", "DispatchFunction"):
        for dependency in template[name]["DependsOn"]:
            assert name not in json.dumps(template[dependency])


def test_functions_that_start_their_successors_allow_recursion(dev: Stacks) -> None:
    allowed = {
        name
        for name, function in dev.resources("AWS::Lambda::Function").items()
        if function.get("RecursiveLoop") == "Allow"
    }
    assert allowed == {"CableFunction", "HeartbeatFunction", "WebhooksFunction"}


def test_the_heartbeat_is_started_every_minute_without_retries(dev: Stacks) -> None:
    assert run_every_minute(dev) == {"EdgeKeysFunction", "HeartbeatFunction", "WebhooksFunction"}
    configs = dev.resources("AWS::Lambda::EventInvokeConfig").values()
    assert {"Ref": "HeartbeatFunction"} in [each["FunctionName"] for each in configs]
    assert {each["MaximumRetryAttempts"] for each in configs} == {0}


# Without


def test_nothing_of_action_cable_is_deployed_without_it(bare: Stacks) -> None:
    whole = json.dumps(bare.templates)
    for what in (
        "ApiGateway",
        "execute-api",
        "CableFunction",
        "HeartbeatFunction",
        "DispatchFunction",
        "CABLE_ENDPOINT",
    ):
        assert what not in whole
    assert run_every_minute(bare) == set()
