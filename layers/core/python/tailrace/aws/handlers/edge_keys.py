"""The handler that copies keys from the access secret and the origin secret to the edge."""

from __future__ import annotations

import logging
from typing import Any

from tailrace.auth.authorizer import Authorizer
from tailrace.aws.client.service_access import boto_client
from tailrace.aws.edge.key_document import build_entries
from tailrace.aws.runtime.policy_provider import apply_access_secret
from tailrace.configuration import load_settings

logger = logging.getLogger("tailrace")


class EdgeKeysHandler:
    def __init__(self) -> None:
        self._settings = load_settings()
        self._secrets = boto_client("secretsmanager", self._settings)
        self._store = boto_client("cloudfront-keyvaluestore", self._settings)

    def __call__(self) -> None:
        """Raise BadSetting for an invalid access secret; the edge then keeps its keys, as the
        functions do."""
        wanted = self._build_entries()
        arn = self._settings.edge_keys
        # Read before the entries, so that a concurrent change fails the update, which is retried.
        version = self._store.describe_key_value_store(KvsARN=arn)["ETag"]
        current = self._list_entries(arn)
        if current == wanted:
            return
        puts = [
            {"Key": key, "Value": value}
            for key, value in wanted.items()
            if current.get(key) != value
        ]
        deletes = [{"Key": key} for key in current if key not in wanted]
        self._store.update_keys(KvsARN=arn, IfMatch=version, Puts=puts, Deletes=deletes)
        logger.info("updated the keys at the edge: %d set, %d removed", len(puts), len(deletes))

    def _build_entries(self) -> dict[str, str]:
        settings = apply_access_secret(
            self._settings, self._read_secret(self._settings.access_secret)
        )
        Authorizer(settings)
        return build_entries(settings, self._read_secret(self._settings.origin_secret).encode())

    def _read_secret(self, secret: str) -> str:
        value: str = self._secrets.get_secret_value(SecretId=secret)["SecretString"]
        return value

    def _list_entries(self, arn: str) -> dict[str, str]:
        pages: Any = self._store.get_paginator("list_keys").paginate(KvsARN=arn)
        return {item["Key"]: item["Value"] for page in pages for item in page.get("Items", ())}
