"""Parts of a delivery: functions that send to a part of the subscribers each, at the same time.

The function that holds the lease of a delivery invokes another one for each part and waits for all
of them, so that no later slot is sent to anybody before. A function begins a part by a conditional
write to the cursor, which succeeds once, and only while the lease is held: an invocation that is
repeated, or comes late, sends nothing. Of a part whose function does not respond, the holder of the
lease tries to begin it by itself. If that succeeds, nobody else has sent anything, and nobody else
will. Otherwise it is unknown which frames arrived, and the subscribers of the part are told to
reconnect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from typing import Any, NamedTuple

from tailrace.limits import GATEWAY_DELIVERY_PARTS, GATEWAY_PART_SUBSCRIBERS
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.api_gateway.items import DeliveryCursor, subscriber_span

Invoke = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Invokes a function with a part, and returns its response; None if there is none."""


class DeliveryPart(NamedTuple):
    """Slots of a stream, for a part of its subscribers."""

    cursor: DeliveryCursor
    """The delivery's, as it was before its lease."""
    end: int
    """The slot after the last one."""
    deleted: bool
    """Whether the stream ends with that slot."""
    owner: str
    """The holder of the lease."""
    number: int
    parts: int

    @property
    def span(self) -> tuple[str, str]:
        return subscriber_span(self.number, self.parts)

    def event(self) -> dict[str, Any]:
        cursor = self.cursor
        return {
            "chain": f"{cursor.chain:x}",
            "path": cursor.path,
            "mode": cursor.mode.name,
            "slot": cursor.slot,
            "end": self.end,
            "deleted": self.deleted,
            "owner": self.owner,
            "part": self.number,
            "parts": self.parts,
        }

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> DeliveryPart:
        cursor = DeliveryCursor(
            int(event["chain"], 16), event["path"], Mode[event["mode"]], event["slot"], None, 0
        )
        return cls(
            cursor, event["end"], event["deleted"], event["owner"], event["part"], event["parts"]
        )


def parts_for(audience: int) -> int:
    """How many functions send to so many subscribers."""
    if audience <= 2 * GATEWAY_PART_SUBSCRIBERS:
        return 1
    return min(ceil(audience / GATEWAY_PART_SUBSCRIBERS), GATEWAY_DELIVERY_PARTS)
