"""What is deployed: the stage, and every switch that `cdk -c name=value` turns.

`docs/deploying.md` lists the switches with their defaults, and a test fails when it does not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import aws_cdk as cdk

from infra import schedule
from infra.context import Context
from scripts.package import Platform

EDGE_REGION: Final = "us-east-1"
"""Where CloudFront keeps firewalls, certificates and metrics, wherever the service is."""

PLATFORMS: Final[dict[str, Platform]] = {"lambda": "lambda", "host": "host"}
PRICE_CLASSES: Final = {"100": "PriceClass_100", "200": "PriceClass_200", "all": "PriceClass_All"}

PING_SECONDS: Final = 540
"""API Gateway ends a WebSocket on which nothing was said for ten minutes."""

YEAR_SECONDS: Final = 365 * 86_400

_REGION: Final = r"[a-z]{2}(-[a-z]+)+-\d"
_HOST: Final = r"([a-z0-9-]+\.)+[a-z0-9-]+"
_CERTIFICATE: Final = rf"arn:aws[a-z-]*:acm:{EDGE_REGION}:\d{{12}}:certificate/[0-9a-zA-Z-]+"
# Without characters that stand for others in the resource of a permission.
_OBJECT: Final = r"s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9!_.'()/-]+"
_EMAIL: Final = r"[^@\s]+@[^@\s]+"


class Stage(Enum):
    DEV = "dev"
    PROD = "prod"

    @property
    def keeps_data(self) -> bool:
        """Whether `cdk destroy` must leave the data alone."""
        return self is Stage.PROD


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stage and its switches, each as the stacks need it."""

    stage: Stage
    platform: Platform
    region: str | None
    """None: whichever the stacks are deployed to."""
    deletion_protection: bool
    snap_start: bool
    http_concurrency: int | None
    """None: what the account has left; so with the next."""
    live_concurrency: int | None
    access: str
    """`closed`: as credentials say; `open`: everybody may do everything."""
    firewall: bool
    rate_limit: int
    addresses: tuple[str, ...]
    """Who may come; empty: everybody."""
    allowed_origins: str
    """Whose pages may use it; empty: everybody's."""
    cable: bool
    """Whether Action Cable is served; the next six are about it, and about broadcasts and events,
    which need no WebSocket."""
    ping_interval: int
    turbo_streams: bool
    cable_ready: bool
    streams_whisper: bool
    streams_presence: bool
    cable_ttl: int
    events: bool
    """Whether cable messages are served as server-sent events, too."""
    aviso: bool
    aviso_schema: str | None
    """Where in S3 the event types are; None: those that come along."""
    aviso_admin_roles: str
    price_class: str
    origin_shield: str
    """`here`, `off`, or a region."""
    edge_metrics: bool
    rotation_days: int | None
    """None: the origin secret is rotated only when somebody asks for it."""
    domain: str | None
    certificate_arn: str | None
    alarm_email: str | None
    history: bool
    history_workers: int
    compact_schedule: str
    """`off`, `hourly`, `daily`, `weekly`, or an expression of AWS's; so with the next three."""
    export_schedule: str
    sweep_schedule: str
    audit_schedule: str
    sweep_dry_run: bool
    retention: str | None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Plan:
        """The plan, or an end that names the switch and the values it takes."""
        given = Context(values)

        def when(name: str) -> str | None:
            return given.text(name, schedule.WANTED, schedule.PATTERN)

        stage = Stage(given.choice("stage", "dev", [each.value for each in Stage]))
        prod = stage is Stage.PROD
        platform = PLATFORMS[given.choice("platform", "lambda", PLATFORMS)]
        plan = cls(
            stage=stage,
            platform=platform,
            region=given.text("region", "an AWS region", _REGION)
            or os.environ.get("CDK_DEFAULT_REGION"),
            deletion_protection=given.flag("deletion_protection", stage.keeps_data),
            snap_start=given.flag("snap_start", platform == "lambda"),
            http_concurrency=given.count("http_concurrency", 300 if prod else 50) or None,
            live_concurrency=given.count("live_concurrency", 500 if prod else 50) or None,
            access=given.choice("access", "closed", ("closed", "open")),
            firewall=given.flag("firewall", True),
            rate_limit=given.count("rate_limit", 6000, least=10),
            addresses=given.networks("addresses"),
            allowed_origins=given.origins("allowed_origins"),
            cable=given.flag("cable", True),
            ping_interval=given.count("ping_interval", 3, least=1, most=PING_SECONDS),
            turbo_streams=given.flag("turbo_streams", True),
            cable_ready=given.flag("cable_ready", False),
            streams_whisper=given.flag("streams_whisper", False),
            streams_presence=given.flag("streams_presence", True),
            cable_ttl=given.count("cable_ttl", 0, most=YEAR_SECONDS),
            events=given.flag("events", True),
            aviso=given.flag("aviso", True),
            aviso_schema=given.text("aviso_schema", "an object such as s3://bucket/key", _OBJECT),
            aviso_admin_roles=given.roles("aviso_admin_roles"),
            price_class=PRICE_CLASSES[
                given.choice("price_class", "all" if prod else "100", PRICE_CLASSES)
            ],
            origin_shield=given.text(
                "origin_shield", "here, off or an AWS region", f"here|off|{_REGION}"
            )
            or "here",
            edge_metrics=given.flag("edge_metrics", prod),
            rotation_days=given.count("rotation_days", 30 if platform == "lambda" else 0) or None,
            domain=given.text("domain", "a host name", _HOST),
            certificate_arn=given.text(
                "certificate_arn", f"the ARN of a certificate in {EDGE_REGION}", _CERTIFICATE
            ),
            alarm_email=given.text("alarm_email", "an e-mail address", _EMAIL),
            history=given.flag("history", True),
            history_workers=given.count("history_workers", 10 if prod else 2, least=2),
            compact_schedule=when("compact_schedule") or ("hourly" if prod else "daily"),
            export_schedule=when("export_schedule") or ("daily" if prod else "off"),
            sweep_schedule=when("sweep_schedule") or "daily",
            audit_schedule=when("audit_schedule") or ("weekly" if prod else "off"),
            sweep_dry_run=given.flag("sweep_dry_run", True),
            retention=given.retention("retention"),
        )
        given.end()
        if (plan.domain is None) != (plan.certificate_arn is None):
            raise SystemExit("domain and certificate_arn belong together: give both or none")
        if plan.addresses and not plan.firewall:
            raise SystemExit("addresses needs the firewall: leave out firewall=false")
        return plan

    @property
    def name(self) -> str:
        return f"tailrace-{self.stage.value}"

    @property
    def environment(self) -> cdk.Environment:
        return cdk.Environment(account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=self.region)

    @property
    def edge_environment(self) -> cdk.Environment:
        """Where CloudFront's own things are; unknown when the service's own place is."""
        region = None if self.region is None else EDGE_REGION
        return cdk.Environment(account=self.environment.account, region=region)

    @property
    def removal(self) -> cdk.RemovalPolicy:
        """What `cdk destroy` does with data."""
        return cdk.RemovalPolicy.RETAIN if self.stage.keeps_data else cdk.RemovalPolicy.DESTROY

    @property
    def at_the_edge(self) -> bool:
        """Whether the service is, as far as known, in the region of CloudFront's own things."""
        return self.region in (None, EDGE_REGION)
