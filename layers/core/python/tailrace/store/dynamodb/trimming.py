"""Trimming: slots are removed from the table a grace period after they were archived."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from tailrace.aws.client.failures import ConditionFailed, Item
from tailrace.log.trimming import first_kept
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import actions, layout
from tailrace.store.dynamodb.layout import Name
from tailrace.store.dynamodb.reading import last_state
from tailrace.store.dynamodb.segments import segments_from
from tailrace.store.dynamodb.table import Table

BATCHES: Final = 8
"""Batches of one chain that are deleted at once: one partition takes 1,000 writes a second."""


async def trim(table: Table, name: Name, now: int, grace: int) -> int:
    """Remove slots that were archived a grace period (seconds) ago; return their number."""
    expired = _past_grace(await segments_from(table, name.stream.id, name.trimmed), now, grace)
    if not expired:
        return 0
    state = await last_state(table, name.stream)
    kept = first_kept(
        state, expired[-1].stop, max(each.committed_at for each in expired), now, grace
    )
    if kept <= name.trimmed:
        return 0
    removed = await remove_slots(table, name.stream.id, kept, now + grace * 1000)
    await advance_pointer(table, name, layout.TRIMMED, kept)
    return removed


async def remove_slots(table: Table, chain: int, stop: int, due: int) -> int:
    """Remove the slots below `stop` from the table; large bodies' objects go when `due`."""
    removed = 0
    partition, last = layout.chain_partition(chain), layout.slot_text(stop - 1)
    async for page in table.all_keys(partition, "k", last):
        removed += len(page)
        # A reader that has just seen the entry may be about to read its object.
        for item in page:
            if "k" in item:
                await _release(table, item, due)
        keys = [layout.key_of(item) for item in page if "k" not in item]
        share = max(1, -(-len(keys) // BATCHES))
        parts = [keys[i : i + share] for i in range(0, len(keys), share)]
        await asyncio.gather(*map(table.delete_all, parts))
    return removed


async def advance_pointer(table: Table, name: Name, pointer: str, slot: int) -> None:
    """Remember in the name how far a job has got; it only ever goes up."""
    try:
        await table.update(
            layout.name_key(name.stream.path),
            f"SET {pointer} = :slot",
            f"incarnation = :id AND (attribute_not_exists({pointer}) OR {pointer} < :slot)",
            {
                ":id": layout.text(layout.id_text(name.stream.id)),
                ":slot": layout.number(slot),
            },
        )
    except ConditionFailed:
        return  # The stream is deleted, or another run has got further.


def _past_grace(manifests: Sequence[Manifest], now: int, grace: int) -> Sequence[Manifest]:
    return list(takewhile(lambda manifest: manifest.committed_at + grace * 1000 <= now, manifests))


async def _release(table: Table, item: Item, due: int) -> None:
    key = layout.key_of(item)
    await table.transact([{"Delete": {"Key": key}}, actions.put_upload_intent(item["k"]["S"], due)])
