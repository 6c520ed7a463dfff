"""Sends pings to WebSockets and expires connections."""

from typing import Any

from tailrace.aws.handlers.heartbeat import HeartbeatHandler

heartbeat = HeartbeatHandler()


def handler(event: dict[str, Any], context: object) -> None:
    heartbeat(event, context)
