"""One client's session: commands in, effects out.

It knows what the client is subscribed to and nothing of sockets, streams or other clients. Whoever
carries the effects out does so in their order.

| effect | what is to be done |
|---|---|
| Send | a frame to the client |
| Attach | listen to the stream from now on, but hold its messages back |
| Release | let them go, with all that came since |
| Replay | send what the client missed, say how that went, then as Release |
| Detach | listen no more, and leave |
| Whisper | a message to all others who may whisper there |
| Join, Leave | the client is there as somebody, or no longer |
| Roll | tell the client who is there |
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tailrace.limits import CABLE_IDENTIFIERS_BYTES, CABLE_SUBSCRIPTIONS
from tailrace.protocols.action_cable.core import frames, presence
from tailrace.protocols.action_cable.core.commands import Command, History

if TYPE_CHECKING:
    from tailrace.protocols.action_cable.core.channels import Channels, Subscription


class Send(NamedTuple):
    frame: str


class Attach(NamedTuple):
    subscription: Subscription


class Release(NamedTuple):
    subscription: Subscription


class Replay(NamedTuple):
    subscription: Subscription
    history: History


class Detach(NamedTuple):
    subscription: Subscription


class Whisper(NamedTuple):
    subscription: Subscription
    message: str


class Join(NamedTuple):
    subscription: Subscription
    member: str
    info: Any


class Leave(NamedTuple):
    subscription: Subscription


class Roll(NamedTuple):
    subscription: Subscription
    records: bool


Effect = Send | Attach | Release | Replay | Detach | Whisper | Join | Leave | Roll


def new_sid() -> str:
    """The name of a session: never a client's choice, for others send by it."""
    return secrets.token_urlsafe(16)[:21]


class Session:
    def __init__(
        self, sid: str, identity: str | None, channels: Channels, *, resumable: bool = True
    ) -> None:
        """`identity`: whom the client's token names, if it has one. `resumable`: whether another
        session may go on with its subscriptions."""
        self.sid = sid
        self.identity = anonymous(sid) if identity is None else identity
        self.resumable = resumable
        self.subscriptions: dict[str, Subscription] = {}
        self._named = identity
        self._channels = channels
        self._size = 0
        """Memory of the identifiers of its subscriptions."""

    def begin(self) -> Sequence[Effect]:
        return [Send(frames.welcome(self.sid))]

    def resume(self, identifiers: Iterable[str]) -> Sequence[Effect]:
        """Begin with the subscriptions of an earlier session, as far as they are still allowed.

        Their messages are held back until the client has said what it missed."""
        for identifier in identifiers:
            self._admit(identifier)
        effects: list[Effect] = [Attach(each) for each in self.subscriptions.values()]
        return [*effects, Send(frames.welcome(self.sid, list(self.subscriptions)))]

    def receive(self, command: Command) -> Sequence[Effect]:
        """What a command leads to; nothing if it makes no sense, as clients expect no answer."""
        if command.name == "ping":
            return [Send(frames.PONG)]
        if command.name == "subscribe":
            return self._subscribe(command)
        subscription = self.subscriptions.get(command.identifier)
        if subscription is None:
            return _without_subscription(command)
        match command.name:
            case "unsubscribe":
                del self.subscriptions[command.identifier]
                self._size -= sys.getsizeof(subscription.identifier)
                return [Detach(subscription)]
            case "history":
                return [_replay(subscription, command.history)]
            case "whisper" if subscription.whispers:
                return [Whisper(subscription, orjson.dumps(command.data).decode())]
            case "join" if subscription.presence:
                return self._join(subscription, command)
            case "leave" if subscription.presence:
                return [Leave(subscription)]
            case "presence" if subscription.presence:
                return [Roll(subscription, _wants_records(command))]
            case "presence":
                return [Send(frames.presence(command.identifier, '{"type":"error","total":0}'))]
        return []

    def _subscribe(self, command: Command) -> Sequence[Effect]:
        known = self.subscriptions.get(command.identifier)
        subscription = known or self._admit(command.identifier)
        if subscription is None:
            return [Send(frames.reject_subscription(command.identifier))]
        effects: list[Effect] = [] if known else [Attach(subscription)]
        # Once more to who asks again: it asks because the first confirmation has not arrived.
        effects.append(Send(frames.confirm_subscription(command.identifier)))
        if not known or command.history is not None:
            effects.append(_replay(subscription, command.history))
        if subscription.presence and command.presence is not None:
            effects += self._join(subscription, command)
        return effects

    def _admit(self, identifier: str) -> Subscription | None:
        size = self._size + sys.getsizeof(identifier)
        if len(self.subscriptions) >= CABLE_SUBSCRIPTIONS or size > CABLE_IDENTIFIERS_BYTES:
            return None
        subscription = self._channels.admit(identifier)
        if subscription is not None:
            self.subscriptions[identifier] = subscription
            self._size = size
        return subscription

    def _join(self, subscription: Subscription, command: Command) -> Sequence[Effect]:
        given = command.presence or {}
        member = given.get("id")
        if not isinstance(member, str) or not member:
            return []
        if self._named is not None and not presence.is_own(self._named, member):
            refusal = presence.rejected(member)
            return [Send(frames.presence(subscription.identifier, refusal))]
        return [Join(subscription, member, given.get("info"))]


def anonymous(sid: str) -> str:
    """How a client without a token is called, by who wants to disconnect it."""
    return orjson.dumps({"sid": sid}).decode()


def _without_subscription(command: Command) -> Sequence[Effect]:
    if command.name == "history":
        return [Send(frames.reject_history(command.identifier))]
    return []


def _replay(subscription: Subscription, history: History | None) -> Effect:
    return Release(subscription) if history is None else Replay(subscription, history)


def _wants_records(command: Command) -> bool:
    given = command.data if isinstance(command.data, dict) else command.presence
    return not isinstance(given, dict) or given.get("return_records") is not False
