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
from tailrace.live.follower import RETRY_SECONDS, UNKNOWN, Follower
from tailrace.live.pace import Pace
from tailrace.log import offsets
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

    def push(self, text: str) -> None: ...

    async def drain(self) -> None:
        """Wait until most of what was pushed is sent."""

    def end(self, reason: str, *, reconnect: bool) -> None:
        """Send a disconnect and close the connection."""


class Subscriber:
    __slots__ = ("chain", "client", "confirmed", "live", "slot", "subscription")

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self.client = client
        self.subscription = subscription
        self.confirmed = False
        """Whether the subscription was confirmed to the client: only then may messages be sent."""
        self.live = False
        """Whether the follower serves it. Until then it is held back, or reads by itself."""
        self.chain: int | None = None
        self.slot = 0
        """The slot of that chain that it gets next."""

    async def send(self, messages: Iterable[Message], chain: int) -> None:
        """Send messages of its stream to it alone, no faster than its client takes them."""
        identifier, stream = self.subscription.identifier, self.subscription.stream
        encode, epoch = self.client.encoder.data, epoch_of(chain)
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
        self._base = 0
        """The first slot of the chain that is not inherited."""
        self._offset = 0
        """The offset of `slot`."""
        self._placed = asyncio.Event()
        """Set when the stream was looked up for the first time."""

    async def attach(self, subscriber: Subscriber) -> None:
        """Add a subscriber at the follower's place; it gets nothing until `go_live`."""
        self.subscribers[subscriber] = None
        await self._placed.wait()
        subscriber.chain, subscriber.slot = self.chain, self.slot

    def detach(self, subscriber: Subscriber) -> None:
        self.subscribers.pop(subscriber, None)

    async def replay(self, subscriber: Subscriber, missed: MissedMessages) -> None:
        """Send what a subscriber missed, confirm or reject that, and go on with what is new."""
        if subscriber.live:
            # A delivery that has begun is finished first, or the subscriber would miss its rest.
            async with self.delivery_lock:
                subscriber.live = False
        subscriber.control(await send_missed(self._streams, subscriber, missed))
        await self.go_live(subscriber)

    async def go_live(self, subscriber: Subscriber) -> None:
        """Let a subscriber read by itself until it is where the follower is, and serve it then."""
        while not self._streams.draining and subscriber in self.subscribers:
            if self.admits(subscriber):
                subscriber.live = True
                return
            try:
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

    async def _advance(self, subscriber: Subscriber) -> None:
        """Bring a subscriber one step nearer to the follower."""
        if subscriber.chain is None:
            subscriber.chain, subscriber.slot = self.chain, self._base
        elif subscriber.chain == self.chain:
            await self._read_on(subscriber)
        elif (await self._streams.find(self.path)).stream.id == self.chain:
            subscriber.chain, subscriber.slot = self.chain, self._base
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
        subscriber.slot = view.end

    # What the follower does

    def switch(self, tail: Tail | None) -> None:
        is_first = self.chain == UNKNOWN
        super().switch(tail)
        if tail is not None:
            base = tail.stream.config.base
            self._base = base[0]
            self._offset = tail.committed.offset if is_first else base[1]
            self.options = {
                key: value for key, value in self.options.items() if key[0] == self.chain
            }
            for subscriber in self.subscribers:
                # One that has read this chain by itself already stays where it is.
                if subscriber.live and subscriber.chain != self.chain:
                    subscriber.chain, subscriber.slot = self.chain, self.slot
        self._placed.set()

    def skip(self, earliest: str) -> None:
        super().skip(earliest)
        self._offset = offsets.count(earliest)
        for subscriber in self.subscribers:
            if subscriber.live:
                subscriber.slot = max(subscriber.slot, self.slot)

    async def deliver(self, view: View) -> None:
        if view.bodies:
            async with self.delivery_lock:
                await self._deliver(view)

    async def _deliver(self, view: View) -> None:
        """Push a view to those that are live now; one that comes later gets what follows it."""
        chain, start = view.tail.stream.id, self._offset
        self.slot, self._offset = view.end, offsets.count(view.next_offset)
        first_slots: dict[Subscriber, int] = {}
        for subscriber in self.subscribers:
            if subscriber.live:
                first_slots[subscriber] = subscriber.slot
                # It may have read further by itself than the follower has.
                subscriber.slot = max(subscriber.slot, view.end)
        if first_slots:
            async for batch in batches(view, start):
                await self._push(batch, chain, first_slots)
                if not any(subscriber in self.subscribers for subscriber in first_slots):
                    break
        if self.options:
            # Messages that no subscriber was there for leave theirs behind.
            self.options = {
                key: value for key, value in self.options.items() if key[1] > self._offset
            }

    async def _push(
        self, batch: Sequence[Message], chain: int, first_slots: Mapping[Subscriber, int]
    ) -> None:
        """Push messages to those that are still there, to each from its first slot on."""
        messages = [
            (message, self.options.pop((chain, message.offset), None))
            for message in batch
            if message.text
        ]
        if len(messages) < len(batch):
            logger.warning("a message of '%s' is too large for a cable", self.path)
        encoded: dict[tuple[Encoder, str], list[tuple[int, str | None, str]]] = {}
        pace = Pace()
        for subscriber, first_slot in first_slots.items():
            if subscriber not in self.subscribers:
                continue
            encoder, identifier = subscriber.client.encoder, subscriber.subscription.identifier
            texts = encoded.get((encoder, identifier))
            if texts is None:
                texts = encoded[encoder, identifier] = list(
                    self._encode(encoder, identifier, messages, chain)
                )
            push, sid = subscriber.client.push, subscriber.client.sid
            for slot, excluded, text in texts:
                if slot >= first_slot and sid != excluded:
                    push(text)
            await pace.rest()

    def _encode(
        self,
        encoder: Encoder,
        identifier: str,
        messages: list[tuple[Message, Publication | None]],
        chain: int,
    ) -> Iterator[tuple[int, str | None, str]]:
        """Yield for each message its slot, the session that must not get it, and its text."""
        epoch = epoch_of(chain)
        for message, publication in messages:
            kind = None if publication is None else publication.kind
            text = encoder.data(identifier, message, self.stream, epoch, kind)
            yield message.slot, None if publication is None else publication.exclude, text
