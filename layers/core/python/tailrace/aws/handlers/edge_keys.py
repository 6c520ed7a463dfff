"""The key-value store of the edge follows the access secret, and the origin secret."""

from __future__ import annotations

import logging
from typing import Any

from tailrace.auth.authorizer import Authorizer
from tailrace.aws.client.endpoint import boto_client
from tailrace.aws.edge.key_document import entries
from tailrace.aws.runtime.policy_provider import with_access
from tailrace.configuration import load_settings

logger = logging.getLogger("tailrace")


class EdgeStore:
    def __init__(self) -> None:
        self._settings = load_settings()
        self._secrets = boto_client("secretsmanager", self._settings)
        self._store = boto_client("cloudfront-keyvaluestore", self._settings)

    def __call__(self) -> None:
        """Raises BadSetting for an unusable access secret; the edge then keeps its keys, as the
        functions keep theirs."""
        wanted = self._wanted()
        arn = self._settings.edge_keys
        # Before the look: a change by others in between is a conflict, and tried again.
        version = self._store.describe_key_value_store(KvsARN=arn)["ETag"]
        found = self._found(arn)
        if found == wanted:
            return
        puts = [
            {"Key": key, "Value": value} for key, value in wanted.items() if found.get(key) != value
        ]
        deletes = [{"Key": key} for key in found if key not in wanted]
        self._store.update_keys(KvsARN=arn, IfMatch=version, Puts=puts, Deletes=deletes)
        logger.info("the edge has other keys: %d changed, %d removed", len(puts), len(deletes))

    def _wanted(self) -> dict[str, str]:
        settings = with_access(self._settings, self._value(self._settings.access_secret))
        Authorizer(settings)
        return entries(settings, self._value(self._settings.origin_secret).encode())

    def _value(self, secret: str) -> str:
        value: str = self._secrets.get_secret_value(SecretId=secret)["SecretString"]
        return value

    def _found(self, arn: str) -> dict[str, str]:
        pages: Any = self._store.get_paginator("list_keys").paginate(KvsARN=arn)
        return {item["Key"]: item["Value"] for page in pages for item in page.get("Items", ())}
