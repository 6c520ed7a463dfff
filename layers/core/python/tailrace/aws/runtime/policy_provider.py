"""Who may do what, as a secret in Secrets Manager says: a JSON object whose fields are settings.

Operators edit it, and functions read it again every five minutes. A mistake in it changes nothing:
the authorizer of before stays, and the log names the field. The value is in no message.
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
from tailrace.aws.client.secrets import STAGES, get_secret
from tailrace.configuration import CHECKS
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.settings import Settings, parse

FIELDS: Final = frozenset((*CLOSING, "skip_auth"))

KEEP_SECONDS: Final = 300
"""How long a authorizer counts: what a key that was taken away has signed is refused after that."""

RETRY_SECONDS: Final = 10
"""Least time between two looks when the first one failed."""

logger = logging.getLogger("tailrace")


class SecretPolicyProvider:
    """Knows the authorizer of the access secret."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """`clock`: the wall's, for a frozen function's own may stand still."""
        self._settings = settings
        self._now = clock
        self._authorizer: Authorizer | None = None
        self._text = ""
        self._due = 0.0
        self._turn = asyncio.Lock()

    async def current(self) -> Authorizer:
        # Waited for, and not done in the background: a function may be frozen in between for hours,
        # and the next request would meet keys that were taken away long ago.
        if self._now() >= self._due:
            async with self._turn:
                if self._now() >= self._due:
                    await self._look()
        if self._authorizer is None:
            raise StoreUnavailable("the access secret cannot be read, or is not as it should be")
        return self._authorizer

    async def _look(self) -> None:
        wait = RETRY_SECONDS
        try:
            text = await self._read()
            if self._authorizer is None or text != self._text:
                # Another authorizer would have to fetch the public keys of tokens anew.
                self._authorizer, self._text = Authorizer(with_access(self._settings, text)), text
            wait = KEEP_SECONDS
        except (BadSetting, StoreUnavailable) as error:
            logger.error("access stays as it was: %s", error)
        self._due = self._now() + wait

    async def _read(self) -> str:
        given = self._settings.access_secret
        if not given.startswith("arn:"):
            return given
        (text,) = await get_secret(self._settings, given, STAGES[:1])
        return text or ""


def provider(settings: Settings) -> SecretPolicyProvider | None:
    """None: everybody may do everything, and the settings themselves say so."""
    if settings.access == "open":
        return None
    if not settings.access_secret:
        raise BadSetting(
            "TAILRACE_ACCESS_SECRET is missing: nobody could do anything; or set TAILRACE_ACCESS to"
            " open, for everybody to do everything"
        )
    return SecretPolicyProvider(settings)


def with_access(settings: Settings, text: str) -> Settings:
    """The settings of closed access with what the secret says over them; raises BadSetting."""
    known = {setting.name: setting for setting in fields(Settings) if setting.name in FIELDS}
    values: dict[str, Any] = {}
    for name, value in _object(text).items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise BadSetting(f"the access secret has a field {name!r}; it may have {names}")
        try:
            if not isinstance(value, str | int):
                raise BadSetting(name)
            values[name] = parse(known[name], value)
            if name in CHECKS:
                CHECKS[name](values[name])
        except BadSetting:
            raise BadSetting(
                f"the access secret's {name} is not what TAILRACE_{name.upper()} may be"
            ) from None
    return replace(settings, access="closed", **values)


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadSetting("the access secret is not a JSON object")
    return value
