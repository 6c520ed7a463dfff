"""Who is connected, what they subscription to hear, and who may come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from tailrace.aws.client.failures import ConditionFailed, Item, TransactionCanceled
from tailrace.clock import Clock
from tailrace.limits import CABLE_SUBSCRIPTIONS
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import Connection
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import key_of, number, text
from tailrace.store.dynamodb.table import Action, Table


class Added(Enum):
    """What came of a client's subscription for one more subscription."""

    NEW = auto()
    KNOWN = auto()
    REFUSED = auto()
    """It has too many, or is gone."""


class SubscriptionRecord(NamedTuple):
    """What a client has subscribed to."""

    identifier: str
    path: str
    member: str | None = None
    """As whom it is there."""


class Connections:
    def __init__(self, table: Table, settings: Settings, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._sessions_ttl = settings.sessions_ttl * 1000
        self._presence_ttl = settings.presence_ttl * 1000

    # Coming

    async def open(self, connection: Connection) -> None:
        await self._table.put(items.connection_item(connection))
        await self._table.put(items.identity_key(connection.identity, connection.id))

    async def get(self, connection: str) -> Connection | None:
        item = await self._table.get(items.connection_key(connection))
        return None if item is None else items.connection_of(item)

    async def recall(self, connection: str, identity: str) -> list[str] | None:
        """What an earlier connection wished, if it was the same client's; nobody is told twice."""
        values = {
            ":i": text(identity),
            ":x": number(self._clock() - self._sessions_ttl),
            ":one": number(1),
        }
        resumes = await self._table.update_if(
            items.connection_key(connection),
            "SET j = :one",
            "i = :i AND attribute_not_exists(j) AND (attribute_not_exists(x) OR x > :x)",
            values,
        )
        if not resumes:
            return None
        return [subscription.identifier for subscription in await self.subscriptions(connection)]

    # Wishes

    async def subscriptions(self, connection: str) -> list[SubscriptionRecord]:
        partition = items.wish_partition(connection)
        return [_wish(item) async for item in self._table.all(partition)]

    async def subscription(self, connection: str, identifier: str) -> SubscriptionRecord | None:
        item = await self._table.get(items.wish_key(connection, identifier))
        return None if item is None else _wish(item)

    async def add(self, connection: str, wished: Subscription, at: int) -> Added:
        """`at`: when the client said so."""
        subscription = items.wish_item(connection, wished, at)
        try:
            await self._table.put_new(subscription)
        except ConditionFailed:
            await self._table.update_if(
                key_of(subscription), "SET a = :a", "a < :a", {":a": number(at)}
            )
            return Added.KNOWN
        has_room = await self._table.update_if(
            items.connection_key(connection),
            "SET v = v + :one",
            "attribute_exists(p) AND attribute_not_exists(x) AND v < :most",
            {":one": number(1), ":most": number(CABLE_SUBSCRIPTIONS)},
        )
        if has_room:
            return Added.NEW
        await self._table.delete(key_of(subscription))
        return Added.REFUSED

    async def remove(self, connection: str, known: Subscription, at: int) -> bool:
        """Remove a subscription, and tell whether there was one. One made at the same time or later
        stays: a client's messages may arrive in another order than it sent them, and it ignores
        messages for what it has left."""
        subscription: Action = {
            "Delete": {
                "Key": items.wish_key(connection, known.identifier),
                "ConditionExpression": "a < :a",
                "ExpressionAttributeValues": {":a": number(at)},
            }
        }
        key = items.listener_key(known.path, connection, known.identifier)
        try:
            # Together: who subscribes again meanwhile must find both, or none.
            await self._table.transact([subscription, {"Delete": {"Key": key}}])
        except TransactionCanceled:
            return False
        one = {":one": number(1)}
        await self._table.update_if(
            items.connection_key(connection), "SET v = v - :one", "attribute_exists(p)", one
        )
        return True

    async def mute(self, connection: str, subscriptions: Sequence[SubscriptionRecord]) -> None:
        """From now on a client is told of nothing new there."""
        await self._table.delete_all(
            items.listener_key(subscription.path, connection, subscription.identifier)
            for subscription in subscriptions
        )

    async def join(self, connection: str, identifier: str, member: str) -> bool:
        """Whether a client may be there as somebody; it cannot become somebody else."""
        return await self._table.update_if(
            items.wish_key(connection, identifier),
            "SET k = :k",
            "attribute_exists(p) AND (attribute_not_exists(k) OR k = :k)",
            {":k": text(member)},
        )

    async def leave(self, connection: str, subscription: SubscriptionRecord) -> bool:
        """Whether the client was there until now."""
        assert subscription.member is not None
        key, member = (
            items.wish_key(connection, subscription.identifier),
            {":k": text(subscription.member)},
        )
        return await self._table.update_if(key, "REMOVE k", "k = :k", member)

    # Going

    async def drop(self, connection: str) -> None:
        """A client is gone; for a while it may come back, and counts as there."""
        now = self._clock()
        pause = min(self._presence_ttl, self._sessions_ttl)
        values = {":g": text(items.CONNECTIONS_DUE), ":d": number(now + pause), ":x": number(now)}
        is_news = await self._table.update_if(
            items.connection_key(connection),
            "SET x = :x, g = :g, d = :d",
            "attribute_exists(p) AND attribute_not_exists(x)",
            values,
        )
        if is_news:
            await self.mute(connection, await self.subscriptions(connection))

    async def keep(self, connection: Connection) -> bool:
        """Whether it may still be resumed, and is looked at again when it may not."""
        assert connection.left is not None
        until = connection.left + self._sessions_ttl
        if connection.resumed or until <= self._clock():
            return False
        key, due = items.connection_key(connection.id), {":d": number(until)}
        return await self._table.update_if(
            key, "SET d = :d", "attribute_exists(x) AND d <= :d", due
        )

    async def forget(self, connection: Connection) -> None:
        subscriptions = await self.subscriptions(connection.id)
        await self.mute(connection.id, subscriptions)
        keys = [
            items.wish_key(connection.id, subscription.identifier) for subscription in subscriptions
        ]
        keys.append(items.identity_key(connection.identity, connection.id))
        # Last: as long as it is there, all of this is found again.
        await self._table.delete_all(keys)
        await self._table.delete(items.connection_key(connection.id))

    # Everybody

    async def of(self, identity: str) -> list[str]:
        """Those who are, or may again be, connected as somebody."""
        partition = items.identity_partition(identity)
        return [item["s"]["S"] async for item in self._table.all(partition)]

    async def all(self) -> AsyncIterator[Connection]:
        for partition in items.connection_partitions():
            async for item in self._table.all(partition):
                yield items.connection_of(item)

    async def due(self, most: int) -> Sequence[Connection]:
        """Those who were gone long enough for something to follow from it."""
        found = []
        for key in await self._table.due(items.CONNECTIONS_DUE, self._clock(), most):
            item = await self._table.get(key)
            if item is not None and "x" in item:
                found.append(items.connection_of(item))
        return found


def _wish(item: Item) -> SubscriptionRecord:
    return SubscriptionRecord(
        item["i"]["S"], item["c"]["S"], item["k"]["S"] if "k" in item else None
    )
