"""What follows a change of the log, as the table's stream tells it: a deleted stream is purged.

The edge keeps chunks for a while. When a stream is deleted, everything that it has of that
incarnation, whatever the URL, is forgotten by one tag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tailrace.aws.observe import Observer
from tailrace.log.etag import cache_tag
from tailrace.settings import Settings
from tailrace.store.dynamo.access import boto_client
from tailrace.store.dynamo.layout import chain_of, entry_of


class Dispatch:
    def __init__(self) -> None:
        self._settings = Settings.from_env()
        self._observer = Observer("dispatch", self._settings)
        self._cloudfront: Any = None

    def __call__(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Works on a batch; an exception has Lambda send it again, in halves."""
        records = event["Records"]
        tags = sorted({tag for record in records if (tag := deleted_tag(record)) is not None})
        if tags:
            self._purge(tags)
        self._observer.count("purged_streams_total", len(tags))
        self._observer.count("dispatched_records_total", len(records))
        self._observer.flush()
        return {"batchItemFailures": []}

    def _purge(self, tags: list[str]) -> None:
        if self._cloudfront is None:
            self._cloudfront = boto_client("cloudfront", self._settings)
        items = [f"#{tag}" for tag in tags]
        self._cloudfront.create_invalidation(
            DistributionId=self._settings.distribution,
            InvalidationBatch={
                "Paths": {"Quantity": len(items), "Items": items},
                # An incarnation is deleted once: the same tags again are the same batch again.
                "CallerReference": hashlib.sha256(" ".join(items).encode()).hexdigest(),
            },
        )
        self._observer.log.info("purged", extra={"tags": tags})


def deleted_tag(record: Mapping[str, Any]) -> str | None:
    """The cache tag of the stream that a record of the table's stream is the deletion of."""
    change = record["dynamodb"]
    item = change.get("NewImage")
    chain = chain_of(change["Keys"]["p"]["S"])
    if record["eventName"] != "INSERT" or item is None or chain is None:
        return None
    return cache_tag(chain) if entry_of(item).state.gone else None
