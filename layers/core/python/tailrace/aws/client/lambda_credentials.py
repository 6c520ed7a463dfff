"""Endpoint and credentials inside a Lambda function, without importing botocore.

Lambda's environment has all of them, and in a cold start the import would take longer than all the
rest. Unusual configurations are left to `endpoint.resolve_service_access`.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Final

from tailrace.aws.client.endpoint import (
    Credentials,
    ServiceAccess,
    is_loopback,
    resolve_service_access,
)
from tailrace.limits import AWS_CALL_ATTEMPTS
from tailrace.settings import Settings

_ORDINARY_REGION: Final = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]+")
"""The regions whose endpoints end in amazonaws.com."""

_UNUSUAL: Final = (
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)


async def find_service_access(settings: Settings, service: str = "dynamodb") -> ServiceAccess:
    """Find a service's endpoint and credentials, inside a function or elsewhere."""
    access = lambda_service_access(settings, service)
    if access is not None:
        return access
    # Importing botocore, and finding credentials, would block the event loop.
    return await asyncio.to_thread(resolve_service_access, settings, service)


def lambda_service_access(settings: Settings, service: str = "dynamodb") -> ServiceAccess | None:
    """None outside of Lambda, or if the configuration is unusual."""
    env = os.environ
    region = env.get("AWS_REGION", "")
    keys = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    attempts = env.get("AWS_MAX_ATTEMPTS") or str(AWS_CALL_ATTEMPTS)
    if (
        "AWS_LAMBDA_RUNTIME_API" not in env
        # A function restored from a snapshot has to fetch its keys.
        or not all(keys)
        or any(env.get(variable) for variable in _UNUSUAL)
        or not _ORDINARY_REGION.fullmatch(region)
        or not attempts.isdecimal()
    ):
        return None
    endpoint = (
        env.get(f"AWS_ENDPOINT_URL_{service.upper()}")
        or settings.endpoint_url
        or env.get("AWS_ENDPOINT_URL")
        or f"https://{service}.{region}.amazonaws.com"
    )
    access_key, secret_key = keys
    assert access_key is not None
    assert secret_key is not None
    credentials = Credentials(access_key, secret_key, env.get("AWS_SESSION_TOKEN"))

    async def current() -> Credentials:
        return credentials

    return ServiceAccess(
        endpoint=endpoint.rstrip("/"),
        region=region,
        attempts=max(1, int(attempts)),
        ca_bundle=env.get("AWS_CA_BUNDLE"),
        credentials=current,
        local=is_loopback(endpoint),
    )
