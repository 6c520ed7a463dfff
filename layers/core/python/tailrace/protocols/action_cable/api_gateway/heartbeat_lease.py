"""Leases of heartbeats: each serves a part of the connections.

The connections are in shards. With `n` parts, a power of two, shard `s` belongs to part `s mod n`:
part `p` of `n` divides into the parts `p` and `p + n` of `2n`. While no heartbeat holds the lease
of a part, the heartbeat of the part that it came from serves it, too, and starts another one for
it. So a part that has just been made, or whose heartbeat has died, is never without pings for long;
a connection that two heartbeats ping gets a ping too many.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Final

from tailrace.clock import Clock
from tailrace.limits import GATEWAY_CONNECTION_SHARDS
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import HeartbeatPart
from tailrace.store.dynamodb.layout import number, text
from tailrace.store.dynamodb.table import Table

LEASE_SECONDS: Final = 20
"""Duration of the lease: for so long no heartbeat replaces one that has died."""

BUSY: Final = 100
"""The load in percent from which on connections are divided between more heartbeats."""

IDLE: Final = 50
"""The load in percent that heartbeats may have after half of them have ended."""


class HeartbeatLease:
    """The lease that keeps all heartbeats of a part but one from running."""

    def __init__(self, table: Table, clock: Clock, part: int = 0, former: str = "") -> None:
        """`former`: the heartbeat that hands its lease over to this one."""
        self.owner = secrets.token_hex(8)
        self.part = part
        self._table = table
        self._clock = clock
        self._key = items.heartbeat_key(part)
        self._former = former

    async def is_held(self) -> bool:
        """Whether any heartbeat holds the lease."""
        item = await self._table.get(self._key)
        return item is not None and items.heartbeat_part_of(item).leased_until > self._clock()

    async def acquire(self, pinged_until: int = 0, load: int = 0) -> HeartbeatPart | None:
        """Acquire or renew the lease, and store what this heartbeat has done; returns None if
        another heartbeat holds it."""
        now = self._clock()
        values = {
            ":owner": text(self.owner),
            ":former": text(self._former or self.owner),
            ":until": number(now + LEASE_SECONDS * 1000),
            ":now": number(now),
        }
        expression = "SET lease_owner = :owner, leased_until = :until"
        if pinged_until:
            values |= {":pinged": number(pinged_until), ":load": number(load)}
            expression = f"{expression}, pinged_until = :pinged, busy_percent = :load"
        item = await self._table.change_if(
            self._key,
            expression,
            "attribute_not_exists(leased_until) OR lease_owner = :owner OR lease_owner = :former"
            " OR leased_until < :now",
            values,
        )
        return None if item is None else items.heartbeat_part_of(item)

    async def divide(self, count: int) -> None:
        """Divide the connections into another number of parts."""
        await self._table.update_if(
            self._key,
            "SET part_count = :count, divided_at = :now",
            "lease_owner = :owner",
            {
                ":count": number(count),
                ":now": number(self._clock()),
                ":owner": text(self.owner),
            },
        )

    async def parts(self) -> dict[int, HeartbeatPart]:
        parts = [items.heartbeat_part_of(item) async for item in self._table.all(items.LEASES)]
        return {each.part: each for each in parts}

    async def release(self) -> None:
        """Let another heartbeat begin at once, where this one has stopped."""
        await self._table.update_if(
            self._key,
            "REMOVE lease_owner, leased_until",
            "lease_owner = :owner",
            {":owner": text(self.owner)},
        )

    async def forget(self, part: int) -> None:
        """Remove the lease of a part that is none any more, unless its heartbeat still runs."""
        await self._table.delete_if(
            items.heartbeat_key(part),
            "attribute_not_exists(leased_until) OR leased_until < :now",
            {":now": number(self._clock())},
        )

    async def remove(self) -> None:
        """Remove the lease of a part without connections, or that is none any more."""
        await self._table.delete_if(self._key, "lease_owner = :owner", {":owner": text(self.owner)})


def holder_of(shard: int, count: int, alive: Collection[int]) -> int:
    """The part whose heartbeat serves a shard, or starts the heartbeat of a part."""
    part = shard % count
    while part and part not in alive:
        part ^= 1 << (part.bit_length() - 1)
    return part


def shards_of(part: int, count: int, alive: Collection[int]) -> set[int]:
    """The shards that the heartbeat of a part serves."""
    shards = range(GATEWAY_CONNECTION_SHARDS)
    return {shard for shard in shards if holder_of(shard, count, alive) == part}


def next_count(count: int, loads: Sequence[int]) -> int:
    """How many parts there should be, by the loads of the present ones."""
    total = sum(loads)
    if max(loads) > BUSY:
        wanted = count * 2
        while total > BUSY * wanted:
            wanted *= 2
        return min(wanted, GATEWAY_CONNECTION_SHARDS)
    fewer = max(1, count // 2)
    return fewer if total <= IDLE * fewer else count
