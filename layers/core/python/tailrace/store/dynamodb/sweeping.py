"""The sweep of the table: expired streams, and what deleted ones leave behind.

Every step can be repeated, and the mark by which the work is pages goes last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tailrace.aws.client.failures import ConditionFailed, TransactionCanceled
from tailrace.limits import EXPIRED_SECONDS, SWEEP_ITEMS
from tailrace.log.expiry import stored_deadline
from tailrace.store.dynamodb import actions, layout
from tailrace.store.dynamodb.bodies import Bodies
from tailrace.store.dynamodb.layout import Key
from tailrace.store.dynamodb.table import Table

EXPIRE_AT_ONCE: Final = 16
"""Streams whose expiry is checked concurrently."""


async def expiring(table: Table, bodies: Bodies | None, now: int) -> list[str]:
    """Paths that expired by the stored clock. The index lags behind: it is corrected on the way.
    What expired long ago is removed here."""
    paths: list[str | None] = []
    keys = await _due(table, layout.NAMES_DUE, now)
    for first in range(0, len(keys), EXPIRE_AT_ONCE):
        batch = keys[first : first + EXPIRE_AT_ONCE]
        paths += await asyncio.gather(*(_expire(table, bodies, key, now) for key in batch))
    return [path for path in paths if path is not None]


async def _expire(table: Table, bodies: Bodies | None, key: Key, now: int) -> str | None:
    """The path of a name that has just expired."""
    item = await table.get(key)
    if item is None or "d" not in item:
        return None
    name = layout.name_of(item)
    stream = name.stream
    deadline = stored_deadline(stream.config, name.accessed)
    if deadline is None or deadline <= now - EXPIRED_SECONDS * 1000:
        # Nobody has the stream in use any more, so it needs no tombstone, which costs more than the
        # entry and the name of a small stream.
        alone = stream.config.fork is None and name.tombstone is None and not name.forked
        if deadline is not None and alone and not await _is_followed(table, stream.id):
            if await table.delete_if(key, *actions.expired_name(item)):
                await erase(table, bodies, stream.id)
            return None
    elif deadline > now:
        await _postpone(table, key, item["incarnation"], deadline)
        return None
    return stream.path


async def due(table: Table, now: int) -> set[str]:
    """Return the items that `expiring` and `sweep` would process now."""
    kinds = layout.NAMES_DUE, layout.UPLOADS_DUE, layout.CHAINS_DUE
    pages = await asyncio.gather(*(_due(table, kind, now) for kind in kinds))
    return {f"{key['p']['S']} {key['s']['S']}" for keys in pages for key in keys}


async def sweep(table: Table, bodies: Bodies | None, now: int, grace: int) -> None:
    if bodies is not None:
        for intent in await _due(table, layout.UPLOADS_DUE, now):
            await bodies.revoke(intent)
    for tombstone in await _due(table, layout.CHAINS_DUE, now):
        await _erase(table, bodies, tombstone, now + grace)


async def release(table: Table, path: str, chain: int, due: int) -> None:
    """Delete a soft-deleted source that no fork needs any more, then its own source, and so on."""
    while True:
        item = await table.get(layout.name_key(path))
        if item is None:
            return
        name = layout.name_of(item)
        stream = name.stream
        if stream.id != chain or name.tombstone is None or name.forked:
            return
        parts = [actions.free_soft_name(item), actions.mark_due(chain, name.tombstone, due)]
        fork = stream.config.fork
        if fork is not None:
            parts += actions.remove_edge(fork, chain)
        try:
            await table.transact(parts)
        except TransactionCanceled:
            return  # Another process does the same.
        if fork is None:
            return
        path, chain = fork.source, fork.parent


async def _due(table: Table, kind: str, now: int) -> list[Key]:
    pages: Sequence[Sequence[Key]] = await asyncio.gather(
        *(table.due(each, now, SWEEP_ITEMS) for each in layout.due_partitions(kind))
    )
    return [key for keys in pages for key in keys]


async def _postpone(table: Table, key: Key, incarnation: dict[str, str], deadline: int) -> None:
    try:
        await table.update(
            key,
            "SET d = :d",
            "incarnation = :id AND attribute_exists(d)",
            {":d": layout.number(deadline), ":id": incarnation},
        )
    except ConditionFailed:
        return  # It was deleted meanwhile.


async def _erase(table: Table, bodies: Bodies | None, tombstone: Key, due: int) -> None:
    """Remove a deleted chain; its tombstone last, so that no slot of it is ever free again."""
    item = await table.get(tombstone)
    if item is None or "d" not in item:
        return
    source = layout.source_of(item)
    if source is not None:
        await release(table, *source, due)
    chain = layout.chain_of(tombstone["p"]["S"])
    assert chain is not None
    await erase(table, bodies, chain, tombstone)
    await table.delete(tombstone)


async def _is_followed(table: Table, chain: int) -> bool:
    """Whether a stream has a delivery cursor: its tombstone tells the subscribers of its end."""
    async for page in table.all_keys(f"R{layout.id_text(chain)}", "content_mode"):
        if page:
            return True
    return False


async def erase(
    table: Table, bodies: Bodies | None, chain: int, but: Key | None = None
) -> tuple[int, int]:
    """Remove a chain, with all that belongs to it; how many items and objects it had."""
    items = objects = 0
    for kind, attribute in (("C", "k"), ("S", "object_key"), ("P", "e")):
        async for page in table.all_keys(f"{kind}{layout.id_text(chain)}", attribute):
            named = list(filter(None, map(layout.object_key_of, page)))
            if named and bodies is not None:
                await bodies.remove(named)
            keys = [layout.key_of(item) for item in page]
            await table.delete_all(key for key in keys if key != but)
            items += len(keys)
            objects += len(named)
    return items, objects
