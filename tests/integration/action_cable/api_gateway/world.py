"""A table with its stream, a fake gateway, and short-lived functions.

A function of its own handles each command, and the records of the table's stream are delivered in
any order.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

import boto3

from devtools.local_aws.event_source import plain
from tailrace.auth.authorizer import Authorizer
from tailrace.aws.client.json_client import Call
from tailrace.clock import system_clock
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.command_handler import CommandHandler
from tailrace.protocols.action_cable.api_gateway.delivery import (
    Deliveries,
    TableStreamRecord,
    partition_of,
)
from tailrace.protocols.action_cable.api_gateway.delivery_parts import Invoke
from tailrace.protocols.action_cable.api_gateway.heartbeat import Heartbeat
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import HeartbeatLease
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.commands import parse
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tests.integration.action_cable.api_gateway.fake_gateway import FakeConnectionApi
from tests.support.cable import pubsub

JSON = "application/json"


class Time:
    """A clock that advances by a millisecond with each command, and as tests tell it: nothing
    expires because the machine is busy."""

    def __init__(self) -> None:
        self._now = system_clock()

    def __call__(self) -> int:
        return self._now

    def pass_s(self, seconds: float) -> None:
        self._now += int(seconds * 1000)


class Shared(Backend):
    """A backend that outlives its functions: connecting takes longer than most of them run."""

    async def close(self) -> None:
        pass


class Function:
    """One function process: a store with its own memory, on the shared table."""

    def __init__(self, world: World) -> None:
        self.store = DynamoStore(world.settings, world.clock, world.backend)
        self._world = world

    async def __aenter__(self) -> Self:
        world = self._world
        await self.store.open()
        self.streams = Streams(self.store, world.settings, world.clock)
        self.table = self.store.table
        self.broadcaster = Broadcaster(self.table, world.gateway_api, world.settings, world.clock)
        self.deliveries = Deliveries(self.store, self.broadcaster, world.clock, world.invoke)
        self.heartbeat = Heartbeat(self.table, self.broadcaster, world.settings, world.clock)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    def of_part(self, part: int, former: str = "") -> Heartbeat:
        """The heartbeat of a part of the connections."""
        world = self._world
        return Heartbeat(self.table, self.broadcaster, world.settings, world.clock, part, former)

    def lease(self, part: int) -> HeartbeatLease:
        return HeartbeatLease(self.table, self._world.clock, part)

    def take_over(self, former: Heartbeat) -> None:
        """Have the heartbeat of this function take over from another one."""
        self.heartbeat = self.of_part(former.lease.part, former.lease.owner)

    def command_handler(self, connection: str, sent_at: int = 0) -> CommandHandler:
        settings = self._world.settings
        channels = Channels(Authorizer(settings), settings)
        return CommandHandler(self.broadcaster, self.streams, channels, connection, sent_at)


class World:
    def __init__(self, settings: Settings, backend: Backend, calls: list[Call]) -> None:
        self.settings = settings
        self.backend = Shared(*backend)
        self.calls = calls
        self.clock = Time()
        self.gateway_api = FakeConnectionApi()
        self.invoke: Invoke | None = None
        """Invokes the functions that serve parts of deliveries."""
        self._iterators: dict[str, str | None] = {}
        self._records: defaultdict[str, list[TableStreamRecord]] = defaultdict(list)

    def function(self) -> Function:
        return Function(self)

    async def items(self, kinds: str) -> list[tuple[str, str]]:
        """The keys of all items of some kinds, by the first letters of their partitions."""
        async with self.function() as function:
            pages = [page async for page in function.table.scan(0, 1)]
        keys = [(item["p"]["S"], item["s"]["S"]) for page in pages for item in page]
        return sorted(key for key in keys if key[0][0] in kinds)

    # The log

    async def create(self, path: str, body: bytes = b"", content_type: str = JSON) -> None:
        async with self.function() as function:
            await function.streams.create(path, Create(body, content_type))

    async def append(self, path: str, *bodies: bytes, content_type: str = JSON) -> None:
        async with self.function() as function:
            for body in bodies:
                await function.streams.append(path, Append(body, content_type))

    async def append_together(self, path: str, first: Append, *requests: Append) -> None:
        """Append, and then at the same moment by a process that knows the tail: all but the first
        share a slot."""
        async with self.function() as function:
            await function.streams.append(path, first)
            await asyncio.gather(*(function.streams.append(path, each) for each in requests))

    async def delete(self, path: str) -> None:
        async with self.function() as function:
            await function.streams.delete(path)

    # Clients

    async def connect(self, name: str, identity: str | None = None, **more: Any) -> None:
        self.gateway_api.sent[name] = []
        opened = ConnectionRecord(
            name, identity or f'{{"sid":"{name}"}}', self.clock() - 60_000, 3.0, "s"
        )
        async with self.function() as function:
            await function.broadcaster.connections.open(opened._replace(**more))

    async def say(
        self, name: str, command: str, identifier: str = "", *, at: int = 0, **more: Any
    ) -> None:
        fields = {"command": command, "identifier": identifier, **more}
        self.clock.pass_s(0.001)
        async with self.function() as function:
            handler = function.command_handler(name, at or self.clock())
            await handler.receive(parse(json.dumps(fields)))

    async def subscribe(self, name: str, stream: str, **more: Any) -> None:
        await self.say(name, "subscribe", pubsub(stream), **more)

    def heard(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.gateway_api.sent[name]]

    def messages(self, name: str) -> list[Any]:
        return [each["message"] for each in self.heard(name) if "stream_id" in each]

    def types(self, name: str) -> list[str]:
        return [each.get("type", "message") for each in self.heard(name)]

    # The table's stream

    def poll(self) -> int:
        """Fetch new records of the stream; returns how many are to be delivered."""
        client, arn = self._stream()
        shards = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        for shard in shards:
            name = shard["ShardId"]
            if name not in self._iterators:
                self._iterators[name] = client.get_shard_iterator(
                    StreamArn=arn, ShardId=name, ShardIteratorType="TRIM_HORIZON"
                )["ShardIterator"]
            if (iterator := self._iterators[name]) is not None:
                found = client.get_records(ShardIterator=iterator)
                self._iterators[name] = found.get("NextShardIterator")
                for record in found["Records"]:
                    told = json.loads(json.dumps(record, default=plain))
                    self._records[partition_of(told)].append(told)
        return sum(map(len, self._records.values()))

    @cache  # noqa: B019 - a world lasts as long as its test
    def _stream(self) -> tuple[Any, str]:
        # Streams are where the table is.
        endpoint = os.environ["AWS_ENDPOINT_URL_DYNAMODB"]
        table = boto3.client("dynamodb").describe_table(TableName=self.settings.table)["Table"]
        return boto3.client("dynamodbstreams", endpoint_url=endpoint), table["LatestStreamArn"]

    async def news(self) -> dict[str, list[TableStreamRecord]]:
        """The new records of the stream by partition, each returned once."""
        await asyncio.to_thread(self.poll)
        taken, self._records = self._records, defaultdict(list)
        return taken

    async def deliver(self, *records: TableStreamRecord) -> dict[str, Exception]:
        """Handle one batch in a function of its own; returns its failures."""
        async with self.function() as function:
            return await function.deliveries.handle(records)

    async def serve_part(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Serve a part of a delivery in a function of its own."""
        async with self.function() as function:
            return await function.deliveries.serve_part(json.loads(json.dumps(event)))

    async def dispatch(self, *, shuffled: bool = False) -> None:
        """Deliver new records: one batch of a partition at a time, and partitions in any order."""

        async def deliver(records: list[TableStreamRecord]) -> None:
            if shuffled:
                random.shuffle(records)
            while records:
                size = random.randint(1, 5) if shuffled else len(records)
                batch, records = records[:size], records[size:]
                failed = await self.deliver(*batch)
                assert failed == {}, failed

        await asyncio.gather(*(deliver(records) for records in (await self.news()).values()))
