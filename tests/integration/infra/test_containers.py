"""The containers of a deployment: their network, their roles, and how they are reached."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from infra.container_network import CLOUDFRONT, INTERFACES
from infra.containers import CONNECTIONS, IDLE_SECONDS, PORT, STOP_SECONDS
from infra.stage import CPUS
from tailrace.configuration import load_settings
from tailrace.limits import SSE_KEEP_ALIVE_SECONDS
from tailrace.server import KEEP_ALIVE_SECONDS
from tailrace.settings import Settings, variable
from tests.integration.infra.conftest import stacks_of
from tests.integration.infra.stacks import Resource, Stacks
from tests.integration.infra.test_edge import origins
from tests.integration.infra.test_functions import LOGS, WRITES, actions, resources
from tests.integration.infra.test_observe import alarms

LOGIN = "ecr:GetAuthorizationToken"
DESCRIBE = "ec2:DescribeManagedPrefixLists"
READS = {"dynamodb:GetItem", "dynamodb:Query", "s3:GetObject", "secretsmanager:GetSecretValue"}


@pytest.fixture(scope="module")
def reading() -> Stacks:
    """Containers that serve live reads only."""
    return stacks_of("containers")


@pytest.fixture(scope="module")
def writing() -> Stacks:
    """Containers that also serve writes and cables."""
    return stacks_of("contained")


@pytest.fixture(params=["containers", "contained"])
def each(request: pytest.FixtureRequest) -> Stacks:
    return stacks_of(request.param)


def role_of(stacks: Stacks, holder: Resource, name: str) -> list[Resource]:
    return stacks.allowed({"Role": holder[name]})


def task(stacks: Stacks) -> Resource:
    return stacks.only("AWS::ECS::TaskDefinition")


def container(stacks: Stacks) -> Resource:
    (found,) = task(stacks)["ContainerDefinitions"]
    server: Resource = found
    return server


def environment(stacks: Stacks) -> dict[str, Any]:
    return {each["Name"]: each["Value"] for each in container(stacks)["Environment"]}


# The network


def test_nothing_has_a_public_address_or_a_way_out(each: Stacks) -> None:
    network = each.only("AWS::ECS::Service")["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"
    assert each.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Scheme"] == "internal"
    for subnet in each.resources("AWS::EC2::Subnet").values():
        assert subnet["MapPublicIpOnLaunch"] is False
    for kind in ("NatGateway", "EIP", "Route", "EgressOnlyInternetGateway"):
        assert not each.resources(f"AWS::EC2::{kind}")


def test_an_internet_gateway_is_there_since_vpc_origins_ask_for_it(each: Stacks) -> None:
    """No route leads to it."""
    assert each.only("AWS::EC2::InternetGateway") is not None
    (origin,) = (
        resource
        for template in each.templates.values()
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::CloudFront::VpcOrigin"
    )
    (attachment,) = each.resources("AWS::EC2::VPCGatewayAttachment")
    assert attachment in origin["DependsOn"]


def test_services_are_reached_by_endpoints_only(reading: Stacks, writing: Stacks) -> None:
    for stacks, zones in ((reading, 2), (writing, 1)):
        endpoints = stacks.resources("AWS::EC2::VPCEndpoint").values()
        by_type = {"Interface": set[str](), "Gateway": set[str]()}
        for endpoint in endpoints:
            name = json.dumps(endpoint["ServiceName"]).rpartition('"')[0].rpartition('"')[2]
            service = name.removeprefix("com.amazonaws.us-east-1").lstrip(".")
            by_type[endpoint["VpcEndpointType"]].add(service)
            if endpoint["VpcEndpointType"] == "Interface":
                assert endpoint["PrivateDnsEnabled"] is True
                assert len(endpoint["SubnetIds"]) == zones
        assert by_type == {"Interface": set(INTERFACES), "Gateway": {"dynamodb", "s3"}}


def test_endpoints_lead_to_the_own_table_bucket_and_secrets_only(each: Stacks) -> None:
    narrow = {
        json.dumps(endpoint["ServiceName"]): endpoint["PolicyDocument"]["Statement"]
        for endpoint in each.resources("AWS::EC2::VPCEndpoint").values()
        if "PolicyDocument" in endpoint
    }
    assert len(narrow) == 3
    for (statement,) in narrow.values():
        assert statement["Effect"] == "Allow"
        assert "*" not in resources(statement)


def test_security_groups_open_as_little_as_possible(each: Stacks) -> None:
    """CloudFront to the load balancer to the containers to endpoints."""
    groups = each.resources("AWS::EC2::SecurityGroup")
    assert len(groups) == 3
    rules: list[tuple[str, int, str]] = []
    for kind, peer in (("Ingress", "Source"), ("Egress", "Destination")):
        for rule in each.resources(f"AWS::EC2::SecurityGroup{kind}").values():
            assert "CidrIp" not in rule
            assert "CidrIpv6" not in rule
            assert rule["FromPort"] == rule["ToPort"]
            assert {f"{peer}SecurityGroupId", f"{peer}PrefixListId"} & rule.keys()
            by = "list" if f"{peer}PrefixListId" in rule else "group"
            rules.append((kind, rule["FromPort"], by))
    assert sorted(rules) == [
        ("Egress", 443, "group"),
        ("Egress", 443, "list"),
        ("Egress", 443, "list"),
        ("Egress", PORT, "group"),
        ("Ingress", 80, "list"),
        ("Ingress", 443, "group"),
        ("Ingress", PORT, "group"),
    ]
    egress = json.dumps(list(each.resources("AWS::EC2::SecurityGroupEgress").values()))
    for name, group in groups.items():
        assert "SecurityGroupIngress" not in group
        # A group without any rule for what goes out would allow all of it.
        if f'"GroupId": {{"Fn::GetAtt": ["{name}"' not in egress:
            (nowhere,) = group["SecurityGroupEgress"]
            assert nowhere["CidrIp"] == "255.255.255.255/32"


def test_prefix_lists_are_found_by_the_names_of_services(each: Stacks) -> None:
    names = [json.dumps(one["Name"]) for one in each.resources("Custom::PrefixList").values()]
    assert len(names) == 3
    assert json.dumps(CLOUDFRONT) in names


def test_only_rejected_connections_are_logged(each: Stacks) -> None:
    assert each.only("AWS::EC2::FlowLog")["TrafficType"] == "REJECT"


# The origin


def test_cloudfront_comes_by_a_vpc_origin_with_the_secret(each: Stacks) -> None:
    origin = origins(each)["containers"]
    assert "CustomOriginConfig" not in origin
    assert origin["ConnectionAttempts"] == 1
    config = each.only("AWS::CloudFront::VpcOrigin")["VpcOriginEndpointConfig"]
    assert config["OriginProtocolPolicy"] == "http-only"
    assert config["HTTPPort"] == 80
    (header,) = origin["OriginCustomHeaders"]
    assert header["HeaderName"] == "x-tailrace-origin"
    assert "{{resolve:secretsmanager:" in json.dumps(header["HeaderValue"])


def test_cloudfront_waits_longer_than_containers_are_silent(each: Stacks) -> None:
    waits = origins(each)["containers"]["VpcOriginConfig"]["OriginReadTimeout"]
    assert waits > float(environment(each)["TAILRACE_LONG_POLL_TIMEOUT"])
    assert waits > 2 * SSE_KEEP_ALIVE_SECONDS
    assert waits > float(environment(each)["TAILRACE_PING_INTERVAL"])


def test_containers_take_the_place_of_the_functions_that_wait(
    reading: Stacks, writing: Stacks
) -> None:
    assert list(origins(reading)) == ["http", "containers", "cable", "console"]
    assert list(origins(writing)) == ["http", "containers"]
    assert not {"wait", "live", "cable"} & origins(writing).keys()
    for stacks in (reading, writing):
        functions = stacks.resources("AWS::Lambda::Function")
        assert not {"WaitFunction", "LiveFunction"} & functions.keys()


def test_cables_go_to_containers_only_if_a_switch_says_so(reading: Stacks, writing: Stacks) -> None:
    for stacks, wanted in ((reading, "cable"), (writing, "containers")):
        (behavior,) = (
            each
            for each in stacks.distribution["CacheBehaviors"]
            if each["PathPattern"] == "/cable"
        )
        assert behavior["TargetOriginId"] == wanted
    assert environment(reading)["TAILRACE_CABLE_PATH"] == ""
    assert environment(writing)["TAILRACE_CABLE_PATH"] == "/cable"
    assert not writing.resources("AWS::ApiGatewayV2::Api")
    assert "CableUrl" in writing.templates["tailrace-dev"]["Outputs"]


# The load balancer


def test_the_load_balancer_asks_for_health(each: Stacks) -> None:
    targets = each.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert targets["HealthCheckPath"] == "/health?process"
    assert (targets["Port"], targets["TargetType"]) == (PORT, "ip")
    attributes = {one["Key"]: one["Value"] for one in targets["TargetGroupAttributes"]}
    assert attributes["load_balancing.algorithm.type"] == "least_outstanding_requests"
    assert attributes["deregistration_delay.timeout_seconds"] == "30"


def test_a_server_keeps_idle_connections_longer_than_the_load_balancer(each: Stacks) -> None:
    """It could otherwise close one just when the load balancer uses it again."""
    balancer = each.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    attributes = {one["Key"]: one["Value"] for one in balancer["LoadBalancerAttributes"]}
    assert attributes["idle_timeout.timeout_seconds"] == str(IDLE_SECONDS)
    assert KEEP_ALIVE_SECONDS["container"] > IDLE_SECONDS


# The containers


def test_tasks_run_the_image_on_arm64_without_root_or_a_writable_disk(each: Stacks) -> None:
    assert task(each)["RuntimePlatform"]["CpuArchitecture"] == "ARM64"
    server = container(each)
    assert server["ReadonlyRootFilesystem"] is True
    assert not server.get("Privileged")
    assert "User" not in server  # That of the image.
    (limit,) = server["Ulimits"]
    assert limit["SoftLimit"] > max(CONNECTIONS.values())
    assert CONNECTIONS.keys() == {int(cpu) for cpu in CPUS}
    assert json.dumps(server["Image"]).count('"Tag"') == 1


def test_every_variable_is_a_setting_that_takes_the_value(each: Stacks) -> None:
    settings = {
        key: value
        for key, value in environment(each).items()
        if key.startswith("TAILRACE_") and isinstance(value, str)
    }
    assert settings.keys() <= {variable(setting) for setting in fields(Settings)}
    load_settings(settings)


def test_containers_write_only_if_a_switch_says_so(reading: Stacks, writing: Stacks) -> None:
    assert environment(reading)["TAILRACE_READ_ONLY"] == "true"
    assert environment(writing)["TAILRACE_READ_ONLY"] == "false"
    assert environment(reading)["TAILRACE_READ_ONLY_RENEWS"] == "true"


def test_responses_end_before_a_container_is_killed(each: Stacks) -> None:
    assert container(each)["StopTimeout"] == STOP_SECONDS
    assert float(environment(each)["TAILRACE_SHUTDOWN_GRACE"]) < STOP_SECONDS


def test_containers_are_replaced_without_a_gap(each: Stacks) -> None:
    configuration = each.only("AWS::ECS::Service")["DeploymentConfiguration"]
    assert configuration["MinimumHealthyPercent"] == 100
    assert configuration["DeploymentCircuitBreaker"] == {"Enable": True, "Rollback": True}


def test_containers_scale_by_processor_and_connections(reading: Stacks) -> None:
    target = reading.only("AWS::ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (2, 10)
    policies = [
        policy["TargetTrackingScalingPolicyConfiguration"]
        for policy in reading.resources("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    ]
    cpu, connections = sorted(policies, key=lambda policy: policy["TargetValue"])
    assert cpu["TargetValue"] == 60
    assert connections["TargetValue"] == CONNECTIONS[512]
    metric = connections["CustomizedMetricSpecification"]
    assert (metric["MetricName"], metric["Statistic"]) == ("connections_num", "Average")
    dimensions = {one["Name"]: one["Value"] for one in metric["Dimensions"]}
    assert dimensions == {"function": "containers", "service": "tailrace-prod"}
    assert environment(reading)["POWERTOOLS_SERVICE_NAME"] == "tailrace-prod"


# Roles


def test_containers_that_read_may_do_what_wait_and_live_may(reading: Stacks) -> None:
    statements = role_of(reading, task(reading), "TaskRoleArn")
    allowed = set[str]().union(*map(actions, statements))
    assert allowed == READS | {"dynamodb:UpdateItem"}
    (change,) = (one for one in statements if actions(one) & WRITES)
    assert change["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["N*"]}}


def test_containers_that_write_may_do_what_http_may(writing: Stacks) -> None:
    allowed = set[str]().union(*map(actions, role_of(writing, task(writing), "TaskRoleArn")))
    assert allowed == READS | WRITES | {"dynamodb:BatchWriteItem", "s3:PutObject"}


def test_no_role_has_a_wildcard_but_for_calls_without_resources(each: Stacks) -> None:
    definition = task(each)
    setup = next(
        one
        for name, one in each.resources("AWS::Lambda::Function").items()
        if name.startswith("ContainersSetup")
    )
    build = each.only("AWS::CodeBuild::Project")
    roles = {
        "task": role_of(each, definition, "TaskRoleArn"),
        "execution": role_of(each, definition, "ExecutionRoleArn"),
        "setup": each.allowed(setup),
        "build": role_of(each, build, "ServiceRole"),
    }
    for role, statements in roles.items():
        for statement in statements:
            assert not [action for action in actions(statement) if "*" in action]
            for resource in resources(statement):
                if actions(statement) in ({LOGIN}, {DESCRIBE}):
                    assert resource == "*"
                elif role == "task" and "s3:" in json.dumps(statement["Action"]):
                    assert resource["Fn::Join"][1][1] in ("/bodies/*", "/segments/*")
                else:
                    assert "*" not in json.dumps(resource), (role, statement)
    assert set[str]().union(*map(actions, roles["setup"])) == LOGS | {
        DESCRIBE,
        "codebuild:StartBuild",
    }


# The image


def test_the_image_is_built_from_what_the_dockerfile_copies(each: Stacks) -> None:
    source = each.only("AWS::CodeBuild::Project")["Source"]
    steps = json.loads(source["BuildSpec"])["phases"]["build"]["commands"]
    assert "docker build" in steps[0]
    assert each.only("AWS::CodeBuild::Project")["Environment"]["Type"] == "ARM_CONTAINER"
    repository = each.only("AWS::ECR::Repository")
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    tag = each.only("Custom::ContainerImage")["Tag"]
    assert len(tag) == 64
    assert tag in json.dumps(source["Location"])


def test_the_end_of_a_build_answers_cloudformation(each: Stacks) -> None:
    (rule,) = (
        one
        for name, one in each.resources("AWS::Events::Rule").items()
        if name.startswith("ContainersBuild")
    )
    assert rule["EventPattern"]["source"] == ["aws.codebuild"]
    assert set(rule["EventPattern"]["detail"]["build-status"]) >= {"SUCCEEDED", "FAILED"}
    assert int(each.only("Custom::ContainerImage")["ServiceTimeout"]) == 1800


# Alarms


def test_containers_have_alarms_in_place_of_those_of_functions(each: Stacks) -> None:
    names = alarms(each).keys()
    assert names >= {
        "ContainersUnhealthy",
        "ContainersMissing",
        "ContainersErrors",
        "ContainersBusy",
        "ContainersFull",
    }
    assert not {name for name in names if name.startswith(("Wait", "Live"))}
