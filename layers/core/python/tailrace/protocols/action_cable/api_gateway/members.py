"""Who is there: one item for each member of a stream, with the connections that it came with."""

from __future__ import annotations

from typing import Any, Final

import orjson

from tailrace.limits import CABLE_BROADCAST_BYTES
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.store.dynamodb.layout import number, text
from tailrace.store.dynamodb.table import Table

ATTEMPTS: Final = 3


class Members:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def join(self, path: str, connection: str, member: str, info: Any) -> bool:
        """Whether it is news that somebody is there."""
        before = await self._table.replace(
            items.member_key(path, member),
            "ADD t :t SET c = :c, i = if_not_exists(i, :i)",
            {":t": {"SS": [connection]}, ":c": text(member), ":i": text(_text(info))},
        )
        return "t" not in before

    async def leave(self, path: str, connection: str, member: str) -> str | None:
        """What to tell everybody, if nothing of the member is left."""
        key, alone = items.member_key(path, member), {":t": {"SS": [connection]}}
        shared = {**alone, ":c": text(connection), ":one": number(1)}
        # Those who leave together may each see the other for the last one that stays.
        for _ in range(ATTEMPTS):
            if await self._table.delete_if(key, "t = :t", alone):
                return _text({"id": member, "type": "leave"})
            if await self._table.update_if(
                key, "DELETE t :t", "contains(t, :c) AND size(t) > :one", shared
            ):
                return None
        return None

    async def listed(self, path: str, *, records: bool) -> str:
        """The answer to who asks."""
        found = [
            {"info": orjson.loads(item["i"]["S"]), "id": item["c"]["S"]}
            async for item in self._table.all(items.member_partition(path))
        ]
        answer: dict[str, Any] = {"type": "info", "total": len(found)}
        whole = _text({**answer, "records": found})
        return whole if records and len(whole) <= CABLE_BROADCAST_BYTES else _text(answer)


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
