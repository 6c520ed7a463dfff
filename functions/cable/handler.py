"""Handles events of the WebSocket API: connections, messages, disconnections."""

from typing import Any

from tailrace.aws.handlers.websocket import WebSocketHandler

websocket = WebSocketHandler()


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    return websocket(event, context)
