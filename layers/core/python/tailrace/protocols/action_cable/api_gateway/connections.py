"""Connections: their subscriptions, their presence, and sessions that may be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from enum import Enum, auto

from tailrace.aws.client.failures import ConditionFailed, TransactionCanceled
from tailrace.clock import Clock
from tailrace.limits import CABLE_SUBSCRIPTIONS, GATEWAY_INDEX_SHARDS
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord, SubscriptionRecord
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import key_of, number, text
from tailrace.store.dynamodb.table import Action, Table


class SubscribeResult(Enum):
    """The outcome of `Connections.subscribe`."""

    NEW = auto()
    EXISTING = auto()
    REFUSED = auto()
    """The connection has too many subscriptions, or has ended."""


class Connections:
    def __init__(self, table: Table, settings: Settings, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._sessions_ttl = settings.sessions_ttl * 1000
        self._presence_ttl = settings.presence_ttl * 1000

    # Connecting

    async def open(self, connection: ConnectionRecord) -> None:
        await self._table.put(items.connection_item(connection))
        await self._table.put(items.identity_key(connection.identity, connection.id))

    async def get(self, connection: str, *, consistent: bool = True) -> ConnectionRecord | None:
        item = await self._table.get(items.connection_key(connection), consistent=consistent)
        return None if item is None else items.connection_of(item)

    async def restore(self, connection: str, identity: str) -> list[str] | None:
        """The identifiers that an earlier connection of the same client was subscribed to; None if
        it cannot be resumed. A connection is resumed at most once.

        One whose client asks for history is not resumed: no function waits for it to ask again,
        and a subscribe that asks gets the same messages by as many commands."""
        values = {
            ":identity": text(identity),
            ":oldest": number(self._clock() - self._sessions_ttl),
            ":one": number(1),
        }
        restored = await self._table.update_if(
            items.connection_key(connection),
            "SET session_resumed = :one",
            "client_identity = :identity AND attribute_not_exists(session_resumed) AND "
            "(attribute_not_exists(disconnected_at) OR disconnected_at > :oldest)",
            values,
        )
        if not restored:
            return None
        subscriptions = await self.subscriptions(connection)
        if any(each.asks_history for each in subscriptions):
            return None
        return [each.identifier for each in subscriptions]

    # Subscriptions

    async def subscriptions(self, connection: str) -> list[SubscriptionRecord]:
        partition = items.subscription_partition(connection)
        return [items.subscription_of(item) async for item in self._table.all(partition)]

    async def subscription(self, connection: str, identifier: str) -> SubscriptionRecord | None:
        item = await self._table.get(items.subscription_key(connection, identifier))
        return None if item is None else items.subscription_of(item)

    async def subscribe(
        self,
        connection: str,
        subscription: Subscription,
        sent_at: int,
        *,
        asks_history: bool = False,
    ) -> SubscribeResult:
        """`sent_at`: when the client sent the command, in milliseconds. `asks_history`: whether
        the command asks for history."""
        item = items.subscription_item(connection, subscription, sent_at, asks_history=asks_history)
        try:
            await self._table.put_new(item)
        except ConditionFailed:
            await self._table.update_if(
                key_of(item),
                "SET subscribed_at = :sent",
                "subscribed_at < :sent",
                {":sent": number(sent_at)},
            )
            return SubscribeResult.EXISTING
        accepted = await self._table.update_if(
            items.connection_key(connection),
            "SET subscription_count = subscription_count + :one",
            "attribute_exists(p) AND attribute_not_exists(disconnected_at)"
            " AND subscription_count < :most",
            {":one": number(1), ":most": number(CABLE_SUBSCRIPTIONS)},
        )
        if accepted:
            return SubscribeResult.NEW
        await self._table.delete(key_of(item))
        return SubscribeResult.REFUSED

    async def unsubscribe(self, connection: str, subscription: Subscription, sent_at: int) -> bool:
        """Remove a subscription; returns whether it existed. A subscription of the same time or
        later stays: commands may be handled in another order than the client sent them, and a
        client ignores messages for what it has unsubscribed from."""
        delete: Action = {
            "Delete": {
                "Key": items.subscription_key(connection, subscription.identifier),
                "ConditionExpression": "subscribed_at < :sent",
                "ExpressionAttributeValues": {":sent": number(sent_at)},
            }
        }
        key = items.subscriber_key(subscription.path, connection, subscription.identifier)
        try:
            # In one transaction: a concurrent subscribe must find both items, or neither.
            await self._table.transact([delete, {"Delete": {"Key": key}}])
        except TransactionCanceled:
            return False
        await self._table.update_if(
            items.connection_key(connection),
            "SET subscription_count = subscription_count - :one",
            "attribute_exists(p)",
            {":one": number(1)},
        )
        return True

    async def stop_delivery(
        self, connection: str, subscriptions: Sequence[SubscriptionRecord]
    ) -> None:
        """Remove a connection from the subscribers of its streams; the subscriptions stay."""
        await self._table.delete_all(
            items.subscriber_key(subscription.path, connection, subscription.identifier)
            for subscription in subscriptions
        )

    # Presence

    async def set_member(self, connection: str, identifier: str, member: str) -> bool:
        """Record the id under which a client is present; returns False if it has another one."""
        return await self._table.update_if(
            items.subscription_key(connection, identifier),
            "SET member_id = :member",
            "attribute_exists(p) AND (attribute_not_exists(member_id) OR member_id = :member)",
            {":member": text(member)},
        )

    async def clear_member(self, connection: str, subscription: SubscriptionRecord) -> bool:
        """Returns whether the client was present until now."""
        assert subscription.member is not None
        return await self._table.update_if(
            items.subscription_key(connection, subscription.identifier),
            "REMOVE member_id",
            "member_id = :member",
            {":member": text(subscription.member)},
        )

    # Disconnecting

    async def disconnect(self, connection: str) -> None:
        """Mark a connection as ended. Until the TTLs pass its session may be resumed, and its
        member counts as present."""
        now = self._clock()
        pause = min(self._presence_ttl, self._sessions_ttl)
        was_connected = await self._table.update_if(
            items.connection_key(connection),
            "SET disconnected_at = :now, g = :g, d = :d",
            "attribute_exists(p) AND attribute_not_exists(disconnected_at)",
            {
                ":now": number(now),
                ":g": text(items.ended_partition(items.connection_shard(connection))),
                ":d": number(now + pause),
            },
        )
        if was_connected:
            await self.stop_delivery(connection, await self.subscriptions(connection))

    async def keep_session(self, connection: ConnectionRecord) -> bool:
        """Keep an ended connection until its session expires; returns False if it need not be
        kept: its session has expired or was resumed."""
        assert connection.disconnected_at is not None
        until = connection.disconnected_at + self._sessions_ttl
        if connection.resumed or until <= self._clock():
            return False
        return await self._table.update_if(
            items.connection_key(connection.id),
            "SET d = :d",
            "attribute_exists(disconnected_at) AND d <= :d",
            {":d": number(until)},
        )

    async def delete(self, connection: ConnectionRecord) -> None:
        """Remove every item of a connection."""
        subscriptions = await self.subscriptions(connection.id)
        await self.stop_delivery(connection.id, subscriptions)
        keys = [
            items.subscription_key(connection.id, subscription.identifier)
            for subscription in subscriptions
        ]
        keys.append(items.identity_key(connection.identity, connection.id))
        await self._table.delete_all(keys)
        # Last: if this function dies before, the connection is still due and deleted again.
        await self._table.delete(items.connection_key(connection.id))

    # Queries

    async def by_identity(self, identity: str) -> list[str]:
        """The connections of an identity, those that ended and may be resumed included."""
        partition = items.identity_partition(identity)
        return [item["s"]["S"] async for item in self._table.all(partition)]

    async def connected(self, shard: int) -> AsyncIterator[ConnectionRecord]:
        """The connections of a shard that have not ended, by strongly consistent reads."""
        async for item in self._table.all(items.connection_partition(shard)):
            connection = items.connection_of(item)
            if connection.disconnected_at is None:
                yield connection

    async def connected_since(self, shards: Collection[int], start: int) -> AsyncIterator[str]:
        """Connections of some shards that began at `start` or later; eventually consistent."""
        for partition in {items.connected_partition(shard) for shard in shards}:
            async for key in self._table.due_since(partition, start):
                connection = key["s"]["S"]
                if items.connection_shard(connection) in shards:
                    yield connection

    async def due(self, shards: Collection[int], limit: int) -> Sequence[ConnectionRecord]:
        """Ended connections of some shards whose presence or session expires by now; at most
        `limit` from each partition of the index."""
        connections = []
        for partition in {items.ended_partition(shard) for shard in shards}:
            for key in await self._table.due(partition, self._clock(), limit):
                if items.connection_shard(key["s"]["S"]) in shards:
                    item = await self._table.get(key)
                    if item is not None and "disconnected_at" in item:
                        connections.append(items.connection_of(item))
        return connections

    async def needs_heartbeat(self) -> bool:
        """Whether any client is connected, or anything is due; eventually consistent."""
        partitions = [
            partition(shard)
            for shard in range(GATEWAY_INDEX_SHARDS)
            for partition in (items.connected_partition, items.ended_partition)
        ]
        now = self._clock()
        due = await asyncio.gather(*(self._table.due(each, now, 1) for each in partitions))
        return any(due)
