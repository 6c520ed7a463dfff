"""The handler that rotates the origin secret, in the four steps of Secrets Manager.

No request is refused meanwhile: the functions accept the pending and the previous value, too, and
the pending value becomes the current one after CloudFront sends it from every edge location.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.client.service_access import boto_client
from tailrace.aws.edge.origin_guard import SECRET_HEADER
from tailrace.aws.edge.origin_secret import REFRESH_SECONDS
from tailrace.aws.handlers.secret_rotation import SecretRotation

HEADER: Final = SECRET_HEADER.decode()


class RotateSecretHandler(SecretRotation):
    def __init__(self) -> None:
        super().__init__("origin_secret")
        self._cloudfront = boto_client("cloudfront", self._settings)

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
