"""Action Cable and Aviso: what the functions have to know of the switches."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from infra.stage import Plan

EVENTS_PATH: Final = "/events"
"""The viewer function sends it to the origin that streams."""

LIFETIME: Final = "50"
"""Seconds that `live` streams: below the 60 that it may run."""

HEARTBEAT: Final = "10"


def cable(plan: Plan) -> dict[str, str]:
    """For everybody who answers clients."""
    flags = {
        "TAILRACE_TURBO_STREAMS": plan.turbo_streams,
        "TAILRACE_CABLE_READY": plan.cable_ready,
        "TAILRACE_STREAMS_WHISPER": plan.streams_whisper,
        "TAILRACE_STREAMS_PRESENCE": plan.streams_presence,
    }
    return {
        **{name: str(value).lower() for name, value in flags.items()},
        "TAILRACE_PING_INTERVAL": str(plan.ping_interval),
        "TAILRACE_CABLE_TTL": str(plan.cable_ttl),
    }


def events(plan: Plan) -> dict[str, str]:
    """For the functions behind URLs."""
    return {
        "TAILRACE_EVENTS_PATH": EVENTS_PATH if plan.events else "",
        "TAILRACE_EVENTS_LIFETIME": LIFETIME,
    }


def aviso(plan: Plan) -> dict[str, str]:
    """For the functions behind URLs."""
    if not plan.aviso:
        return {}
    own = {} if plan.domain is None else {"TAILRACE_AVISO_BASE_URL": f"https://{plan.domain}"}
    return {
        "TAILRACE_AVISO_SCHEMA": plan.aviso_schema or "",
        "TAILRACE_AVISO_ADMIN_ROLES": plan.aviso_admin_roles,
        "TAILRACE_AVISO_HEARTBEAT": HEARTBEAT,
        "TAILRACE_AVISO_MAX_DURATION": LIFETIME,
        **own,
    }


def read_schema(plan: Plan) -> list[iam.PolicyStatement]:
    """Leave to read the event types, where they are an object of somebody's own."""
    if not plan.aviso or plan.aviso_schema is None:
        return []
    arn = f"arn:{cdk.Aws.PARTITION}:s3:::{plan.aviso_schema.removeprefix('s3://')}"
    return [iam.PolicyStatement(actions=["s3:GetObject"], resources=[arn])]
