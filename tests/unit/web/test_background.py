"""Periodic tasks of the server, such as compaction."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.app import Application
from tailrace.clock import PeriodicTask
from tailrace.errors import StoreUnavailable
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tests.support import wire


@asynccontextmanager
async def started(data: Path, **settings: Any) -> AsyncIterator[Application]:
    application = Application(Settings(data=str(data), segment_max_messages=2, **settings))
    await application.start()
    try:
        yield application
    finally:
        await application.stop()


async def fill(application: Application, path: str, entries: int) -> None:
    await application.streams.create(path, Create(content_type="text/plain"))
    for _ in range(entries):
        await application.streams.append(path, Append(b"x", "text/plain"))


async def eventually(check: Callable[[], object]) -> None:
    await asyncio.to_thread(wire.eventually, lambda: bool(check()))


def segments(data: Path) -> list[Path]:
    return list(data.glob("segments/*/*"))


async def test_older_entries_are_compacted_while_the_server_runs(tmp_path: Path) -> None:
    async with started(tmp_path, compact_interval=0.01) as application:
        await fill(application, "a", 5)
        await eventually(lambda: len(segments(tmp_path)) == 2)
        view = await application.streams.view("a", 0)
        assert list(view.bodies) == [b"x"] * 5


@pytest.mark.parametrize("still", [{"compact_interval": 0}, {"read_only": True}])
async def test_nothing_is_compacted_if_switched_off_or_read_only(
    tmp_path: Path, still: dict[str, Any]
) -> None:
    async with started(tmp_path, compact_interval=0) as application:
        await fill(application, "a", 5)
    async with started(tmp_path, **{"compact_interval": 0.01, **still}):
        await asyncio.sleep(0.1)
    assert segments(tmp_path) == []


async def test_the_log_names_a_stream_that_cannot_be_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(tmp_path, compact_interval=0) as application:
        await fill(application, "broken", 5)
        await fill(application, "whole", 5)
    db = sqlite3.connect(tmp_path / "tailrace.db")
    first = "SELECT id FROM streams ORDER BY path LIMIT 1"
    db.execute(f"DELETE FROM entries WHERE n = 1 AND id = ({first})")
    db.commit()
    db.close()
    async with started(tmp_path, compact_interval=0.01):
        await eventually(lambda: "cannot compact 'broken'" in caplog.text)
        await eventually(lambda: len(segments(tmp_path)) == 2)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (StoreUnavailable("the store could not commit"), False),
        (ValueError("a bug"), True),
    ],
)
async def test_only_bugs_of_background_work_leave_tracebacks(
    caplog: pytest.LogCaptureFixture, error: Exception, traceback: bool
) -> None:
    async def fail() -> None:
        raise error

    task = PeriodicTask("sweeping", fail, 3600)
    task.start()
    await asyncio.sleep(0)
    await task.stop()
    (record,) = caplog.records
    assert record.getMessage().startswith("sweeping failed")
    assert (record.exc_info is not None) is traceback
