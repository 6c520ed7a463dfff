"""Handles records of the table's stream: purges deleted streams, and delivers new entries.

CloudFront caches chunks. When a stream is deleted, one cache tag invalidates all that is cached of
that incarnation, whatever its URL. New entries are delivered to the subscribers of cables, if the
deployment has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord

from tailrace.aws.client.service_access import boto_client
from tailrace.aws.runtime.event_context import EventContext
from tailrace.aws.runtime.observability import Observer
from tailrace.configuration import load_settings
from tailrace.protocols.action_cable.api_gateway.delivery import (
    Deliveries,
    TableStreamRecord,
    partition_of,
)
from tailrace.protocols.durable_streams.caching import cache_tag
from tailrace.store.dynamodb.layout import chain_of, entry_of


class TableStreamHandler:
    def __init__(self) -> None:
        self._settings = load_settings()
        self._cloudfront: Any = None
        self._context: EventContext | None = None
        if self._settings.cable_endpoint:
            self._context = EventContext("dispatch")
            self._deliveries = Deliveries(
                self._context.store, self._context.broadcaster, self._context.streams.clock
            )
        self._observer = (
            Observer("dispatch", self._settings)
            if self._context is None
            else self._context.observer
        )

    def __call__(self, event: dict[str, Any]) -> dict[str, Any]:
        """Handle a batch. Lambda repeats the records that fail, and those that follow them."""
        records: Sequence[TableStreamRecord] = event["Records"]
        failed = (
            {} if self._context is None else self._context.run(self._deliveries.handle(records))
        )
        failed |= self._purge_deleted(records)
        self._observer.count("dispatched_records_total", len(records))
        try:
            return self._response(event, failed)
        finally:
            (self._observer if self._context is None else self._context).flush()

    def close(self) -> None:
        if self._context is not None:
            self._context.close()

    def _response(self, event: dict[str, Any], failed: Mapping[str, Exception]) -> dict[str, Any]:
        def outcome(record: DynamoDBRecord) -> None:
            failure = failed.get(partition_of(record.raw_event))
            if failure is not None:
                raise failure

        processor = BatchProcessor(EventType.DynamoDBStreams)
        return {**process_partial_response(event, outcome, processor)}

    def _purge_deleted(self, records: Sequence[TableStreamRecord]) -> dict[str, Exception]:
        """Purge deleted streams from CloudFront; returns failures by the records' partitions."""
        tags = {partition_of(each): tag for each in records if (tag := deleted_tag(each))}
        if not tags:
            return {}
        try:
            self._purge(sorted(set(tags.values())))
        except Exception as failure:
            self._observer.log.exception("purging deleted streams from CloudFront failed")
            return dict.fromkeys(tags, failure)
        self._observer.count("purged_streams_total", len(set(tags.values())))
        return {}

    def _purge(self, tags: list[str]) -> None:
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


def deleted_tag(record: TableStreamRecord) -> str | None:
    """The cache tag of the stream whose deletion a record reports; None for any other record."""
    change = record["dynamodb"]
    item = change.get("NewImage")
    chain = chain_of(partition_of(record))
    if record["eventName"] != "INSERT" or item is None or chain is None:
        return None
    return cache_tag(chain) if entry_of(item).state.deleted else None
