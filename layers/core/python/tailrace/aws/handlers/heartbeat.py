"""The heartbeat of all who are on a cable, for as long as there is anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.runtime.event_context import EventContext
from tailrace.aws.runtime.invoke import Functions
from tailrace.protocols.action_cable.api_gateway.heartbeat import Heartbeat

LAST_SECONDS: Final = 15.0
"""What is left of a function's time when it hands over to the next one."""


class HeartbeatHandler:
    def __init__(self) -> None:
        self._context = background = EventContext("heartbeat")
        self._functions = Functions(background.settings)
        self._heartbeat = Heartbeat(
            background.store.table,
            background.broadcaster,
            background.settings,
            background.streams.clock,
        )

    def __call__(self, _: Mapping[str, Any], context: Any) -> None:
        self._context.run(self._run(context))

    def close(self) -> None:
        self._context.run(self._functions.close())
        self._context.close()

    async def _run(self, context: Any) -> None:
        def remaining() -> float:
            self._context.flush()
            left: float = context.get_remaining_time_in_millis() / 1000
            return left - LAST_SECONDS

        if await self._heartbeat.run(remaining):
            await self._functions.wake(context.invoked_function_arn, {})
        self._context.flush()
