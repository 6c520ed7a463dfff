"""Permits to wait for streams that do not exist, shared by functions.

A function's process waits for one request at a time, so a stranger who names streams would get a
process for each name. There is a fixed number of permits, each an item, and a client may hold only
those that its name leads to: both bounds are exact, and cost one conditional write per wait.
"""

from __future__ import annotations

import hashlib
import random
import secrets
from contextlib import suppress
from typing import Final

from tailrace.clock import Clock
from tailrace.errors import TailraceError
from tailrace.limits import MISSING_WAITS_SHARE
from tailrace.store.dynamodb.layout import WAIT_PERMITS, Key, number, text, wait_permit_key
from tailrace.store.dynamodb.store import DynamoStore

ATTEMPTS: Final = 3
"""Permits tried before a wait is refused: another one may get the same at the same time."""

MARGIN_SECONDS: Final = 5
"""How much longer than its wait a permit is held if its process dies."""


class WaitPermits:
    def __init__(self, store: DynamoStore, total: int, clock: Clock) -> None:
        """`total`: how many permits there are."""
        self._store = store
        self._total = total
        self._clock = clock

    async def acquire(self, client: str, seconds: float) -> str | None:
        """Acquire a permit for a wait; None: the client, or all clients, hold all that they may."""
        table = self._store.table
        for _ in range(ATTEMPTS):
            now = self._clock()
            held = {
                item["s"]["S"]
                async for item in table.all(WAIT_PERMITS)
                if int(item["held_until"]["N"]) > now
            }
            free = [each for each in self._permits_of(client) if each["s"]["S"] not in held]
            if not free:
                return None
            permit, holder = random.choice(free), secrets.token_hex(8)  # noqa: S311 - no secret
            until = now + int((seconds + MARGIN_SECONDS) * 1000)
            if await table.update_if(
                permit,
                "SET permit_holder = :holder, held_until = :until",
                "attribute_not_exists(p) OR held_until <= :now",
                {":holder": text(holder), ":until": number(until), ":now": number(now)},
            ):
                return f"{permit['s']['S']} {holder}"
        return None

    async def release(self, permit: str) -> None:
        name, _, holder = permit.partition(" ")
        # If this fails, the permit expires.
        with suppress(TailraceError):
            await self._store.table.delete_if(
                wait_permit_key(int(name)), "permit_holder = :holder", {":holder": text(holder)}
            )

    def _permits_of(self, client: str) -> list[Key]:
        share = max(1, self._total // MISSING_WAITS_SHARE)

        def rank(permit: int) -> bytes:
            return hashlib.sha256(f"{permit} {client}".encode()).digest()

        return [wait_permit_key(each) for each in sorted(range(self._total), key=rank)[:share]]
