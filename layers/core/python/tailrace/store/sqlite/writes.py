"""The writes that the embedded store hands to its group commit."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from typing import Generic, TypeVar, cast

from tailrace.errors import StoreUnavailable
from tailrace.limits import SLOT_APPENDS, SLOT_BYTES
from tailrace.log.slots import merge, position
from tailrace.log.state import Entry, State
from tailrace.store.base import resolve
from tailrace.store.sqlite import queries, schema
from tailrace.store.sqlite.chain import Chain
from tailrace.store.sqlite.commit import Write

T = TypeVar("T")
Then = Callable[[T, StoreUnavailable | None], None]
BodyFile = ThreadFuture[str] | None
"""The name of a large body's file, once it is written."""


class Put:
    """An entry on its way into its slot. Appends may join it until its commit begins."""

    __slots__ = (
        "_before",
        "_committed",
        "_entries",
        "_file",
        "_futures",
        "chain",
        "commit",
        "entry",
    )

    def __init__(
        self,
        chain: Chain,
        before: State,
        entry: Entry,
        future: asyncio.Future[int | None],
        commit: int,
        file: BodyFile,
        committed: Callable[[Chain, Sequence[Entry]], None],
    ) -> None:
        """`before`: the state on which the entry was decided. `commit`: the number of the commit
        that it waits for. `committed` is told the entries of all appends."""
        self.chain = chain
        self.commit = commit
        self._before = before
        self._file = file
        self._committed = committed
        self._entries = [entry]
        self._futures = [future]

    def admits(self, entry: Entry, commit: int) -> bool:
        """Whether an append may still share the slot."""
        return (
            self.commit == commit
            and self._file is None
            and len(self._entries) < SLOT_APPENDS
            and entry.state.size - self._before.size <= SLOT_BYTES
        )

    def add(self, entry: Entry, future: asyncio.Future[int | None]) -> None:
        self._entries.append(entry)
        self._futures.append(future)

    def row(self) -> schema.Row:
        self.entry = merge(self._before, self._entries)
        return entry_row(self.chain, self.entry, self._file)

    def run(self, db: sqlite3.Connection) -> None:
        write_entries(db, [self])

    def done(self, error: StoreUnavailable | None) -> None:
        if error is not None:
            # Entries that were decided on top of this one are undone with it.
            self.chain.state = self.chain.committed
            self.chain.open_put = None
            for future in self._futures:
                resolve(future, None, error)
            return
        self._committed(self.chain, self._entries)
        for index, future in enumerate(self._futures):
            resolve(future, position(self._entries, index))
        if self.chain.waiters:
            self.chain.wake()


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


class _Puts:
    """Neighbouring entries of a batch, written together; each `Put` finishes for itself."""

    def __init__(self, puts: Sequence[Put]) -> None:
        self._puts = puts

    def run(self, db: sqlite3.Connection) -> None:
        write_entries(db, self._puts)

    def done(self, error: StoreUnavailable | None) -> None:
        pass


def group_writes(batch: Sequence[Write]) -> Sequence[Write]:
    """The batch with neighbouring entries merged, in the same order."""
    groups: list[Write] = []
    for are_puts, writes in itertools.groupby(batch, lambda write: type(write) is Put):
        if are_puts:
            groups.append(_Puts(cast("list[Put]", list(writes))))
        else:
            groups += writes
    return groups


def write_entries(db: sqlite3.Connection, puts: Sequence[Put]) -> None:
    queries.insert_entries(db, [put.row() for put in puts])
    for put in puts:
        if put.entry.spill:
            queries.insert_spill(db, put.chain.stream.id, put.entry.spill)


def entry_row(chain: Chain, entry: Entry, file: BodyFile) -> schema.Row:
    return schema.entry_row(chain.stream.id, entry, None if file is None else file.result())
