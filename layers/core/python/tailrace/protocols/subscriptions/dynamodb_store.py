"""Subscriptions in the table of the DynamoDB store; `items` describes what is stored.

A GetItem sees all of a transaction or nothing, while a query may see half of one. So everything
that a decision rests on is read by GetItem: the record, which counts the links with news, and each
link. Queries only find what then is read, or noticed again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tailrace.aws.client.failures import ConditionFailed, Item, TransactionCanceled
from tailrace.protocols.subscriptions import items
from tailrace.protocols.subscriptions.core.configuration import follows
from tailrace.protocols.subscriptions.core.globs import prefixes
from tailrace.protocols.subscriptions.core.records import (
    DurableSubscription,
    Link,
    LinkChange,
)
from tailrace.protocols.subscriptions.store import IndexedLink
from tailrace.store.dynamodb.actions import put_new
from tailrace.store.dynamodb.layout import Key, key_of, number, text
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.dynamodb.table import Action, Table

LOOKS: Final = 20
LOOK_SECONDS: Final = 0.01
"""How often, and at which interval, the news are looked for that a record counts."""


class DynamoSubscriptions:
    def __init__(self, store: DynamoStore) -> None:
        self._store = store

    @property
    def _table(self) -> Table:
        return self._store.table

    async def open(self) -> None:
        """Nothing is kept in memory, since other processes write, too."""

    def follows(self, stream: int) -> bool:  # noqa: ARG002
        return True

    # The record

    async def load(self, id: str) -> DurableSubscription | None:  # noqa: A002
        item = await self._table.get(items.subscription_key(id))
        return None if item is None else items.subscription_of(item)

    async def create(self, record: DurableSubscription) -> bool:
        attempt = secrets.token_hex(8)
        actions = [put_new(items.subscription_item(record, attempt))]
        if record.pattern is not None:
            actions.append({"Put": {"Item": items.pattern_item(record)}})
        return await self._transact(record, attempt, actions)

    async def save(
        self,
        before: DurableSubscription,
        after: DurableSubscription,
        links: Sequence[LinkChange] = (),
    ) -> bool:
        attempt = secrets.token_hex(8)
        update = _update(before, after, attempt)
        changes = [action for change in links for action in _changes(after, change)]
        if changes:
            return await self._transact(after, attempt, [{"Update": update}, *changes])
        try:
            await self._table.update(
                update["Key"],
                update["UpdateExpression"],
                update["ConditionExpression"],
                update["ExpressionAttributeValues"],
            )
        except ConditionFailed:
            return await self._is_written(after, attempt)
        return True

    async def erase(self, record: DurableSubscription) -> None:
        table, uid = self._table, record.uid
        attributes = "incarnation, link_types"
        async for page in table.all_keys(items.link_partition(uid), attributes):
            await table.delete_all(key for item in page for key in _keys_of(record, item))
        if record.pattern is not None:
            await table.delete(items.pattern_key(record.pattern, uid))
        await table.delete_if(items.subscription_key(record.id), "uid = :uid", {":uid": text(uid)})

    # Links

    async def link(self, record: DurableSubscription, path: str) -> Link | None:
        item = await self._table.get(items.link_key(record.uid, path))
        return None if item is None else items.link_of(item)

    async def links(self, record: DurableSubscription, after: str, limit: int) -> Sequence[Link]:
        page = await self._table.query(
            items.link_partition(record.uid),
            # The first text after `after`: no path has a zero byte.
            f"{items.LINKS}{after}\0",
            f"{items.LINKS}{items.LAST_PATH}",
            limit=limit,
        )
        return [items.link_of(item) for item in page.items]

    async def pending(self, record: DurableSubscription, limit: int) -> Sequence[Link]:
        expected = min(record.pending_links, limit)
        links: list[Link] = []
        for look in range(LOOKS if expected else 0):
            if look:
                await asyncio.sleep(LOOK_SECONDS)
            page = await self._table.query(
                items.link_partition(record.uid),
                items.NEWS,
                f"{items.NEWS}{items.LAST_PATH}",
                limit=limit,
            )
            found = await asyncio.gather(
                *(self.link(record, item["s"]["S"][1:]) for item in page.items)
            )
            links = [link for link in found if link is not None and link.pending]
            if len(links) >= expected:
                break
        return links

    # The index

    async def followers(self, stream: int) -> Sequence[IndexedLink]:
        partition = items.follower_partition(stream)
        return [items.follower_of(item) async for item in self._table.all(partition)]

    async def forget(self, stream: int, follower: IndexedLink) -> None:
        await self._table.delete(items.follower_key(stream, follower.uid))

    async def interested(self, path: str) -> Sequence[str]:
        found = await asyncio.gather(
            self._named(path), *(self._matching(prefix, path) for prefix in prefixes(path))
        )
        return sorted({id_ for ids in found for id_ in ids})

    async def list(self, after: str, limit: int) -> Sequence[DurableSubscription]:
        pages = await asyncio.gather(
            *(
                self._table.query(partition, f"{after}\0", items.LAST_PATH, limit=limit)
                for partition in items.subscription_partitions()
            )
        )
        records = [items.subscription_of(item) for page in pages for item in page.items]
        return sorted(records, key=lambda record: record.id)[:limit]

    async def due(self, until: int, limit: int) -> Sequence[tuple[str, int]]:
        pages = await asyncio.gather(
            *(self._table.due_items(each, until, limit) for each in items.due_partitions())
        )
        found = [(item["s"]["S"], int(item["d"]["N"])) for page in pages for item in page]
        return sorted(found, key=lambda each: each[1])[:limit]

    # Inside

    async def _named(self, path: str) -> Sequence[str]:
        partition = items.interest_partition(path)
        return [item["s"]["S"] async for item in self._table.all(partition)]

    async def _matching(self, prefix: str, path: str) -> Sequence[str]:
        partition = items.pattern_partition(prefix)
        patterns = [items.pattern_of(item) async for item in self._table.all(partition)]
        return [each.id for each in patterns if follows(each.pattern, each.wake_stream, path)]

    async def _transact(
        self, record: DurableSubscription, attempt: str, actions: Sequence[Action]
    ) -> bool:
        try:
            await self._table.transact(actions)
        except TransactionCanceled:
            return await self._is_written(record, attempt)
        return True

    async def _is_written(self, record: DurableSubscription, attempt: str) -> bool:
        """Whether the condition failed because an attempt had succeeded whose answer was lost."""
        item = await self._table.get(items.subscription_key(record.id))
        return item is not None and bool(item["written_by"]["S"] == attempt)


def _update(
    before: DurableSubscription, after: DurableSubscription, attempt: str
) -> dict[str, Any]:
    """Return the conditional replacement of a record."""
    item = items.subscription_item(after, attempt)
    names = ["record_version", "record_json", "written_by"]
    optional = ["todo", "g", "d"]
    names += [name for name in optional if name in item]
    absent = [name for name in optional if name not in item]
    expression = "SET " + ", ".join(f"{name} = :{name}" for name in names)
    if absent:
        expression += f" REMOVE {', '.join(absent)}"
    return {
        "Key": items.subscription_key(before.id),
        "UpdateExpression": expression,
        "ConditionExpression": "uid = :uid AND record_version = :version",
        "ExpressionAttributeValues": {
            ":uid": text(before.uid),
            ":version": number(before.version),
            **{f":{name}": item[name] for name in names},
        },
    }


def _changes(record: DurableSubscription, change: LinkChange) -> Iterable[Action]:
    """Return the actions that change a link and what is stored beside it."""
    before, after = change
    link = after or before
    assert link is not None
    uid, path = record.uid, link.path
    if after is not None:
        yield {"Put": {"Item": items.link_item(uid, after)}}
    else:
        yield {"Delete": {"Key": items.link_key(uid, path)}}
    if change.pending > 0:
        yield {"Put": {"Item": items.news_item(uid, path)}}
    elif change.pending < 0:
        yield {"Delete": {"Key": items.news_key(uid, path)}}
    old, new = (None if each is None else each.stream for each in change)
    if old != new and old is not None:
        yield {"Delete": {"Key": items.follower_key(old, uid)}}
    if old != new and new is not None:
        yield {"Put": {"Item": items.follower_item(new, IndexedLink(record.id, uid, path))}}
    was, is_ = (each is not None and each.explicit for each in change)
    if is_ and not was:
        yield {"Put": {"Item": items.interest_item(path, record)}}
    elif was and not is_:
        yield {"Delete": {"Key": items.interest_key(path, record.id)}}


def _keys_of(record: DurableSubscription, item: Item) -> Iterable[Key]:
    """Return the keys of a link, or of its news, and of what is stored beside it; itself last."""
    kind, path = item["s"]["S"][0], item["s"]["S"][1:]
    if kind == items.LINKS:
        if "incarnation" in item:
            yield items.follower_key(int(item["incarnation"]["S"], 16), record.uid)
        yield items.interest_key(path, record.id)
    yield key_of(item)
