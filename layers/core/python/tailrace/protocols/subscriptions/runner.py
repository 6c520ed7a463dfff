"""Runs subscriptions in a server: notices what its own process appends, and does what is due.

All of it is stored, so the runner forgets everything when the process ends: a start reads the
subscriptions, schedules what is due, and compares the tails of the streams that they follow. What
another process has left undone is found by looking at the index of due subscriptions now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from tailrace.clock import Clock
from tailrace.errors import TailraceError
from tailrace.log.state import State, Stream
from tailrace.protocols.subscriptions.core.records import DurableSubscription
from tailrace.protocols.subscriptions.service import SubscriptionService

AT_ONCE: Final = 32
"""Streams whose news are handled concurrently."""

LONGEST_SLEEP: Final = 1.0
"""Seconds after which the timer looks at the clock again, which may have been set."""

TAKEOVER_SECONDS: Final = 30.0
"""How often work is looked for that another process has left."""

PAUSE_SECONDS: Final = 1.0
"""Pause before something is tried again that the store could not do."""

CATCH_UP_SECONDS: Final = 2.0
"""How long a claim waits for the news of its own server."""

DUE_AT_ONCE: Final = 1000
PAGE: Final = 100

T = TypeVar("T")

logger = logging.getLogger("tailrace")


class SubscriptionRunner:
    def __init__(self, service: SubscriptionService, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._news: dict[int, tuple[int, int]] = {}
        """Streams that have got data, with the slot and the offset where they end."""
        self._created: dict[str, None] = {}
        self._deleted: set[int] = set()
        self._has_news = asyncio.Event()
        self._noticed = asyncio.Event()
        self._noticed.set()
        self._timers: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}
        """When each subscription is due; other timers of it are outdated."""
        self._rescheduled = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order of their start, in which a simulation has to stop them, too."""
        self._loops: list[asyncio.Task[None]] = []
        service.changed = self.schedule
        service.catch_up = self.catch_up

    def start(self) -> None:
        """Begin to run; the stores are open."""
        self._service.streams.observe(self)
        for work in (self._handle_news(), self._run_timers(), self._recover()):
            self._loops.append(asyncio.create_task(work))

    async def stop(self) -> None:
        tasks = [*self._loops, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # News, from the streams

    def appended(self, stream: Stream, state: State) -> None:
        if self._service.store.follows(stream.id):
            self._news[stream.id] = state.tail, state.offset
            self._wake()

    def created(self, path: str) -> None:
        self._created[path] = None
        self._wake()

    def deleted(self, stream: int) -> None:
        if self._service.store.follows(stream):
            self._deleted.add(stream)
            self._wake()

    async def catch_up(self) -> None:
        """Wait until all news so far are noticed, or for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._noticed.wait()

    def _wake(self) -> None:
        self._noticed.clear()
        self._has_news.set()

    async def _handle_news(self) -> None:
        service = self._service
        while True:
            if not self._has_news.is_set():
                self._noticed.set()
            await self._has_news.wait()
            self._has_news.clear()
            created, self._created = self._created, {}
            deleted, self._deleted = self._deleted, set()
            news, self._news = self._news, {}
            await self._each(created, service.created, self.created)
            await self._each(deleted, service.deleted, self._again_deleted)
            await self._each(
                news.items(), lambda each: service.appended(each[0], *each[1]), self._again_appended
            )

    def _again_deleted(self, stream: int) -> None:
        self._deleted.add(stream)
        self._wake()

    def _again_appended(self, news: tuple[int, tuple[int, int]]) -> None:
        self._news.setdefault(*news)
        self._wake()

    async def _each(
        self,
        items: Iterable[T],
        handle: Callable[[T], Awaitable[None]],
        again: Callable[[T], None],
    ) -> None:
        """Handle items some at a time; those that fail are put back."""
        slots = asyncio.Semaphore(AT_ONCE)
        failed = False

        async def handle_one(item: T) -> None:
            nonlocal failed
            async with slots:
                try:
                    await handle(item)
                except Exception as error:  # noqa: BLE001 - it is tried again
                    failed = True
                    _log("noticing news for subscriptions", error)
                    again(item)

        await asyncio.gather(*map(handle_one, items))
        if failed:
            await asyncio.sleep(PAUSE_SECONDS)

    # Timers

    def schedule(self, record: DurableSubscription) -> None:
        """Note when a subscription is due."""
        if record.due_at is None:
            self._due.pop(record.id, None)
        else:
            self._schedule(record.id, record.due_at)

    def _schedule(self, id: str, due_at: int) -> None:  # noqa: A002
        if self._due.get(id) == due_at:
            return
        self._due[id] = due_at
        heapq.heappush(self._timers, (due_at, id))
        if self._timers[0] == (due_at, id):
            self._rescheduled.set()

    async def _run_timers(self) -> None:
        while True:
            now = self._clock()
            while self._timers and self._timers[0][0] <= now:
                due_at, id_ = heapq.heappop(self._timers)
                if self._due.get(id_) == due_at:
                    del self._due[id_]
                    self._start(self._perform(id_))
            pause = LONGEST_SLEEP
            if self._timers:
                pause = min(pause, max(0, (self._timers[0][0] - now) / 1000))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._rescheduled.wait()
            self._rescheduled.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _perform(self, id: str) -> None:  # noqa: A002
        try:
            await self._service.perform(id)
        except Exception as error:  # noqa: BLE001 - it is tried again
            _log(f"the subscription '{id}'", error)
            self._schedule(id, self._clock() + int(PAUSE_SECONDS * 1000))

    # Recovery

    async def _recover(self) -> None:
        """Do what an earlier run of the server, or another process, has left."""
        while True:
            try:
                await self._reconcile_all()
                break
            except Exception as error:  # noqa: BLE001 - it is tried again
                _log("recovering subscriptions", error)
                await asyncio.sleep(PAUSE_SECONDS)
        while True:
            await asyncio.sleep(TAKEOVER_SECONDS)
            try:
                for id_, due_at in await self._service.store.due(self._clock(), DUE_AT_ONCE):
                    self._schedule(id_, due_at)
            except Exception as error:  # noqa: BLE001 - it is tried again
                _log("looking for due subscriptions", error)

    async def _reconcile_all(self) -> None:
        records: list[DurableSubscription] = []
        while page := await self._service.store.list(records[-1].id if records else "", PAGE):
            for record in page:
                self.schedule(record)
                await self._service.reconcile(record)
            records += page
        await self._service.link_missing(records)


def _log(what: str, error: Exception) -> None:
    if isinstance(error, (OSError, TailraceError)):
        logger.error("%s failed: %s", what, error)
    else:
        logger.error("%s failed", what, exc_info=error)
