"""Values of secrets in Secrets Manager, current and while they are rotated."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.aws.client.failures import CallFailed, Refused
from tailrace.aws.client.json_client import Client
from tailrace.aws.client.lambda_credentials import find_access
from tailrace.aws.client.sigv4 import SECRETS
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings

STAGES: Final = ("AWSCURRENT", "AWSPENDING", "AWSPREVIOUS")

logger = logging.getLogger("tailrace")


async def get_secret(settings: Settings, secret: str, stages: tuple[str, ...]) -> list[str | None]:
    """The values of a secret by stage; the current one exists, the others may."""
    access = await find_access(settings, SECRETS.name)
    client = Client(access, 1, service=SECRETS)
    try:
        return [await _get_value(client, secret, stage) for stage in stages]
    except CallFailed as error:
        logger.error("the secret %s cannot be read: %s", secret, error)
        raise StoreUnavailable("a secret of the server cannot be read; the log says why") from error
    finally:
        await client.close()


async def _get_value(client: Client, secret: str, stage: str) -> str | None:
    """None: no rotation has made such a value."""
    try:
        answer = await client.call("GetSecretValue", {"SecretId": secret, "VersionStage": stage})
    except Refused as error:
        if stage == STAGES[0] or error.code != "ResourceNotFoundException":
            raise
        return None
    value: str = answer["SecretString"]
    return value
