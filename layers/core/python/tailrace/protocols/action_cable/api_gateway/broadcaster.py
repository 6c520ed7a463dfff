"""Everybody who is connected through API Gateway, and what is said to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from tailrace.clock import Clock
from tailrace.errors import BodyTooLarge, TailraceError
from tailrace.limits import CABLE_BROADCAST_BYTES
from tailrace.protocols.action_cable.api_gateway.connections import Connections, SubscriptionRecord
from tailrace.protocols.action_cable.api_gateway.cursors import Rooms
from tailrace.protocols.action_cable.api_gateway.gateway_api import Posts, Sent
from tailrace.protocols.action_cable.api_gateway.items import Listener
from tailrace.protocols.action_cable.api_gateway.members import Members
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.settings import Settings
from tailrace.store.dynamodb.table import Table

AT_ONCE: Final = 64
"""Clients that are sent something at the same time."""

T = TypeVar("T")

logger = logging.getLogger("tailrace")


class Broadcaster:
    def __init__(self, table: Table, posts: Posts, settings: Settings, clock: Clock) -> None:
        self.connections = Connections(table, settings, clock)
        self.rooms = Rooms(table)
        self.members = Members(table)
        self.gateway_api = posts

    # One client

    async def send(self, connection: str, *texts: str) -> bool:
        """Whether a client has got it. One of which that is not certain is let go."""
        sent = await self.gateway_api.send(connection, texts)
        if sent is Sent.OK:
            return True
        if sent is Sent.DOUBTFUL:
            await self.gateway_api.end(connection)
        await self.connections.drop(connection)
        return False

    async def hang_up(self, connection: str, reason: str, *, reconnect: bool) -> None:
        await self.send(connection, frames.disconnect(reason, reconnect=reconnect))
        await self.gateway_api.end(connection)

    # Many

    async def send_all(self, letters: Iterable[tuple[str, Sequence[str]]]) -> set[str]:
        """To each connection its own texts; nobody waits for a slow one. Those who were let go."""
        lost: set[str] = set()

        async def deliver(letter: tuple[str, Sequence[str]]) -> None:
            connection, texts = letter
            try:
                if await self.send(connection, *texts):
                    return
            except TailraceError as error:
                logger.warning("a client of a cable is let go: %s", error)
                await self._let_go(connection)
            lost.add(connection)

        await _side_by_side(deliver, letters)
        return lost

    async def try_all(self, letters: Iterable[tuple[str, Sequence[str]]]) -> None:
        """The same, and nobody is let go."""

        async def deliver(letter: tuple[str, Sequence[str]]) -> None:
            await self.gateway_api.send(*letter)

        await _side_by_side(deliver, letters)

    async def restart(self, connections: Iterable[str]) -> None:
        """Ask some to come back."""
        await self.dismiss(connections, "server_restart", reconnect=True)

    async def dismiss(self, connections: Iterable[str], reason: str, *, reconnect: bool) -> None:
        """Tell some to go, and why."""

        async def ask(connection: str) -> None:
            try:
                await self.hang_up(connection, reason, reconnect=reconnect)
                await self.connections.drop(connection)
            except TailraceError as error:
                logger.warning("a client of a cable is let go: %s", error)
                await self._let_go(connection)

        await _side_by_side(ask, connections)

    async def _let_go(self, connection: str) -> None:
        """Where even that fails, its connection says so to whoever is next."""
        with contextlib.suppress(TailraceError):
            await self.gateway_api.end(connection)
            await self.connections.drop(connection)

    async def announce(
        self,
        path: str,
        text: str,
        kind: str | None = None,
        *,
        but: str | None = None,
        concerns: Callable[[Listener], bool] = lambda _: True,
    ) -> None:
        """A message that is in no stream, to all who listen but one."""
        listeners = [
            each
            for each in await self.rooms.listeners(path)
            if each.connection != but and concerns(each)
        ]
        lost = await self.send_all(
            (each.connection, [frames.transient(each.subscription.identifier, text, kind)])
            for each in listeners
        )
        await self.rooms.dismiss(each for each in listeners if each.connection in lost)

    async def leave(self, connection: str, subscription: SubscriptionRecord) -> None:
        """A client is no longer there as whom it was, if it was anybody."""
        if subscription.member is not None:
            news = await self.members.leave(subscription.path, connection, subscription.member)
            await self.tell_presence(subscription.path, news)

    async def tell_presence(self, path: str, news: str | None) -> None:
        if news is not None:
            await self.announce(
                path, news, "presence", concerns=lambda each: each.subscription.presence
            )

    # Broadcasts

    async def tell(self, publication: Publication) -> None:
        _check(publication)
        text = publication.text.decode()
        await self.announce(publication.path, text, publication.kind, but=publication.exclude)

    async def publish(
        self, batch: Sequence[Publication], append: Callable[[], Awaitable[int]]
    ) -> None:
        for each in batch:
            _check(each)
        await append()

    async def expel(self, identity: str, *, reconnect: bool) -> None:
        for each in await self.connections.of(identity):
            connection = await self.connections.get(each)
            if connection is None or connection.identity != identity:
                continue
            if connection.left is None:
                await self.hang_up(each, "remote", reconnect=reconnect)
                await self.connections.drop(each)
            for subscription in await self.connections.subscriptions(each):
                await self.leave(each, subscription)
            await self.connections.forget(connection)


async def _side_by_side(work: Callable[[T], Coroutine[Any, Any, None]], some: Iterable[T]) -> None:
    waiting = iter(some)

    async def worker() -> None:
        for each in waiting:
            await work(each)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def _check(publication: Publication) -> None:
    if len(publication.text) > CABLE_BROADCAST_BYTES:
        raise BodyTooLarge(
            f"a message of a broadcast has at most {CABLE_BROADCAST_BYTES} bytes here: API Gateway"
            " delivers no more"
        )
