"""The event source mapping between the table's stream and a function."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from devtools.local_aws.environments import REGION
from devtools.local_aws.functions import Function

POLL_SECONDS: Final = 0.25
"""How often Lambda polls each shard."""


class EventSource:
    """Invokes a function with those records of a table's stream that match its filters."""

    def __init__(self, client: Any, arn: str, filters: Iterable[str], function: Function) -> None:
        self._client = client
        self._arn = arn
        self._filters = [json.loads(each) for each in filters]
        self._function = function
        self._iterators: dict[str, str | None] = {}
        self.delivered = 0
        """The number of batches that the function has processed."""

    async def run(self) -> None:
        """Poll the stream until cancelled."""
        while True:
            for batch in await asyncio.to_thread(self._look):
                await self._deliver(batch)
            await asyncio.sleep(POLL_SECONDS)

    async def _deliver(self, batch: list[dict[str, Any]]) -> None:
        """Deliver a batch, and retry from the first failed record: later records have to wait."""
        while True:
            answer = await self._function.invoke({"Records": batch})
            body = b"".join([piece async for piece in answer.body()])
            if answer.failure is None:
                batch = _again(batch, json.loads(body) or {"batchItemFailures": []})
            if not batch:
                self.delivered += 1
                return
            await asyncio.sleep(POLL_SECONDS)

    def _look(self) -> list[list[dict[str, Any]]]:
        described = self._client.describe_stream(StreamArn=self._arn)["StreamDescription"]
        for shard in described["Shards"]:
            name = shard["ShardId"]
            if name not in self._iterators:
                self._iterators[name] = self._client.get_shard_iterator(
                    StreamArn=self._arn, ShardId=name, ShardIteratorType="TRIM_HORIZON"
                )["ShardIterator"]
        batches = [self._read(name) for name, iterator in self._iterators.items() if iterator]
        return [batch for batch in batches if batch]

    def _read(self, shard: str) -> list[dict[str, Any]]:
        found = self._client.get_records(ShardIterator=self._iterators[shard])
        self._iterators[shard] = found.get("NextShardIterator")
        records = [json.loads(json.dumps(each, default=plain)) for each in found["Records"]]
        return [
            {**record, "eventSourceARN": self._arn, "awsRegion": REGION}
            for record in records
            if not self._filters or any(matches(each, record) for each in self._filters)
        ]


def _again(batch: list[dict[str, Any]], answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
    places = [i for i, each in enumerate(batch) if each["dynamodb"]["SequenceNumber"] in failed]
    return batch[places[0] :] if places else []


def matches(pattern: Mapping[str, Any], value: object) -> bool:
    """Whether a value matches a filter pattern of Lambda, in every key."""
    if not isinstance(value, dict):
        return False
    for key, wanted in pattern.items():
        held = value.get(key)
        if isinstance(wanted, list):
            if not any(_rule(rule, held, key in value) for rule in wanted):
                return False
        elif not matches(wanted, held):
            return False
    return True


def _rule(rule: object, held: object, exists: bool) -> bool:
    if not isinstance(rule, dict):
        return exists and rule == held
    ((kind, wanted),) = rule.items()
    if kind == "exists":
        return bool(wanted == exists)
    if kind == "prefix":
        return isinstance(held, str) and held.startswith(wanted)
    if kind == "suffix":
        return isinstance(held, str) and held.endswith(wanted)
    raise NotImplementedError(f"the filter rule {rule}")


def plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.timestamp()
    assert isinstance(value, bytes), value
    return base64.b64encode(value).decode()
