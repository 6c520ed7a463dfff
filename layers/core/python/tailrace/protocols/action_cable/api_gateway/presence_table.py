"""Presence in the table: one item for each member of a stream, with its connections."""

from __future__ import annotations

from typing import Any, Final

import orjson

from tailrace.limits import GATEWAY_BROADCAST_BYTES
from tailrace.protocols.action_cable.api_gateway import items
from tailrace.store.dynamodb.layout import number, text
from tailrace.store.dynamodb.table import Table

ATTEMPTS: Final = 3


class PresenceTable:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def join(self, path: str, connection: str, member: str, info: Any) -> bool:
        """Add a connection of a member; returns whether it is the member's first."""
        before = await self._table.replace(
            items.member_key(path, member),
            "ADD connection_ids :connection"
            " SET member_id = :member, member_info = if_not_exists(member_info, :info)",
            {
                ":connection": {"SS": [connection]},
                ":member": text(member),
                ":info": text(_text(info)),
            },
        )
        return "connection_ids" not in before

    async def leave(self, path: str, connection: str, member: str) -> str | None:
        """Remove a connection of a member; returns the presence message to send if it was the
        member's last."""
        key, alone = items.member_key(path, member), {":connection": {"SS": [connection]}}
        shared = {**alone, ":id": text(connection), ":one": number(1)}
        # Two concurrent leaves may each find that the other connection remains: then both retry.
        for _ in range(ATTEMPTS):
            if await self._table.delete_if(key, "connection_ids = :connection", alone):
                return _text({"id": member, "type": "leave"})
            if await self._table.update_if(
                key,
                "DELETE connection_ids :connection",
                "contains(connection_ids, :id) AND size(connection_ids) > :one",
                shared,
            ):
                return None
        return None

    async def info(self, path: str, *, records: bool) -> str:
        """The presence message that lists the members of a stream, or only counts them if the list
        is too long for a frame."""
        members = [
            {"info": orjson.loads(item["member_info"]["S"]), "id": item["member_id"]["S"]}
            async for item in self._table.all(items.member_partition(path))
        ]
        counted: dict[str, Any] = {"type": "info", "total": len(members)}
        listed = _text({**counted, "records": members})
        return listed if records and len(listed) <= GATEWAY_BROADCAST_BYTES else _text(counted)


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
