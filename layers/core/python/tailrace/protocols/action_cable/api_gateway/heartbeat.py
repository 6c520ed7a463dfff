"""The heartbeat: pings all connections, and expires what is due.

One function holds a lease and serves all connections for as long as there are any. A client that
connects checks the lease after its connection was stored, and starts a heartbeat if nobody holds
it; a heartbeat that finds no connection releases the lease and then checks once more. So at least
one of the two notices the other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Final

from tailrace.clock import Clock
from tailrace.errors import TailraceError
from tailrace.limits import CABLE_ACCEPT_SECONDS, CABLE_LIFETIME_SECONDS
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.items import Connection
from tailrace.protocols.action_cable.core.pings import ping
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import number, text
from tailrace.store.dynamodb.table import Table

LEASE_SECONDS: Final = 20
"""How long a heartbeat that has died is taken for alive."""

FEW: Final = 100
"""Connections that one round asks to come anew, or forgets."""

UNHURRIED: Final = 60.0
"""With at least this many seconds between pings, a heartbeat does one round and ends; the schedule
starts the next."""

logger = logging.getLogger("tailrace")


class Lease:
    """Of one heartbeat; the others find it taken."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._by = secrets.token_hex(8)

    async def is_held(self) -> bool:
        """Whether somebody does it."""
        item = await self._table.get(items.HEARTBEAT)
        return item is not None and int(item["u"]["N"]) > self._clock()

    async def take(self) -> bool:
        """Get it, or keep it."""
        now = self._clock()
        values = {
            ":t": text(self._by),
            ":u": number(now + LEASE_SECONDS * 1000),
            ":now": number(now),
        }
        return await self._table.update_if(
            items.HEARTBEAT,
            "SET t = :t, u = :u",
            "attribute_not_exists(p) OR t = :t OR u < :now",
            values,
        )

    async def give_back(self) -> None:
        await self._table.delete_if(items.HEARTBEAT, "t = :t", {":t": text(self._by)})


class Heartbeat:
    def __init__(
        self, table: Table, broadcaster: Broadcaster, settings: Settings, clock: Clock
    ) -> None:
        self._broadcaster = broadcaster
        self._lease = Lease(table, clock)
        self._interval = settings.ping_interval
        self._clock = clock
        self._next: dict[str, float] = {}
        """When each connection is pinged next, by the monotonic clock."""

    async def run(self, remaining: Callable[[], float]) -> bool:
        """For as long as there is somebody and time remains, in seconds. Whether to go on."""
        if not await self._lease.take():
            return False
        while True:
            begun = time.monotonic()
            try:
                anybody = await self.round()
            except TailraceError as error:
                # The next round comes soon.
                logger.warning("a round of the heartbeat failed: %s", error)
                anybody = True
            if not anybody:
                await self._lease.give_back()
                if not await self._anybody() or not await self._lease.take():
                    return False
            elif self._interval >= UNHURRIED:
                await self._lease.give_back()
                return False
            pause = max(0.0, begun + min(self._interval, LEASE_SECONDS / 4) - time.monotonic())
            if remaining() < pause + self._interval:
                await self._lease.give_back()
                return True
            await asyncio.sleep(pause)
            if not await self._lease.take():
                return False

    async def round(self) -> bool:
        """Once all that is due by now. Whether anybody is connected."""
        now, at = time.monotonic(), self._clock()
        letters: list[tuple[str, list[str]]] = []
        old, expired, here, young = [], [], set(), set()
        async for connection in self._broadcaster.connections.all():
            if connection.left is not None:
                continue
            here.add(connection.id)
            age = (at - connection.at) / 1000
            if age < CABLE_ACCEPT_SECONDS:
                young.add(connection.id)
            if connection.expires is not None and connection.expires <= at:
                expired.append(connection.id)
            elif age > CABLE_LIFETIME_SECONDS:
                old.append(connection.id)
            elif self._is_due(connection, now, age):
                letters.append((connection.id, [ping(at, connection.unit)]))
        self._next = {each: due for each, due in self._next.items() if each in here}
        # Who has just come may not be there for API Gateway yet, and is not to be taken for gone.
        await self._broadcaster.try_all(each for each in letters if each[0] in young)
        await self._broadcaster.send_all(each for each in letters if each[0] not in young)
        # Not all at once: the others wait for their pings.
        await self._broadcaster.dismiss(expired[:FEW], "token_expired", reconnect=False)
        await self._broadcaster.restart(old[:FEW])
        await self.sweep()
        return bool(here)

    async def sweep(self) -> None:
        """Those who are gone: first they are no longer there, then they cannot come back."""
        connections = self._broadcaster.connections
        for connection in await connections.due(FEW):
            for subscription in await connections.subscriptions(connection.id):
                await self._broadcaster.leave(connection.id, subscription)
            if not await connections.keep(connection):
                await connections.forget(connection)

    def _is_due(self, connection: Connection, now: float, age: float) -> bool:
        # Whom this heartbeat does not know yet may have waited for as long as it is there.
        due = self._next.get(connection.id, now - age + connection.interval)
        if due > now:
            return False
        following = due + connection.interval
        self._next[connection.id] = following if following > now else now + connection.interval
        return True

    async def _anybody(self) -> bool:
        async for connection in self._broadcaster.connections.all():
            if connection.left is None:
                return True
        return False
