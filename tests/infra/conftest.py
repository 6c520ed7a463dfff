"""One synthesis for each set of switches, however many tests look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeAlias

import pytest

from tests.infra.stacks import Stacks

Synthesise: TypeAlias = Callable[..., Stacks]

VARIANTS: dict[str, dict[str, str]] = {
    "dev": {"stage": "dev"},
    "prod": {"stage": "prod"},
    "afar": {
        "stage": "prod",
        "region": "eu-west-1",
        "domain": "streams.example.org",
        "certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/0a1b",
        "addresses": "203.0.113.0/24,2001:db8::/32",
        "alarm_email": "somebody@example.org",
        "allowed_origins": "https://app.example.org,*.staff.example.org",
        "history_workers": "5",
        "compact_schedule": "cron(0 0/6 * * ? *)",
        "sweep_dry_run": "false",
        "retention": "chat/**=30d,1GB; **=forever",
        "ping_interval": "30",
        "turbo_streams": "false",
        "cable_ready": "true",
        "streams_whisper": "true",
        "streams_presence": "false",
        "cable_ttl": "86400",
        "aviso_schema": "s3://schemas.example.org/aviso/types.yaml",
        "aviso_admin_roles": "ops=admin,lead; lab=*",
    },
    "bare": {
        "access": "open",
        "firewall": "false",
        "snap_start": "false",
        "origin_shield": "off",
        "rotation_days": "0",
        "http_concurrency": "0",
        "live_concurrency": "0",
        "history": "false",
        "cable": "false",
        "events": "false",
        "aviso": "false",
    },
}
"""Sets of switches that together turn each of them."""


@pytest.fixture(scope="session")
def synthesise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synthesise]:
    """Makes the stacks of a variant, once."""

    @cache
    def made(variant: str) -> Stacks:
        return Stacks(tmp_path_factory.mktemp(variant), **VARIANTS[variant])

    with pytest.MonkeyPatch.context() as environment:
        # What the CDK's command line would say about the account it found.
        environment.delenv("CDK_DEFAULT_REGION", raising=False)
        environment.delenv("CDK_DEFAULT_ACCOUNT", raising=False)
        yield made


@pytest.fixture(scope="session")
def dev(synthesise: Synthesise) -> Stacks:
    return synthesise("dev")


@pytest.fixture(scope="session")
def prod(synthesise: Synthesise) -> Stacks:
    return synthesise("prod")


@pytest.fixture(scope="session")
def afar(synthesise: Synthesise) -> Stacks:
    """In another region than CloudFront's, under a name of one's own."""
    return synthesise("afar")


@pytest.fixture(scope="session")
def bare(synthesise: Synthesise) -> Stacks:
    """With everything left out that can be."""
    return synthesise("bare")
