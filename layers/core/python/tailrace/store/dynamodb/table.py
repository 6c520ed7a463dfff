"""The table as the store uses it: a few operations, each failure mapped to an error of ours."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tailrace.aws.client.failures import ConditionFailed, Item, Refused, Throttled, Unavailable
from tailrace.errors import OutcomeUnknown, StoreUnavailable, StreamTooHot
from tailrace.store.dynamodb.layout import DUE_INDEX, Key, key_of, number, text

BATCH: Final = 25
"""Most items that DynamoDB takes in one BatchWriteItem."""

ABSENT: Final = "attribute_not_exists(p)"

Action = dict[str, dict[str, Any]]
"""One action of a transaction."""

logger = logging.getLogger("tailrace")


class TableClient(Protocol):
    """Sends the calls: `client.Client`, or a replacement in tests."""

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class Page(NamedTuple):
    items: Sequence[Item]
    more: Key | None
    """Where the next page begins, if this one did not reach the end."""


class Table:
    def __init__(self, client: TableClient, name: str) -> None:
        self._client = client
        self._name = name

    # Reading

    async def get(self, key: Key, *, consistent: bool = True) -> Item | None:
        answer = await self._call("GetItem", Key=key, ConsistentRead=consistent)
        item: Item | None = answer.get("Item")
        return item

    async def query(
        self, partition: str, first: str, last: str, *, limit: int = 0, backward: bool = False
    ) -> Page:
        """Items of a partition from `first` to `last`, or from `last` back to `first`."""
        request: dict[str, Any] = {
            "KeyConditionExpression": "p = :p AND s BETWEEN :f AND :l",
            "ExpressionAttributeValues": {
                ":p": text(partition),
                ":f": text(first),
                ":l": text(last),
            },
        }
        if limit:
            request["Limit"] = limit
        if backward:
            request["ScanIndexForward"] = False
        return await self._query(request)

    async def all(self, partition: str, span: tuple[str, str] | None = None) -> AsyncIterator[Item]:
        """Every item of a partition, in ascending order; `span`: those from the first sort key to
        the second."""
        request: dict[str, Any] = {
            "KeyConditionExpression": "p = :p",
            "ExpressionAttributeValues": {":p": text(partition)},
        }
        if span is not None:
            request["KeyConditionExpression"] = "p = :p AND s BETWEEN :f AND :l"
            request["ExpressionAttributeValues"] |= {":f": text(span[0]), ":l": text(span[1])}
        page = await self._query(request)
        while True:
            for item in page.items:
                yield item
            if page.more is None:
                return
            page = await self._query(request, page.more)

    async def last(self, partition: str, first: str, last: str) -> Item | None:
        """The last of the items of a partition from `first` to `last`."""
        page = await self.query(partition, first, last, limit=1, backward=True)
        return page.items[0] if page.items else None

    async def begins(self, partition: str, prefix: str, limit: int, start: Key | None) -> Page:
        """Items of a partition whose sort key begins with a prefix."""
        request: dict[str, Any] = {
            "KeyConditionExpression": "p = :p AND begins_with(s, :f)" if prefix else "p = :p",
            "ExpressionAttributeValues": {":p": text(partition)},
            "Limit": limit,
        }
        if prefix:
            request["ExpressionAttributeValues"][":f"] = text(prefix)
        return await self._query(request, start)

    async def all_keys(
        self, partition: str, attributes: str, last: str | None = None, first: str | None = None
    ) -> AsyncIterator[Sequence[Item]]:
        """The keys of a partition, up to `last` or from `first` on, in ascending order, a page at
        a time, with some attributes more."""
        request: dict[str, Any] = {
            "KeyConditionExpression": "p = :p",
            "ExpressionAttributeValues": {":p": text(partition)},
            "ProjectionExpression": f"p, s, {attributes}",
        }
        for sign, end in (("<=", last), (">=", first)):
            if end is not None:
                request["KeyConditionExpression"] = f"p = :p AND s {sign} :s"
                request["ExpressionAttributeValues"][":s"] = text(end)
        page = await self._query(request)
        yield page.items
        while page.more is not None:
            page = await self._query(request, page.more)
            yield page.items

    async def scan(self, part: int, parts: int) -> AsyncIterator[Sequence[Item]]:
        """One of several parts of the whole table, a page at a time; eventually consistent.

        The items of a partition are in one part, in ascending order."""
        request: dict[str, Any] = {"Segment": part, "TotalSegments": parts}
        while True:
            answer = await self._call("Scan", **request)
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def due(self, partition: str, now: int, limit: int) -> Sequence[Key]:
        """Return the keys of items that are due; eventually consistent, as every index is."""
        return [key_of(item) for item in await self.due_items(partition, now, limit)]

    async def due_items(self, partition: str, now: int, limit: int) -> Sequence[Item]:
        """The same, with the attributes of the index; the earliest first."""
        answer = await self._call(
            "Query",
            IndexName=DUE_INDEX,
            KeyConditionExpression="g = :g AND d <= :d",
            ExpressionAttributeValues={":g": text(partition), ":d": number(now)},
            Limit=limit,
        )
        items: Sequence[Item] = answer["Items"]
        return items

    async def due_since(self, partition: str, start: int) -> AsyncIterator[Key]:
        """Yield the keys of items that were due at `start` or later; eventually consistent."""
        request: dict[str, Any] = {
            "IndexName": DUE_INDEX,
            "KeyConditionExpression": "g = :g AND d >= :d",
            "ExpressionAttributeValues": {":g": text(partition), ":d": number(start)},
        }
        while True:
            answer = await self._call("Query", **request)
            for item in answer["Items"]:
                yield key_of(item)
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    # Writing

    async def put_new(self, item: Item) -> None:
        """Put an item under a free key; `ConditionFailed`, with the item there, if it is taken."""
        await self._call(
            "PutItem",
            Item=item,
            ConditionExpression=ABSENT,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    async def put(self, item: Item) -> None:
        await self._call("PutItem", Item=item)

    async def update(
        self, key: Key, expression: str, condition: str, values: Mapping[str, Any]
    ) -> None:
        await self._call(
            "UpdateItem",
            Key=key,
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeValues=values,
        )

    async def update_if(
        self, key: Key, expression: str, condition: str, values: Mapping[str, Any]
    ) -> bool:
        """Whether it was as the condition says, and is changed now."""
        try:
            await self.update(key, expression, condition, values)
        except ConditionFailed:
            return False
        return True

    async def change_if(
        self, key: Key, expression: str, condition: str, values: Mapping[str, Any]
    ) -> Item | None:
        """Change an item, or create it, if it is as the condition says; return what it is now."""
        try:
            answer = await self._call(
                "UpdateItem",
                Key=key,
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )
        except ConditionFailed:
            return None
        item: Item = answer["Attributes"]
        return item

    async def replace(self, key: Key, expression: str, values: Mapping[str, Any]) -> Item:
        """Change an item, or create it; return what it was before."""
        answer = await self._call(
            "UpdateItem",
            Key=key,
            UpdateExpression=expression,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_OLD",
        )
        item: Item = answer.get("Attributes", {})
        return item

    async def transact(self, actions: Sequence[Action]) -> None:
        """Do all or nothing; `TransactionCanceled`, with the items there, if a condition fails."""
        named = [
            {kind: {"TableName": self._name, **action}}
            for each in actions
            for kind, action in each.items()
        ]
        await self._call("TransactWriteItems", TransactItems=named)

    async def delete(self, key: Key) -> None:
        await self._call("DeleteItem", Key=key)

    async def delete_if(self, key: Key, condition: str, values: Mapping[str, Any]) -> bool:
        """Whether it was as the condition says, and is gone now."""
        try:
            await self._call(
                "DeleteItem",
                Key=key,
                ConditionExpression=condition,
                ExpressionAttributeValues=values,
            )
        except ConditionFailed:
            return False
        return True

    async def delete_all(self, keys: Iterable[Key]) -> None:
        for batch in _batches(keys):
            waiting: list[Any] = [{"DeleteRequest": {"Key": key}} for key in batch]
            pause = 0.05
            while waiting:
                answer = await self._call("BatchWriteItem", RequestItems={self._name: waiting})
                waiting = answer.get("UnprocessedItems", {}).get(self._name, [])
                if waiting:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, 1.0)

    # Inside

    async def _query(self, request: Mapping[str, Any], start: Key | None = None) -> Page:
        """A page, strongly consistent."""
        paging = {} if start is None else {"ExclusiveStartKey": start}
        answer = await self._call("Query", ConsistentRead=True, **request, **paging)
        return Page(answer["Items"], answer.get("LastEvaluatedKey"))

    async def _call(self, operation: str, **request: Any) -> dict[str, Any]:
        if operation not in ("TransactWriteItems", "BatchWriteItem"):
            request["TableName"] = self._name
        try:
            return await self._client.call(operation, request)
        except Throttled as error:
            if error.hot_key:
                raise StreamTooHot(
                    "the stream is used more often than DynamoDB allows for a key; try again later"
                ) from error
            raise StoreUnavailable("DynamoDB is throttling requests; try again") from error
        except Unavailable as error:
            logger.warning("%s", error)
            if error.unclear and operation not in ("GetItem", "Query", "Scan"):
                raise OutcomeUnknown(
                    "DynamoDB did not answer: the request may or may not have been carried out;"
                    " with a Producer-Id it can be repeated safely"
                ) from error
            raise StoreUnavailable("DynamoDB does not answer; try again") from error
        except Refused as error:
            logger.error("%s", error)
            raise StoreUnavailable(
                "DynamoDB rejected a request; the server's log says why"
            ) from error


def _batches(keys: Iterable[Key]) -> Iterable[Sequence[Key]]:
    rest = iter(keys)
    while batch := list(itertools.islice(rest, BATCH)):
        yield batch
