"""The access secret in Secrets Manager: a JSON object whose fields are access settings.

Operators edit it, and functions read it every five minutes. If it is invalid, functions keep their
current authorizer and log the field's name. No message contains a value.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

import orjson

from tailrace.auth.authorizer import CLOSING, Authorizer
from tailrace.auth.keys import find_guessable
from tailrace.aws.client.secrets import STAGES, get_secret
from tailrace.configuration import CHECKS
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.limits import SECRET_BYTES
from tailrace.settings import Settings, parse

FIELDS: Final = frozenset((*CLOSING, "skip_auth"))

KEEP_SECONDS: Final = 300
"""How long an authorizer is used: tokens signed with a removed key are refused after that."""

RETRY_SECONDS: Final = 10
"""Minimum time between two attempts after a failure."""

logger = logging.getLogger("tailrace")


class SecretPolicyProvider:
    """Provides the authorizer that the access secret describes."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """`clock`: wall-clock time, since the monotonic clock may stop in a frozen function."""
        self._settings = settings
        self._now = clock
        self._authorizer: Authorizer | None = None
        self._text = ""
        self._refresh_at = 0.0
        self._lock = asyncio.Lock()

    async def current(self) -> Authorizer:
        # Not in the background: a function may be frozen for hours, and the next request would be
        # authorized with keys that were removed long ago.
        if self._now() >= self._refresh_at:
            async with self._lock:
                if self._now() >= self._refresh_at:
                    await self._refresh()
        if self._authorizer is None:
            raise StoreUnavailable(
                "the access secret cannot be read or is invalid; the log says why"
            )
        return self._authorizer

    async def _refresh(self) -> None:
        wait = RETRY_SECONDS
        try:
            text = await self._read_secret()
            if self._authorizer is None or text != self._text:
                # A new authorizer would fetch the public keys again.
                self._authorizer, self._text = (
                    Authorizer(apply_access_secret(self._settings, text)),
                    text,
                )
            wait = KEEP_SECONDS
        except (BadSetting, StoreUnavailable) as error:
            logger.error("cannot update the authorizer, keeping the current one: %s", error)
        self._refresh_at = self._now() + wait

    async def _read_secret(self) -> str:
        secret = self._settings.access_secret
        if not secret.startswith("arn:"):
            return secret
        (text,) = await get_secret(self._settings, secret, STAGES[:1])
        return text or ""


def create_policy_provider(settings: Settings) -> SecretPolicyProvider | None:
    """Create the provider; None if access is open."""
    if settings.access == "open":
        return None
    if not settings.access_secret:
        raise BadSetting(
            "TAILRACE_ACCESS_SECRET is not set: set it to the access secret, or set"
            " TAILRACE_ACCESS=open to let everybody do everything"
        )
    return SecretPolicyProvider(settings)


def apply_access_secret(settings: Settings, text: str) -> Settings:
    """Override settings with the fields of the access secret; raise BadSetting for invalid ones."""
    allowed = {setting.name: setting for setting in fields(Settings) if setting.name in FIELDS}
    values: dict[str, Any] = {}
    for name, value in _parse_object(text).items():
        if name not in allowed:
            names = ", ".join(sorted(allowed))
            raise BadSetting(
                f"the access secret has an unknown field {name!r}; the fields are {names}"
            )
        try:
            if not isinstance(value, str | int):
                raise BadSetting(name)
            values[name] = parse(allowed[name], value, name)
            if name in CHECKS:
                CHECKS[name](values[name])
        except BadSetting:
            raise BadSetting(
                f"the access secret's {name} is not a valid value of TAILRACE_{name.upper()}"
            ) from None
    applied = replace(settings, access="closed", **values)
    for name in find_guessable(applied):
        raise BadSetting(
            f"the access secret's {name} has a secret of fewer than {SECRET_BYTES} bytes, which can"
            " be guessed; `tailrace secret` makes one"
        )
    return applied


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadSetting("the access secret is not a JSON object")
    return value
