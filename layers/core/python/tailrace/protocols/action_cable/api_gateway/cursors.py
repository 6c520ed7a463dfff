"""Who is told of what is new in a stream, and from which slot on.

Two kinds of functions send the messages of a stream: the one that a client asked sends what it
missed, and a delivery sends what is new to everybody who listens. That nothing is missed, told
twice or out of order rests on two conditional writes to one item, the room of an incarnation:

- A delivery *claims* the slots from the room's on, and reads who listens only after that.
- A client *joins*, with the slot that it has reached, on the condition that nothing from there on
  was claimed; else it reads further first.

So a claim that comes before a client has joined is what the client has read by itself, and one that
comes after it finds the client among the listeners. Whoever claims holds the room until all is
sent. If it dies meanwhile nobody knows who has got what: then all are asked to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable
from typing import Any, Final

from tailrace.aws.client.failures import ConditionFailed, TransactionCanceled
from tailrace.errors import StoreUnavailable, StreamTooHot
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.protocols.action_cable.api_gateway.items import Listener, Room
from tailrace.store.base import Tail
from tailrace.store.dynamodb.layout import Key, id_text, name_key, number, text
from tailrace.store.dynamodb.table import Action, Table

ATTEMPTS: Final = 20
"""Joins that collide with others and with deliveries before a client is turned away."""


class Rooms:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def told(self, path: str) -> list[Listener]:
        """Those of the listeners who are told of what is new in the stream."""
        return [each for each in await self.listeners(path) if each.slot is not None]

    async def listeners(self, path: str) -> list[Listener]:
        """Strongly consistent."""
        partition = items.listener_partition(path)
        return [items.listener_of(item) async for item in self._table.all(partition)]

    async def get(self, chain: int) -> Room | None:
        item = await self._table.get(items.room_key(chain))
        return None if item is None else items.room_of(item)

    async def ensure(self, chain: int, path: str, mode: Mode, slot: int) -> None:
        """Make a room for an incarnation, in which a slot is the next one, unless it has one."""
        with contextlib.suppress(ConditionFailed):
            await self._table.put_new(items.room_item(chain, path, mode, slot))

    async def is_told(self, listener: Listener) -> bool:
        item = await self._table.get(_key(listener))
        return item is not None and "n" in item

    # Joining

    async def hold(self, listener: Listener) -> None:
        """A client listens, and reads for itself what is in the stream, until it joins."""
        with contextlib.suppress(ConditionFailed):
            await self._table.put_new(items.listener_item(listener))

    async def enter(self, tail: Tail) -> None:
        """Makes sure that there is a room: from now on deliveries take notice of the stream."""
        stream = tail.stream
        if await self.get(stream.id) is not None:
            return
        # Who has waited for the stream, or listened to one before it, is to hear all of it.
        waiting = any(each.chain != stream.id for each in await self.told(stream.path))
        slot = stream.config.base[0] if waiting else tail.committed.tail
        await self.ensure(stream.id, stream.path, stream.config.mode, slot)

    async def join(self, listener: Listener) -> bool:
        """Whether a client is told of what is new from its slot on; not when that was told to
        others already, or the room is gone."""
        assert listener.chain is not None
        assert listener.slot is not None
        room: Action = {
            "Update": {
                "Key": items.room_key(listener.chain),
                "UpdateExpression": "SET v = v + :one",
                "ConditionExpression": "n <= :n",
                "ExpressionAttributeValues": {":one": number(1), ":n": number(listener.slot)},
            }
        }
        return await self._join(listener, room)

    async def wait(self, listener: Listener) -> bool:
        """The same for a stream that does not exist yet, on the condition that it does not."""
        absent = "attribute_not_exists(p) OR attribute_exists(x)"
        key = name_key(listener.subscription.path)
        return await self._join(
            listener, {"ConditionCheck": {"Key": key, "ConditionExpression": absent}}
        )

    async def _join(self, listener: Listener, condition: Action) -> bool:
        values = {":n": number(listener.slot or 0)}
        expression = "SET n = :n"
        if listener.chain is not None:
            values[":r"] = text(id_text(listener.chain))
            expression += ", r = :r"
        place: Action = {
            "Update": {
                "Key": _key(listener),
                "UpdateExpression": expression,
                "ConditionExpression": "attribute_exists(p) AND attribute_not_exists(n)",
                "ExpressionAttributeValues": values,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
        for attempt in range(ATTEMPTS):
            try:
                await self._table.transact([condition, place])
            except TransactionCanceled as canceled:
                _, placed = canceled.reasons
                if placed.code != "ConditionalCheckFailed":
                    return False
                if placed.item is not None or not await self._is_wished(listener):
                    # It is told already, or that is no longer wanted.
                    return True
                # It was taken back for an older subscription.
                await self.hold(listener)
            except StreamTooHot:
                await _back_off(attempt)
            else:
                return True
        path = listener.subscription.path
        raise StoreUnavailable(f"too many listen to '{path}' at once; try again")

    async def _is_wished(self, listener: Listener) -> bool:
        key = items.wish_key(listener.connection, listener.subscription.identifier)
        return await self._table.get(key) is not None

    # Delivering

    async def claim(self, room: Room, top: int, by: str, until: int) -> bool:
        """Whether this delivery may send the slots from the room's up to `top`."""
        values = {":top": number(top), ":t": text(by), ":u": number(until), ":n": number(room.slot)}
        return await self._hold(
            room, by, "SET n = :top, t = :t, u = :u", "n = :n AND attribute_not_exists(t)", values
        )

    async def seize(self, room: Room, by: str, until: int) -> bool:
        """Take a room over from a delivery that has died."""
        assert room.by is not None
        values = {":t": text(by), ":u": number(until), ":old": text(room.by)}
        return await self._hold(room, by, "SET t = :t, u = :u", "t = :old", values)

    async def done(self, room: Room, by: str) -> None:
        await self._give_back(room, "REMOVE t, u", {":t": text(by)})

    async def undo(self, room: Room, by: str) -> None:
        """Nothing was sent: somebody else may."""
        await self._give_back(
            room, "SET n = :n REMOVE t, u", {":t": text(by), ":n": number(room.slot)}
        )

    async def leave(self, room: Room, by: str) -> None:
        """Nobody listens: the room goes, unless somebody has come meanwhile."""
        values = {":v": number(room.joined), ":t": text(by)}
        gone = await self._table.delete_if(items.room_key(room.chain), "v = :v AND t = :t", values)
        if not gone:
            await self.done(room, by)

    async def remove(self, chain: int) -> None:
        await self._table.delete(items.room_key(chain))

    async def dismiss(self, listeners: Iterable[Listener]) -> None:
        """They are told of nothing new."""
        await self._table.delete_all(_key(each) for each in listeners)

    async def _hold(
        self, room: Room, by: str, expression: str, condition: str, values: dict[str, Any]
    ) -> bool:
        if await self._table.update_if(items.room_key(room.chain), expression, condition, values):
            return True
        # An attempt of ours may have been carried out whose answer was lost.
        current = await self.get(room.chain)
        return current is not None and current.by == by

    async def _give_back(self, room: Room, expression: str, values: dict[str, object]) -> None:
        key = items.room_key(room.chain)
        for attempt in range(ATTEMPTS):
            try:
                # Where it took too long, somebody else has taken over.
                await self._table.update_if(key, expression, "t = :t", values)
            except StreamTooHot:
                # Many join: until it is given back they would all wait, and be sent away at last.
                await _back_off(attempt)
            else:
                return


async def _back_off(attempt: int) -> None:
    await asyncio.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - no secret


def _key(listener: Listener) -> Key:
    known = listener.subscription
    return items.listener_key(known.path, listener.connection, known.identifier)
