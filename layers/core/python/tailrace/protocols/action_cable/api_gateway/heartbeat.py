"""The heartbeat: pings all connections, and expires what is due.

One function holds a lease and serves all connections for as long as there are any. A client that
connects checks the lease after its connection was stored, and starts a heartbeat if none holds
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
from tailrace.limits import GATEWAY_ACCEPT_SECONDS, GATEWAY_CONNECTION_SECONDS
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster, Outgoing
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord
from tailrace.protocols.action_cable.core.pings import ping
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import number, text
from tailrace.store.dynamodb.table import Table

LEASE_SECONDS: Final = 20
"""Duration of the lease: for so long no heartbeat replaces one that has died."""

BATCH: Final = 100
"""Connections that one round tells to reconnect, or expires."""

UNHURRIED: Final = 60.0
"""With at least this many seconds between pings, a heartbeat does one round and ends; the schedule
starts the next."""

logger = logging.getLogger("tailrace")


class HeartbeatLease:
    """The lease that keeps all heartbeats but one from running."""

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._owner = secrets.token_hex(8)

    async def is_held(self) -> bool:
        """Whether any heartbeat holds the lease."""
        item = await self._table.get(items.HEARTBEAT_LEASE)
        return item is not None and int(item["leased_until"]["N"]) > self._clock()

    async def acquire(self) -> bool:
        """Acquire or renew the lease; returns False if another heartbeat holds it."""
        now = self._clock()
        values = {
            ":owner": text(self._owner),
            ":until": number(now + LEASE_SECONDS * 1000),
            ":now": number(now),
        }
        return await self._table.update_if(
            items.HEARTBEAT_LEASE,
            "SET lease_owner = :owner, leased_until = :until",
            "attribute_not_exists(p) OR lease_owner = :owner OR leased_until < :now",
            values,
        )

    async def release(self) -> None:
        await self._table.delete_if(
            items.HEARTBEAT_LEASE, "lease_owner = :owner", {":owner": text(self._owner)}
        )


class Heartbeat:
    def __init__(
        self, table: Table, broadcaster: Broadcaster, settings: Settings, clock: Clock
    ) -> None:
        self._broadcaster = broadcaster
        self._lease = HeartbeatLease(table, clock)
        self._interval = settings.ping_interval
        self._clock = clock
        self._next: dict[str, float] = {}
        """When each connection is due for its next ping, by the monotonic clock."""

    async def run(self, remaining: Callable[[], float]) -> bool:
        """Run rounds while any client is connected and time remains, which `remaining` returns in
        seconds. Returns whether another function has to go on."""
        if not await self._lease.acquire():
            return False
        while True:
            started = time.monotonic()
            try:
                connected = await self.round()
            except TailraceError as error:
                # The next round comes soon.
                logger.warning("a round of the heartbeat failed: %s", error)
                connected = True
            if not connected:
                await self._lease.release()
                if not await self._any_connected() or not await self._lease.acquire():
                    return False
            elif self._interval >= UNHURRIED:
                await self._lease.release()
                return False
            pause = max(0.0, started + min(self._interval, LEASE_SECONDS / 4) - time.monotonic())
            if remaining() < pause + self._interval:
                await self._lease.release()
                return True
            await asyncio.sleep(pause)
            if not await self._lease.acquire():
                return False

    async def round(self) -> bool:
        """Send all pings, and expire all connections, that are due. Returns whether any client is
        connected."""
        now, clock = time.monotonic(), self._clock()
        pings: list[Outgoing] = []
        old, expired, connected, young = [], [], set(), set()
        async for connection in self._broadcaster.connections.all():
            if connection.disconnected_at is not None:
                continue
            connected.add(connection.id)
            age = (clock - connection.connected_at) / 1000
            if age < GATEWAY_ACCEPT_SECONDS:
                young.add(connection.id)
            if connection.expires_at is not None and connection.expires_at <= clock:
                expired.append(connection.id)
            elif age > GATEWAY_CONNECTION_SECONDS:
                old.append(connection.id)
            elif self._is_due(connection, now, age):
                pings.append((connection.id, [ping(clock, connection.time_unit)]))
        self._next = {each: due for each, due in self._next.items() if each in connected}
        # API Gateway answers 410 for a connection that it has not accepted yet: a failed ping does
        # not mean that a young connection is gone.
        await self._broadcaster.send_best_effort(each for each in pings if each[0] in young)
        await self._broadcaster.send_all(each for each in pings if each[0] not in young)
        # A batch at a time: the other connections wait for their pings meanwhile.
        await self._broadcaster.close_all(expired[:BATCH], "token_expired", reconnect=False)
        await self._broadcaster.request_reconnect(old[:BATCH])
        await self.sweep()
        return bool(connected)

    async def sweep(self) -> None:
        """Expire ended connections: first their presence, later their resumable session."""
        connections = self._broadcaster.connections
        for connection in await connections.due(BATCH):
            for subscription in await connections.subscriptions(connection.id):
                await self._broadcaster.leave_presence(connection.id, subscription)
            if not await connections.keep_session(connection):
                await connections.delete(connection)

    def _is_due(self, connection: ConnectionRecord, now: float, age: float) -> bool:
        # A new heartbeat does not know when the former one pinged a connection: it reckons from the
        # beginning of the connection, so that none waits longer than its interval.
        interval = connection.ping_interval
        due = self._next.get(connection.id, now - age + interval)
        if due > now:
            return False
        following = due + interval
        self._next[connection.id] = following if following > now else now + interval
        return True

    async def _any_connected(self) -> bool:
        async for connection in self._broadcaster.connections.all():
            if connection.disconnected_at is None:
                return True
        return False
