"""The switches: what `cdk -c name=value` takes, and what it says to anything else."""

from __future__ import annotations

import pytest

from infra.origin_shield import NEAREST, NEIGHBORS, OFFERED
from infra.stage import Plan, Stage


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDK_DEFAULT_REGION", raising=False)


def test_the_default_stage_is_dev() -> None:
    plan = Plan.read({})
    assert plan.stage == Stage("dev")
    assert plan.name == "tailrace-dev"
    assert plan.platform == "lambda"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stage": "qa"}, "stage must be dev, prod or smoke, not 'qa'"),
        ({"platform": "x86"}, "platform must be lambda or host, not 'x86'"),
        ({"region": "Ireland"}, "region must be an AWS region, not 'Ireland'"),
        ({"deletion_protection": "on"}, "deletion_protection must be true or false, not 'on'"),
        ({"snap_start": "maybe"}, "snap_start must be true or false, not 'maybe'"),
        ({"http_concurrency": "many"}, "http_concurrency must be a whole number, at least 0"),
        ({"live_concurrency": "-1"}, "live_concurrency must be a whole number, at least 0"),
        ({"wait_concurrency": "x"}, "wait_concurrency must be a whole number, at least 0"),
        ({"long_poll_timeout": "117"}, "long_poll_timeout must be a whole number, 1 to 116"),
        ({"sse": "on"}, "sse must be held or shared, not 'on'"),
        ({"poll_fastest": "0.001"}, "poll_fastest must be seconds, 0.005 to 60, not '0.001'"),
        ({"poll_slowest": "1 s"}, "poll_slowest must be seconds, 0.005 to 60, not '1 s'"),
        ({"access": "public"}, "access must be closed or open, not 'public'"),
        ({"firewall": "0"}, "firewall must be true or false, not '0'"),
        ({"rate_limit": "9"}, "rate_limit must be a whole number, at least 10, not '9'"),
        ({"read_limit": "none"}, "read_limit must be a whole number, at least 0, not 'none'"),
        ({"addresses": "10.0.0.1/8"}, "addresses must be addresses or networks such as"),
        ({"price_class": "300"}, "price_class must be 100 or 200 or all, not '300'"),
        ({"origin_shield": "true"}, "origin_shield must be here, off or an AWS region"),
        ({"edge_metrics": "1"}, "edge_metrics must be true or false, not '1'"),
        ({"traces": "some"}, "traces must be true or false, not 'some'"),
        ({"rotation_days": "monthly"}, "rotation_days must be a whole number, at least 0"),
        ({"domain": "https://a.b"}, "domain must be a host name, not 'https://a.b'"),
        (
            {"certificate_arn": "arn:aws:acm:eu-west-1:123456789012:certificate/0a"},
            "certificate_arn must be the ARN of a certificate in us-east-1",
        ),
        ({"alarm_email": "nobody"}, "alarm_email must be an e-mail address, not 'nobody'"),
        ({"history": "none"}, "history must be true or false, not 'none'"),
        ({"history_workers": "1"}, "history_workers must be a whole number, at least 2, not '1'"),
        ({"compact_schedule": "often"}, "compact_schedule must be off, hourly, daily, weekly or"),
        ({"export_schedule": "rate(1 day)"}, "export_schedule must be off, hourly, daily, weekly"),
        ({"sweep_schedule": "cron(0 3 * * ?)"}, "sweep_schedule must be off, hourly, daily, weekl"),
        ({"audit_schedule": "cron(* *)"}, "audit_schedule must be off, hourly, daily, weekly or"),
        ({"sweep_dry_run": "no"}, "sweep_dry_run must be true or false, not 'no'"),
        ({"allowed_origins": "a b,*c"}, "allowed_origins must be origins such as https://a.exam"),
        ({"ds_path": "ds/*"}, "ds_path must be empty or a path such as /ds, not 'ds/*'"),
        ({"cable": "on"}, "cable must be true or false or containers, not 'on'"),
        ({"live": "lambda"}, "live must be functions or containers, not 'lambda'"),
        ({"writes": "fargate"}, "writes must be functions or containers, not 'fargate'"),
        ({"container_cpu": "2048"}, "container_cpu must be 256 or 512 or 1024, not '2048'"),
        ({"containers_min": "0"}, "containers_min must be a whole number, at least 1, not '0'"),
        ({"containers_max": "x"}, "containers_max must be a whole number, at least 1, not 'x'"),
        ({"zones": "us-east-1a"}, "zones must be the ids of two availability zones such as use1"),
        ({"ping_interval": "541"}, "ping_interval must be a whole number, 1 to 540, not '541'"),
        ({"turbo_streams": "1"}, "turbo_streams must be true or false, not '1'"),
        ({"cable_ready": "1"}, "cable_ready must be true or false, not '1'"),
        ({"streams_whisper": "1"}, "streams_whisper must be true or false, not '1'"),
        ({"streams_presence": "1"}, "streams_presence must be true or false, not '1'"),
        ({"cable_ttl": "1h"}, "cable_ttl must be a whole number, 0 to 31536000, not '1h'"),
        ({"events": "/events"}, "events must be true or false, not '/events'"),
        ({"aviso": "1"}, "aviso must be true or false, not '1'"),
        ({"aviso_schema": "s3://a.b/*"}, "aviso_schema must be an object such as s3://bucket/key"),
        ({"aviso_admin_roles": "ops"}, "aviso_admin_roles must be roles by realm such as ops=admi"),
        ({"retention": "chat=30"}, "retention must be rules such as logs/*=7d,1GB; **=90d"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_an_invalid_value_of_a_switch_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        Plan.read(given)
    assert str(ended.value).startswith(said)
    assert str(ended.value).endswith(f"-c {next(iter(given))}=…")


@pytest.mark.parametrize(
    "given",
    [{"ping_interval": "0"}, {"aviso_schema": "types.yaml"}, {"aviso_schema": "s3://bucket"}],
    ids=str,
)
def test_a_value_out_of_bounds_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match=" must be "):
        Plan.read(given)


def test_a_switch_that_does_not_exist_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no switch 'fire_wall'; the switches are .*firewall"):
        Plan.read({"fire_wall": "false"})


def test_the_cdks_own_context_is_ignored() -> None:
    Plan.read({"@aws-cdk/core:x": True, "aws:cdk:y": 1, "availability-zones:account=1": []})


@pytest.mark.parametrize(
    "alone",
    [
        {"domain": "a.example.org"},
        {"certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/0a"},
    ],
    ids=["domain", "certificate"],
)
def test_a_domain_and_its_certificate_come_together(alone: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="domain and certificate_arn belong together"):
        Plan.read(alone)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"writes": "containers"}, "writes=containers needs live=containers"),
        (
            {"live": "containers", "cable": "containers"},
            "cable=containers needs live=containers and writes=containers",
        ),
        (
            {"live": "containers", "containers_min": "3"},
            "containers_min is greater than containers_max",
        ),
        ({"zones": "use1-az1,use1-az1"}, "zones must be the ids of two"),
    ],
    ids=str,
)
def test_containers_fit_together(given: dict[str, str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        Plan.read(given)


def test_cables_have_one_container_by_default() -> None:
    """Presence and whispers stay within one process."""
    given = {"stage": "prod", **dict.fromkeys(("live", "writes", "cable"), "containers")}
    plan = Plan.read(given)
    assert (plan.containers_min, plan.containers_max) == (1, 1)


def test_addresses_need_a_firewall() -> None:
    with pytest.raises(SystemExit, match="addresses needs the firewall"):
        Plan.read({"addresses": "203.0.113.7", "firewall": "false"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"region": "us-gov-west-1"}, "no origin shield is known to be near us-gov-west-1: choose"),
        ({"origin_shield": "eu-west-3"}, "eu-west-3 has no origin shield: choose one of ap-north"),
    ],
    ids=str,
)
def test_an_origin_shield_that_cloudfront_would_refuse(given: dict[str, str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        Plan.read(given)
    assert str(ended.value).startswith(said)
    assert Plan.read({"region": "us-gov-west-1", "origin_shield": "off"}).origin_shield == "off"


def test_every_shield_is_where_cloudfront_offers_one() -> None:
    assert set(NEAREST.values()) <= set(OFFERED)
    assert not NEIGHBORS.keys() & set(OFFERED)


def test_no_reservation_is_none() -> None:
    plan = Plan.read({"stage": "prod", "http_concurrency": "0", "live_concurrency": 0})
    assert (plan.http_concurrency, plan.live_concurrency) == (None, None)


def test_the_region_defaults_to_that_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Plan.read({}).at_the_edge
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")
    assert Plan.read({}).region == "eu-west-1"
    assert not Plan.read({}).at_the_edge
    assert Plan.read({"region": "us-east-1"}).at_the_edge


def test_values_from_a_file_may_be_of_their_own_type() -> None:
    plan = Plan.read({"firewall": False, "rate_limit": 100})
    assert (plan.firewall, plan.rate_limit) == (False, 100)
