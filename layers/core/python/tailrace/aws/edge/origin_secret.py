"""The secret that CloudFront shows to the functions, while it is being rotated too.

Secrets Manager keeps the value of before and the value to come under names of their own. Which one
CloudFront sends during a rotation depends on where its new configuration has arrived, so all of
them count. In quiet times one call per function environment and hour is all that this costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, Protocol

from tailrace.aws.client.secrets import STAGES, get_secret
from tailrace.aws.edge import edge_token
from tailrace.settings import Settings

KEEP_SECONDS: Final = 3600
"""How long a value counts without being asked for again: a retired one is gone after that."""

REFRESH_SECONDS: Final = 10
"""Least time between two looks for other values: a stranger must not make us ask all the time."""


class Secret(Protocol):
    async def admits(self, shown: str) -> bool: ...

    async def verifies(self, shown: bytes, raw_path: bytes) -> bool:
        """Whether that is a pass of the edge for the path."""
        ...


class FixedSecret:
    """A value that is known beforehand: for trying things out."""

    def __init__(self, value: str) -> None:
        self._value = value.encode()

    async def admits(self, shown: str) -> bool:
        return compare_digest(shown.encode(), self._value)

    async def verifies(self, shown: bytes, raw_path: bytes) -> bool:
        return compare_digest(shown, edge_token.sign(edge_token.derive_key(self._value), raw_path))


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

    async def verifies(self, shown: bytes, raw_path: bytes) -> bool:
        return await self._one_is(
            shown, lambda value: edge_token.sign(edge_token.derive_key(value), raw_path)
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
        found = await get_secret(self._settings, self._settings.origin_secret, stages)
        self._values = [value.encode() for value in found if value is not None]
        self._stages, self._asked = len(stages), self._now()
