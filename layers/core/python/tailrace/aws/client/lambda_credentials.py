"""How AWS is reached from inside a Lambda function, found without importing botocore.

There everything is in the environment, and the import alone would cost a cold start more than all
the rest of it. Whatever is out of the ordinary is left to `access.resolve`.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Final

from tailrace.aws.client.endpoint import Access, Credentials, is_loopback, resolve
from tailrace.limits import CALL_ATTEMPTS
from tailrace.settings import Settings

_ORDINARY_REGION: Final = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]+")
"""Those whose endpoints end in amazonaws.com."""

_UNUSUAL: Final = (
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)


async def find_access(settings: Settings, service: str = "dynamodb") -> Access:
    """How a service is reached, from wherever this runs."""
    found = function_access(settings, service)
    if found is not None:
        return found
    # Importing botocore, and asking for credentials, would hold up everybody else.
    return await asyncio.to_thread(resolve, settings, service)


def function_access(settings: Settings, service: str = "dynamodb") -> Access | None:
    """None: not inside a function, or not in an ordinary one."""
    env = os.environ
    region = env.get("AWS_REGION", "")
    keys = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    attempts = env.get("AWS_MAX_ATTEMPTS") or str(CALL_ATTEMPTS)
    if (
        "AWS_LAMBDA_RUNTIME_API" not in env
        # Restored from a snapshot, a function gets its keys elsewhere.
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

    return Access(
        endpoint=endpoint.rstrip("/"),
        region=region,
        attempts=max(1, int(attempts)),
        ca_bundle=env.get("AWS_CA_BUNDLE"),
        credentials=current,
        local=is_loopback(endpoint),
    )
