"""What follows a change of the log, as the table's stream tells it.

A deleted stream is purged: the edge keeps chunks for a while, and forgets everything that it has of
that incarnation, whatever the URL, by one tag. What is new is delivered to those who listen on a
cable, where there is one.
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

from tailrace.aws.client.endpoint import boto_client
from tailrace.aws.runtime.event_context import EventContext
from tailrace.aws.runtime.observability import Observer
from tailrace.configuration import load_settings
from tailrace.log.etag import cache_tag
from tailrace.protocols.action_cable.api_gateway.delivery import Deliveries, Record, partition_of
from tailrace.store.dynamodb.layout import chain_of, entry_of


class Dispatch:
    def __init__(self) -> None:
        self._settings = load_settings()
        self._cloudfront: Any = None
        self._cable: EventContext | None = None
        if self._settings.cable_endpoint:
            self._cable = EventContext("dispatch")
            self._deliveries = Deliveries(
                self._cable.store, self._cable.broadcaster, self._cable.streams.clock
            )
        self._observer = (
            Observer("dispatch", self._settings) if self._cable is None else self._cable.observer
        )

    def __call__(self, event: dict[str, Any]) -> dict[str, Any]:
        """Works on a batch. Records that it fails with come again, and those behind them."""
        records: Sequence[Record] = event["Records"]
        failed = {} if self._cable is None else self._cable.run(self._deliveries.take(records))
        failed |= self._forget(records)
        self._observer.count("dispatched_records_total", len(records))
        try:
            return self._answer(event, failed)
        finally:
            (self._observer if self._cable is None else self._cable).flush()

    def close(self) -> None:
        if self._cable is not None:
            self._cable.close()

    def _answer(self, event: dict[str, Any], failed: Mapping[str, Exception]) -> dict[str, Any]:
        def outcome(record: DynamoDBRecord) -> None:
            failure = failed.get(partition_of(record.raw_event))
            if failure is not None:
                raise failure

        processor = BatchProcessor(EventType.DynamoDBStreams)
        return {**process_partial_response(event, outcome, processor)}

    def _forget(self, records: Sequence[Record]) -> dict[str, Exception]:
        """Has the edge forget what was deleted; what went wrong, by the records' partitions."""
        tags = {partition_of(each): tag for each in records if (tag := deleted_tag(each))}
        if not tags:
            return {}
        try:
            self._purge(sorted(set(tags.values())))
        except Exception as failure:
            self._observer.log.exception("the edge was not told")
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
                # An incarnation is deleted once: the same tags again are the same batch again.
                "CallerReference": hashlib.sha256(" ".join(items).encode()).hexdigest(),
            },
        )
        self._observer.log.info("purged", extra={"tags": tags})


def deleted_tag(record: Record) -> str | None:
    """The cache tag of the stream that a record of the table's stream is the deletion of."""
    change = record["dynamodb"]
    item = change.get("NewImage")
    chain = chain_of(partition_of(record))
    if record["eventName"] != "INSERT" or item is None or chain is None:
        return None
    return cache_tag(chain) if entry_of(item).state.deleted else None
