"""The follower of a stream and its subscribers on cables of this process.

It splits what is appended into messages once, encodes each message once for all clients with the
same identifier, and pushes that to each of them.

Unlike the readers of other protocols a subscriber has no task of its own. So this follower lasts
as long as it has subscribers, with or without a stream, and takes them along when the stream is
deleted and created again. A new subscriber first reads by itself, and becomes live where the
follower is. It may have read a chain that the follower has not noticed yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.live.follower import RETRY_SECONDS, Follower, Pace, slices
from tailrace.log import offsets
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.broadcasts import Publication
from tailrace.protocols.action_cable.core.channels import Subscription, epoch_of
from tailrace.protocols.action_cable.core.commands import MissedMessages
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.core.missed_messages import batches, send_missed
from tailrace.store.base import Tail
from tailrace.streams import Streams, View


class Client(Protocol):
    """A connection that sends what is pushed in order; nobody waits for it."""

    sid: str
    encoder: Encoder
    extended: bool
    """Whether it speaks the extended protocol."""

    def push(self, text: str) -> None: ...

    def push_all(self, texts: tuple[str, ...]) -> None: ...

    async def drain(self) -> None:
        """Wait until most of what was pushed is sent."""

    def end(self, reason: str, *, reconnect: bool) -> None:
        """Send a disconnect and close the connection."""


class Subscriber:
    __slots__ = ("_chain", "client", "confirmed", "live", "offset", "slot", "subscription")

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self.client = client
        self.subscription = subscription
        self.confirmed = False
        """Whether the subscription was confirmed to the client: only then may messages be sent."""
        self.live = False
        """Whether the follower serves it. Until then it is held back, or reads by itself."""
        self._chain: int | None = None
        self.slot = 0
        """The slot of that chain that it gets next."""
        self.offset = 0
        """Of the stream before that slot."""

    @property
    def chain(self) -> int | None:
        """The chain that it follows. It leaves one only because the stream was deleted, and sends
        that to its client then."""
        return self._chain

    @chain.setter
    def chain(self, chain: int | None) -> None:
        if self._chain not in (None, chain) and self.client.extended:
            self.control(frames.deleted(self.subscription.identifier))
        self._chain = chain

    async def send(self, messages: Iterable[Message], chain: int) -> None:
        """Send messages of its stream to it alone, no faster than its client takes them."""
        identifier, stream = self.subscription.identifier, self.subscription.stream
        encode, epoch = self.client.encoder.data, epoch_of(chain)
        if self.chain != chain:
            self.chain = None  # Not yet the new one: its slot is still that of the other.
        pace = Pace()
        for message in messages:
            self.client.push(encode(identifier, message, stream, epoch, None))
            await self.client.drain()
            await pace.rest()

    def control(self, frame: str) -> None:
        self.client.push(self.client.encoder.control(frame))


logger = logging.getLogger("tailrace")

NOTICE_SECONDS = 0.01
"""Pause of a subscriber that has found another chain before the follower has."""


class _Texts:
    """Encoded messages, for all clients with the same identifier."""

    def __init__(self, texts: Iterable[tuple[int, str | None, str]]) -> None:
        """`texts`: of each its offset, and the session that must not get it."""
        self._texts = list(texts)
        self._first = min((offset for offset, _, _ in self._texts), default=0)
        self._excluded = {excluded for _, excluded, _ in self._texts}
        self._all = tuple(text for _, _, text in self._texts)

    def of(self, sid: str, has: int) -> tuple[str, ...]:
        """Those that a session gets; for most sessions it is the same object."""
        if has < self._first and sid not in self._excluded:
            return self._all
        return tuple(
            text for offset, excluded, text in self._texts if offset > has and sid != excluded
        )


class StreamFollower(Follower):
    def __init__(self, streams: Streams, stream: str, path: str, poll: float | None) -> None:
        super().__init__(streams, path, poll=poll)
        self.stream = stream
        """The stream's name on cables."""
        self.subscribers: dict[Subscriber, None] = {}
        self.delivery_lock = asyncio.Lock()
        """Held by a delivery, and while messages with options are appended: their options must be
        here before they are delivered."""
        self.options: dict[tuple[int, int], Publication] = {}
        """Options of publications that are not in the log, by chain and offset."""
        self._base = (0, 0)
        """Slot and offset at which the chain begins, after what it has inherited."""
        self._placed = asyncio.Event()
        """Set when the stream was looked up for the first time."""

    async def attach(self, subscriber: Subscriber) -> None:
        """Add a subscriber at the follower's place; it gets nothing until `go_live`."""
        self.subscribers[subscriber] = None
        await self._placed.wait()
        self._place(subscriber, self.slot, self.offset)

    def detach(self, subscriber: Subscriber) -> None:
        self.subscribers.pop(subscriber, None)

    async def replay(self, subscriber: Subscriber, missed: MissedMessages) -> None:
        """Send what a subscriber missed, confirm or reject that, and go on with what is new."""
        subscriber.control(await self.catch_up(subscriber, missed))
        await self.go_live(subscriber)

    async def catch_up(self, subscriber: Subscriber, missed: MissedMessages) -> str:
        """Send what a subscriber missed, but nothing new until `go_live`. Returns the frame that
        confirms or rejects that."""
        if subscriber.live:
            # A delivery that has begun is finished first, or the subscriber would miss its rest.
            async with self.delivery_lock:
                subscriber.live = False
        return await send_missed(self._streams, subscriber, missed)

    async def go_live(self, subscriber: Subscriber) -> None:
        """Let a subscriber read by itself until it is where the follower is, and serve it then."""
        while not self._streams.draining and subscriber in self.subscribers:
            try:
                if self.chain is None and subscriber.chain is not None:
                    await self._check_chain(subscriber)
                if self.admits(subscriber):
                    subscriber.live = True
                    return
                await self._advance(subscriber)
            except (StreamNotFound, StreamGone):
                await asyncio.sleep(NOTICE_SECONDS)
            except TailraceError as error:
                logger.warning("reading '%s' failed: %s", self.path, error)
                await asyncio.sleep(RETRY_SECONDS)

    def send_transient(
        self,
        text: str,
        kind: str | None = None,
        *,
        exclude: str | None = None,
        presence: bool = False,
        whisper: bool = False,
    ) -> None:
        """Push a message that is in no stream to all sessions but `exclude`; with `presence` or
        `whisper` only to subscriptions that take part in that."""
        encoded: dict[tuple[Encoder, str], str] = {}
        for subscriber in list(self.subscribers):
            subscription = subscriber.subscription
            if not subscriber.confirmed or subscriber.client.sid == exclude:
                continue
            if (presence and not subscription.presence) or (whisper and not subscription.whispers):
                continue
            encoder = subscriber.client.encoder
            message = encoded.get((encoder, subscription.identifier))
            if message is None:
                message = encoder.transient(subscription.identifier, text, kind)
                encoded[encoder, subscription.identifier] = message
            subscriber.client.push(message)

    async def _check_chain(self, subscriber: Subscriber) -> None:
        """Have a subscriber leave its chain if that was deleted, and is not merely one that the
        follower has not noticed yet."""
        try:
            chain = (await self._streams.find(self.path)).stream.id
        except (StreamNotFound, StreamGone):
            chain = None
        if chain != subscriber.chain:
            subscriber.chain = None

    async def _advance(self, subscriber: Subscriber) -> None:
        """Bring a subscriber one step nearer to the follower."""
        if subscriber.chain is None:
            self._place(subscriber, *self._base)
        elif subscriber.chain == self.chain:
            await self._read_on(subscriber)
        elif (await self._streams.find(self.path)).stream.id == self.chain:
            self._place(subscriber, *self._base)
        else:
            # The follower has not noticed the newer chain yet.
            await asyncio.sleep(NOTICE_SECONDS)

    async def _read_on(self, subscriber: Subscriber) -> None:
        chain = subscriber.chain
        try:
            view = await self._streams.view(self.path, subscriber.slot)
        except OffsetTrimmed:
            view = await self._streams.view(self.path, offsets.BEGINNING)
        if view.tail.stream.id != chain:
            await asyncio.sleep(NOTICE_SECONDS)
            return
        async for batch in batches(view):
            await subscriber.send([message for message in batch if message.text], chain)
        subscriber.slot, subscriber.offset = view.end, view.offset

    def _place(self, subscriber: Subscriber, slot: int, offset: int) -> None:
        """Have a subscriber go on at a slot of the chain that is followed."""
        subscriber.chain, subscriber.slot, subscriber.offset = self.chain, slot, offset

    # What the follower does

    def switch(self, tail: Tail | None) -> None:
        deleted = self.chain
        super().switch(tail)
        if tail is not None:
            self._base = tail.stream.config.base[:2]
            self.options = {
                key: value for key, value in self.options.items() if key[0] == self.chain
            }
            for subscriber in self.subscribers:
                # One that has read this chain by itself already stays where it is.
                if subscriber.live and subscriber.chain != self.chain:
                    self._place(subscriber, self.slot, self.offset)
        else:
            for subscriber in self.subscribers:
                if subscriber.live and subscriber.chain == deleted:
                    subscriber.chain = None
        self._placed.set()

    def skip(self, earliest: str) -> None:
        super().skip(earliest)
        for subscriber in self.subscribers:
            if subscriber.live and subscriber.slot < self.slot:
                subscriber.slot, subscriber.offset = self.slot, self.offset

    async def deliver(self, view: View) -> None:
        if view.bodies:
            async with self.delivery_lock:
                await self._deliver(view)

    async def _deliver(self, view: View) -> None:
        """Push a view to those that are live now; one that comes later gets what follows it."""
        start = self.offset
        self.slot, self.offset = view.end, view.offset
        received: dict[Subscriber, int] = {}
        for subscriber in self.subscribers:
            if subscriber.live:
                received[subscriber] = subscriber.offset
                # It may have read further by itself than the follower has.
                if subscriber.slot < view.end:
                    subscriber.slot, subscriber.offset = view.end, view.offset
        if received:
            async for batch in batches(view, start):
                await self._push(batch, view, received)
                if not any(subscriber in self.subscribers for subscriber in received):
                    break
        if self.options:
            # Messages that no subscriber was there for leave theirs behind.
            self.options = {
                key: value for key, value in self.options.items() if key[1] > self.offset
            }

    async def _push(
        self, batch: Sequence[Message], view: View, received: Mapping[Subscriber, int]
    ) -> None:
        """Push messages of a view to those that are still there, to each what follows the offset
        that it has received."""
        chain = view.tail.stream.id
        messages = [
            (message, self.options.pop((chain, message.offset), None))
            for message in batch
            if message.text
        ]
        if len(messages) < len(batch):
            logger.warning("a message of '%s' is too large for a cable", self.path)
        encoded: dict[tuple[Encoder, str], _Texts] = {}
        pace = Pace()
        async for some in slices(list(received.items()), view):
            for subscriber, has in some:
                if subscriber not in self.subscribers:
                    continue
                client, identifier = subscriber.client, subscriber.subscription.identifier
                texts = encoded.get((client.encoder, identifier))
                if texts is None:
                    texts = encoded[client.encoder, identifier] = _Texts(
                        self._encode(client.encoder, identifier, messages, chain)
                    )
                client.push_all(texts.of(client.sid, has))
                # Each may have an identifier of its own, and then it has texts of its own.
                await pace.rest()

    def _encode(
        self,
        encoder: Encoder,
        identifier: str,
        messages: list[tuple[Message, Publication | None]],
        chain: int,
    ) -> Iterator[tuple[int, str | None, str]]:
        """Yield for each message its offset, the session that must not get it, and its text."""
        epoch = epoch_of(chain)
        for message, publication in messages:
            kind = None if publication is None else publication.kind
            text = encoder.data(identifier, message, self.stream, epoch, kind)
            yield message.offset, None if publication is None else publication.exclude, text
