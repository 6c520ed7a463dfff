"""Action Cable, Aviso and subscriptions as environment variables of the functions."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from infra.deployment import Deployment
from infra.stage import Plan

EVENTS_PATH: Final = "/events"
"""The viewer-request function routes this path to the streaming origin."""

LIFETIME: Final = "50"
"""Seconds that `live` streams: below its timeout of 60."""

HEARTBEAT: Final = "10"


def cable_environment(plan: Plan) -> dict[str, str]:
    """For the functions that serve clients: `http`, `live` and `cable`."""
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


def subscription_environment(deployment: Deployment) -> dict[str, str]:
    """For what serves the endpoints of subscriptions; without it they are not served."""
    if deployment.subscription_keys is None:
        return {}
    return {
        "TAILRACE_SUBSCRIPTION_KEYS": deployment.subscription_keys.id,
        # Never in a deployment: receivers are on the internet.
        "TAILRACE_WEBHOOK_LOOPBACK": "false",
    }


def events_environment(plan: Plan) -> dict[str, str]:
    """For the functions behind function URLs."""
    return {
        "TAILRACE_EVENTS_PATH": EVENTS_PATH if plan.events else "",
        "TAILRACE_EVENTS_LIFETIME": LIFETIME,
    }


def aviso_environment(plan: Plan) -> dict[str, str]:
    """For the functions behind function URLs."""
    if not plan.aviso:
        return {}
    base_url = {} if plan.domain is None else {"TAILRACE_AVISO_BASE_URL": f"https://{plan.domain}"}
    return {
        "TAILRACE_AVISO_SCHEMA": plan.aviso_schema or "",
        "TAILRACE_AVISO_ADMIN_ROLES": plan.aviso_admin_roles,
        "TAILRACE_AVISO_HEARTBEAT": HEARTBEAT,
        "TAILRACE_AVISO_MAX_DURATION": LIFETIME,
        **base_url,
    }


def allow_reading_schema(plan: Plan) -> list[iam.PolicyStatement]:
    """Permission to read the event types, if they are an object of the operator's."""
    if not plan.aviso or plan.aviso_schema is None:
        return []
    arn = f"arn:{cdk.Aws.PARTITION}:s3:::{plan.aviso_schema.removeprefix('s3://')}"
    return [iam.PolicyStatement(actions=["s3:GetObject"], resources=[arn])]
