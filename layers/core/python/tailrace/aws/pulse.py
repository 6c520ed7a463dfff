"""The pulse of all who are on a cable, for as long as there is anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailrace.aws.background import Background
from tailrace.aws.invoking import Functions
from tailrace.cable.gateway.pulse import Pulse as GatewayPulse

LAST_SECONDS: Final = 15.0
"""What is left of a function's time when it hands over to the next one."""


class Pulse:
    def __init__(self) -> None:
        self._background = background = Background("pulse")
        self._functions = Functions(background.settings)
        self._pulse = GatewayPulse(
            background.store.table, background.board, background.settings, background.streams.clock
        )

    def __call__(self, _: Mapping[str, Any], context: Any) -> None:
        self._background.run(self._run(context))

    def close(self) -> None:
        self._background.run(self._functions.close())
        self._background.close()

    async def _run(self, context: Any) -> None:
        def remaining() -> float:
            self._background.flush()
            left: float = context.get_remaining_time_in_millis() / 1000
            return left - LAST_SECONDS

        if await self._pulse.run(remaining):
            await self._functions.wake(context.invoked_function_arn, {})
        self._background.flush()
