"""Values of secrets in Secrets Manager, by their stage in a rotation."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.aws.client.failures import CallFailed, Refused
from tailrace.aws.client.json_client import JsonClient
from tailrace.aws.client.service_access import find_service_access
from tailrace.aws.client.sigv4 import SECRETS
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings

STAGES: Final = ("AWSCURRENT", "AWSPENDING", "AWSPREVIOUS")

logger = logging.getLogger("tailrace")


async def get_secret(settings: Settings, secret: str, stages: tuple[str, ...]) -> list[str | None]:
    """Get a secret's value for each stage; None if it has no value in that stage."""
    access = await find_service_access(settings, SECRETS.name)
    client = JsonClient(access, 1, service=SECRETS)
    try:
        return [await _get_value(client, secret, stage) for stage in stages]
    except CallFailed as error:
        logger.error("cannot read the secret %s: %s", secret, error)
        raise StoreUnavailable("a secret of the server cannot be read; the log says why") from error
    finally:
        await client.close()


async def _get_value(client: JsonClient, secret: str, stage: str) -> str | None:
    """None: the secret has no version in that stage."""
    try:
        response = await client.call("GetSecretValue", {"SecretId": secret, "VersionStage": stage})
    except Refused as error:
        if stage == STAGES[0] or error.code != "ResourceNotFoundException":
            raise
        return None
    value: str = response["SecretString"]
    return value
