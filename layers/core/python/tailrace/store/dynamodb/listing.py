"""Streams by name: the names are spread over partitions, each in order; a listing merges them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from tailrace.aws.client.failures import Item
from tailrace.log.expiry import stored_deadline
from tailrace.log.state import Listed
from tailrace.store.dynamodb.layout import Key, Name, name_of, name_partitions, text
from tailrace.store.dynamodb.reading import last_state
from tailrace.store.dynamodb.table import Table

KEY_BYTES: Final = 1024
"""Longest sort key of DynamoDB: no path is longer."""


class _Cursor:
    """The names of one partition, in order, as far as they were read."""

    def __init__(self, partition: str, prefix: str, after: str) -> None:
        self._partition = partition
        self._prefix = prefix
        self._start: Key | None = None
        if after and after >= prefix:
            self._start = {"p": text(partition), "s": text(after)}
        self.items: deque[Item] = deque()
        self.exhausted = bool(after) and after > prefix and not after.startswith(prefix)

    async def read(self, table: Table, limit: int) -> None:
        while not self.items and not self.exhausted:
            page = await table.begins(self._partition, self._prefix, limit, self._start)
            self.items.extend(page.items)
            self._start = page.more
            self.exhausted = page.more is None


async def list_streams(
    table: Table, prefix: str, after: str, limit: int, now: int
) -> Sequence[Listed]:
    if len(prefix.encode()) > KEY_BYTES:
        return []
    start = after.encode()[:KEY_BYTES].decode(errors="ignore")
    cursors = [_Cursor(partition, prefix, start) for partition in name_partitions()]
    names: list[Name] = []
    while len(names) < limit:
        # Somewhat more than each partition's share, so that one round is mostly enough.
        page = (limit - len(names)) // len(cursors) + 8
        await asyncio.gather(*(cursor.read(table, page) for cursor in cursors))
        while len(names) < limit and all(cursor.items or cursor.exhausted for cursor in cursors):
            heads = [cursor for cursor in cursors if cursor.items]
            if not heads:
                return await _with_states(table, names)
            first = min(heads, key=lambda cursor: str(cursor.items[0]["s"]["S"]))
            name = name_of(first.items.popleft())
            if name.stream.path > after and _is_there(name, now):
                names.append(name)
    return await _with_states(table, names)


def _is_there(name: Name, now: int) -> bool:
    deadline = stored_deadline(name.stream.config, name.accessed)
    return name.tombstone is None and (deadline is None or deadline > now)


async def _with_states(table: Table, names: Sequence[Name]) -> list[Listed]:
    states = await asyncio.gather(*(last_state(table, name.stream) for name in names))
    return [Listed(name.stream, state) for name, state in zip(names, states, strict=True)]
