"""Carries out the effects of one client's session in this process."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from tailrace.limits import (
    BURST_SECONDS,
    CABLE_COMMAND_BURST,
    CABLE_COMMAND_RATE,
    CABLE_HISTORY_REQUEST_SECONDS,
)
from tailrace.protocols.action_cable.core import frames, pings
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.protocols.action_cable.core.commands import Command, MissedMessages
from tailrace.protocols.action_cable.core.effects import (
    ApplicationCall,
    Attach,
    Detach,
    Effect,
    End,
    Join,
    Leave,
    PresenceInfo,
    Register,
    Release,
    Replay,
    Send,
    Whisper,
)
from tailrace.protocols.action_cable.core.pings import Pings
from tailrace.protocols.action_cable.core.session import FindEarlier, Session
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.stream_follower import (
    Client,
    StreamFollower,
    Subscriber,
)


class Rate:
    """A leaky bucket: `burst` at once, and `rate` each second. A rate of 0 limits nothing."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cost = 1 / rate if rate else 0.0
        # At least 1: a smaller bucket would never admit anything.
        self._capacity = self._cost * max(burst, 1)
        self._clock = clock
        self._used_until = 0.0

    def take(self) -> float:
        """Admit and count one; else return the seconds to wait until one is admitted."""
        now = self._clock()
        used_until = max(self._used_until, now) + self._cost
        excess = used_until - now - self._capacity
        # Sums of fractions are not exact: without the margin the last of a burst might be refused.
        if excess > 1e-6:
            return excess
        self._used_until = used_until
        return 0.0


logger = logging.getLogger("tailrace")

NO_PINGS: Final = Pings(0, "s")


class Conversation:
    def __init__(
        self,
        hub: Hub,
        client: Client,
        session: Session,
        chosen_pings: Pings = NO_PINGS,
        token_seconds: float | None = None,
    ) -> None:
        """`token_seconds`: seconds until the client's token expires; None: never."""
        self._hub = hub
        self._client = client
        self._session = session
        self._subscribers: dict[tuple[str, str], Subscriber] = {}
        """By identifier and stream."""
        self._lock = asyncio.Lock()
        self._held: asyncio.Task[None] | None = None
        self._pings = chosen_pings
        self._ping_timer: asyncio.TimerHandle | None = None
        self._token_seconds = token_seconds
        self._expiry: asyncio.TimerHandle | None = None
        self._commands = Rate(CABLE_COMMAND_RATE, CABLE_COMMAND_BURST)
        self._whispers = Rate(hub.whisper_rate, hub.whisper_rate * BURST_SECONDS)

    async def begin(self, find_earlier: FindEarlier = lambda _: None) -> None:
        await self._carry_out(self._session.begin(find_earlier))
        if self._session.asks_history:
            for subscriber in self._subscribers.values():
                subscriber.confirmed = True
            self._held = asyncio.create_task(self._release_held())

    async def receive(self, command: Command) -> None:
        if command.name == "whisper":
            # Drop it: delayed, it would be stale, and keep other commands waiting.
            if self._whispers.take():
                return
        elif wait := self._commands.take():
            await asyncio.sleep(wait)
            self._commands.take()
        await self._carry_out(self._session.receive(command))

    def end(self) -> None:
        for each in (self._held, self._expiry, self._ping_timer):
            if each is not None:
                each.cancel()
        for subscriber in self._subscribers.values():
            self._hub.detach(subscriber)
        self._subscribers.clear()
        self._hub.disconnect(self._session)

    def _connect(self) -> None:
        self._hub.connect(self._client, self._session)
        if self._token_seconds is not None:
            self._expiry = asyncio.get_running_loop().call_later(self._token_seconds, self._expire)
        if interval := self._pings.interval:
            # At random, so that clients that connected together are not pinged together.
            self._ping_in(interval * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    def _expire(self) -> None:
        self._client.end("token_expired", reconnect=False)

    def _ping_in(self, seconds: float) -> None:
        self._ping_timer = asyncio.get_running_loop().call_later(seconds, self._ping)

    def _ping(self) -> None:
        self._push(pings.ping(self._hub.streams.clock(), self._pings.unit))
        self._ping_in(self._pings.interval)

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        async with self._lock:
            for effect in effects:
                await self._carry_out_one(effect)

    async def _carry_out_one(self, effect: Effect) -> None:
        hub, session = self._hub, self._session
        match effect:
            case Register():
                self._connect()
            case Send(frame):
                self._push(frame)
            case Attach(subscription):
                subscriber = Subscriber(self._client, subscription)
                self._subscribers[_key(subscription)] = subscriber
                await hub.attach(subscriber)
            case Release(subscription):
                follower, subscriber = self._confirm(subscription)
                await follower.go_live(subscriber)
            case Replay(_, (subscription,), missed):
                follower, subscriber = self._confirm(subscription)
                await follower.replay(subscriber, missed)
            case Replay(identifier, subscriptions, missed):
                await self._replay(identifier, subscriptions, missed)
            case Detach(subscription):
                hub.detach(self._subscribers.pop(_key(subscription)))
                if all(each.stream != subscription.stream for each in session.followed()):
                    hub.leave(session.sid, subscription.stream)
            case Whisper(subscription, message):
                hub.followers[subscription.stream].send_transient(
                    message, exclude=session.sid, whisper=True
                )
            case Join(subscription, member, info):
                hub.join(session.sid, subscription, member, info)
            case Leave(subscription):
                hub.leave(session.sid, subscription.stream)
            case PresenceInfo(subscription, records):
                self._push(hub.presence_info(subscription, records=records))
            case ApplicationCall():
                assert hub.application is not None
                answer = await hub.application.call(session.sid, effect)
                for each in effect.then(answer):
                    await self._carry_out_one(each)
            case End(reason, reconnect):
                self._client.end(reason, reconnect=reconnect)

    async def _replay(
        self, identifier: str, subscriptions: Sequence[Subscription], missed: MissedMessages
    ) -> None:
        """Replay all streams of a channel, or none, and confirm or reject that once."""
        confirmed = [self._confirm(each) for each in subscriptions]
        answers = [await follower.catch_up(each, missed) for follower, each in confirmed]
        rejection = frames.reject_history(identifier)
        self._push(rejection if rejection in answers else frames.confirm_history(identifier))
        for follower, subscriber in confirmed:
            await follower.go_live(subscriber)

    def _confirm(self, subscription: Subscription) -> tuple[StreamFollower, Subscriber]:
        """The follower of a subscription and its subscriber, which may get messages from now on."""
        subscriber = self._subscribers[_key(subscription)]
        subscriber.confirmed = True
        return self._hub.followers[subscription.stream], subscriber

    def _push(self, frame: str) -> None:
        self._client.push(self._client.encoder.control(frame))

    async def _release_held(self) -> None:
        """Send new messages to a client that did not ask for the missed ones after all."""
        await asyncio.sleep(CABLE_HISTORY_REQUEST_SECONDS)
        try:
            for subscriber in list(self._subscribers.values()):
                if not subscriber.live:
                    await self._carry_out([Release(subscriber.subscription)])
        except Exception:
            # A client whose messages stay held back would get nothing but pings.
            logger.exception("a cable client that resumed has to reconnect")
            self._client.end("server_restart", reconnect=True)


def _key(subscription: Subscription) -> tuple[str, str]:
    return subscription.identifier, subscription.stream
