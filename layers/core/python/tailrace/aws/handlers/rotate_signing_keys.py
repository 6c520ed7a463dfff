"""The rotation of the keys of subscriptions, in the four steps of Secrets Manager.

`tailrace keys rotate --secret` takes them; a function that Secrets Manager calls could, too.

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
    def __init__(self, arn: str | None = None) -> None:
        super().__init__("subscription_keys", arn)

    def _test(self, secret: str, version: str) -> None:
        """Wait until every function publishes the pending key, and every receiver has read it."""
        self._value(secret, version)
        time.sleep(KEEP_SECONDS + JWKS_CACHE_SECONDS)

    def _finish(self, secret: str, version: str) -> None:
        super()._finish(secret, version)
        # Secrets Manager removes it only from a rotation of its own; it would stay published.
        if version in self._versions(secret, "AWSPENDING"):
            self._secrets.update_secret_version_stage(
                SecretId=secret, VersionStage="AWSPENDING", RemoveFromVersionId=version
            )
