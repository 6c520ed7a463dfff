"""Plain appends whose commit fails, on connections that have more of them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tailrace.auth.origins import Origins
from tailrace.log.create import Create
from tailrace.protocols.durable_streams.plain_append import PlainAppends
from tailrace.settings import Settings
from tailrace.store.sqlite import queries, writes
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams
from tailrace.web.messages import Response
from tailrace.web.urls import StreamUrls

TYPE = [(b"content-type", b"text/plain")]


class Connection:
    """Sends an append after the answer to the one before it, as a pipeline does."""

    def __init__(self, appends: PlainAppends, url: bytes, bodies: list[bytes]) -> None:
        self._appends = appends
        self._url = url
        self._bodies = bodies
        self.outcomes: list[int] = []
        self.ended = asyncio.Event()
        self.fields = b""

    def send(self) -> None:
        if self._bodies:
            assert self._appends.begin(self._url, TYPE, [self._bodies.pop(0)], self)
        else:
            self.ended.set()

    def confirm_append(self, fields: bytes, request_id: bytes) -> None:
        assert request_id in fields
        self.fields = fields
        self.outcomes.append(204)
        self.send()

    def refuse_append(self, answer: Response) -> None:
        self.outcomes.append(answer.status)
        self.send()

    def serve(self) -> None:
        raise AssertionError("no other writer was faster")

    def fail(self, error: Exception) -> None:
        raise error


async def test_appends_behind_a_failed_commit_are_decided_on_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, failures = queries.insert_record, 3

    def failing(*values: Any) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise sqlite3.OperationalError("database or disk is full")
        insert(*values)

    settings = Settings(data=str(tmp_path))
    store = SqliteStore(settings)
    await store.open()
    streams = Streams(store, settings)
    appends = PlainAppends(streams, StreamUrls("/ds"), Origins("*"), None)
    for path in "ab":
        await streams.create(path, Create(content_type="text/plain"))
    monkeypatch.setattr(queries, "insert_record", failing)
    # Each append has a slot of its own, so that many of a commit build on each other.
    monkeypatch.setattr(writes, "SLOT_APPENDS", 1)
    connections = [
        Connection(appends, f"/v1/stream/{path}".encode(), [b"%d.%d;" % (n, i) for i in range(20)])
        for n, path in enumerate("aaabbb")
    ]
    for connection in connections:
        connection.send()
    await asyncio.gather(*(connection.ended.wait() for connection in connections))
    refused = [outcome for each in connections for outcome in each.outcomes if outcome != 204]
    assert refused == [503] * 18
    await store.close()
    store = SqliteStore(settings)
    await store.open()
    streams = Streams(store, settings)
    for path, numbers in (("a", (0, 1, 2)), ("b", (3, 4, 5))):
        view = await streams.view(path, 0)
        stored = b"".join(view.bodies).split(b";")[:-1]
        expected = {
            b"%d.%d" % (n, i)
            for n in numbers
            for i, outcome in enumerate(connections[n].outcomes)
            if outcome == 204
        }
        assert len(stored) == len(expected)
        assert set(stored) == expected
        assert any(view.next_offset.encode() in each.fields for each in connections)
    await store.close()
