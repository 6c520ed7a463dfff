"""Purges deleted streams from CloudFront, as the table's stream reports them.

One cache tag invalidates all that is cached of an incarnation, whatever its URL. The function has
its own event source mapping, whose filter passes only the tombstones of streams that caches may
serve for longer than a minute: the others cost nothing, and a purge that has to wait delays no
delivery of messages.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final

from tailrace.aws.client.service_access import boto_client
from tailrace.aws.runtime.observability import Observer
from tailrace.configuration import load_settings
from tailrace.protocols.durable_streams.caching import cache_tag
from tailrace.store.dynamodb.layout import chain_of, is_purge

TOO_MANY: Final = "TooManyInvalidationsInProgress"

PAUSE_SECONDS: Final = 20.0
"""How long to wait before Lambda repeats a batch for which too many purges were in progress: one
takes up to 25 s, says AWS."""


class PurgeHandler:
    def __init__(self) -> None:
        self._settings = load_settings()
        self._observer = Observer("purge", self._settings)
        self._cloudfront: Any = None

    def __call__(self, event: dict[str, Any]) -> None:
        """Purge the streams of a batch by one call. Lambda repeats a batch that fails."""
        tags = sorted(set(filter(None, map(purged_tag, event["Records"]))))
        if not tags:
            return
        try:
            self._purge(tags)
        except Exception as failure:
            self._observer.log.exception("purging deleted streams from CloudFront failed")
            if _code(failure) == TOO_MANY:
                time.sleep(PAUSE_SECONDS)
            raise
        self._observer.count("purged_streams_total", len(tags))
        self._observer.flush()

    def _purge(self, tags: Sequence[str]) -> None:
        if self._cloudfront is None:
            self._cloudfront = boto_client("cloudfront", self._settings)
        items = [f"#{tag}" for tag in tags]
        self._cloudfront.create_invalidation(
            DistributionId=self._settings.distribution,
            InvalidationBatch={
                "Paths": {"Quantity": len(items), "Items": items},
                # Each incarnation is deleted once, so the same tags mean that a batch is repeated.
                "CallerReference": hashlib.sha256(" ".join(items).encode()).hexdigest(),
            },
        )
        self._observer.log.info("purged", extra={"tags": tags})


def purged_tag(record: dict[str, Any]) -> str | None:
    """The cache tag of a stream that caches are to forget; None for a record of anything else."""
    change = record["dynamodb"]
    item = change.get("NewImage")
    chain = chain_of(change["Keys"]["p"]["S"])
    if record["eventName"] != "INSERT" or item is None or chain is None or not is_purge(item):
        return None
    return cache_tag(chain)


def _code(failure: Exception) -> str | None:
    """The code of an error that CloudFront has answered with."""
    response = getattr(failure, "response", None)
    return None if response is None else response["Error"]["Code"]
