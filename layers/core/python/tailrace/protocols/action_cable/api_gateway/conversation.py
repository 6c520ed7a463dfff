"""One command of a client, carried out: effects become items written and frames sent.

Between two commands nothing is kept but what is in the table, and two commands of one client may be
under way at once, in whichever order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound
from tailrace.limits import CABLE_REPLAY_MESSAGES
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.connections import Added, SubscriptionRecord
from tailrace.protocols.action_cable.api_gateway.items import Listener
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import Channels, Subscription
from tailrace.protocols.action_cable.core.commands import Command, History
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.missed_messages import send_missed, taken_apart
from tailrace.protocols.action_cable.core.presence import joined
from tailrace.protocols.action_cable.core.session import (
    Attach,
    Detach,
    Effect,
    Join,
    Leave,
    Release,
    Replay,
    Roll,
    Send,
    Session,
    Whisper,
    anonymous,
)
from tailrace.protocols.action_cable.core.stream_names import epoch_of
from tailrace.store.base import Tail
from tailrace.streams import Streams


class ClientGone(Exception):
    """Nothing more can be sent to a client."""


class _Reader:
    """A subscription that reads for itself until it is where deliveries are."""

    def __init__(
        self, broadcaster: Broadcaster, connection: str, subscription: Subscription
    ) -> None:
        self._broadcaster = broadcaster
        self._connection = connection
        self.subscription = subscription
        self.chain: int | None = None
        self.slot = 0

    def at(self, tail: Tail | None) -> None:
        """Begin at the end of a stream, or wait for one."""
        if tail is not None:
            self.chain, self.slot = tail.stream.id, tail.committed.tail

    def listener(self) -> Listener:
        return Listener(self._connection, self.subscription, self.chain, self.slot)

    async def send(self, messages: Iterable[Message], chain: int) -> None:
        known, epoch = self.subscription, epoch_of(chain)
        await self.say(
            *(
                frames.data(known.identifier, each.text, known.stream, epoch, each.offset)
                for each in messages
            )
        )

    async def say(self, *texts: str) -> None:
        if not await self._broadcaster.send(self._connection, *texts):
            raise ClientGone


class Conversation:
    def __init__(
        self,
        broadcaster: Broadcaster,
        streams: Streams,
        channels: Channels,
        connection: str,
        at: int,
    ) -> None:
        """`at`: when the client said what it says, in milliseconds."""
        self._broadcaster = broadcaster
        self._streams = streams
        self._channels = channels
        self._connection = connection
        self._at = at
        self._readers: dict[str, _Reader] = {}
        self._new = False
        """Whether the subscription that a command is about is one that nobody listens for yet."""
        self._wish: SubscriptionRecord | None = None
        """That subscription, where the client had it before."""

    async def receive(self, command: Command) -> None:
        session = Session(self._connection, await self._identity(command), self._channels)
        # Who subscribes again may have to: the first time may have failed halfway.
        if command.name != "subscribe":
            await self._recall(session, command.identifier)
        try:
            for effect in session.receive(command):
                if not await self._do(effect):
                    return
        except ClientGone:
            return

    async def resume(self, identifiers: Sequence[str]) -> str:
        """The welcome of a client that comes back: with what it wished, as far as it is still
        allowed. It is told of nothing new until it has said what it missed."""
        session = Session(self._connection, None, self._channels)
        (*attached, welcome) = session.resume(identifiers)
        for effect in attached:
            assert isinstance(effect, Attach)
            await self._add(effect.subscription)
        assert isinstance(welcome, Send)
        return welcome.frame

    async def _identity(self, command: Command) -> str | None:
        """Whom the client's token names, where a command depends on that."""
        if command.presence is None or command.name not in ("join", "subscribe"):
            return None
        connection = await self._broadcaster.connections.get(self._connection)
        if connection is None or connection.identity == anonymous(self._connection):
            return None
        return connection.identity

    async def _recall(self, session: Session, identifier: str) -> None:
        """Of what a client has subscribed to, a session is told what a command is about."""
        subscription = self._channels.admit(identifier) if identifier else None
        if subscription is None:
            return
        self._wish = await self._broadcaster.connections.subscription(self._connection, identifier)
        if self._wish is not None:
            session.subscriptions[identifier] = subscription

    async def _do(self, effect: Effect) -> bool:
        """False: what would follow from it is left undone."""
        broadcaster, me = self._broadcaster, self._connection
        match effect:
            case Send(frame):
                return await broadcaster.send(me, frame)
            case Attach(known):
                return await self._attach(known)
            case Release(known):
                await self._release(await self._reader(known))
            case Replay(known, history):
                await self._replay(await self._reader(known), history)
            case Detach(known):
                if (
                    await broadcaster.connections.remove(me, known, self._at)
                    and self._wish is not None
                ):
                    await broadcaster.leave(me, self._wish)
            case Whisper(known, message):
                await broadcaster.announce(
                    known.path, message, but=me, concerns=lambda each: each.subscription.whispers
                )
            case Join(known, member, info):
                news = joined(member, info)
                if news is not None and await broadcaster.connections.join(
                    me, known.identifier, member
                ):
                    is_news = await broadcaster.members.join(known.path, me, member, info)
                    await broadcaster.tell_presence(known.path, news if is_news else None)
            case Leave():
                await self._leave()
            case Roll(known, records):
                listed = await broadcaster.members.listed(known.path, records=records)
                return await broadcaster.send(me, frames.presence(known.identifier, listed))
        return True

    async def _attach(self, known: Subscription) -> bool:
        # Before the client is told: what is appended from then on, it has to get.
        await self._reader(known)
        added = await self._add(known)
        self._new = added is Added.NEW
        if added is Added.REFUSED:
            await self._broadcaster.send(
                self._connection, frames.reject_subscription(known.identifier)
            )
            return False
        return True

    async def _add(self, known: Subscription) -> Added:
        added = await self._broadcaster.connections.add(self._connection, known, self._at)
        if added is not Added.REFUSED:
            await self._broadcaster.rooms.hold(Listener(self._connection, known))
        return added

    async def _leave(self) -> None:
        subscription = self._wish
        if subscription is None or subscription.member is None:
            return
        if await self._broadcaster.connections.leave(self._connection, subscription):
            await self._broadcaster.leave(self._connection, subscription)

    # Reading

    async def _reader(self, known: Subscription) -> _Reader:
        reader = self._readers.get(known.identifier)
        if reader is None:
            reader = self._readers[known.identifier] = _Reader(
                self._broadcaster, self._connection, known
            )
            reader.at(await self._find(known))
        return reader

    async def _replay(self, reader: _Reader, history: History) -> None:
        await reader.say(
            await send_missed(self._streams, reader, history, most=CABLE_REPLAY_MESSAGES)
        )
        await self._release(reader)

    async def _release(self, reader: _Reader) -> None:
        """Send what there is from the reader's slot on; from then on deliveries do."""
        rooms, known = self._broadcaster.rooms, reader.subscription
        # Where it has asked twice, deliveries may reach it already.
        if not self._new and await rooms.is_told(reader.listener()):
            return
        while True:
            tail = await self._find(known)
            if tail is None:
                reader.chain, reader.slot = None, 0
                if await rooms.wait(reader.listener()):
                    return
                continue
            await rooms.enter(tail)
            if reader.chain != tail.stream.id:
                # It has waited for this stream, or had another one of this name.
                reader.chain, reader.slot = tail.stream.id, tail.stream.config.base[0]
            if await self._catch_up(reader) and await rooms.join(reader.listener()):
                await self._confirm(tail)
                return

    async def _catch_up(self, reader: _Reader) -> bool:
        """After the room is there: what was appended before that, nobody else delivers. Whether it
        is still the same stream."""
        assert reader.chain is not None
        while True:
            try:
                view = await self._streams.view(reader.subscription.path, reader.slot)
            except OffsetTrimmed:
                tail = await self._find(reader.subscription)
                if tail is None or tail.stream.id != reader.chain:
                    return False
                # What is gone cannot be told; what follows can.
                reader.slot = max(reader.slot + 1, tail.earliest)
                continue
            except (StreamNotFound, StreamGone):
                return False
            if view.tail.stream.id != reader.chain:
                return False
            if view.bodies and await self._broadcaster.rooms.is_told(reader.listener()):
                return True
            await reader.send(taken_apart(view), reader.chain)
            reader.slot = view.end
            if view.up_to_date:
                return True

    async def _confirm(self, tail: Tail) -> None:
        """If the stream was replaced just before the client joined, nobody may have noticed that it
        listens to the new one. It comes back, and does."""
        current = await self._streams.store.tail(tail.stream.path)
        if current is not None and current.stream.id != tail.stream.id:
            await self._broadcaster.hang_up(self._connection, "server_restart", reconnect=True)

    async def _find(self, known: Subscription) -> Tail | None:
        try:
            return await self._streams.find(known.path)
        except (StreamNotFound, StreamGone):
            return None
