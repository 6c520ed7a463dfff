"""What clients say on a WebSocket, as API Gateway tells it."""

from typing import Any

from tailrace.aws.handlers.websocket import Cable

cable = Cable()


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return cable(event, context)
