"""Handles one command of a client: its effects become items written and frames sent.

Nothing but the table is kept between two commands, and two commands of one client may be handled
concurrently, in any order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound
from tailrace.limits import GATEWAY_HISTORY_MESSAGES
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.connections import SubscribeResult
from tailrace.protocols.action_cable.api_gateway.items import SubscriberRecord, SubscriptionRecord
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import Channels, Subscription, epoch_of
from tailrace.protocols.action_cable.core.commands import Command, MissedMessages
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.effects import (
    Attach,
    Detach,
    Effect,
    Join,
    Leave,
    PresenceInfo,
    Release,
    Replay,
    Send,
    Whisper,
)
from tailrace.protocols.action_cable.core.missed_messages import messages_of, send_missed
from tailrace.protocols.action_cable.core.presence import join_message
from tailrace.protocols.action_cable.core.session import (
    EarlierSession,
    Session,
    anonymous_identity,
)
from tailrace.store.base import Tail
from tailrace.streams import Streams


class ClientGone(Exception):
    """Nothing more can be sent to the client."""


class _Reader:
    """Reads a stream for one subscription, until deliveries send to it."""

    def __init__(
        self, broadcaster: Broadcaster, connection: str, subscription: Subscription
    ) -> None:
        self._broadcaster = broadcaster
        self._connection = connection
        self.subscription = subscription
        self.chain: int | None = None
        self.slot = self.offset = 0

    def start_at(self, tail: Tail | None) -> None:
        """Start at the end of the stream, or wait for it to be created."""
        if tail is not None:
            self.chain, self.slot = tail.stream.id, tail.committed.tail

    def subscriber(self) -> SubscriberRecord:
        return SubscriberRecord(self._connection, self.subscription, self.chain, self.slot)

    async def send(self, messages: Iterable[Message], chain: int) -> None:
        subscription, epoch = self.subscription, epoch_of(chain)
        await self.send_frames(
            *(
                frames.data(
                    subscription.identifier, each.text, subscription.stream, epoch, each.offset
                )
                for each in messages
            )
        )

    async def send_frames(self, *texts: str) -> None:
        if not await self._broadcaster.send(self._connection, *texts):
            raise ClientGone


class CommandHandler:
    def __init__(
        self,
        broadcaster: Broadcaster,
        streams: Streams,
        channels: Channels,
        connection: str,
        sent_at: int,
    ) -> None:
        """`sent_at`: when the client sent the command, in milliseconds."""
        self._broadcaster = broadcaster
        self._streams = streams
        self._channels = channels
        self._connection = connection
        self._sent_at = sent_at
        self._readers: dict[str, _Reader] = {}
        self._asks_history = False
        """Whether the command asks for history."""
        self._is_new = False
        """Whether the command creates its subscription: then no delivery sends to it yet."""
        self._record: SubscriptionRecord | None = None
        """The subscription that the command is about, if it existed before."""

    async def receive(self, command: Command) -> None:
        session = Session(self._connection, await self._identity(command), self._channels)
        self._asks_history = command.history is not None
        # A repeated subscribe is handled like a first one, which may have failed halfway.
        if command.name != "subscribe":
            await self._restore_subscription(session, command.identifier)
        try:
            for effect in session.receive(command):
                if not await self._carry_out(effect):
                    return
        except ClientGone:
            return

    async def resume(
        self, identifiers: Sequence[str], send_first: Callable[[str], Awaitable[bool]]
    ) -> bool:
        """Resume the subscriptions of an earlier connection, as far as they are still allowed.
        `send_first` sends the welcome; returns whether it did."""
        session = Session(self._connection, None, self._channels)
        for effect in session.resume(EarlierSession(identifiers, asks_history=False)):
            if not isinstance(effect, Send):
                await self._carry_out(effect)
            elif not await send_first(effect.frame):
                return False
        return True

    async def _identity(self, command: Command) -> str | None:
        """The identity that the client's token names, if the command depends on that."""
        if command.presence is None or command.name not in ("join", "subscribe"):
            return None
        connection = await self._broadcaster.connections.get(self._connection)
        if connection is None or connection.identity == anonymous_identity(self._connection):
            return None
        return connection.identity

    async def _restore_subscription(self, session: Session, identifier: str) -> None:
        """Add the subscription that a command is about to the session, if the client has it."""
        subscription = self._channels.authorize(identifier) if identifier else None
        if subscription is None:
            return
        self._record = await self._broadcaster.connections.subscription(
            self._connection, identifier
        )
        if self._record is not None:
            session.subscriptions[identifier] = subscription

    async def _carry_out(self, effect: Effect) -> bool:
        """Returns False if the effects that follow are to be skipped."""
        broadcaster, connection = self._broadcaster, self._connection
        match effect:
            case Send(frame):
                return await broadcaster.send(connection, frame)
            case Attach(subscription):
                return await self._attach(subscription)
            case Release(subscription):
                await self._release(await self._reader(subscription))
            case Replay(_, (subscription,), missed):
                await self._replay(await self._reader(subscription), missed)
            case Detach(subscription):
                await self._detach(subscription)
            case Whisper(subscription, message):
                await broadcaster.send_to_subscribers(
                    subscription.path,
                    message,
                    exclude=connection,
                    condition=lambda each: each.subscription.whispers,
                )
            case Join(subscription, member, info):
                await self._join_presence(subscription, member, info)
            case Leave():
                await self._leave_presence()
            case PresenceInfo(subscription, records):
                info = await broadcaster.presence.info(subscription.path, records=records)
                return await broadcaster.send(
                    connection, frames.presence(subscription.identifier, info)
                )
        return True

    async def _attach(self, subscription: Subscription) -> bool:
        # Before the confirmation is sent: the client has to get what is appended after that.
        await self._reader(subscription)
        result = await self._subscribe(subscription)
        self._is_new = result is SubscribeResult.NEW
        if result is SubscribeResult.REFUSED:
            await self._broadcaster.send(
                self._connection, frames.reject_subscription(subscription.identifier)
            )
            return False
        return True

    async def _subscribe(self, subscription: Subscription) -> SubscribeResult:
        result = await self._broadcaster.connections.subscribe(
            self._connection, subscription, self._sent_at, asks_history=self._asks_history
        )
        if result is not SubscribeResult.REFUSED:
            subscriber = SubscriberRecord(self._connection, subscription)
            await self._broadcaster.cursors.subscribe(subscriber)
        return result

    async def _detach(self, subscription: Subscription) -> None:
        removed = await self._broadcaster.connections.unsubscribe(
            self._connection, subscription, self._sent_at
        )
        if removed and self._record is not None:
            await self._broadcaster.leave_presence(self._connection, self._record)

    # Presence

    async def _join_presence(self, subscription: Subscription, member: str, info: object) -> None:
        broadcaster, connection = self._broadcaster, self._connection
        message = join_message(member, info)
        if message is not None and await broadcaster.connections.set_member(
            connection, subscription.identifier, member
        ):
            path = subscription.path
            is_first = await broadcaster.presence.join(path, connection, member, info)
            await broadcaster.send_presence(path, message if is_first else None)

    async def _leave_presence(self) -> None:
        subscription = self._record
        if subscription is None or subscription.member is None:
            return
        if await self._broadcaster.connections.clear_member(self._connection, subscription):
            await self._broadcaster.leave_presence(self._connection, subscription)

    # Reading

    async def _reader(self, subscription: Subscription) -> _Reader:
        reader = self._readers.get(subscription.identifier)
        if reader is None:
            reader = self._readers[subscription.identifier] = _Reader(
                self._broadcaster, self._connection, subscription
            )
            reader.start_at(await self._find(subscription))
        return reader

    async def _replay(self, reader: _Reader, missed: MissedMessages) -> None:
        await reader.send_frames(
            await send_missed(self._streams, reader, missed, limit=GATEWAY_HISTORY_MESSAGES)
        )
        await self._release(reader)

    async def _release(self, reader: _Reader) -> None:
        """Send the stream from the reader's slot on, and have deliveries send what follows."""
        cursors, subscription = self._broadcaster.cursors, reader.subscription
        # If the client has subscribed twice, deliveries may send to it already.
        if not self._is_new and await cursors.has_joined(reader.subscriber()):
            return
        while True:
            tail = await self._find(subscription)
            if reader.chain is not None and (tail is None or tail.stream.id != reader.chain):
                await self._tell_deleted(reader)
            if tail is None:
                reader.chain, reader.slot = None, 0
                if await cursors.join_absent(reader.subscriber()):
                    return
                continue
            cursor = await cursors.ensure(tail)
            if reader.chain != tail.stream.id:
                # The stream was created, or replaced by another of its name, since it was read.
                reader.chain, reader.slot = tail.stream.id, tail.stream.config.base[0]
            if await self._catch_up(reader) and await cursors.join(reader.subscriber(), cursor):
                await self._check_incarnation(tail)
                return

    async def _tell_deleted(self, reader: _Reader) -> None:
        """Tell the client that the stream that it was reading was deleted."""
        if await self._broadcaster.extended([self._connection]):
            await reader.send_frames(frames.deleted(reader.subscription.identifier))

    async def _catch_up(self, reader: _Reader) -> bool:
        """Send everything up to the tail, after the cursor was created: no delivery sends what was
        appended before that. Returns whether the stream is still the same incarnation."""
        assert reader.chain is not None
        while True:
            try:
                view = await self._streams.view(reader.subscription.path, reader.slot)
            except OffsetTrimmed:
                tail = await self._find(reader.subscription)
                if tail is None or tail.stream.id != reader.chain:
                    return False
                # Skip the messages that retention has removed.
                reader.slot = max(reader.slot + 1, tail.earliest)
                continue
            except (StreamNotFound, StreamGone):
                return False
            if view.tail.stream.id != reader.chain:
                return False
            if view.bodies and await self._broadcaster.cursors.has_joined(reader.subscriber()):
                return True
            await reader.send(messages_of(view), reader.chain)
            reader.slot = view.end
            if view.up_to_date:
                return True

    async def _check_incarnation(self, tail: Tail) -> None:
        """Make the client reconnect if the stream was replaced just before it joined: the delivery
        of the new incarnation may not have found it among the subscribers."""
        current = await self._streams.store.tail(tail.stream.path)
        if current is not None and current.stream.id != tail.stream.id:
            await self._broadcaster.close(self._connection, "server_restart", reconnect=True)

    async def _find(self, subscription: Subscription) -> Tail | None:
        try:
            return await self._streams.find(subscription.path)
        except (StreamNotFound, StreamGone):
            return None
