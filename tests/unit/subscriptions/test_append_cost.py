"""An append costs the same, whatever subscriptions there are: 10,000 of them, and 1,000 streams."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.app import Application
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.subscriptions.core.records import DurableSubscription, Link, record_text
from tailrace.protocols.subscriptions.dynamodb_store import DynamoSubscriptions
from tailrace.protocols.subscriptions.key_file import KeyFile
from tailrace.protocols.subscriptions.runner import SubscriptionRunner
from tailrace.protocols.subscriptions.service import SubscriptionService
from tailrace.protocols.subscriptions.signing import KeySigner
from tailrace.protocols.subscriptions.webhook_sender import WebhookSender
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.sqlite import schema
from tailrace.store.sqlite.database import Database
from tailrace.streams import Streams
from tests.unit.subscriptions.test_wakes import PULL

SUBSCRIPTIONS = 10_000
STREAMS = 1000
TEXT = "text/plain"


def subscription(number: int) -> DurableSubscription:
    return PULL._replace(id=f"s{number}", uid=f"u{number}", pattern=f"agents/{number}/*")


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Application]:
    data = str(tmp_path / "data")
    application = Application(Settings(data=data))
    await application.start()
    ids = []
    for number in range(STREAMS):
        created = await application.streams.create(f"a/{number}", Create(b"", TEXT))
        ids.append(created.stream.id)
    await application.stop()
    with sqlite3.connect(tmp_path / "data" / schema.FILE_NAME) as db:
        for number in range(SUBSCRIPTIONS):
            record = subscription(number)
            db.execute(
                "INSERT INTO subscriptions VALUES (?, ?, 1, NULL, ?)",
                (record.id, record.uid, record_text(record)),
            )
            link = Link(f"a/{number % STREAMS}", ids[number % STREAMS], explicit=True)
            db.execute(
                "INSERT INTO links (uid, id, pending, path, stream, epoch, explicit, glob, acked,"
                " tail) VALUES (?, ?, 0, ?, ?, ?, ?, ?, ?, ?)",
                (record.uid, record.id, *link),
            )
    db.close()
    application = Application(Settings(data=data))
    await application.start()
    yield application
    await application.stop()


async def test_an_append_to_sqlite_asks_nothing_of_subscriptions(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = application.streams
    await streams.create("other", Create(b"", TEXT))
    calls: list[str] = []
    for name in ("query", "write"):
        original: Callable[..., Any] = getattr(Database, name)

        async def counted(*given: Any, name: str = name, original: Any = original) -> Any:
            calls.append(name)
            return await original(*given)

        monkeypatch.setattr(Database, name, counted)
    application.subscriptions.service.store.follows(0)
    before = len(calls)
    for _ in range(20):
        await streams.append("other", Append(b"x", TEXT))
    noticed = [each for each in calls[before:] if each == "write"]
    assert noticed == [], "only the commits of the appends themselves"


def test_an_append_to_dynamodb_is_one_write_and_one_round_trip() -> None:
    async def main() -> None:
        import random

        table = MemoryTable(random.Random(1), latency=(0.001, 0.001))
        settings = Settings(store="dynamodb")
        client = table.connect()
        store = DynamoStore(settings, backend=Backend(client, MemoryBucket(random.Random(2))))
        await store.open()
        streams = Streams(store, settings)
        subscriptions = DynamoSubscriptions(store)
        sender = WebhookSender(allow_loopback=False)
        service = SubscriptionService(
            streams,
            subscriptions,
            sender,
            KeySigner(KeyFile(Path("unused"))),
            streams.clock,
        )
        for first in range(0, SUBSCRIPTIONS, 100):
            await asyncio.gather(
                *(subscriptions.create(subscription(first + each)) for each in range(100))
            )
        await streams.create("other", Create(b"", TEXT))
        await streams.append("other", Append(b"x", TEXT))
        runner = SubscriptionRunner(service, streams.clock)
        streams.observe(runner)
        calls = len(table.trace())
        begun = asyncio.get_running_loop().time()
        await streams.append("other", Append(b"x", TEXT))
        assert [each.operation for each in table.trace()[calls:]][:1] == ["PutItem"]
        assert asyncio.get_running_loop().time() - begun < 0.0021
        # What is asked afterwards does not grow with the subscriptions either.
        calls = len(table.trace())
        assert await subscriptions.followers((await streams.find("other")).stream.id) == []
        assert await subscriptions.interested("agents/7/inbox") == ["s7"]
        queries = [each for each in table.trace()[calls:] if each.operation == "Query"]
        assert len(queries) <= 2 * 7

    run(1, main, steps=50_000_000, stalls=0)
