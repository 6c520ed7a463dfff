"""The session of one client: commands in, effects out.

It knows the subscriptions of the client and nothing of sockets, streams or other clients. Effects
are carried out in their order:

| effect | to be done |
|---|---|
| Send | send a frame to the client |
| Attach | start to follow the stream, but hold its messages back |
| Release | send the messages held back, and from now on every new one |
| Replay | send the missed messages and their confirmation or rejection, then as Release |
| Detach | stop following the stream, and leave its presence |
| Whisper | send a message to the other subscribers that may whisper |
| Join, Leave | add the client to the stream's presence, or remove it |
| PresenceInfo | send the members of the stream to the client |
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tailrace.limits import CABLE_IDENTIFIERS_BYTES, CABLE_SUBSCRIPTIONS
from tailrace.protocols.action_cable.core import frames, presence
from tailrace.protocols.action_cable.core.commands import Command, MissedMessages

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
    missed: MissedMessages


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


class PresenceInfo(NamedTuple):
    subscription: Subscription
    records: bool


Effect = Send | Attach | Release | Replay | Detach | Whisper | Join | Leave | PresenceInfo


def new_sid() -> str:
    """A random session id. Clients must not choose it: others address the session by it."""
    return secrets.token_urlsafe(16)[:21]


class Session:
    def __init__(
        self, sid: str, identity: str | None, channels: Channels, *, resumable: bool = True
    ) -> None:
        """`identity`: the one that the client's token names; None without a token. `resumable`:
        whether a later session may restore its subscriptions."""
        self.sid = sid
        self.identity = anonymous_identity(sid) if identity is None else identity
        self.resumable = resumable
        self.subscriptions: dict[str, Subscription] = {}
        self._token_identity = identity
        self._channels = channels
        self._size = 0
        """Bytes that the identifiers of its subscriptions take in memory."""

    def begin(self) -> Sequence[Effect]:
        return [Send(frames.welcome(self.sid))]

    def resume(self, identifiers: Iterable[str]) -> Sequence[Effect]:
        """Begin with the subscriptions of an earlier session, as far as they are still allowed.

        Messages are held back until the client has said which ones it missed."""
        for identifier in identifiers:
            self._add(identifier)
        effects: list[Effect] = [Attach(each) for each in self.subscriptions.values()]
        return [*effects, Send(frames.welcome(self.sid, list(self.subscriptions)))]

    def receive(self, command: Command) -> Sequence[Effect]:
        """The effects of a command; none for an invalid one, which clients expect no answer to."""
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
                return [PresenceInfo(subscription, _wants_records(command))]
            case "presence":
                return [Send(frames.presence(command.identifier, '{"type":"error","total":0}'))]
        return []

    def _subscribe(self, command: Command) -> Sequence[Effect]:
        existing = self.subscriptions.get(command.identifier)
        subscription = existing or self._add(command.identifier)
        if subscription is None:
            return [Send(frames.reject_subscription(command.identifier))]
        effects: list[Effect] = [] if existing else [Attach(subscription)]
        # Confirm again: a repeated subscribe means that the first confirmation was lost.
        effects.append(Send(frames.confirm_subscription(command.identifier)))
        if not existing or command.history is not None:
            effects.append(_replay(subscription, command.history))
        if subscription.presence and command.presence is not None:
            effects += self._join(subscription, command)
        return effects

    def _add(self, identifier: str) -> Subscription | None:
        size = self._size + sys.getsizeof(identifier)
        if len(self.subscriptions) >= CABLE_SUBSCRIPTIONS or size > CABLE_IDENTIFIERS_BYTES:
            return None
        subscription = self._channels.authorize(identifier)
        if subscription is not None:
            self.subscriptions[identifier] = subscription
            self._size = size
        return subscription

    def _join(self, subscription: Subscription, command: Command) -> Sequence[Effect]:
        fields = command.presence or {}
        member = fields.get("id")
        if not isinstance(member, str) or not member:
            return []
        if self._token_identity is not None and not presence.is_own(self._token_identity, member):
            rejection = presence.reject_message(member)
            return [Send(frames.presence(subscription.identifier, rejection))]
        return [Join(subscription, member, fields.get("info"))]


def anonymous_identity(sid: str) -> str:
    """The identity of a client without a token, by which applications may disconnect it."""
    return orjson.dumps({"sid": sid}).decode()


def _without_subscription(command: Command) -> Sequence[Effect]:
    if command.name == "history":
        return [Send(frames.reject_history(command.identifier))]
    return []


def _replay(subscription: Subscription, missed: MissedMessages | None) -> Effect:
    return Release(subscription) if missed is None else Replay(subscription, missed)


def _wants_records(command: Command) -> bool:
    options = command.data if isinstance(command.data, dict) else command.presence
    return not isinstance(options, dict) or options.get("return_records") is not False
