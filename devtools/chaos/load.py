"""The load of one round: all that clients do while faults happen, and what must come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final

from devtools.chaos import short_lives
from devtools.chaos.calls import eventually
from devtools.chaos.faults import Faults
from devtools.chaos.message_stream import MessageStream
from devtools.chaos.notifications import Notifications
from devtools.chaos.plan import ROUND_SECONDS, Kind, Round
from devtools.chaos.report import Report
from devtools.chaos.site import Site, credentials
from devtools.chaos.text_streams import TextStreams
from devtools.linearizability.checker import History, check
from devtools.linearizability.load import read_final, run_load
from tailrace.errors import StoreUnavailable

FINISH_SECONDS: Final = 300.0
"""The bound for everything that remains to be done when the faults of a round are over."""
MESSAGES: Final = "open/messages"
OPERATIONS: Final = 300
"""Appends of one run of the load whose history is checked; the runs follow each other."""
WRITERS: Final = 6
LARGE_BYTES: Final = 6000
DELIVERY_SECONDS: Final = 120.0
"""The bound for live readers to get everything, when nothing is in their way any more."""


class Load:
    def __init__(self, site: Site, plan: Round, report: Report) -> None:
        self._site = site
        self._plan = plan
        self._report = report
        self._caller = site.caller(credentials())
        self._messages = MessageStream(MESSAGES, self._caller, report, plan)
        self._notifications = Notifications(self._caller, report, plan)

    async def run(self) -> None:
        """Load the site while its faults happen; then check that all is as it must be."""
        try:
            await self._messages.create()
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(reader) for reader in self._readers()]
                work = [group.create_task(each) for each in self._work()]
                faults = group.create_task(self._run_faults())
                await asyncio.sleep(ROUND_SECONDS)
                async with asyncio.timeout(FINISH_SECONDS):
                    await faults
                    self._messages.done.set()
                    self._notifications.done.set()
                    await asyncio.gather(*work)
                    for stream in (self._messages, self._notifications):
                        await self._check(stream)
                for reader in readers:
                    reader.cancel()
        finally:
            self._caller.close()

    def _readers(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Readers that stay as long as they can, and readers that come and go."""
        yield self._messages.long_poll("long-poll")
        for stays in (True, False):
            name = "staying" if stays else "fleeting"
            yield self._messages.follow_events(f"{name} events", stays=stays)
            yield self._messages.subscribe(f"{name} cable", stays=stays)
            yield self._notifications.watch(f"{name} watch", stays=stays)

    def _work(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Clients that end when the round's writing is over."""
        messages = self._messages
        yield messages.write_plainly("plain")
        yield messages.write_in_sequence("sequenced")
        yield messages.broadcast("broadcaster")
        yield messages.produce("producer")
        yield messages.catch_up("catch-up")
        yield self._notifications.notify("notifier")
        yield short_lives.fork(messages, "fork")
        clocks_are_right = not any(fault.kind is Kind.CLOCK for fault in self._plan.faults)
        yield short_lives.expire(messages, "expiring", exact=clocks_are_right)
        yield self._write_histories()

    async def _run_faults(self) -> None:
        await Faults(self._site, self._plan, self._report, MESSAGES).run()
        if self._site.proxy is not None:
            await self._site.proxy.heal()

    async def _check(self, stream: MessageStream | Notifications) -> None:
        """Wait until all readers have everything, and compare them with the stream."""
        content = await stream.content()
        staying = [sighting for sighting in stream.ledger.sightings if sighting.follows]
        await eventually(lambda: all(s.end >= len(content) for s in staying), DELIVERY_SECONDS)
        self._report.count("readers compared", len(stream.ledger.sightings))
        for problem in stream.ledger.problems(content):
            self._report.violation("readers compared", problem)

    async def _write_histories(self) -> None:
        """Let many clients use some streams at once, again and again, and check the histories."""
        chance = self._plan.chance("targets")
        servers = range(len(self._site.nodes))
        targets = [TextStreams(self._caller, server, chance) for server in servers]
        number = 0
        while not self._messages.done.is_set():
            history = History()
            paths = await run_load(
                targets,
                history,
                writers=WRITERS,
                operations=OPERATIONS,
                seed=chance.getrandbits(32),
                large_bytes=LARGE_BYTES,
                prefix=f"load/{number}",
            )
            final = None
            while final is None:
                with suppress(StoreUnavailable):
                    final = await read_final(targets[0], paths)
            self._report.count("events in histories", len(history.events))
            try:
                check(history, final)
            except AssertionError as error:
                self._report.violation("events in histories", str(error))
            number += 1
