"""The secret in Secrets Manager from which the functions derive the keys of subscriptions.

CloudFormation generates its first value, and a rotation replaces it: the pending value is published
before it signs, and the previous one until the next rotation. No function may write it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from tailrace.aws.client.secrets import STAGES, get_secret
from tailrace.errors import KeysUnavailable, StoreUnavailable
from tailrace.protocols.subscriptions.signing import SigningKey, SigningKeys
from tailrace.settings import Settings

KEEP_SECONDS: Final = 300
"""How long values are cached; a rotation waits longer before the pending one signs."""

RETRY_SECONDS: Final = 10
"""Minimum time between a failure and the next attempt."""

logger = logging.getLogger("tailrace")


class KeySecret:
    """The keys in a secret, read again when they are old; the last ones stay if that fails."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """`clock`: wall-clock time, since the monotonic clock may stop in a frozen function."""
        self._settings = settings
        self._clock = clock
        self._keys: SigningKeys | None = None
        self._values: list[str] = []
        self._refresh_at = 0.0
        self._lock = asyncio.Lock()

    async def get(self, now: int) -> SigningKeys:  # noqa: ARG002 - the stages tell what is current
        if self._clock() >= self._refresh_at:
            async with self._lock:
                if self._clock() >= self._refresh_at:
                    await self._refresh()
        if self._keys is None:
            raise KeysUnavailable("the keys of subscriptions cannot be read; the log says why")
        return self._keys

    async def _refresh(self) -> None:
        secret, wait = self._settings.subscription_keys, RETRY_SECONDS
        try:
            if secret.startswith("arn:"):
                read = await get_secret(self._settings, secret, STAGES)
            else:
                read = [secret]
            values = [value for value in read if value]
            if values != self._values:
                keys = [SigningKey(value.encode()) for value in dict.fromkeys(values)]
                self._keys, self._values = SigningKeys(keys[0], keys[1:]), values
            wait = KEEP_SECONDS
        except StoreUnavailable as error:
            logger.error("cannot update the keys of subscriptions, keeping the others: %s", error)
        self._refresh_at = self._clock() + wait
