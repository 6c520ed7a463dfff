"""The origin secret, which CloudFront sends with every request, and the edge tokens made with it.

During a rotation Secrets Manager has a current, a pending and a previous value. Which of them
CloudFront sends depends on how far its new configuration has spread, so all are accepted. Between
rotations this costs one call per hour and function environment.

An edge token proves that the edge function has already authorized a read: it is an HMAC of the
path, with a key derived from the origin secret. The functions accept tokens of every value of the
secret that they accept, so the edge may lag behind a rotation.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Final, Protocol

from tailrace.aws.client.secrets import STAGES, get_secret
from tailrace.settings import Settings

EDGE_TOKEN_HEADER: Final = b"x-tailrace-edge-token"
_PURPOSE: Final = b"tailrace-edge-token"

KEEP_SECONDS: Final = 3600
"""How long values are cached: a retired one is refused after that."""

REFRESH_SECONDS: Final = 10
"""Minimum time between two refreshes, so that wrong values do not cause a call each."""


class OriginSecret(Protocol):
    async def matches(self, value: str) -> bool: ...

    async def verify_edge_token(self, token: bytes, raw_path: bytes) -> bool: ...


class StaticOriginSecret:
    """A value from the settings, for tests and local use."""

    def __init__(self, value: str) -> None:
        self._value = value.encode()

    async def matches(self, value: str) -> bool:
        return hmac.compare_digest(value.encode(), self._value)

    async def verify_edge_token(self, token: bytes, raw_path: bytes) -> bool:
        return hmac.compare_digest(token, sign_edge_token(derive_key(self._value), raw_path))


class ManagedOriginSecret:
    """A secret in Secrets Manager."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """`clock`: wall-clock time, since the monotonic clock may stop in a frozen function."""
        self._settings = settings
        self._now = clock
        self._values: list[bytes] = []
        self._stages = 0
        """How many of `STAGES` were read."""
        self._read_at = 0.0

    async def matches(self, value: str) -> bool:
        return await self._matches_any(value.encode(), bytes)

    async def verify_edge_token(self, token: bytes, raw_path: bytes) -> bool:
        return await self._matches_any(
            token, lambda value: sign_edge_token(derive_key(value), raw_path)
        )

    async def _matches_any(self, candidate: bytes, derive: Callable[[bytes], bytes]) -> bool:
        """Compare with what `derive` returns for each value; refresh the values if none matches."""
        age = self._now() - self._read_at
        if not self._values or age >= KEEP_SECONDS:
            await self._refresh(STAGES[:1])
        if self._compare(candidate, derive):
            return True
        if self._stages < len(STAGES) or age >= REFRESH_SECONDS:
            await self._refresh(STAGES)
        return self._compare(candidate, derive)

    def _compare(self, candidate: bytes, derive: Callable[[bytes], bytes]) -> bool:
        # Compares with every value, so that the time taken reveals nothing about them.
        return sum(hmac.compare_digest(candidate, derive(value)) for value in self._values) > 0

    async def _refresh(self, stages: tuple[str, ...]) -> None:
        values = await get_secret(self._settings, self._settings.origin_secret, stages)
        self._values = [value.encode() for value in values if value is not None]
        self._stages, self._read_at = len(stages), self._now()


def derive_key(origin_secret: bytes) -> str:
    """Derive the key of edge tokens as text, since CloudFront's key-value store only holds text."""
    return hmac.digest(origin_secret, _PURPOSE, "sha256").hex()


def sign_edge_token(key: str, raw_path: bytes) -> bytes:
    return hmac.digest(key.encode(), b"edge-token\n" + raw_path, "sha256").hex().encode()
