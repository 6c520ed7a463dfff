"""The deployment is the one whose costs are computed."""

from __future__ import annotations

import pytest

from infra.container_network import INTERFACES
from infra.containers import BUSY_PERCENT, CONNECTIONS, LIFETIME_SECONDS
from infra.stage import LONG_POLL_SECONDS
from tailrace.aws import costs
from tailrace.limits import SSE_KEEP_ALIVE_SECONDS
from tests.integration.infra.conftest import stacks_of
from tests.integration.infra.stacks import Stacks
from tests.integration.infra.test_edge import stream_behavior
from tests.integration.infra.test_firewall import ACL
from tests.integration.infra.test_functions import variables
from tests.integration.infra.test_history import schedules
from tests.integration.infra.test_observe import ALARM


def test_functions_have_the_memory_and_the_times(dev: Stacks) -> None:
    assert dev.function("http")["MemorySize"] == costs.HTTP_MEGABYTES
    assert dev.function("wait")["MemorySize"] == costs.WAIT_MEGABYTES
    assert variables(dev, "wait")["TAILRACE_LONG_POLL_TIMEOUT"] == str(costs.WAIT_SECONDS)
    assert costs.LONGEST_WAIT_SECONDS == LONG_POLL_SECONDS
    assert dev.function("live")["MemorySize"] == costs.LIVE_MEGABYTES
    assert dev.function("dispatch")["MemorySize"] == costs.DISPATCH_MEGABYTES
    assert dev.function("webhooks")["MemorySize"] == costs.WEBHOOKS_MEGABYTES
    assert dev.function("heartbeat")["MemorySize"] == costs.HEARTBEAT_MEGABYTES
    assert variables(dev, "live")["TAILRACE_SSE_LIFETIME"] == str(costs.SSE_SECONDS)
    assert variables(dev, "heartbeat")["TAILRACE_PING_INTERVAL"] == str(costs.PING_SECONDS)


def test_containers_have_the_size_and_the_times(prod: Stacks) -> None:
    """Of `prod`, where there are two of them and endpoints in both zones."""
    contained = stacks_of("containers")
    task = contained.only("AWS::ECS::TaskDefinition")
    assert int(task["Cpu"]) == costs.CONTAINER_PROCESSORS * 1024
    assert int(task["Memory"]) == costs.CONTAINER_GIGABYTES * 1024
    target = contained.only("AWS::ApplicationAutoScaling::ScalableTarget")
    assert target["MinCapacity"] == costs.CONTAINERS_MIN
    assert CONNECTIONS[int(task["Cpu"])] == costs.CONTAINER_CONNECTIONS
    assert costs.CONTAINER_BUSY * 100 == BUSY_PERCENT
    assert costs.CONTAINER_SECONDS == LIFETIME_SECONDS
    assert len(INTERFACES) == costs.INTERFACES
    assert costs.KEEP_ALIVE_SECONDS == SSE_KEEP_ALIVE_SECONDS
    endpoints = contained.resources("AWS::EC2::VPCEndpoint").values()
    zones = {len(each["SubnetIds"]) for each in endpoints if "SubnetIds" in each}
    assert zones == {costs.ZONES}
    # Beside them it is what it was.
    assert contained.function("http")["MemorySize"] == prod.function("http")["MemorySize"]


def test_requests_to_streams_run_as_many_functions_and_rules(dev: Stacks) -> None:
    streams = stream_behavior(dev)
    assert len(streams["FunctionAssociations"]) == costs.EDGE_FUNCTIONS
    assert len(dev.only(ACL)["Rules"]) == costs.FIREWALL_RULES


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_an_idle_deployment_has_as_many_alarms_and_runs(
    dev: Stacks, prod: Stacks, stage: str
) -> None:
    stacks = {"dev": dev, "prod": prod}[stage]
    assert len(stacks.resources(ALARM)) == costs.ALARMS[stage]
    assert schedules(stacks).keys() == costs.JOB_RUNS[stage].keys()
    daily = {job for job, cron in schedules(stacks).items() if cron.endswith("* * ? *)")}
    assert daily == {job for job, runs in costs.JOB_RUNS[stage].items() if runs == 30}
