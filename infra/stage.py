"""The plan of a deployment: the stage, and every switch that `cdk -c name=value` sets.

`docs/deploying.md` lists the switches with their defaults; a test compares them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aws_cdk as cdk

from infra import schedule
from infra.context import Context
from infra.names import CONTAINERS, PLACES
from infra.origin_shield import NEAREST, OFFERED
from scripts.package import Platform

EDGE_REGION: Final = "us-east-1"
"""CloudFront's firewalls, certificates and metrics are in this region, wherever the service is."""

PLATFORMS: Final[dict[str, Platform]] = {"lambda": "lambda", "host": "host"}
PRICE_CLASSES: Final = {"100": "PriceClass_100", "200": "PriceClass_200", "all": "PriceClass_All"}

CPUS: Final = ("256", "512", "1024")
"""More than one processor would be of no use to a server that has one event loop."""

CLIENT_SECONDS: Final = 25
"""The Python client of Durable Streams gives up a request after 30 s of silence by default."""

LONG_POLL_SECONDS: Final = 116
"""CloudFront waits for an origin for 120 s at most, and a cold start comes before the wait."""

PING_SECONDS: Final = 540
"""API Gateway closes a WebSocket that was idle for ten minutes."""

YEAR_SECONDS: Final = 365 * 86_400

_STAGE: Final = r"dev|prod|smoke[a-z0-9]{0,12}"
_REGION: Final = r"[a-z]{2}(-[a-z]+)+-\d"
_HOST: Final = r"([a-z0-9-]+\.)+[a-z0-9-]+"
_CERTIFICATE: Final = rf"arn:aws[a-z-]*:acm:{EDGE_REGION}:\d{{12}}:certificate/[0-9a-zA-Z-]+"
# Without the wildcards of the resource of a permission.
_OBJECT: Final = r"s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9!_.'()/-]+"
_EMAIL: Final = r"[^@\s]+@[^@\s]+"


@dataclass(frozen=True, slots=True)
class Stage:
    """A deployment's name. All but `prod` have the defaults of `dev`; `scripts/aws-smoke` makes and
    destroys stages whose names begin with `smoke`."""

    value: str

    @property
    def keeps_data(self) -> bool:
        """Whether `cdk destroy` keeps the data."""
        return self.value == "prod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stage and its parsed switches."""

    stage: Stage
    platform: Platform
    region: str | None
    """None: the region that the stacks are deployed to."""
    deletion_protection: bool
    snap_start: bool
    http_concurrency: int | None
    """None: no reserved concurrency."""
    wait_concurrency: int | None
    """None: no reserved concurrency."""
    live_concurrency: int | None
    """None: no reserved concurrency."""
    long_poll_timeout: int
    """How long a long-poll waits for data, in seconds."""
    live: str
    """`functions` or `containers`: what serves live reads, reads of many streams, and watches."""
    writes: str
    """`functions` or `containers`: what serves all requests that are not reads."""
    container_cpu: int
    """Of a container, in 1,024ths of a processor."""
    containers_min: int
    containers_max: int
    zones: tuple[str, ...]
    """The ids of the availability zones of the containers; empty: the first two of the region."""
    sse: str
    """`held`: each reader has an SSE response of its own; `shared`: readers share finite ones."""
    poll_fastest: float
    poll_slowest: float
    access: str
    """`closed`: requests need credentials; `open`: everybody may do everything."""
    firewall: bool
    rate_limit: int
    """Requests per minute from one address, of those that the edge cannot answer from its cache."""
    read_limit: int | None
    """All requests per minute from one address; None: no limit."""
    addresses: tuple[str, ...]
    """Client addresses that are allowed; empty: all."""
    allowed_origins: str
    """Web origins that are allowed; empty: all."""
    ds_path: str
    """The second mount of streams; empty: none."""
    console: bool
    """Whether browsers get the console at `/`."""
    subscriptions: bool
    cable: str
    """`true`: WebSockets come through API Gateway; `containers`: through CloudFront to the
    containers; `false`: there are none. The next six also apply to broadcasts and events, which
    work without any."""
    ping_interval: int
    turbo_streams: bool
    cable_ready: bool
    streams_whisper: bool
    streams_presence: bool
    cable_ttl: int
    events: bool
    """Whether cable messages are also served as server-sent events."""
    aviso: bool
    aviso_schema: str | None
    """An S3 object with the event types; None: the built-in ones."""
    aviso_admin_roles: str
    price_class: str
    origin_shield: str
    """`here`, `off`, or a region."""
    edge_metrics: bool
    traces: bool
    """Whether X-Ray samples invocations."""
    rotation_days: int | None
    """None: the origin secret is only rotated on demand."""
    domain: str | None
    certificate_arn: str | None
    alarm_email: str | None
    history: bool
    history_workers: int
    compact_schedule: str
    """`off`, `hourly`, `daily`, `weekly`, or a cron expression; also the next three."""
    export_schedule: str
    sweep_schedule: str
    audit_schedule: str
    sweep_dry_run: bool
    retention: str | None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Plan:
        """Parse the CDK context; raise SystemExit for an invalid switch."""
        context = Context(values)

        def schedule_of(name: str) -> str | None:
            return context.text(name, schedule.EXPECTED, schedule.PATTERN)

        stage = Stage(context.text("stage", "dev, prod or smoke", _STAGE) or "dev")
        prod = stage.keeps_data
        platform = PLATFORMS[context.choice("platform", "lambda", PLATFORMS)]
        cable = context.choice("cable", "true", ("true", "false", "containers"))
        # Presence, whispers and messages that are not stored stay within one process.
        together = cable == "containers"
        access = context.choice("access", "closed", ("closed", "open"))
        plan = cls(
            stage=stage,
            platform=platform,
            region=context.text("region", "an AWS region", _REGION)
            or os.environ.get("CDK_DEFAULT_REGION"),
            deletion_protection=context.flag("deletion_protection", stage.keeps_data),
            snap_start=context.flag("snap_start", platform == "lambda"),
            http_concurrency=context.count("http_concurrency", 300 if prod else 50) or None,
            wait_concurrency=context.count("wait_concurrency", 300 if prod else 50) or None,
            live_concurrency=context.count("live_concurrency", 200 if prod else 20) or None,
            live=context.choice("live", "functions", PLACES),
            writes=context.choice("writes", "functions", PLACES),
            container_cpu=int(context.choice("container_cpu", "512" if prod else "256", CPUS)),
            containers_min=context.count(
                "containers_min", 2 if prod and not together else 1, least=1
            ),
            containers_max=context.count(
                "containers_max", 1 if together else 10 if prod else 2, least=1
            ),
            zones=context.zones("zones"),
            sse=context.choice("sse", "held", ("held", "shared")),
            long_poll_timeout=context.count(
                "long_poll_timeout", CLIENT_SECONDS, least=1, most=LONG_POLL_SECONDS
            ),
            poll_fastest=context.setting("poll_fastest"),
            poll_slowest=context.setting("poll_slowest"),
            access=access,
            firewall=context.flag("firewall", True),
            rate_limit=context.count("rate_limit", 6000, least=10),
            read_limit=context.count("read_limit", 200_000) or None,
            addresses=context.networks("addresses"),
            allowed_origins=context.origins("allowed_origins"),
            ds_path=context.mount("ds_path", "/ds"),
            # Where everyone may do everything, a page to do it with is to be asked for.
            console=context.flag("console", access == "closed"),
            subscriptions=context.flag("subscriptions", True),
            cable=cable,
            ping_interval=context.count("ping_interval", 3, least=1, most=PING_SECONDS),
            turbo_streams=context.flag("turbo_streams", True),
            cable_ready=context.flag("cable_ready", False),
            streams_whisper=context.flag("streams_whisper", False),
            streams_presence=context.flag("streams_presence", True),
            cable_ttl=context.count("cable_ttl", 0, most=YEAR_SECONDS),
            events=context.flag("events", True),
            aviso=context.flag("aviso", True),
            aviso_schema=context.text("aviso_schema", "an object such as s3://bucket/key", _OBJECT),
            aviso_admin_roles=context.roles("aviso_admin_roles"),
            price_class=PRICE_CLASSES[
                context.choice("price_class", "all" if prod else "100", PRICE_CLASSES)
            ],
            origin_shield=context.text(
                "origin_shield", "here, off or an AWS region", f"here|off|{_REGION}"
            )
            or "here",
            edge_metrics=context.flag("edge_metrics", prod),
            traces=context.flag("traces", not prod),
            rotation_days=context.count("rotation_days", 30 if platform == "lambda" else 0) or None,
            domain=context.text("domain", "a host name", _HOST),
            certificate_arn=context.text(
                "certificate_arn", f"the ARN of a certificate in {EDGE_REGION}", _CERTIFICATE
            ),
            alarm_email=context.text("alarm_email", "an e-mail address", _EMAIL),
            history=context.flag("history", True),
            history_workers=context.count("history_workers", 10 if prod else 2, least=2),
            compact_schedule=schedule_of("compact_schedule") or "daily",
            export_schedule=schedule_of("export_schedule") or ("daily" if prod else "off"),
            sweep_schedule=schedule_of("sweep_schedule") or "daily",
            audit_schedule=schedule_of("audit_schedule") or ("weekly" if prod else "off"),
            sweep_dry_run=context.flag("sweep_dry_run", False),
            retention=context.retention("retention"),
        )
        context.reject_unknown()
        if (plan.domain is None) != (plan.certificate_arn is None):
            raise SystemExit("domain and certificate_arn belong together: give both or none")
        if plan.addresses and not plan.firewall:
            raise SystemExit("addresses needs the firewall: leave out firewall=false")
        plan.check_containers()
        plan.check_shield()
        return plan

    def check_containers(self) -> None:
        """Raise SystemExit if switches of containers contradict each other."""
        if self.writes == CONTAINERS and not self.containers:
            raise SystemExit("writes=containers needs live=containers")
        if self.cable == CONTAINERS and self.writes != CONTAINERS:
            raise SystemExit(
                "cable=containers needs live=containers and writes=containers: broadcasts must come"
                " to the process that has the clients"
            )
        if self.containers_min > self.containers_max:
            raise SystemExit("containers_min is greater than containers_max")

    def check_shield(self) -> None:
        """Raise SystemExit if CloudFront would refuse the region of the origin shield."""
        offered = f"choose one of {', '.join(OFFERED)}, or off: cdk … -c origin_shield=…"
        if self.origin_shield == "here":
            if self.region is not None and self.region not in NEAREST:
                raise SystemExit(f"no origin shield is known to be near {self.region}: {offered}")
        elif self.origin_shield != "off" and self.origin_shield not in OFFERED:
            raise SystemExit(f"{self.origin_shield} has no origin shield: {offered}")

    @property
    def containers(self) -> bool:
        """Whether there are containers."""
        return self.live == CONTAINERS

    @property
    def has_websocket_api(self) -> bool:
        """Whether there is a WebSocket API, with its functions."""
        return self.cable == "true"

    @property
    def name(self) -> str:
        return f"tailrace-{self.stage.value}"

    @property
    def environment(self) -> cdk.Environment:
        return cdk.Environment(account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=self.region)

    @property
    def edge_environment(self) -> cdk.Environment:
        """CloudFront's region; unknown if the region of the service is."""
        region = None if self.region is None else EDGE_REGION
        return cdk.Environment(account=self.environment.account, region=region)

    @property
    def removal(self) -> cdk.RemovalPolicy:
        """The removal policy of data on `cdk destroy`."""
        return cdk.RemovalPolicy.RETAIN if self.stage.keeps_data else cdk.RemovalPolicy.DESTROY

    @property
    def at_the_edge(self) -> bool:
        """Whether the service is in CloudFront's region, as far as that is known."""
        return self.region in (None, EDGE_REGION)
