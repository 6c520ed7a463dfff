"""What is done by the clock: pings, and what is due."""

from typing import Any

from tailrace.aws.handlers.heartbeat import HeartbeatHandler

heartbeat = HeartbeatHandler()


def handler(event: dict[str, Any], context: object) -> None:
    heartbeat(event, context)
