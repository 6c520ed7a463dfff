"""Group commit: writes that arrive while a commit is under way share the next one.

The event loop collects writes; one thread turns a batch into one transaction. There is never more
than one batch with the thread, and no write succeeds before its commit has returned. When
a commit fails, everything that was built on it fails too: the batch and all that waits behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from queue import SimpleQueue
from typing import Final, Protocol, TypeVar

from tailrace import metrics
from tailrace.errors import StoreUnavailable
from tailrace.store.base import resolve

T = TypeVar("T")

MAX_TICKS: Final = 4
"""Ticks of the loop for which a commit waits while each brings more writes: microseconds."""

PROVEN_SECONDS: Final = 10.0
"""How long a commit proves that others would succeed."""

CALM_SECONDS: Final = 10.0
"""Time without a failure after which an outage is over."""

logger = logging.getLogger("tailrace")


class Write(Protocol):
    def run(self, db: sqlite3.Connection) -> None:
        """Write to the database: in the writer's thread, inside the transaction."""

    def done(self, error: StoreUnavailable | None) -> None:
        """Finish the write: in the event loop, after the commit or its failure."""


class GroupCommit:
    def __init__(
        self,
        db: sqlite3.Connection,
    ) -> None:
        self._db = db
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[list[Write] | None] = SimpleQueue()
        self._pending: list[Write] = []
        self._busy = False
        self._scheduled = False
        self.size = 0
        """How many writes wait for the next commit, those included that others carry out."""
        self.begun = 0
        """How many commits have begun: a write that is added takes part in the next one."""
        self._failure = ""
        """Why commits fail; empty: they do not."""
        self._succeeded_at = self._failed_at = float("-inf")
        """When the last commit succeeded and failed, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name="tailrace-writer", daemon=True)
        self._thread.start()

    @property
    def is_proven(self) -> bool:
        """Whether commits are known to succeed, without another one."""
        return not self._failure and time.monotonic() - self._succeeded_at < PROVEN_SECONDS

    def add(self, write: Write) -> None:
        self._pending.append(write)
        self.size += 1
        self._schedule()

    async def flush(self) -> None:
        """Wait until everything added so far is committed; fails when it could not be."""
        if self._pending or self._busy:
            await self._barrier()

    async def drain(self) -> None:
        """Wait until nothing is left to commit, even if commits fail."""
        while self._pending or self._busy:
            # Awaited, or asyncio would log an exception that nobody has seen.
            with contextlib.suppress(StoreUnavailable):
                await self._barrier()

    async def close(self) -> None:
        await self.drain()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def _barrier(self) -> asyncio.Future[None]:
        barrier = _Barrier(self._loop.create_future())
        self.add(barrier)
        return barrier.future

    def _schedule(self) -> None:
        """Begin a commit soon: when a tick of the loop brought no more writes to share it."""
        if self._pending and not self._busy and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush, 0, MAX_TICKS)

    def _flush(self, seen: int, ticks: int) -> None:
        if self.size > seen and ticks:
            self._loop.call_soon(self._flush, self.size, ticks - 1)
            return
        self._inbox.put(self._take())

    def _take(self) -> list[Write]:
        """Take what waits as the batch of a commit that begins."""
        self._scheduled = False
        batch, self._pending = self._pending, []
        metrics.observe("commit_writes", self.size)
        self.size = 0
        self._busy = True
        self.begun += 1
        return batch

    def _finished(self, batch: list[Write], error: StoreUnavailable | None) -> None:
        self._busy = False
        if error is not None:
            batch += self._pending
            self._pending = []
        for write in batch:
            write.done(error)
        self._schedule()

    def _run(self) -> None:
        while (batch := self._inbox.get()) is not None:
            error = self._commit(batch)
            self._loop.call_soon_threadsafe(self._finished, batch, error)
        self._db.close()

    def _commit(self, batch: list[Write]) -> StoreUnavailable | None:
        db, began = self._db, time.perf_counter()
        try:
            db.execute("BEGIN IMMEDIATE")
            for write in batch:
                write.run(db)
            db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever failed, nothing was committed
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._log(error)
            failure = StoreUnavailable(f"the store could not commit: {_reason(error)}")
            failure.__cause__ = error
            return failure
        self._succeeded_at = time.monotonic()
        metrics.count("commits_total")
        metrics.observe("commit_ms", (time.perf_counter() - began) * 1000)
        # On a full disk small commits succeed between larger ones that fail.
        if self._failure and self._succeeded_at - self._failed_at >= CALM_SECONDS:
            self._failure = ""
            logger.warning("the store commits again")
        return None

    def _log(self, error: Exception) -> None:
        """Log why a commit failed: once in an outage, in which thousands may fail, for reasons that
        change and with some between them that succeed."""
        failure, now = f"{type(error).__name__}: {error}", time.monotonic()
        self._failed_at = now
        expected = isinstance(error, OSError | sqlite3.Error)
        if not self._failure or (failure != self._failure and not expected):
            self._failure = failure
            exc_info = None if expected else error
            logger.error("the store could not commit: %s", failure, exc_info=exc_info)


def _reason(error: Exception) -> str:
    """Return why a commit failed, without details such as paths, which clients must not see."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, sqlite3.Error) else "the log of the server says why"


class _Barrier:
    """An empty write: it is done when all writes before it are."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future

    def run(self, db: sqlite3.Connection) -> None:
        pass

    def done(self, error: StoreUnavailable | None) -> None:
        resolve(self.future, None, error)
