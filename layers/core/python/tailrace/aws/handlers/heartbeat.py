"""Runs the heartbeat of cables while any client is connected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.runtime.event_context import EventContext
from tailrace.protocols.action_cable.api_gateway.heartbeat import Heartbeat

LAST_SECONDS: Final = 15.0
"""Time left when a function hands over to the next one."""


class HeartbeatHandler:
    def __init__(self) -> None:
        self._context = context = EventContext("heartbeat")
        self._heartbeat = Heartbeat(
            context.store.table,
            context.broadcaster,
            context.settings,
            context.streams.clock,
        )

    def __call__(self, _: Mapping[str, Any], context: Any) -> None:
        self._context.run(self._run(context))

    def close(self) -> None:
        self._context.close()

    async def _run(self, context: Any) -> None:
        def remaining() -> float:
            self._context.flush()
            left: float = context.get_remaining_time_in_millis() / 1000
            return left - LAST_SECONDS

        if await self._heartbeat.run(remaining):
            await self._context.functions.invoke(context.invoked_function_arn, {})
        self._context.flush()
