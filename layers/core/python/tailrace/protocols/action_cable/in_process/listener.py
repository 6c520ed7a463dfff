"""Somebody who listens to a stream, and where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tailrace.live.pace import Pace
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.encoders import Encoder
from tailrace.protocols.action_cable.core.stream_names import epoch_of


class Client(Protocol):
    """A connection: what is pushed is sent in that order, and nobody waits for it."""

    sid: str
    encoder: Encoder

    def push(self, text: str) -> None: ...

    async def drain(self) -> None:
        """Until most of what was pushed is sent."""

    def end(self, reason: str, *, reconnect: bool) -> None:
        """Tell it to go."""


class Listener:
    """One subscription of one client."""

    __slots__ = ("chain", "client", "confirmed", "live", "slot", "subscription")

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self.client = client
        self.subscription = subscription
        self.confirmed = False
        """Whether its client knows of the subscription, and so can be told something there."""
        self.live = False
        """Whether it gets what comes. While it is not, it reads for itself, or is not to yet."""
        self.chain: int | None = None
        self.slot = 0
        """The slot that it gets next, of that chain."""

    async def send(self, messages: Iterable[Message], chain: int) -> None:
        """Messages of its stream, for it alone, no faster than its client takes them."""
        identifier, stream = self.subscription.identifier, self.subscription.stream
        encode, epoch = self.client.encoder.data, epoch_of(chain)
        pace = Pace()
        for message in messages:
            self.client.push(encode(identifier, message, stream, epoch, None))
            await self.client.drain()
            await pace.rest()

    def control(self, frame: str) -> None:
        self.client.push(self.client.encoder.control(frame))
