"""Delivers new entries, which arrive as records of the table's stream, to subscribers.

The table's stream orders the records of one item only, not the entries of a chain. So a record is
taken as a hint that the chain reaches at least to its slot: a delivery sends the slots from the
cursor's on, one after the other, and reads those that the records do not contain. When a late
record arrives, its slot has been delivered already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tailrace.clock import Clock
from tailrace.errors import StoreUnavailable, TailraceError
from tailrace.log.state import Stream
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster, Outgoing, for_each
from tailrace.protocols.action_cable.api_gateway.cursors import Span
from tailrace.protocols.action_cable.api_gateway.delivery_parts import (
    DeliveryPart,
    Invoke,
    parts_for,
)
from tailrace.protocols.action_cable.api_gateway.items import DeliveryCursor, SubscriberRecord
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import epoch_of
from tailrace.protocols.action_cable.core.contents import Message, messages
from tailrace.store.dynamodb.layout import (
    LAST_SLOT,
    Stored,
    chain_of,
    chain_partition,
    entry_of,
    is_name,
    name_key,
    name_of,
    slot_text,
)
from tailrace.store.dynamodb.store import DynamoStore

DELIVERY_LEASE_SECONDS: Final = 60
"""Duration of a lease: longer than the time-out of the function that holds it."""

LEASE_CHECKS: Final = 100
LEASE_CHECK_SECONDS: Final = 0.1
"""How often, and at which interval, a delivery checks whether another one has released the lease.
After that its records fail; Lambda repeats them until the lease has expired."""

TableStreamRecord = Mapping[str, Any]
"""A record of the table's stream, as Lambda passes it."""

logger = logging.getLogger("tailrace")


class DeliveryBusy(TailraceError):
    """Another delivery of the same stream is under way; the records are to be repeated."""

    code = "DELIVERY_BUSY"


class _Delivered(NamedTuple):
    """A message, its slot, and the options of its broadcast."""

    slot: int
    message: Message
    excluded: str | None
    kind: str | None


class _Unclear(Exception):
    """The function of a part died while it sent, or is still sending."""


class _Prepared(NamedTuple):
    """Subscribers, and the frames for each of them."""

    subscribers: Sequence[SubscriberRecord]
    outgoing: Iterable[Outgoing]

    def of(self, connections: Container[str]) -> list[SubscriberRecord]:
        return [each for each in self.subscribers if each.connection in connections]


class Deliveries:
    def __init__(
        self,
        store: DynamoStore,
        broadcaster: Broadcaster,
        clock: Clock,
        invoke: Invoke | None = None,
    ) -> None:
        """`invoke`: invokes functions that call `serve_part`; None: all frames are sent here."""
        self._invoke = invoke
        self._store = store
        self._table = store.table
        self._broadcaster = broadcaster
        self._cursors = broadcaster.cursors
        self._clock = clock

    async def handle(self, records: Sequence[TableStreamRecord]) -> dict[str, Exception]:
        """Handle records of the table's stream; returns the failures by the records' partitions."""
        work: defaultdict[str, list[Awaitable[None]]] = defaultdict(list)
        entries: defaultdict[str, dict[int, Stored]] = defaultdict(dict)
        for record in records:
            item, partition = record["dynamodb"].get("NewImage"), partition_of(record)
            if record["eventName"] != "INSERT" or item is None:
                continue
            if chain_of(partition) is not None:
                entry = entry_of(item)
                entries[partition][entry.slot] = entry
            elif is_name(partition):
                work[partition].append(self.stream_created(name_of(item).stream))
        for partition, hints in entries.items():
            work[partition].append(self.deliver(int(partition[1:], 16), hints))
        failures = await asyncio.gather(*(_failure(each) for each in work.values()))
        return {
            partition: failure
            for partition, failure in zip(work, failures, strict=True)
            if failure is not None
        }

    async def stream_created(self, stream: Stream) -> None:
        """Deliver a new stream from the start to clients that subscribed before it existed."""
        subscribers = await self._cursors.joined_subscribers(stream.path)
        if not subscribers:
            return
        if not await self._is_current(stream.id, stream.path):
            return  # It was deleted meanwhile.
        config = stream.config
        await self._cursors.create_if_absent(stream.id, stream.path, config.mode, config.base[0])
        await self._move(subscribers, stream.id, config.base[0])
        last = await self._table.last(chain_partition(stream.id), slot_text(0), LAST_SLOT)
        if last is not None:
            await self.deliver(stream.id, {entry_of(last).slot: entry_of(last)})

    async def deliver(self, chain: int, hints: Mapping[int, Stored]) -> None:
        """Deliver all slots of a chain up to the last one of `hints`."""
        end = max(hints) + 1
        owner, checks = secrets.token_hex(8), LEASE_CHECKS
        while (cursor := await self._cursors.get(chain)) is not None:
            # While the lease is held, the slots before the cursor may not have been sent.
            if cursor.slot >= end and cursor.lease_owner is None:
                break
            until = self._clock() + DELIVERY_LEASE_SECONDS * 1000
            if cursor.lease_owner is None:
                if await self._cursors.acquire_lease(cursor, end, owner, until):
                    await self._deliver_leased(cursor, end, owner, hints)
                    break
            elif cursor.leased_until <= self._clock():
                await self._recover(cursor, owner, until)
            elif checks:
                checks -= 1
                await asyncio.sleep(LEASE_CHECK_SECONDS)
            else:
                raise DeliveryBusy(f"another function is delivering '{cursor.path}'")
        if cursor is not None and hints[end - 1].state.deleted:
            await self._cursors.remove(chain)

    async def _deliver_leased(
        self, cursor: DeliveryCursor, end: int, owner: str, hints: Mapping[int, Stored]
    ) -> None:
        whole = DeliveryPart(cursor, end, hints[end - 1].state.deleted, owner, 0, 1)
        parts = self._parts_for(cursor.audience)
        if parts == 1:
            try:
                prepared = await self._prepare(whole, hints)
            except Exception:
                await self._cursors.rollback(cursor, owner)
                raise
            if not prepared.subscribers:
                await self._cursors.remove_unused(cursor, owner)
                return
            parts = self._parts_for(len(prepared.subscribers))
            if parts == 1:
                ended = await self._broadcaster.send_all(prepared.outgoing)
                await self._cursors.release(cursor, owner)
                await self._cursors.unsubscribe(prepared.of(ended))
                return
        await self._deliver_parts(
            [whole._replace(number=number, parts=parts) for number in range(parts)], hints
        )

    async def _prepare(self, part: DeliveryPart, hints: Mapping[int, Stored]) -> _Prepared:
        """Everything that is to be sent to a part of the subscribers."""
        cursor = part.cursor
        subscribers = await self._subscribers(cursor, part.span, part.end)
        if not subscribers:
            return _Prepared(subscribers, ())
        first = min(_first_slot(each, cursor) for each in subscribers)
        delivered = await self._read(cursor, first, part.end, hints)
        told: set[str] = set()
        if part.deleted:
            told = await self._broadcaster.extended(each.connection for each in subscribers)
        return _Prepared(subscribers, _outgoing(subscribers, cursor, delivered, told))

    # Parts

    def _parts_for(self, audience: int) -> int:
        return 1 if self._invoke is None else parts_for(audience)

    async def _deliver_parts(
        self, parts: Sequence[DeliveryPart], hints: Mapping[int, Stored]
    ) -> None:
        cursor, owner = parts[0].cursor, parts[0].owner
        outcomes = await asyncio.gather(
            *(self._delegate(each, hints) for each in parts), return_exceptions=True
        )
        if all(each is None for each in outcomes):
            await self._cursors.rollback(cursor, owner)
            raise StoreUnavailable(f"no message of '{cursor.path}' could be sent")
        for part, outcome in zip(parts, outcomes, strict=True):
            if not isinstance(outcome, int):
                await self._request_reconnect(cursor, part.span)
        audience = sum(each for each in outcomes if isinstance(each, int))
        await self._cursors.release(cursor, owner, audience if self._parts_for(audience) > 1 else 0)

    async def _delegate(self, part: DeliveryPart, hints: Mapping[int, Stored]) -> int | None:
        """Have another function serve a part, or serve it here if that one has sent nothing.
        Returns the number of subscribers; None if nothing was sent. After an exception, anything
        may have been sent."""
        assert self._invoke is not None
        response = await self._invoke(part.event()) or {}
        if response.get("sent"):
            audience: int = response["audience"]
            return audience
        if not response.get("taken") and not await self._take(part):
            raise _Unclear
        return await self._serve(part, hints)

    async def serve_part(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Serve the part that another function has invoked this one for."""
        part = DeliveryPart.of(event)
        if not await self._take(part):
            return {"taken": False, "sent": False}
        audience = await self._serve(part, {})
        return {"taken": True, "sent": audience is not None, "audience": audience}

    async def _take(self, part: DeliveryPart) -> bool:
        return await self._cursors.take_part(part.cursor, part.owner, part.number)

    async def _serve(self, part: DeliveryPart, hints: Mapping[int, Stored]) -> int | None:
        """Returns the number of subscribers; None if nothing was sent."""
        try:
            prepared = await self._prepare(part, hints)
        except TailraceError as error:
            logger.warning("a part of a delivery of '%s' failed: %s", part.cursor.path, error)
            return None
        ended = await self._broadcaster.send_all(prepared.outgoing)
        with contextlib.suppress(TailraceError):
            # The next delivery finds that they are gone.
            await self._cursors.unsubscribe(prepared.of(ended))
        return len(prepared.subscribers)

    # Subscribers

    async def _subscribers(
        self, cursor: DeliveryCursor, span: Span, end: int
    ) -> list[SubscriberRecord]:
        """A part of the subscribers of an incarnation. If it is the current one, those that waited
        for it or followed an earlier one are moved to it."""
        subscribers: list[SubscriberRecord] = []

        async def pass_by(subscriber: SubscriberRecord) -> None:
            joined = await self._cursors.pass_by(subscriber, cursor.chain, end)
            if joined is not None:
                subscribers.append(joined)

        found = await self._cursors.subscribers(cursor.path, span)
        await for_each(pass_by, [each for each in found if each.slot is None])
        subscribers += [each for each in found if each.slot is not None]
        own = [each for each in subscribers if each.chain == cursor.chain]
        if len(own) == len(subscribers) or not await self._is_current(cursor.chain, cursor.path):
            return own
        return await self._move(subscribers, cursor.chain, cursor.slot)

    async def _move(
        self, subscribers: Sequence[SubscriberRecord], chain: int, slot: int
    ) -> list[SubscriberRecord]:
        """Have subscribers follow an incarnation, those of others from a slot on."""
        for former in {each.chain for each in subscribers if each.chain not in (None, chain)}:
            assert former is not None
            await self._finish(former)
        moved = [
            each if each.chain == chain else await self._cursors.move(each, chain, slot)
            for each in subscribers
        ]
        return [each for each in moved if each is not None]

    async def _finish(self, chain: int) -> None:
        """Deliver the rest of a deleted incarnation before the next one: the table's stream does
        not order their records."""
        if await self._cursors.get(chain) is None:
            return
        last = await self._table.last(chain_partition(chain), slot_text(0), LAST_SLOT)
        if last is not None:
            entry = entry_of(last)
            await self.deliver(chain, {entry.slot: entry})

    async def _is_current(self, chain: int, path: str) -> bool:
        name = await self._table.get(name_key(path))
        return name is not None and name_of(name).stream.id == chain

    async def _recover(self, cursor: DeliveryCursor, owner: str, until: int) -> None:
        """Take an expired lease over. Its holder has died and may have sent a part of its slots to
        a part of the subscribers, so all of them have to reconnect with their positions."""
        if not await self._cursors.take_over(cursor, owner, until):
            return
        await self._request_reconnect(cursor)
        await self._cursors.release(cursor, owner)

    async def _request_reconnect(self, cursor: DeliveryCursor, span: Span | None = None) -> None:
        """Have subscribers reconnect with their positions, of whom nobody knows what they got."""
        logger.warning("a delivery of '%s' did not end: subscribers must reconnect", cursor.path)
        subscribers = await self._cursors.subscribers(cursor.path, span)
        await self._broadcaster.request_reconnect({each.connection for each in subscribers})
        await self._cursors.unsubscribe(subscribers)

    # Reading

    async def _read(
        self, cursor: DeliveryCursor, first: int, end: int, hints: Mapping[int, Stored]
    ) -> list[_Delivered]:
        """The messages of the slots from `first` to before `end`, in order."""
        delivered: list[_Delivered] = []
        for entry in await self._entries(cursor.chain, first, end, hints):
            if entry.has_data:
                for body, offset, note in entry.appends(await self._store.body(entry)):
                    content = messages(cursor.mode, [body], offset)
                    options = _options(note, len(content))
                    delivered += (
                        _Delivered(entry.slot, message, *option)
                        for message, option in zip(content, options, strict=True)
                    )
        return delivered

    async def _entries(
        self, chain: int, first: int, end: int, hints: Mapping[int, Stored]
    ) -> Sequence[Stored]:
        """The entries from the records or, if those do not have all of them, from the table."""
        if all(slot in hints for slot in range(first, end)):
            return [hints[slot] for slot in range(first, end)]
        entries: list[Stored] = []
        while first < end:
            page = await self._table.query(
                chain_partition(chain), slot_text(first), slot_text(end - 1)
            )
            entries += map(entry_of, page.items)
            if page.more is None:
                break
            first = entries[-1].slot + 1
        return entries


def partition_of(record: TableStreamRecord) -> str:
    partition: str = record["dynamodb"]["Keys"]["p"]["S"]
    return partition


async def _failure(work: Sequence[Awaitable[None]]) -> Exception | None:
    failure = None
    for each in work:
        try:
            await each
        except Exception as error:  # noqa: BLE001 - the handler reports it with its records
            failure = error
    return failure


def _first_slot(subscriber: SubscriberRecord, cursor: DeliveryCursor) -> int:
    """The first slot of this delivery that a subscriber has to get."""
    assert subscriber.slot is not None
    return max(cursor.slot, subscriber.slot)


def _outgoing(
    subscribers: Sequence[SubscriberRecord],
    cursor: DeliveryCursor,
    delivered: Sequence[_Delivered],
    told: Container[str],
) -> Iterator[Outgoing]:
    """The frames for each subscriber, encoded once for all that have the same identifier.
    `told`: the connections that are told that the stream was deleted."""
    epoch = epoch_of(cursor.chain)
    encoded: dict[str, list[str]] = {}
    for subscriber in subscribers:
        subscription = subscriber.subscription
        texts = encoded.get(subscription.identifier)
        if texts is None:
            texts = encoded[subscription.identifier] = [
                frames.data(
                    subscription.identifier,
                    each.message.text,
                    subscription.stream,
                    epoch,
                    each.message.offset,
                    each.kind,
                )
                for each in delivered
            ]
        slot = _first_slot(subscriber, cursor)
        sent = [
            text
            for each, text in zip(delivered, texts, strict=True)
            if each.slot >= slot and each.excluded != subscriber.connection
        ]
        if subscriber.connection in told:
            sent.append(frames.deleted(subscription.identifier))
        yield subscriber.connection, sent


def _options(note: str | None, messages: int) -> Sequence[tuple[str | None, str | None]]:
    """For each message of an append, the excluded connection and the `type` of its broadcast."""
    if note is None:
        return [(None, None)] * messages
    options: list[tuple[str | None, str | None]] = [tuple(each) for each in orjson.loads(note)]
    return options if len(options) == messages else [(None, None)] * messages
