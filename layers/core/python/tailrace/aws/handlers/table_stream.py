"""Handles records of the table's stream: delivers new entries to the subscribers of cables, and
wakes the subscriptions that follow their streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord

from tailrace.aws.handlers.webhooks import SEND
from tailrace.aws.runtime.event_context import TASK, EventContext
from tailrace.protocols.action_cable.api_gateway.delivery import (
    Deliveries,
    TableStreamRecord,
    partition_of,
)
from tailrace.protocols.subscriptions.dynamodb_store import DynamoSubscriptions
from tailrace.protocols.subscriptions.key_secret import KeySecret
from tailrace.protocols.subscriptions.service import SubscriptionService
from tailrace.protocols.subscriptions.signing import KeySigner
from tailrace.protocols.subscriptions.table_stream import SubscriptionRecords, TimerLease
from tailrace.protocols.subscriptions.webhook_sender import WebhookSender

PART: Final = "deliver"
"""The task of an invocation by this function, for a part of a large audience."""

LINE_SECONDS: Final = 60.0
"""How long the metrics of batches that sent nothing may wait for a line, which costs more than the
batch."""


class TableStreamHandler:
    def __init__(self) -> None:
        self._context = EventContext("dispatch")
        self._own_arn = ""
        self._deliveries = Deliveries(
            self._context.store,
            self._context.broadcaster,
            self._context.streams.clock,
            self._invoke_for_part,
        )
        self._subscriptions = (
            self._build_subscriptions() if self._context.settings.webhooks else None
        )

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        """Handle a batch, or a part of a delivery. Lambda repeats the records of a batch that fail,
        and those that follow them."""
        self._own_arn = context.invoked_function_arn
        if event.get(TASK) == PART:
            try:
                return self._context.run(self._deliveries.serve_part(event))
            finally:
                self._context.flush()
        records: Sequence[TableStreamRecord] = event["Records"]
        failed = self._context.run(self._handle(records))
        self._context.observer.count("dispatched_records_total", len(records))
        try:
            return _response(event, failed)
        finally:
            # Almost all appends are to streams without subscribers: nothing was sent for them.
            sent = any(self._context.gateway_api.counts.values())
            if failed or sent or not self._context.observer.may_wait(LINE_SECONDS):
                self._context.flush()

    async def _handle(self, records: Sequence[TableStreamRecord]) -> dict[str, Exception]:
        if self._subscriptions is None:
            return await self._deliveries.handle(records)
        woken, delivered = await asyncio.gather(
            self._subscriptions.handle(records), self._deliveries.handle(records)
        )
        return woken | delivered

    def _build_subscriptions(self) -> SubscriptionRecords:
        context, clock = self._context, self._context.streams.clock
        webhooks = context.settings.webhooks
        # Sending is left to another function, which alone has the keys.
        service = SubscriptionService(
            context.streams,
            DynamoSubscriptions(context.store),
            WebhookSender(allow_loopback=False),
            KeySigner(KeySecret(context.settings)),
            clock,
        )

        async def send(subscription: str) -> None:
            await context.functions.invoke(webhooks, {TASK: SEND, "subscription": subscription})

        async def start_timer() -> None:
            await context.functions.invoke(webhooks, {TASK: "timer"})

        service.send_elsewhere = send
        lease = TimerLease(lambda: context.store.table, clock)
        return SubscriptionRecords(service, lease, start_timer, clock)

    def close(self) -> None:
        self._context.close()

    async def _invoke_for_part(self, part: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return await self._context.functions.call(self._own_arn, {TASK: PART, **part})


def _response(event: dict[str, Any], failed: Mapping[str, Exception]) -> dict[str, Any]:
    def outcome(record: DynamoDBRecord) -> None:
        failure = failed.get(partition_of(record.raw_event))
        if failure is not None:
            raise failure

    processor = BatchProcessor(EventType.DynamoDBStreams)
    return {**process_partial_response(event, outcome, processor)}
