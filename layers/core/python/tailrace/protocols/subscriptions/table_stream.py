"""Subscriptions without a server: the table's stream reports what was written, and a timer waits.

Everything that a subscription has to do is stored as due, and the stream reports that to the same
function that it reports appends to. It is therefore done after any function has died, and done
twice at worst, which the rules allow. A timer waits for what is due within a minute: one function
for all subscriptions, as long as there is any.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tailrace.clock import Clock
from tailrace.protocols.subscriptions import items
from tailrace.protocols.subscriptions.core.records import DurableSubscription
from tailrace.protocols.subscriptions.dynamodb_store import DynamoSubscriptions
from tailrace.protocols.subscriptions.service import SubscriptionService
from tailrace.store.dynamodb.layout import (
    Stored,
    chain_of,
    entry_of,
    is_name,
    name_of,
    number,
    text,
)
from tailrace.store.dynamodb.table import Table

HORIZON_MS: Final = 60_000
"""The timer waits for what is due within it; a schedule looks for the rest as often."""

LEASE_MS: Final = 10_000
RENEW_MS: Final = 5000
"""The timer's lease, and how much of it is left when it is renewed."""

POLL_SECONDS: Final = 1.0
"""How often the timer looks for what has become due sooner: the shortest lease and retry."""

LINGER_MS: Final = 3000
"""How long the timer stays after the last work: the index lags, and more often follows."""

AT_ONCE: Final = 100


class SubscriptionRecords:
    """Handles records of the table's stream."""

    def __init__(
        self,
        service: SubscriptionService,
        timer: TimerLease,
        start_timer: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`start_timer`: starts a function that runs a `SubscriptionTimer`."""
        self._service = service
        self._timer = timer
        self._start_timer = start_timer
        self._clock = clock
        self._changed: dict[str, int] = {}
        service.changed = self._note

    async def handle(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Exception]:
        """Handle records; returns the failures by the records' partitions."""
        work: defaultdict[str, list[Awaitable[None]]] = defaultdict(list)
        ends: dict[str, Stored] = {}
        due: dict[str, tuple[str, int]] = {}
        for record in records:
            item = record["dynamodb"].get("NewImage")
            partition: str = record["dynamodb"]["Keys"]["p"]["S"]
            if item is None:
                continue
            if items.is_subscription(partition):
                # Only the newest version counts, and its id is its sort key.
                key = f"{partition} {item['s']['S']}"
                due[key] = partition, int(item["d"]["N"]) if "d" in item else -1
            elif record["eventName"] != "INSERT":
                continue
            elif chain_of(partition) is not None:
                entry = entry_of(item)
                if partition not in ends or entry.slot > ends[partition].slot:
                    ends[partition] = entry
            elif is_name(partition):
                work[partition].append(self._service.created(name_of(item).stream.path))
        for partition, entry in ends.items():
            chain = chain_of(partition)
            assert chain is not None
            work[partition].append(self._appended(chain, entry))
        for key, (partition, due_at) in due.items():
            work[partition].append(self._is_due(key.partition(" ")[2], due_at))
        failures = await asyncio.gather(*map(_failure, work.values()))
        found = dict(zip(work, failures, strict=True))
        await self._do_changed()
        return {partition: error for partition, error in found.items() if error is not None}

    async def _appended(self, chain: int, entry: Stored) -> None:
        state = entry.state
        if state.deleted:
            await self._service.deleted(chain)
        else:
            await self._service.appended(chain, state.tail, state.offset)

    async def _is_due(self, id: str, due_at: int) -> None:  # noqa: A002
        """Do what is due of a subscription, or have the timer wait for it."""
        now = self._clock()
        if due_at < 0:
            return
        if due_at <= now:
            await self._service.perform(id)
        elif due_at <= now + HORIZON_MS and not await self._timer.is_held():
            await self._start_timer()

    def _note(self, record: DurableSubscription) -> None:
        if record.due_at is not None:
            self._changed[record.id] = record.due_at

    async def _do_changed(self) -> None:
        """Do at once what follows from the batch. If it fails, the record of the change itself
        comes, and is repeated until it succeeds."""
        while self._changed:
            changed, self._changed = self._changed, {}
            now = self._clock()
            ids = [id_ for id_, due_at in changed.items() if due_at <= now]
            await asyncio.gather(*map(self._service.perform, ids), return_exceptions=True)


class TimerLease:
    """Sees to it that one function waits for all subscriptions."""

    def __init__(self, table: Callable[[], Table], clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._known_until = 0

    async def is_held(self) -> bool:
        now = self._clock()
        if self._known_until <= now:
            item = await self._table().get(items.TIMER)
            self._known_until = 0 if item is None else int(item["held_until"]["N"])
        return self._known_until > now

    async def acquire(self, owner: str) -> bool:
        """Acquire or extend the lease; False: another function has it."""
        now = self._clock()
        return await self._table().update_if(
            items.TIMER,
            "SET timer_owner = :owner, held_until = :until",
            "attribute_not_exists(p) OR held_until <= :now OR timer_owner = :owner",
            {":owner": text(owner), ":until": number(now + LEASE_MS), ":now": number(now)},
        )

    async def release(self, owner: str) -> None:
        await self._table().delete_if(items.TIMER, "timer_owner = :owner", {":owner": text(owner)})


class SubscriptionTimer:
    """Waits for what is due within a minute, and has it done on time."""

    def __init__(
        self,
        store: DynamoSubscriptions,
        lease: TimerLease,
        perform: Callable[[str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`perform`: has a subscription's work done, without waiting for it."""
        self._store = store
        self._lease = lease
        self._perform = perform
        self._clock = clock

    async def run(self, remaining: Callable[[], float]) -> bool:
        """Wait until nothing is due soon, or no time remains; returns whether to start a successor.

        `remaining`: seconds for which this function may run on."""
        now = self._clock()
        if not await self._store.due(now + HORIZON_MS, 1):
            return False
        owner, held_until, busy_until = secrets.token_hex(8), 0, now + LINGER_MS
        done: set[tuple[str, int]] = set()
        while remaining() > 0:
            now = self._clock()
            if held_until - now < RENEW_MS:
                if not await self._lease.acquire(owner):
                    return False
                held_until = now + LEASE_MS
            # The index lags, so it shows some of what was done once more.
            found = await self._store.due(now + HORIZON_MS, AT_ONCE)
            soon = [each for each in found if each not in done]
            done.intersection_update(found)
            ready = [each for each in soon if each[1] <= now]
            await asyncio.gather(*(self._perform(id_) for id_, _ in ready))
            done.update(ready)
            if soon:
                busy_until = now + LINGER_MS
            elif now >= busy_until:
                await self._lease.release(owner)
                return False
            waits = [max(0, due_at - now) / 1000 for _, due_at in soon if due_at > now]
            await asyncio.sleep(min([*waits, POLL_SECONDS]))
        await self._lease.release(owner)
        return True


async def _failure(work: Sequence[Awaitable[None]]) -> Exception | None:
    failure = None
    for each in work:
        try:
            await each
        except Exception as error:  # noqa: BLE001 - the handler reports it with its records
            failure = error
    return failure
