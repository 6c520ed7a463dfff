"""The writes that the embedded store hands to its group commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from typing import Generic, TypeVar, cast

from tailrace.errors import StoreUnavailable
from tailrace.limits import SLOT_APPENDS, SLOT_BYTES
from tailrace.log.slots import merge, position
from tailrace.log.state import Entry, State
from tailrace.store.base import Waiter, resolve
from tailrace.store.sqlite import queries, schema
from tailrace.store.sqlite.chain import Chain
from tailrace.store.sqlite.journal import Journal

T = TypeVar("T")
Then = Callable[[T, StoreUnavailable | None], None]
BodyFile = ThreadFuture[str] | None
"""The name of a large body's file, once it is written."""


class Put:
    """An entry on its way into its slot. Appends may join it until its commit begins."""

    __slots__ = (
        "_before",
        "_file",
        "_waiters",
        "chain",
        "commit",
        "entries",
    )

    def __init__(
        self,
        chain: Chain,
        before: State,
        entry: Entry,
        waiter: Waiter,
        commit: int,
        file: BodyFile,
    ) -> None:
        """`before`: the state on which the entry was decided. `commit`: the number of the commit
        that it waits for."""
        self.chain = chain
        self.commit = commit
        self._before = before
        self._file = file
        self._waiters = [waiter]
        self.entries = [entry]
        """Those of all its appends."""

    def admits(self, entry: Entry, commit: int) -> bool:
        """Whether an append may still share the slot."""
        return (
            self.commit == commit
            and self._file is None
            and len(self.entries) < SLOT_APPENDS
            and entry.state.size - self._before.size <= SLOT_BYTES
        )

    def add(self, entry: Entry, waiter: Waiter) -> None:
        self.entries.append(entry)
        self._waiters.append(waiter)

    def write(self, db: sqlite3.Connection) -> schema.Row:
        """Write what does not belong into the journal, and return the entry as a row."""
        entry = merge(self._before, self.entries)
        if entry.spill:
            queries.insert_spill(db, self.chain.stream.id, entry.spill)
        return entry_row(self.chain, entry, self._file)

    def fail(self, error: StoreUnavailable) -> None:
        # Entries that were decided on top of this one are undone with it.
        self.chain.state = self.chain.committed
        self.chain.open_put = None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def succeed(self) -> None:
        entries = self.entries
        for index, waiter in enumerate(self._waiters):
            if not waiter.done():
                waiter.set_result(position(entries, index))
        if self.chain.waiters:
            self.chain.wake()


class Puts:
    """All entries of a commit: they are written together, and each finishes by itself."""

    def __init__(
        self, journal: Journal, commit: int, committed: Callable[[Chain, Sequence[Entry]], None]
    ) -> None:
        """`commit`: the number of the commit that they wait for. `committed` is told the entries of
        all appends to a stream."""
        self.commit = commit
        self._committed = committed
        self._journal = journal
        self._puts: list[Put] = []

    def add(self, put: Put) -> None:
        self._puts.append(put)

    def run(self, db: sqlite3.Connection) -> None:
        self._journal.write(db, [put.write(db) for put in self._puts])

    def done(self, error: StoreUnavailable | None) -> None:
        # If an earlier commit failed, theirs has not begun.
        self.commit = -1
        self._journal.finish(error)
        if error is not None:
            for put in self._puts:
                put.fail(error)
            return
        for put in self._puts:
            self._committed(put.chain, put.entries)
        for put in self._puts:
            put.succeed()


class WriteCall(Generic[T]):
    """Any other write, and its result; `then` runs even if the caller no longer waits."""

    def __init__(
        self,
        operation: Callable[[sqlite3.Connection], T],
        then: Then[T] | None = None,
        future: asyncio.Future[T] | None = None,
    ) -> None:
        self._operation = operation
        self._then = then
        self._future = future
        self._result: T | None = None

    def run(self, db: sqlite3.Connection) -> None:
        self._result = self._operation(db)

    def done(self, error: StoreUnavailable | None) -> None:
        result = cast("T", self._result)
        if self._then is not None:
            self._then(result, error)
        if self._future is not None:
            resolve(self._future, result, error)


def entry_row(chain: Chain, entry: Entry, file: BodyFile) -> schema.Row:
    return schema.entry_row(chain.stream.id, entry, None if file is None else file.result())
