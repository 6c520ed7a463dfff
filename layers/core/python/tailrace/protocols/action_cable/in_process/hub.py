"""The hub: all clients of this process, their streams and presence, and resumable sessions."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.limits import CABLE_SESSIONS, CABLE_SESSIONS_BYTES
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.protocols.action_cable.core.presence import Members
from tailrace.protocols.action_cable.core.publisher import ConnectionInfo
from tailrace.protocols.action_cable.core.session import EarlierSession, Session
from tailrace.protocols.action_cable.in_process.stream_follower import (
    Client,
    StreamFollower,
    Subscriber,
)
from tailrace.settings import Settings
from tailrace.streams import Streams

if TYPE_CHECKING:
    # Functions on AWS do not have its packages.
    from tailrace.protocols.action_cable.in_process.application_client import ApplicationClient


class _EndedSession(NamedTuple):
    """A session whose client has dropped."""

    identity: str
    session: EarlierSession
    until: float
    size: int


class Hub:
    def __init__(
        self, streams: Streams, settings: Settings, application: ApplicationClient | None = None
    ) -> None:
        self.streams = streams
        self.application = application
        self.followers: dict[str, StreamFollower] = {}
        self._members: dict[str, Members] = {}
        self._clients: dict[str, tuple[Client, Session]] = {}
        """The connected clients, by session id."""
        self.empty = asyncio.Event()
        """Set while no client is connected."""
        self.empty.set()
        self._by_identity: dict[str, set[str]] = {}
        self._ended: OrderedDict[str, _EndedSession] = OrderedDict()
        """Sessions that may be restored, in the order of their expiry."""
        self._ended_bytes = 0
        self._sessions_ttl = settings.sessions_ttl
        self._presence_ttl = settings.presence_ttl
        self.whisper_rate = settings.whisper_rate
        # One process owns an embedded store: no other one creates streams there.
        self._poll = None if settings.store == "sqlite" else max(1.0, settings.poll_slowest)

    # Connections

    def connect(self, client: Client, session: Session) -> None:
        self._clients[session.sid] = client, session
        session.connected_at = self.streams.clock()
        self.empty.clear()
        self._by_identity.setdefault(session.identity, set()).add(session.sid)

    def disconnect(self, session: Session) -> None:
        """A client has dropped. Until the TTLs pass, its session may be restored and its member
        counts as present."""
        if self._clients.pop(session.sid, None) is None:
            return
        if not self._clients:
            self.empty.set()
        sids = self._by_identity[session.identity]
        sids.discard(session.sid)
        if not sids:
            del self._by_identity[session.identity]
        self._remember(session)
        if self.application is not None and (call := session.end()) is not None:
            self.application.call_later(session.sid, call)
        loop = asyncio.get_running_loop()
        for each in session.followed():
            if each.presence and each.stream in self._members:
                loop.call_later(self._presence_ttl, self.leave, session.sid, each.stream)

    def restore(self, sid: str, identity: str) -> EarlierSession | None:
        """An earlier session of the same client; None: it cannot be restored."""
        connected = self._clients.get(sid)
        if connected is not None:
            _, session = connected
            return session.earlier() if session.identity == identity else None
        ended = self._ended.get(sid)
        if ended is None or ended.identity != identity or ended.until < time.monotonic():
            return None
        self._forget(sid)
        return ended.session

    # The audience of broadcasts

    def check(self, batch: Sequence[Publication]) -> None:
        pass

    async def send_transient(self, publication: Publication) -> None:
        follower = self.followers.get(publication.stream)
        if follower is not None:
            follower.send_transient(
                publication.text.decode(), publication.kind, exclude=publication.exclude
            )

    def hold_delivery(self, batch: Sequence[Publication]) -> AbstractAsyncContextManager[object]:
        follower = self.followers.get(batch[0].stream)
        if follower is None or not any(each.has_options for each in batch):
            return nullcontext()
        return follower.delivery_lock

    async def published(self, batch: Sequence[Publication], offset: int) -> None:
        follower = self.followers.get(batch[0].stream)
        if follower is None or not any(each.has_options for each in batch):
            return
        tail = await self.streams.find(batch[0].path)
        # The log does not contain the options, so the follower gets them with their offsets.
        first = offset - len(batch) + 1
        for index, each in enumerate(batch):
            if each.has_options:
                follower.options[tail.stream.id, first + index] = each

    async def members(self, stream: str, path: str) -> str:  # noqa: ARG002 - of an audience
        return self._members_of(stream).info()

    async def connected(self, limit: int) -> Sequence[ConnectionInfo]:
        return [
            ConnectionInfo(
                session.sid,
                session.identity,
                session.connected_at,
                [each.stream for each in session.followed()],
            )
            for _, session in itertools.islice(self._clients.values(), limit)
        ]

    async def disconnect_identity(self, identity: str, *, reconnect: bool) -> None:
        for sid in list(self._by_identity.get(identity, ())):
            self._clients[sid][0].end("remote", reconnect=reconnect)
        for sid in [sid for sid, ended in self._ended.items() if ended.identity == identity]:
            self._forget(sid)

    def clients(self) -> list[Client]:
        return [client for client, _ in self._clients.values()]

    def count_identities(self) -> int:
        return len({session.identity for _, session in self._clients.values()})

    # Followers

    async def attach(self, subscriber: Subscriber) -> None:
        subscription = subscriber.subscription
        follower = self.followers.get(subscription.stream)
        if follower is None:
            follower = StreamFollower(
                self.streams, subscription.stream, subscription.path, self._poll
            )
            self.followers[subscription.stream] = follower
        await follower.attach(subscriber)

    def detach(self, subscriber: Subscriber) -> None:
        stream = subscriber.subscription.stream
        follower = self.followers.get(stream)
        if follower is None:
            return
        follower.detach(subscriber)
        if not follower.subscribers:
            follower.stop()
            del self.followers[stream]

    # Members

    def join(self, sid: str, subscription: Subscription, member: str, info: Any) -> None:
        members = self._members.setdefault(subscription.stream, Members())
        self._send_presence(subscription.stream, members.join(sid, member, info))
        if not members:
            del self._members[subscription.stream]

    def leave(self, sid: str, stream: str) -> None:
        members = self._members.get(stream)
        if members is None:
            return
        self._send_presence(stream, members.leave(sid))
        if not members:
            self._members.pop(stream, None)

    def presence_info(self, subscription: Subscription, *, records: bool) -> str:
        message = self._members_of(subscription.stream).info(records=records)
        return frames.presence(subscription.identifier, message)

    def _members_of(self, stream: str) -> Members:
        return self._members.get(stream) or Members()

    def _send_presence(self, stream: str, message: str | None) -> None:
        follower = self.followers.get(stream)
        if message is not None and follower is not None:
            follower.send_transient(message, "presence", presence=True)

    def _remember(self, session: Session) -> None:
        now = time.monotonic()
        if any(session.followed()) and session.resumable and self._sessions_ttl:
            earlier = session.earlier()
            identifiers = earlier.identifiers
            size = sum(map(sys.getsizeof, (session.identity, identifiers, *identifiers)))
            size += 0 if earlier.application is None else earlier.application.size
            self._ended[session.sid] = _EndedSession(
                session.identity, earlier, now + self._sessions_ttl, size
            )
            self._ended_bytes += size
        while self._ended:
            sid, oldest = next(iter(self._ended.items()))
            if (
                oldest.until >= now
                and len(self._ended) <= CABLE_SESSIONS
                and self._ended_bytes <= CABLE_SESSIONS_BYTES
            ):
                return
            self._forget(sid)

    def _forget(self, sid: str) -> None:
        self._ended_bytes -= self._ended.pop(sid).size
