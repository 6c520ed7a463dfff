"""The connections that a heartbeat serves, in its memory.

They are read once, when the heartbeat begins or takes shards over from another one; after that only
new ones are, by the index. A connection that has ended is found by its next ping.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from tailrace.clock import Clock
from tailrace.limits import GATEWAY_ACCEPT_SECONDS, GATEWAY_CONNECTION_SECONDS
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.broadcaster import for_each
from tailrace.protocols.action_cable.api_gateway.connections import Connections
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord

OVERLAP: Final = 30_000
"""How far back new connections are looked for again, in milliseconds: the index may lag behind, and
functions' clocks differ."""


SPREAD: Final = 1_200_000
"""Milliseconds by which the greatest ages of connections differ."""


class PingedConnection(NamedTuple):
    """A connection that gets pings: one each time that the clock passes `phase` modulo `interval`,
    so that pings are spread evenly, and each heartbeat knows when they are due."""

    connection: str
    interval: int
    """In milliseconds."""
    phase: int
    time_unit: str
    connected_at: int
    expires_at: int | None

    def is_due(self, start: int, end: int) -> bool:
        """Whether a ping is due after `start`, and not after `end`."""
        interval, phase = self.interval, self.phase
        return (end - phase) // interval > (start - phase) // interval

    def is_old(self, now: int) -> bool:
        """Whether its client has to reconnect, before API Gateway ends it. Clients that have come
        together do so one after the other."""
        spread = zlib.crc32(self.connection.encode()) % SPREAD
        return now - self.connected_at > GATEWAY_CONNECTION_SECONDS * 1000 - spread

    def is_young(self, now: int) -> bool:
        """Whether API Gateway may not have accepted it yet: then a failed ping means nothing."""
        return now - self.connected_at < GATEWAY_ACCEPT_SECONDS * 1000


class Roster:
    def __init__(self, connections: Connections, clock: Clock) -> None:
        self.shards: frozenset[int] = frozenset()
        self._connections = connections
        self._clock = clock
        self._members: dict[str, PingedConnection] = {}
        self._overdue: dict[str, PingedConnection] = {}
        """Members that missed a ping before they were found."""
        self._read_at = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def rate(self) -> float:
        """Pings a second."""
        return sum(1000 / each.interval for each in self._members.values())

    async def serve(self, shards: Collection[int], pinged_until: int) -> None:
        """Serve these shards: read those that are new. `pinged_until`: the time up to which their
        connections have got their pings."""
        added = frozenset(shards) - self.shards
        self._read_at = self._read_at or self._clock()
        for shard in added:
            async for connection in self._connections.connected(shard):
                self._add(connection, max(pinged_until, connection.connected_at))
        removed = self.shards - frozenset(shards)
        if removed:
            for each in list(self._members):
                if items.connection_shard(each) in removed:
                    self.remove(each)
        self.shards = frozenset(shards)

    async def refresh(self) -> None:
        """Add new connections."""
        now = self._clock()

        async def add(name: str) -> None:
            connection = await self._connections.get(name, consistent=False)
            if connection is not None and connection.disconnected_at is None:
                self._add(connection, connection.connected_at)

        listed = self._connections.connected_since(self.shards, self._read_at - OVERLAP)
        await for_each(add, [each async for each in listed if each not in self._members])
        self._read_at = now

    def due(self, start: int, end: int) -> list[PingedConnection]:
        """The members whose ping is due after `start`, and not after `end`, and those that are
        overdue."""
        overdue, self._overdue = self._overdue, {}
        due = [
            each
            for name, each in self._members.items()
            if each.is_due(start, end) and name not in overdue
        ]
        return [*overdue.values(), *due]

    def expired(self) -> Iterator[str]:
        """Connections whose token has expired."""
        now = self._clock()
        for name, each in self._members.items():
            if each.expires_at is not None and each.expires_at <= now:
                yield name

    def old(self) -> Iterator[str]:
        """Connections that API Gateway will end soon."""
        now = self._clock()
        return (name for name, each in self._members.items() if each.is_old(now))

    def remove(self, connection: str) -> None:
        self._members.pop(connection, None)
        self._overdue.pop(connection, None)

    def remove_all(self, connections: Iterable[str]) -> None:
        for each in connections:
            self.remove(each)

    def _add(self, connection: ConnectionRecord, pinged_until: int) -> None:
        interval = max(1, int(connection.ping_interval * 1000))
        member = self._members[connection.id] = PingedConnection(
            connection.id,
            interval,
            zlib.crc32(connection.id.encode()) % interval,
            connection.time_unit,
            connection.connected_at,
            connection.expires_at,
        )
        if member.is_due(pinged_until, self._clock()):
            self._overdue[connection.id] = member
