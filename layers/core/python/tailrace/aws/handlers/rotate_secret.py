"""The handler that rotates the origin secret, in the four steps of Secrets Manager.

No request is refused meanwhile: the functions accept the pending and the previous value, too, and
the pending value becomes the current one after CloudFront sends it from every edge location.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.client.service_access import boto_client
from tailrace.aws.edge.origin_guard import SECRET_HEADER
from tailrace.aws.edge.origin_secret import REFRESH_SECONDS
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting

HEADER: Final = SECRET_HEADER.decode()
VALUE_BYTES: Final = 36
"""Random bytes: 48 characters as text."""

logger = logging.getLogger("tailrace")


class RotateSecretHandler:
    def __init__(self) -> None:
        self._settings = load_settings()
        self._secrets = boto_client("secretsmanager", self._settings)
        self._cloudfront = boto_client("cloudfront", self._settings)

    def __call__(self, event: Mapping[str, str]) -> None:
        secret, version = event["SecretId"], event["ClientRequestToken"]
        if secret != self._settings.origin_secret:
            raise BadSetting(f"this function rotates {self._settings.origin_secret}, not {secret}")
        steps = {
            "createSecret": self._create,
            "setSecret": self._set,
            "testSecret": self._test,
            "finishSecret": self._finish,
        }
        steps[event["Step"]](secret, version)
        logger.info("completed the step %s", event["Step"])

    # Each step is idempotent, since Secrets Manager may repeat it.

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

    def _set(self, secret: str, version: str) -> None:
        value = self._value(secret, version)
        response = self._cloudfront.get_distribution_config(Id=self._settings.distribution)
        config = response["DistributionConfig"]
        headers = _secret_headers(config)
        if all(header["HeaderValue"] == value for header in headers):
            return
        for header in headers:
            header["HeaderValue"] = value
        # A function that has just refreshed its values does not refresh them any sooner.
        time.sleep(REFRESH_SECONDS)
        self._cloudfront.update_distribution(
            Id=self._settings.distribution, IfMatch=response["ETag"], DistributionConfig=config
        )

    def _test(self, secret: str, version: str) -> None:
        """Wait until every edge location has the new configuration; a timeout is retried."""
        value = self._value(secret, version)
        self._cloudfront.get_waiter("distribution_deployed").wait(
            Id=self._settings.distribution, WaiterConfig={"Delay": 15, "MaxAttempts": 50}
        )
        response = self._cloudfront.get_distribution_config(Id=self._settings.distribution)
        if any(
            header["HeaderValue"] != value
            for header in _secret_headers(response["DistributionConfig"])
        ):
            raise RuntimeError("the distribution does not send the new secret")

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


def _secret_headers(config: Mapping[str, Any]) -> list[dict[str, str]]:
    headers = [
        header
        for origin in config["Origins"]["Items"]
        for header in origin.get("CustomHeaders", {}).get("Items", [])
        if header["HeaderName"].lower() == HEADER
    ]
    if not headers:
        raise RuntimeError(f"the distribution does not send {HEADER} to any origin")
    return headers
