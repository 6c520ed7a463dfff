"""Sends webhooks of subscriptions, and waits for what they have due."""

from typing import Any

from tailrace.aws.handlers.webhooks import WebhooksHandler

webhooks = WebhooksHandler()


def handler(event: dict[str, Any], context: object) -> None:
    webhooks(event, context)
