"""Everybody who is on a cable of this process: rooms, members, and who may come back."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tailrace.limits import CABLE_SESSIONS, CABLE_SESSIONS_BYTES
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.protocols.action_cable.core.presence import Members
from tailrace.protocols.action_cable.core.session import Session
from tailrace.protocols.action_cable.in_process.listener import Client, Listener
from tailrace.protocols.action_cable.in_process.room import Room
from tailrace.settings import Settings
from tailrace.streams import Streams


class _Left(NamedTuple):
    identity: str
    identifiers: Sequence[str]
    until: float
    size: int


class Hub:
    def __init__(self, streams: Streams, settings: Settings) -> None:
        self.streams = streams
        self.rooms: dict[str, Room] = {}
        self._members: dict[str, Members] = {}
        self._clients: dict[str, tuple[Client, Session]] = {}
        """Those who are connected, by session."""
        self.empty = asyncio.Event()
        """Set while nobody is."""
        self.empty.set()
        self._by_identity: dict[str, set[str]] = {}
        self._left: OrderedDict[str, _Left] = OrderedDict()
        """Sessions that dropped, in the order in which they are forgotten."""
        self._left_bytes = 0
        self._sessions_ttl = settings.sessions_ttl
        self._presence_ttl = settings.presence_ttl
        self.whisper_rate = settings.whisper_rate
        # One process owns an embedded store: nobody else creates streams there.
        self._poll = None if settings.store == "sqlite" else max(1.0, settings.poll_slowest)

    # Connections

    def connect(self, client: Client, session: Session) -> None:
        self._clients[session.sid] = client, session
        self.empty.clear()
        self._by_identity.setdefault(session.identity, set()).add(session.sid)

    def disconnect(self, session: Session) -> None:
        """A client is gone; for a while it may come back, and counts as there."""
        if self._clients.pop(session.sid, None) is None:
            return
        if not self._clients:
            self.empty.set()
        sids = self._by_identity[session.identity]
        sids.discard(session.sid)
        if not sids:
            del self._by_identity[session.identity]
        self._remember(session)
        loop = asyncio.get_running_loop()
        for each in session.subscriptions.values():
            if each.presence and each.stream in self._members:
                loop.call_later(self._presence_ttl, self.leave, session.sid, each.stream)

    def recall(self, sid: str, identity: str) -> Sequence[str] | None:
        """What an earlier session was subscribed to, if it was the same client's."""
        connected = self._clients.get(sid)
        if connected is not None:
            _, session = connected
            return list(session.subscriptions) if session.identity == identity else None
        left = self._left.get(sid)
        if left is None or left.identity != identity or left.until < time.monotonic():
            return None
        self._forget(sid)
        return left.identifiers

    # Broadcasts: the audience of this process

    async def tell(self, publication: Publication) -> None:
        room = self.rooms.get(publication.stream)
        if room is not None:
            room.tell(publication.text.decode(), publication.kind, but=publication.exclude)

    async def publish(
        self, batch: Sequence[Publication], append: Callable[[], Awaitable[int]]
    ) -> None:
        room = self.rooms.get(batch[0].stream)
        if room is None or not any(each.noted for each in batch):
            await append()
            return
        async with room.publishing:
            end = await append()
            tail = await self.streams.find(batch[0].path)
            # Before the room delivers them: a reader of the log is not told who is left out.
            for place, each in enumerate(batch):
                if each.noted:
                    room.notes[tail.stream.id, end - len(batch) + 1 + place] = each

    async def expel(self, identity: str, *, reconnect: bool) -> None:
        for sid in list(self._by_identity.get(identity, ())):
            self._clients[sid][0].end("remote", reconnect=reconnect)
        for sid in [sid for sid, left in self._left.items() if left.identity == identity]:
            self._forget(sid)

    def clients(self) -> list[Client]:
        return [client for client, _ in self._clients.values()]

    # Rooms

    async def attach(self, listener: Listener) -> None:
        known = listener.subscription
        room = self.rooms.get(known.stream)
        if room is None:
            room = Room(self.streams, known.stream, known.path, self._poll)
            self.rooms[known.stream] = room
        await room.enter(listener)

    def detach(self, listener: Listener) -> None:
        stream = listener.subscription.stream
        room = self.rooms.get(stream)
        if room is None:
            return
        room.leave(listener)
        if not room.listeners:
            room.close()
            del self.rooms[stream]

    # Members

    def join(self, sid: str, known: Subscription, member: str, info: Any) -> None:
        members = self._members.setdefault(known.stream, Members())
        self._announce(known.stream, members.join(sid, member, info))
        if not members:
            del self._members[known.stream]

    def leave(self, sid: str, stream: str) -> None:
        members = self._members.get(stream)
        if members is None:
            return
        self._announce(stream, members.leave(sid))
        if not members:
            self._members.pop(stream, None)

    def roll(self, known: Subscription, *, records: bool) -> str:
        members = self._members.get(known.stream) or Members()
        return frames.presence(known.identifier, members.listed(records=records))

    def _announce(self, stream: str, news: str | None) -> None:
        room = self.rooms.get(stream)
        if news is not None and room is not None:
            room.tell(news, "presence", presence=True)

    def _remember(self, session: Session) -> None:
        now = time.monotonic()
        identifiers = list(session.subscriptions)
        if identifiers and session.resumable and self._sessions_ttl:
            size = sum(map(sys.getsizeof, (session.identity, identifiers, *identifiers)))
            self._left[session.sid] = _Left(
                session.identity, identifiers, now + self._sessions_ttl, size
            )
            self._left_bytes += size
        while self._left:
            sid, first = next(iter(self._left.items()))
            if (
                first.until >= now
                and len(self._left) <= CABLE_SESSIONS
                and self._left_bytes <= CABLE_SESSIONS_BYTES
            ):
                return
            self._forget(sid)

    def _forget(self, sid: str) -> None:
        self._left_bytes -= self._left.pop(sid).size
