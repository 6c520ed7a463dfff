"""Delivery cursors: which slots of a stream are delivered next, and to which subscribers.

Two kinds of functions send the messages of a stream: the one that handles a client's command sends
what the client missed, and a delivery sends new messages to all subscribers. The order of their
conditional writes and consistent reads ensures that no message is missed, repeated or reordered:

- A delivery *acquires the lease* of the slots from the cursor's on, and only then reads the list of
  subscribers. It *passes by* those that have not joined: each is marked with the end of the lease.
- A client is added to the subscribers, and only then its function reads the cursor. It sends the
  slots up to the tail, and *joins* with the slot that it has reached, by a write to its own item,
  on the condition that no delivery has passed it beyond that slot. Otherwise it reads further.

So a delivery that leased slots before the cursor was read has left them to the client, and one that
leases slots afterwards finds the client among the subscribers: it has joined and gets them, or is
marked and reads them by itself. Thousands of clients may join at the same time, for each writes to
an item of its own. The lease is held until everything is sent. If its holder dies, it is unknown
which frames arrived: then all subscribers are told to reconnect.

A cursor without subscribers is removed by a delivery that has announced this in the cursor and then
still found none.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable
from typing import Any, Final

from tailrace.aws.client.failures import ConditionFailed
from tailrace.errors import StreamTooHot
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import DeliveryCursor, SubscriberRecord
from tailrace.store.base import Tail
from tailrace.store.dynamodb.layout import Key, id_text, name_key, number, text
from tailrace.store.dynamodb.table import Table

Span = tuple[str, str]
"""The first and last sort key of a part of the subscribers of a stream."""

LEASE: Final = "lease_owner, leased_until, taken_parts, removing"
"""The attributes of a cursor that its lease has."""

REMOVAL_SECONDS: Final = 0.05
"""How long to wait for a cursor to be removed."""

ATTEMPTS: Final = 20
"""Writes that may conflict with joining clients and deliveries before one fails."""


class DeliveryCursors:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def subscribers(self, path: str, span: Span | None = None) -> list[SubscriberRecord]:
        """All subscribers of a stream, or a part of them, by a strongly consistent read."""
        found = self._table.all(items.subscriber_partition(path), span)
        return [items.subscriber_of(item) async for item in found]

    async def few_subscribers(self, path: str, most: int) -> list[SubscriberRecord] | None:
        """All subscribers of a stream; None if they are more than `most`."""
        found: list[SubscriberRecord] = []
        start: Key | None = None
        while len(found) <= most:
            left = most + 1 - len(found)
            page = await self._table.begins(items.subscriber_partition(path), "", left, start)
            found += map(items.subscriber_of, page.items)
            start = page.more
            if start is None:
                return found if len(found) <= most else None
        return None

    async def joined_subscribers(
        self, path: str, span: Span | None = None
    ) -> list[SubscriberRecord]:
        """The subscribers that deliveries send new messages to."""
        return [each for each in await self.subscribers(path, span) if each.slot is not None]

    async def get(self, chain: int) -> DeliveryCursor | None:
        item = await self._table.get(items.cursor_key(chain))
        return None if item is None else items.cursor_of(item)

    async def create_if_absent(self, chain: int, path: str, mode: Mode, slot: int) -> None:
        with contextlib.suppress(ConditionFailed):
            await self._table.put_new(items.cursor_item(chain, path, mode, slot))

    async def has_joined(self, subscriber: SubscriberRecord) -> bool:
        item = await self._table.get(_key(subscriber))
        return item is not None and "next_slot" in item

    # Joining

    async def subscribe(self, subscriber: SubscriberRecord) -> None:
        """Add a subscriber, which reads the stream by itself until it joins."""
        with contextlib.suppress(ConditionFailed):
            await self._table.put_new(items.subscriber_item(subscriber))

    async def ensure(self, tail: Tail) -> DeliveryCursor | None:
        """Create the cursor of a stream unless it exists: without one, deliveries ignore it.
        Returns it; None if it was removed meanwhile."""
        stream = tail.stream
        cursor = await self.get(stream.id)
        if cursor is not None:
            return cursor
        # A subscriber that waited for the stream to be created, or joined an earlier incarnation,
        # must get all of this one.
        waiting = any(
            each.chain != stream.id for each in await self.joined_subscribers(stream.path)
        )
        slot = stream.config.base[0] if waiting else tail.committed.tail
        await self.create_if_absent(stream.id, stream.path, stream.config.mode, slot)
        return await self.get(stream.id)

    async def join(self, subscriber: SubscriberRecord, cursor: DeliveryCursor | None) -> bool:
        """Have deliveries send to a subscriber from its slot on. Returns False if slots from there
        on were leased already, or the cursor is gone: then it has to read further, and to read the
        cursor again. `cursor`: as it was after the subscriber had been added."""
        assert subscriber.chain is not None
        assert subscriber.slot is not None
        if cursor is None or cursor.removing:
            await asyncio.sleep(REMOVAL_SECONDS)
            return False
        if subscriber.slot < cursor.slot:
            return False
        passed = _passed(subscriber.chain)
        joined = await self._table.update_if(
            _key(subscriber),
            f"SET next_slot = :slot, incarnation = :chain REMOVE {passed}",
            "attribute_exists(p) AND attribute_not_exists(next_slot)"
            f" AND (attribute_not_exists({passed}) OR {passed} <= :slot)",
            {":slot": number(subscriber.slot), ":chain": text(id_text(subscriber.chain))},
        )
        if joined:
            return True
        item = await self._table.get(_key(subscriber))
        if item is not None:
            # It has joined already, or a delivery has passed it.
            return "next_slot" in item
        if not await self._is_subscribed(subscriber):
            return True
        # The unsubscribe of an older subscription has removed the subscriber.
        await self.subscribe(subscriber)
        return False

    async def pass_by(
        self, subscriber: SubscriberRecord, chain: int, end: int
    ) -> SubscriberRecord | None:
        """Have a subscriber that has not joined read the slots before `end` by itself. Returns what
        it follows if it has joined meanwhile."""
        passed = await self._table.update_if(
            _key(subscriber),
            f"SET {_passed(chain)} = :end",
            "attribute_exists(p) AND attribute_not_exists(next_slot)",
            {":end": number(end)},
        )
        if passed:
            return None
        item = await self._table.get(_key(subscriber))
        if item is None or "next_slot" not in item:
            return None
        return items.subscriber_of(item)

    async def join_absent(self, subscriber: SubscriberRecord) -> bool:
        """Join a stream that does not exist yet. Returns False if it does."""
        key = _key(subscriber)
        if not await self._table.update_if(
            key,
            "SET next_slot = :slot",
            "attribute_exists(p) AND attribute_not_exists(next_slot)",
            {":slot": number(0)},
        ):
            item = await self._table.get(key)
            if item is not None or not await self._is_subscribed(subscriber):
                # It has joined already, or was unsubscribed meanwhile.
                return True
            # The unsubscribe of an older subscription has removed the subscriber.
            await self.subscribe(subscriber)
            return False
        # A stream that is created from now on finds the subscriber.
        name = await self._table.get(name_key(subscriber.subscription.path))
        if name is None or "tombstone_slot" in name:
            return True
        left = await self._table.update_if(
            key,
            "REMOVE next_slot",
            "attribute_not_exists(incarnation) AND next_slot = :slot",
            {":slot": number(0)},
        )
        # Otherwise the delivery of the stream has moved it to the beginning.
        return not left

    async def _is_subscribed(self, subscriber: SubscriberRecord) -> bool:
        key = items.subscription_key(subscriber.connection, subscriber.subscription.identifier)
        return await self._table.get(key) is not None

    # Delivering

    async def acquire_lease(self, cursor: DeliveryCursor, end: int, owner: str, until: int) -> bool:
        """Lease the slots from the cursor's up to `end`, which is excluded, to a delivery."""
        values = {
            ":end": number(end),
            ":owner": text(owner),
            ":until": number(until),
            ":slot": number(cursor.slot),
        }
        return await self._update_lease(
            cursor,
            owner,
            "SET next_slot = :end, lease_owner = :owner, leased_until = :until",
            "next_slot = :slot AND attribute_not_exists(lease_owner)",
            values,
        )

    async def take_over(self, cursor: DeliveryCursor, owner: str, until: int) -> bool:
        """Take the lease over from a delivery that has died."""
        assert cursor.lease_owner is not None
        values = {
            ":owner": text(owner),
            ":until": number(until),
            ":former": text(cursor.lease_owner),
        }
        return await self._update_lease(
            cursor,
            owner,
            "SET lease_owner = :owner, leased_until = :until",
            "lease_owner = :former",
            values,
        )

    async def take_part(self, cursor: DeliveryCursor, owner: str, part: int) -> bool:
        """Begin a part of a delivery. Returns False if it was begun before, or the lease is lost:
        then nothing may be sent."""
        values = {":owner": text(owner), ":part": text(str(part)), ":parts": {"SS": [str(part)]}}
        for attempt in range(ATTEMPTS):
            try:
                return await self._table.update_if(
                    items.cursor_key(cursor.chain),
                    "ADD taken_parts :parts",
                    "lease_owner = :owner AND NOT contains(taken_parts, :part)",
                    values,
                )
            except StreamTooHot:
                await _back_off(attempt)
        return False

    async def release(self, cursor: DeliveryCursor, owner: str, audience: int = 0) -> None:
        """End a lease after everything was sent. `audience`: how many subscribers there were, if
        they were many."""
        values: dict[str, object] = {":owner": text(owner)}
        expression = f"REMOVE {LEASE}"
        if audience:
            values[":audience"] = number(audience)
            expression = f"SET audience = :audience {expression}"
        elif cursor.audience:
            expression = f"{expression}, audience"
        await self._end_lease(cursor, expression, values)

    async def rollback(self, cursor: DeliveryCursor, owner: str) -> None:
        """End a lease under which nothing was sent: the slots may be leased again."""
        await self._end_lease(
            cursor,
            f"SET next_slot = :slot REMOVE {LEASE}",
            {":owner": text(owner), ":slot": number(cursor.slot)},
        )

    async def remove_unused(self, cursor: DeliveryCursor, owner: str) -> None:
        """Remove a leased cursor without subscribers; release it if one was added meanwhile."""
        key, values = items.cursor_key(cursor.chain), {":owner": text(owner)}
        # A subscriber that is added from now on sees that, and does not rely on the cursor.
        if not await self._table.update_if(
            key, "SET removing = :one", "lease_owner = :owner", {**values, ":one": number(1)}
        ):
            return
        if await self.few_subscribers(cursor.path, 0) is None:
            await self.release(cursor, owner)
        else:
            await self._table.delete_if(key, "lease_owner = :owner", values)

    async def remove(self, chain: int) -> None:
        await self._table.delete(items.cursor_key(chain))

    async def move(
        self, subscriber: SubscriberRecord, chain: int, slot: int
    ) -> SubscriberRecord | None:
        """Have a subscriber that waited, or followed an earlier incarnation, follow another one
        from a slot on. Returns what it follows then; None if it has left."""
        values = {":chain": text(id_text(chain)), ":slot": number(slot)}
        former = "attribute_not_exists(incarnation)"
        if subscriber.chain is not None:
            former = "incarnation = :former"
            values[":former"] = text(id_text(subscriber.chain))
        moved = await self._table.update_if(
            _key(subscriber),
            "SET incarnation = :chain, next_slot = :slot",
            f"attribute_exists(next_slot) AND {former}",
            values,
        )
        if moved:
            return subscriber._replace(chain=chain, slot=slot)
        # It was moved already, or has subscribed again.
        item = await self._table.get(_key(subscriber))
        if item is None or "next_slot" not in item:
            return None
        current = items.subscriber_of(item)
        return current if current.chain == chain else None

    async def unsubscribe(self, subscribers: Iterable[SubscriberRecord]) -> None:
        """Remove subscribers: deliveries no longer send to them."""
        await self._table.delete_all(_key(each) for each in subscribers)

    async def _update_lease(
        self,
        cursor: DeliveryCursor,
        owner: str,
        expression: str,
        condition: str,
        values: dict[str, Any],
    ) -> bool:
        key = items.cursor_key(cursor.chain)
        for attempt in range(ATTEMPTS):
            try:
                if await self._table.update_if(key, expression, condition, values):
                    return True
            except StreamTooHot:
                # Many clients are joining.
                await _back_off(attempt)
            else:
                break
        # An earlier attempt of this call may have succeeded although its response was lost.
        current = await self.get(cursor.chain)
        return current is not None and current.lease_owner == owner

    async def _end_lease(
        self, cursor: DeliveryCursor, expression: str, values: dict[str, object]
    ) -> None:
        key = items.cursor_key(cursor.chain)
        for attempt in range(ATTEMPTS):
            try:
                # The condition fails if the lease expired and another delivery took it over.
                await self._table.update_if(key, expression, "lease_owner = :owner", values)
            except StreamTooHot:
                # Many clients are joining. Without a retry the next delivery would have to wait
                # for the lease to expire, and then make all subscribers reconnect.
                await _back_off(attempt)
            else:
                return


async def _back_off(attempt: int) -> None:
    await asyncio.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - no secret


def _passed(chain: int) -> str:
    """The attribute of a subscriber that says up to which slot deliveries have passed it."""
    return f"passed_{id_text(chain)}"


def _key(subscriber: SubscriberRecord) -> Key:
    subscription = subscriber.subscription
    return items.subscriber_key(subscription.path, subscriber.connection, subscription.identifier)
