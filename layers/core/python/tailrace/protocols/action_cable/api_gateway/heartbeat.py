"""The heartbeat: pings connections, and expires what is due.

A function holds a lease and serves its part of the connections for as long as there are any; one
part is all of them until it keeps its function busy (`heartbeat_lease`). A client that connects
checks the lease of the first part after its connection was stored, and starts a heartbeat if none
holds it; a heartbeat that finds no connection removes that lease and then checks once more. So at
least one of the two notices the other.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, Final

from tailrace.clock import Clock
from tailrace.errors import TailraceError
from tailrace.limits import GATEWAY_CONNECTION_SHARDS, GATEWAY_PART_PINGS
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster, for_each
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import (
    BUSY,
    LEASE_SECONDS,
    HeartbeatLease,
    holder_of,
    next_count,
    shards_of,
)
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord, HeartbeatPart
from tailrace.protocols.action_cable.api_gateway.roster import PingedConnection, Roster
from tailrace.protocols.action_cable.core.pings import ping
from tailrace.settings import Settings
from tailrace.store.dynamodb.table import Table

BATCH: Final = 100
"""Connections that one round tells to reconnect, or expires."""

SWEEPS: Final = 8
"""Ended connections that are expired at the same time, beside the pings."""

TICK: Final = 0.5
"""Seconds between two groups of pings of a round."""

SETTLE_SECONDS: Final = 15.0
"""How long the number of parts stays, at least."""

UNHURRIED: Final = 60.0
"""With at least this many seconds between pings, a heartbeat does one round and ends; the schedule
starts the next."""

Start = Callable[[int], Awaitable[None]]
"""Starts the heartbeat of another part."""

logger = logging.getLogger("tailrace")


class Heartbeat:
    def __init__(
        self,
        table: Table,
        broadcaster: Broadcaster,
        settings: Settings,
        clock: Clock,
        part: int = 0,
        former: str = "",
    ) -> None:
        """`former`: the heartbeat of this part that hands over to this one."""
        self.lease = HeartbeatLease(table, clock, part, former)
        self.roster = Roster(broadcaster.connections, clock)
        self._part = part
        self._broadcaster = broadcaster
        self._interval = settings.ping_interval
        self._clock = clock
        self._pinged_until = self._pinged_before = 0
        """Up to when this heartbeat, and the one before it, have sent the pings."""
        self._busy = 0.0
        """The seconds of the last round in which pings were sent."""

    async def run(self, remaining: Callable[[], float], start: Start) -> bool:
        """Run rounds while any client of the part is connected and time remains, which `remaining`
        returns in seconds. Returns whether another function has to take over."""
        part = await self.lease.acquire()
        if part is None:
            return False
        self._pinged_before = part.pinged_until
        unhurried = self._interval >= UNHURRIED
        length = 0.0 if unhurried else min(self._interval, LEASE_SECONDS / 4)
        while True:
            begun = time.monotonic()
            try:
                if not await self._divide(part, start):
                    await self.lease.remove()
                    return False
                connected = await self.round(length)
            except TailraceError as error:
                # The next round comes soon.
                logger.warning("a round of the heartbeat failed: %s", error)
                connected = True
            if not connected and part.part_count == 1 and self._part == 0:
                await self.lease.remove()
                if not await self._any_connected() or not await self.lease.acquire():
                    return False
                # The index may not have the new connection yet.
                await self.roster.serve((), 0)
            elif unhurried:
                await self.lease.acquire(self._pinged_until, self._load(UNHURRIED))
                await self.lease.release()
                return False
            pause = max(0.0, begun + length - time.monotonic())
            if remaining() < pause + length + self._interval:
                # The next one has to know up to when pings were sent.
                return await self._renew(part, length) is not None
            await asyncio.sleep(pause)
            renewed = await self._renew(part, length)
            if renewed is None:
                return False
            part = renewed

    async def _renew(self, part: HeartbeatPart, length: float) -> HeartbeatPart | None:
        """Renew the lease; returns None if it is lost."""
        try:
            return await self.lease.acquire(self._pinged_until, self._load(length))
        except TailraceError:
            # Nobody else begins until it expires, and clients would miss their pings.
            if part.leased_until <= self._clock():
                raise
            logger.warning("the lease of a heartbeat could not be renewed", exc_info=True)
            return part

    async def round(self, length: float = 0.0) -> bool:
        """Send the pings that become due within `length` seconds, and expire connections. Returns
        whether any client is connected."""
        if not self.roster.shards:
            await self._serve(range(GATEWAY_CONNECTION_SHARDS))
        await self.roster.refresh()
        # Pings don't wait for the others.
        await asyncio.gather(
            *map(_log_failure, (self._send_pings(length), self._end_connections(), self.sweep()))
        )
        return len(self.roster) > 0

    @property
    def busy(self) -> float:
        """The seconds of the last round in which pings were sent."""
        return self._busy

    async def sweep(self) -> None:
        """Expire ended connections: first their presence, later their resumable session."""
        connections = self._broadcaster.connections
        shards = self.roster.shards or range(GATEWAY_CONNECTION_SHARDS)
        await for_each(self._expire, await connections.due(shards, BATCH), SWEEPS)

    # Parts

    async def _divide(self, part: HeartbeatPart, start: Start) -> bool:
        """Serve the shards of this part, and of those that it has to start. Returns False if this
        part is none any more."""
        if self._part == 0 and part.part_count == 1:
            await self._serve(range(GATEWAY_CONNECTION_SHARDS))
            await self._change_count(part, {0: part})
            return True
        parts = await self.lease.parts()
        count = parts[0].part_count if 0 in parts else 1
        if self._part >= count:
            return False
        now = self._clock()
        alive = {each.part for each in parts.values() if each.leased_until > now}
        alive.add(self._part)
        missing = [each for each in range(count) if each not in alive]
        serving = set(range(count)) if self._interval >= UNHURRIED else alive
        await self._serve(shards_of(self._part, count, serving))
        for each in missing:
            if each == 0 or holder_of(each, count, alive) == self._part:
                await start(each)
        if self._part == 0:
            await self._change_count(part, parts)
        return True

    async def _serve(self, shards: Collection[int]) -> None:
        if not self.roster.shards:
            self._pinged_until = self._clock()
            await self.roster.serve(shards, self._pinged_before)
        else:
            # Nobody knows when connections that are taken over got their last ping.
            await self.roster.serve(shards, 0)

    async def _change_count(self, part: HeartbeatPart, parts: dict[int, HeartbeatPart]) -> None:
        for each in parts:
            if each >= part.part_count:
                await self.lease.forget(each)
        # After a change, loads are those of before until every heartbeat has had a whole round.
        settle = UNHURRIED * 1.5 if self._interval >= UNHURRIED else SETTLE_SECONDS
        if self._clock() - part.divided_at < settle * 1000:
            return
        loads = [each.load for each in parts.values() if each.part < part.part_count]
        wanted = next_count(part.part_count, loads)
        if wanted != part.part_count:
            logger.info("connections are served in %d parts instead of %d", wanted, part.part_count)
            await self.lease.divide(wanted)

    def _load(self, length: float) -> int:
        """How busy this heartbeat is, in percent: by its pings, or by the time that they take."""
        share = self._busy / length if length else 0.0
        return int(BUSY * max(self.roster.rate / GATEWAY_PART_PINGS, share))

    # Pings

    async def _send_pings(self, length: float) -> None:
        begun, self._busy = time.monotonic(), 0.0
        for tick in itertools.count(1):
            now = self._clock()
            started = time.monotonic()
            await self._ping(self.roster.due(self._pinged_until, now), now)
            self._pinged_until = now
            self._busy += time.monotonic() - started
            if tick * TICK >= length:
                return
            await asyncio.sleep(max(0.0, begun + tick * TICK - time.monotonic()))

    async def _ping(self, members: Collection[PingedConnection], now: int) -> None:
        pings = ((each.connection, ping(now, each.time_unit)) for each in members)
        gone = await self._broadcaster.ping_all(pings)
        ended = [each.connection for each in members if each.connection in gone]
        young = {each.connection for each in members if each.is_young(now)}
        await for_each(self._disconnect, [each for each in ended if each not in young])

    async def _disconnect(self, connection: str) -> None:
        await self._broadcaster.connections.disconnect(connection)
        self.roster.remove(connection)

    # Expiry

    async def _end_connections(self) -> None:
        # A batch at a time: otherwise all of them would reconnect at once.
        expired = list(itertools.islice(self.roster.expired(), BATCH))
        self.roster.remove_all(expired)
        await self._broadcaster.close_all(expired, "token_expired", reconnect=False)
        old = list(itertools.islice(self.roster.old(), BATCH))
        self.roster.remove_all(old)
        await self._broadcaster.request_reconnect(old)

    async def _expire(self, connection: ConnectionRecord) -> None:
        connections = self._broadcaster.connections
        for subscription in await connections.subscriptions(connection.id):
            await self._broadcaster.leave_presence(connection.id, subscription)
        if not await connections.keep_session(connection):
            await connections.delete(connection)

    async def _any_connected(self) -> bool:
        for shard in range(GATEWAY_CONNECTION_SHARDS):
            async for _ in self._broadcaster.connections.connected(shard):
                return True
        return False


async def _log_failure(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except TailraceError as error:
        # The next round comes soon.
        logger.warning("a part of a round of the heartbeat failed: %s", error)
