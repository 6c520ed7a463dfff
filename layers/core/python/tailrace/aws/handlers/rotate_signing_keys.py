"""The handler that rotates the keys of subscriptions, in the four steps of Secrets Manager.

The new value is published before it signs, so that no receiver gets a signature of a key that it
cannot look up; the previous one stays published until the next rotation.
"""

from __future__ import annotations

import time
from typing import Final

from tailrace.aws.handlers.secret_rotation import SecretRotation
from tailrace.protocols.subscriptions.key_secret import KEEP_SECONDS

JWKS_CACHE_SECONDS: Final = 300
"""How long receivers keep the published keys."""


class RotateSigningKeysHandler(SecretRotation):
    def __init__(self) -> None:
        super().__init__("subscription_keys")

    def _test(self, secret: str, version: str) -> None:
        """Wait until every function publishes the pending key, and every receiver has read it."""
        self._value(secret, version)
        time.sleep(KEEP_SECONDS + JWKS_CACHE_SECONDS)
