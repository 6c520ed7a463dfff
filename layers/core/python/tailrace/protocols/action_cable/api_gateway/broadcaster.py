"""Sends frames to the connections of API Gateway, and ends connections that cannot be sent to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from tailrace.clock import Clock
from tailrace.errors import BodyTooLarge, StreamTooHot, TailraceError
from tailrace.limits import (
    GATEWAY_BROADCAST_BYTES,
    GATEWAY_CONNECTION_SHARDS,
    GATEWAY_PRESENCE_SUBSCRIBERS,
)
from tailrace.protocols.action_cable.api_gateway.connections import Connections
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tailrace.protocols.action_cable.api_gateway.gateway_api import ConnectionApi, SendResult
from tailrace.protocols.action_cable.api_gateway.items import SubscriberRecord, SubscriptionRecord
from tailrace.protocols.action_cable.api_gateway.presence_table import PresenceTable
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.protocols.action_cable.core.publisher import ConnectionInfo
from tailrace.settings import Settings
from tailrace.store.dynamodb.table import Table

CONCURRENCY: Final = 64
"""Connections that are sent to at the same time."""

Outgoing = tuple[str, Sequence[str]]
"""A connection, and the frames to send to it."""

PING_ATTEMPTS: Final = 3
"""How often a ping is sent that API Gateway throttles: the next one comes soon."""

T = TypeVar("T")

logger = logging.getLogger("tailrace")


class Broadcaster:
    def __init__(
        self, table: Table, gateway_api: ConnectionApi, settings: Settings, clock: Clock
    ) -> None:
        self.connections = Connections(table, settings, clock)
        self.cursors = DeliveryCursors(table)
        self.presence = PresenceTable(table)
        self.gateway_api = gateway_api

    # One connection

    async def send(self, connection: str, *texts: str) -> bool:
        """Send frames to a connection; returns whether all were delivered. A connection for which
        that is uncertain is ended."""
        result = await self.gateway_api.send(connection, texts)
        if result is SendResult.OK:
            return True
        if result is SendResult.DOUBTFUL:
            await self.gateway_api.end(connection)
        await self.connections.disconnect(connection)
        return False

    async def close(self, connection: str, reason: str, *, reconnect: bool) -> None:
        """Send the reason to a connection, and end it."""
        await self.send(connection, frames.disconnect(reason, reconnect=reconnect))
        await self.gateway_api.end(connection)

    # Many connections

    async def send_all(self, outgoing: Iterable[Outgoing]) -> set[str]:
        """Send to many connections, without waiting for slow ones before others are served.
        Returns the connections that were ended because they could not be sent to."""
        ended: set[str] = set()

        async def deliver(each: Outgoing) -> None:
            connection, texts = each
            try:
                if await self.send(connection, *texts):
                    return
            except TailraceError as error:
                logger.warning("a cable connection is ended, for sending to it failed: %s", error)
                await self._abandon(connection)
            ended.add(connection)

        await for_each(deliver, outgoing)
        return ended

    async def ping_all(self, pings: Iterable[tuple[str, str]]) -> set[str]:
        """Send a frame that may be missed to each of many connections. Returns those that no longer
        exist, or do not exist yet."""
        gone: set[str] = set()

        async def send(ping: tuple[str, str]) -> None:
            connection, frame = ping
            try:
                result = await self.gateway_api.send(connection, [frame], PING_ATTEMPTS)
            except TailraceError as error:
                logger.warning("a ping failed: %s", error)
            else:
                if result is SendResult.GONE:
                    gone.add(connection)

        await for_each(send, pings)
        return gone

    async def request_reconnect(self, connections: Iterable[str]) -> None:
        await self.close_all(connections, "server_restart", reconnect=True)

    async def close_all(self, connections: Iterable[str], reason: str, *, reconnect: bool) -> None:
        """Send the reason to many connections, and end them."""

        async def close(connection: str) -> None:
            try:
                await self.close(connection, reason, reconnect=reconnect)
                await self.connections.disconnect(connection)
            except TailraceError as error:
                logger.warning("a cable connection is ended, for sending to it failed: %s", error)
                await self._abandon(connection)

        await for_each(close, connections)

    async def _abandon(self, connection: str) -> None:
        """End a connection, if possible; otherwise the next send to it finds that it is gone."""
        with contextlib.suppress(TailraceError):
            await self.gateway_api.end(connection)
            await self.connections.disconnect(connection)

    async def send_to_subscribers(
        self,
        path: str,
        text: str,
        kind: str | None = None,
        *,
        exclude: str | None = None,
        condition: Callable[[SubscriberRecord], bool] = lambda _: True,
    ) -> None:
        """Send a message that is not in the log to the subscribers of a stream."""
        subscribers = [
            each
            for each in await self.cursors.subscribers(path)
            if each.connection != exclude and condition(each)
        ]
        await self._send_to(subscribers, text, kind)

    async def _send_to(
        self, subscribers: Sequence[SubscriberRecord], text: str, kind: str | None
    ) -> None:
        ended = await self.send_all(
            (each.connection, [frames.transient(each.subscription.identifier, text, kind)])
            for each in subscribers
        )
        await self.cursors.unsubscribe(each for each in subscribers if each.connection in ended)

    async def extended(self, connections: Iterable[str]) -> set[str]:
        """The connections whose clients speak the extended protocol."""
        extended: set[str] = set()

        async def look_up(each: str) -> None:
            connection = await self.connections.get(each)
            if connection is not None and connection.extended:
                extended.add(each)

        await for_each(look_up, set(connections))
        return extended

    async def leave_presence(self, connection: str, subscription: SubscriptionRecord) -> None:
        """Remove a connection from the presence of a stream, if it has joined that."""
        if subscription.member is not None:
            path = subscription.path
            message = await self.presence.leave(path, connection, subscription.member)
            await self.send_presence(path, message)

    async def send_presence(self, path: str, message: str | None) -> None:
        """Tell the subscribers of a stream who joined or left, unless they are too many."""
        if message is None:
            return
        try:
            subscribers = await self.cursors.few_subscribers(path, GATEWAY_PRESENCE_SUBSCRIBERS)
        except StreamTooHot:
            # So many members join and leave that nobody follows them.
            return
        present = [each for each in subscribers or () if each.subscription.presence]
        await self._send_to(present, message, "presence")

    # The audience of broadcasts

    def check(self, batch: Sequence[Publication]) -> None:
        for publication in batch:
            if len(publication.text) > GATEWAY_BROADCAST_BYTES:
                raise BodyTooLarge(
                    f"a broadcast message has at most {GATEWAY_BROADCAST_BYTES} bytes on AWS: API"
                    " Gateway delivers no larger frames"
                )

    async def send_transient(self, publication: Publication) -> None:
        text = publication.text.decode()
        await self.send_to_subscribers(
            publication.path, text, publication.kind, exclude=publication.exclude
        )

    def hold_delivery(
        self,
        batch: Sequence[Publication],  # noqa: ARG002 - the signature of an audience
    ) -> AbstractAsyncContextManager[None]:
        # Not needed: the entry in the table carries the options of its messages.
        return contextlib.nullcontext()

    async def published(self, batch: Sequence[Publication], offset: int) -> None:
        # The table's stream invokes the function that delivers the entry.
        pass

    async def members(self, stream: str, path: str) -> str:  # noqa: ARG002 - of an audience
        return await self.presence.info(path, records=True)

    async def connected(self, limit: int) -> Sequence[ConnectionInfo]:
        connected: list[ConnectionInfo] = []
        for shard in range(GATEWAY_CONNECTION_SHARDS):
            async for each in self.connections.connected(shard):
                if each.disconnected_at is not None:
                    continue
                if len(connected) == limit:
                    return connected
                subscriptions = await self.connections.subscriptions(each.id)
                paths = [subscription.path for subscription in subscriptions]
                connected.append(ConnectionInfo(each.id, each.identity, each.connected_at, paths))
        return connected

    async def disconnect_identity(self, identity: str, *, reconnect: bool) -> None:
        for each in await self.connections.by_identity(identity):
            connection = await self.connections.get(each)
            if connection is None or connection.identity != identity:
                continue
            if connection.disconnected_at is None:
                await self.close(each, "remote", reconnect=reconnect)
                await self.connections.disconnect(each)
            for subscription in await self.connections.subscriptions(each):
                await self.leave_presence(each, subscription)
            await self.connections.delete(connection)


async def for_each(
    work: Callable[[T], Coroutine[Any, Any, None]],
    values: Iterable[T],
    concurrency: int = CONCURRENCY,
) -> None:
    """Do something for each of many values, for some of them at the same time."""
    remaining = iter(values)

    async def worker(first: T) -> None:
        await work(first)
        for value in remaining:
            await work(value)

    await asyncio.gather(*(worker(first) for first in itertools.islice(remaining, concurrency)))
