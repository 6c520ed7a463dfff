"""The database of the embedded store: reads in threads of their own, writes in group commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tailrace import metrics
from tailrace.errors import DamagedData
from tailrace.store.damage import Damage
from tailrace.store.sqlite import schema
from tailrace.store.sqlite.commit import GroupCommit
from tailrace.store.sqlite.directory import DataDirectory
from tailrace.store.sqlite.writes import Then, WriteCall

T = TypeVar("T")

THREADS: Final = 4
"""For reads of what is not in memory, and for files of large bodies."""


class Database:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._threads = ThreadPoolExecutor(THREADS, "tailrace-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self.damage = Damage()

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock, db = self._directory.open()
        self.commit = GroupCommit(db)
        metrics.gauges["database_bytes"] = self._size

    async def close(self) -> None:
        self._threads.shutdown()
        for db in self._connections:
            db.close()
        # The last: only a connection that may write folds the log into the database.
        await self.commit.close()
        self._lock.close()

    async def write(
        self, operation: Callable[[sqlite3.Connection], T], then: Then[T] | None = None
    ) -> T:
        """Run an operation in the next commit, and `then` after it even if the caller is gone."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.commit.add(WriteCall(operation, then, future))
        return await future

    async def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in a thread, on a connection that only reads."""
        return await self.run(self._with_connection, query)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function that blocks, in a thread."""
        try:
            return await self._loop.run_in_executor(self._threads, function, *args)
        except DamagedData as error:
            self.damage.note(error)
            raise

    def start(self, function: Callable[..., T], *args: object) -> ThreadFuture[T]:
        """Start a function that blocks, in a thread, for the writer to wait for."""
        return self._threads.submit(function, *args)

    def _size(self) -> int:
        """Bytes of the database and of its write-ahead log."""
        files = (self._directory.path / f"{schema.FILE_NAME}{end}" for end in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _with_connection(self, query: Callable[[sqlite3.Connection], T]) -> T:
        db = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = schema.connect(self._directory.path, read_only=True)
            self._connections.append(db)
        return query(db)
