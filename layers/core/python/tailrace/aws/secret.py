"""The secret that CloudFront shows to the functions, while it is being rotated too.

Secrets Manager keeps the value of before and the value to come under names of their own. Which one
CloudFront sends during a rotation depends on where its new configuration has arrived, so all of
them count. In quiet times one call per function environment and hour is all that this costs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, Protocol

from tailrace.aws import passes
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings
from tailrace.store.dynamo.client import Client
from tailrace.store.dynamo.failures import CallFailed, Refused
from tailrace.store.dynamo.function_access import find_access
from tailrace.store.dynamo.signing import SECRETS

STAGES: Final = ("AWSCURRENT", "AWSPENDING", "AWSPREVIOUS")

KEEP_SECONDS: Final = 3600
"""How long a value counts without being asked for again: a retired one is gone after that."""

REFRESH_SECONDS: Final = 10
"""Least time between two looks for other values: a stranger must not make us ask all the time."""


logger = logging.getLogger("tailrace")


class Secret(Protocol):
    async def admits(self, shown: str) -> bool: ...

    async def vouches(self, shown: bytes, raw_path: bytes) -> bool:
        """Whether that is a pass of the edge for the path."""
        ...


class FixedSecret:
    """A value that is known beforehand: for trying things out."""

    def __init__(self, value: str) -> None:
        self._value = value.encode()

    async def admits(self, shown: str) -> bool:
        return compare_digest(shown.encode(), self._value)

    async def vouches(self, shown: bytes, raw_path: bytes) -> bool:
        return compare_digest(shown, passes.made(passes.pass_key(self._value), raw_path))


class StoredSecret:
    """A secret in Secrets Manager."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """`clock`: the wall's, for a frozen function's own may stand still."""
        self._settings = settings
        self._now = clock
        self._values: list[bytes] = []
        self._stages = 0
        """How many of `STAGES` the values are of."""
        self._asked = 0.0

    async def admits(self, shown: str) -> bool:
        return await self._one_is(shown.encode(), bytes)

    async def vouches(self, shown: bytes, raw_path: bytes) -> bool:
        return await self._one_is(
            shown, lambda value: passes.made(passes.pass_key(value), raw_path)
        )

    async def _one_is(self, shown: bytes, made: Callable[[bytes], bytes]) -> bool:
        """Whether it is what is made of one of the values."""
        age = self._now() - self._asked
        if not self._values or age >= KEEP_SECONDS:
            await self._ask(STAGES[:1])
        if self._matches(shown, made):
            return True
        if self._stages < len(STAGES) or age >= REFRESH_SECONDS:
            await self._ask(STAGES)
        return self._matches(shown, made)

    def _matches(self, shown: bytes, made: Callable[[bytes], bytes]) -> bool:
        # Every value is compared: how long that takes tells nothing about any of them.
        return sum(compare_digest(shown, made(value)) for value in self._values) > 0

    async def _ask(self, stages: tuple[str, ...]) -> None:
        found = await asked(self._settings, self._settings.origin_secret, stages)
        self._values = [value.encode() for value in found if value is not None]
        self._stages, self._asked = len(stages), self._now()


async def asked(settings: Settings, secret: str, stages: tuple[str, ...]) -> list[str | None]:
    """The values of a secret in Secrets Manager; the current one is there, the others may be."""
    access = await find_access(settings, SECRETS.name)
    client = Client(access, 1, service=SECRETS)
    try:
        return [await value_of(client, secret, stage) for stage in stages]
    except CallFailed as error:
        logger.error("the secret %s cannot be read: %s", secret, error)
        raise StoreUnavailable("a secret of the server cannot be read; the log says why") from error
    finally:
        await client.close()


async def value_of(client: Client, secret: str, stage: str) -> str | None:
    """None: no rotation has made such a value."""
    try:
        answer = await client.call("GetSecretValue", {"SecretId": secret, "VersionStage": stage})
    except Refused as error:
        if stage == STAGES[0] or error.code != "ResourceNotFoundException":
            raise
        return None
    value: str = answer["SecretString"]
    return value
