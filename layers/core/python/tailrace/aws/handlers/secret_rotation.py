"""Rotations of secrets, in the four steps of Secrets Manager, whose new values are random."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.client.service_access import boto_client
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting

VALUE_BYTES: Final = 36
"""Random bytes: 48 characters as text."""

logger = logging.getLogger("tailrace")


class SecretRotation:
    """The steps `createSecret` and `finishSecret`; a subclass has the two in between."""

    def __init__(self, setting: str, arn: str | None = None) -> None:
        """`setting`: the name of the setting that holds the ARN of the secret; `arn`: overrides
        it."""
        flags: dict[str, Any] = {setting: arn}
        self._settings = load_settings(**flags)
        self._arn: str = getattr(self._settings, setting)
        self._secrets = boto_client("secretsmanager", self._settings)

    def __call__(self, event: Mapping[str, str]) -> None:
        secret, version = event["SecretId"], event["ClientRequestToken"]
        if secret != self._arn:
            raise BadSetting(f"this function rotates {self._arn}, not {secret}")
        steps = {
            "createSecret": self._create,
            "setSecret": self._set,
            "testSecret": self._test,
            "finishSecret": self._finish,
        }
        steps[event["Step"]](secret, version)
        logger.info("completed the step %s", event["Step"])

    # Each step is idempotent, since Secrets Manager may repeat it.

    def _set(self, secret: str, version: str) -> None:
        """Put the pending value to use, beside the current one."""

    def _test(self, secret: str, version: str) -> None:
        """Return when the pending value can become the current one; a timeout is retried."""

    def _create(self, secret: str, version: str) -> None:
        if version in self._versions(secret, "AWSPENDING"):
            try:
                self._value(secret, version)
                return
            except self._secrets.exceptions.ResourceNotFoundException:
                pass  # The version exists, but has no value yet.
        self._secrets.put_secret_value(
            SecretId=secret,
            ClientRequestToken=version,
            SecretString=secrets.token_urlsafe(VALUE_BYTES),
            VersionStages=["AWSPENDING"],
        )

    def _finish(self, secret: str, version: str) -> None:
        current = self._versions(secret, "AWSCURRENT")
        if version in current:
            return
        self._secrets.update_secret_version_stage(
            SecretId=secret,
            VersionStage="AWSCURRENT",
            MoveToVersionId=version,
            RemoveFromVersionId=current[0],
        )

    def _value(self, secret: str, version: str) -> str:
        response = self._secrets.get_secret_value(
            SecretId=secret, VersionId=version, VersionStage="AWSPENDING"
        )
        value: str = response["SecretString"]
        return value

    def _versions(self, secret: str, stage: str) -> list[str]:
        stages = self._secrets.describe_secret(SecretId=secret)["VersionIdsToStages"]
        return [version for version, labels in stages.items() if stage in labels]
