"""Sends the webhooks of subscriptions, ends their leases, and waits for what is due soon.

Its role reaches the subscriptions, and no stream: what a webhook's answer changes there is left to
`dispatch`, which the table's stream tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.runtime.event_context import TASK, EventContext
from tailrace.protocols.subscriptions.dynamodb_store import DynamoSubscriptions
from tailrace.protocols.subscriptions.key_secret import KeySecret
from tailrace.protocols.subscriptions.service import SubscriptionService
from tailrace.protocols.subscriptions.signing import KeySigner
from tailrace.protocols.subscriptions.table_stream import SubscriptionTimer, TimerLease
from tailrace.protocols.subscriptions.webhook_sender import WebhookSender

SEND: Final = "webhook"
"""The task of sending the webhook of a subscription."""

LAST_SECONDS: Final = 15.0
"""Time left when the timer hands over to the next one."""


class WebhooksHandler:
    def __init__(self) -> None:
        self._context = context = EventContext("webhooks")
        store, clock = DynamoSubscriptions(context.store), context.streams.clock
        self._service = SubscriptionService(
            context.streams,
            store,
            WebhookSender(allow_loopback=context.settings.webhook_loopback),
            KeySigner(KeySecret(context.settings)),
            clock,
        )
        self._service.works_elsewhere = True
        self._own_arn = ""
        lease = TimerLease(lambda: context.store.table, clock)
        self._timer = SubscriptionTimer(store, lease, self._start, clock)

    def __call__(self, event: Mapping[str, Any], context: Any) -> None:
        self._own_arn = context.invoked_function_arn
        try:
            self._context.run(self._handle(event, context))
        finally:
            self._context.flush()

    def close(self) -> None:
        self._context.close()

    async def _handle(self, event: Mapping[str, Any], context: Any) -> None:
        if event.get(TASK) == SEND:
            await self._service.perform(event["subscription"])
            return

        def remaining() -> float:
            left: float = context.get_remaining_time_in_millis() / 1000
            return left - LAST_SECONDS

        if await self._timer.run(remaining):
            await self._context.functions.invoke(self._own_arn, {})

    async def _start(self, subscription: str) -> None:
        """Do what is due in an invocation of its own: a slow receiver delays nobody else."""
        await self._context.functions.invoke(
            self._own_arn, {TASK: SEND, "subscription": subscription}
        )
