"""Runs a heartbeat of cables while any client is connected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.runtime.event_context import TASK, EventContext
from tailrace.protocols.action_cable.api_gateway.heartbeat import Heartbeat

LAST_SECONDS: Final = 15.0
"""Time left when a function hands over to the next one."""


class HeartbeatHandler:
    def __init__(self) -> None:
        self._context = EventContext("heartbeat")

    def __call__(self, event: Mapping[str, Any], context: Any) -> None:
        self._context.run(self._run(event, context))

    def close(self) -> None:
        self._context.close()

    async def _run(self, event: Mapping[str, Any], context: Any) -> None:
        # The schedule's events are answered from the index: while no client is connected, they are
        # all that this function is invoked with. Others come from a client that has just connected.
        broadcaster = self._context.broadcaster
        if TASK in event or await broadcaster.connections.needs_heartbeat():
            await self._serve(event.get("part", 0), event.get("former", ""), context)
        self._context.flush()

    async def _serve(self, part: int, former: str, context: Any) -> None:
        """Run the heartbeat of a part, and hand over in time."""
        events = self._context
        heartbeat = Heartbeat(
            events.store.table,
            events.broadcaster,
            events.settings,
            events.streams.clock,
            part,
            former,
        )

        def remaining() -> float:
            events.flush()
            left: float = context.get_remaining_time_in_millis() / 1000
            return left - LAST_SECONDS

        async def start(part: int, former: str = "") -> None:
            task = {TASK: "heartbeat", "part": part, "former": former}
            await events.functions.invoke(context.invoked_function_arn, task)

        if await heartbeat.run(remaining, start):
            await start(part, heartbeat.lease.owner)
