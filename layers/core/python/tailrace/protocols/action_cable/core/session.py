"""The session of one client: commands in, effects out.

It knows the subscriptions of the client and nothing of sockets, streams or other clients.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from tailrace.limits import CABLE_IDENTIFIERS_BYTES, CABLE_SUBSCRIPTIONS
from tailrace.protocols.action_cable.core import frames, presence
from tailrace.protocols.action_cable.core.application import (
    PRESENCE,
    WHISPERS,
    Answer,
    ApplicationSession,
    Status,
)
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

if TYPE_CHECKING:
    from tailrace.protocols.action_cable.core.channels import Channels, Subscription


class EarlierSession(NamedTuple):
    """A session that ended, as the one that resumes it needs it."""

    identifiers: Sequence[str]
    """Of its subscriptions."""
    asks_history: bool
    """Whether its client asked for history: such a client asks again when it resumes."""
    application: ApplicationSession | None = None


FindEarlier = Callable[[str | None], EarlierSession | None]
"""Finds the session that a client of an identity resumes; None: it resumes none."""


def new_sid() -> str:
    """A random session id. Clients must not choose it: others address the session by it."""
    return secrets.token_urlsafe(16)[:21]


class Session:
    def __init__(
        self,
        sid: str,
        identity: str | None,
        channels: Channels,
        application: ApplicationSession | None = None,
        *,
        resumable: bool = True,
    ) -> None:
        """`identity`: the one that the client's token names; None without a token. `application`:
        serves all other channels. `resumable`: whether a later session may restore its
        subscriptions."""
        self.sid = sid
        self.identity = anonymous_identity(sid) if identity is None else identity
        self.resumable = resumable
        self.connected_at = 0
        """In milliseconds."""
        self.subscriptions: dict[str, Subscription] = {}
        self.asks_history = False
        """Whether the client has asked for history."""
        self.application: Final = application
        self._token_identity = identity
        self._channels = channels
        self._size = 0
        """Bytes that the identifiers of its subscriptions take in memory."""

    def followed(self) -> Iterator[Subscription]:
        """The subscriptions to streams, those of the application's channels included."""
        own = self.subscriptions.values()
        return chain(own, () if self.application is None else self.application.subscriptions())

    def end(self) -> ApplicationCall | None:
        """The call that tells the application that the client has gone; None: it need not know."""
        application = self.application
        if application is None or not (self._calls_to_connect or application.channels):
            return None
        return application.disconnect()

    def earlier(self) -> EarlierSession:
        """This session, as a later one needs it to resume."""
        return EarlierSession(list(self.subscriptions), self.asks_history, self.application)

    @property
    def _calls_to_connect(self) -> bool:
        """Whether the application decides if the client may connect."""
        return self.application is not None and self._token_identity is None

    def begin(self, find_earlier: FindEarlier = lambda _: None) -> Sequence[Effect]:
        """Begin the session, or resume an earlier one."""
        if self.application is None or not self._calls_to_connect:
            return self._enter(find_earlier, self._token_identity, [frames.welcome(self.sid)])

        def connected(answer: Answer) -> Sequence[Effect]:
            if answer.status is Status.SUCCESS:
                identity = answer.identifiers or None
                self.identity = identity or self.identity
                return self._enter(find_earlier, identity, answer.transmissions)
            if answer.status is Status.FAILURE:
                return [answer.ending(End("unauthorized", reconnect=False))]
            return [End("server_restart", reconnect=True)]

        return [self.application.connect(connected)]

    def _enter(
        self, find_earlier: FindEarlier, identity: str | None, welcome: Sequence[str]
    ) -> Sequence[Effect]:
        earlier = find_earlier(identity)
        effects = map(Send, welcome) if earlier is None else self.resume(earlier)
        return [Register(), *effects]

    def resume(self, earlier: EarlierSession) -> Sequence[Effect]:
        """Begin with the subscriptions of an earlier session, as far as they are still allowed.

        If its client asks for history, messages are held back until it has asked again."""
        self.asks_history = earlier.asks_history
        for identifier in earlier.identifiers:
            self._add(identifier)
        restored = list(self.subscriptions)
        if self.application is not None and earlier.application is not None:
            self.application.resume(earlier.application)
            restored += self.application.channels
        effects: list[Effect] = [Attach(each) for each in self.followed()]
        effects.append(Send(frames.welcome(self.sid, restored)))
        return effects if self.asks_history else [*effects, *map(Release, self.followed())]

    def receive(self, command: Command) -> Sequence[Effect]:
        """The effects of a command; none for an invalid one, which clients expect no answer to."""
        if command.name == "ping":
            return [Send(frames.PONG)]
        self.asks_history |= command.history is not None
        if command.name == "subscribe":
            return self._subscribe(command)
        subscription = self.subscriptions.get(command.identifier)
        if subscription is None:
            return self._receive_for_application(command)
        return self._receive_for(subscription, command)

    def _receive_for_application(self, command: Command) -> Sequence[Effect]:
        application = self.application
        channel = None if application is None else application.channels.get(command.identifier)
        if application is None or channel is None:
            return _without_subscription(command)
        if command.name in ("unsubscribe", "message", "history"):
            return application.receive(command)
        key = WHISPERS if command.name == "whisper" else PRESENCE
        subscription = channel.subscription(key)
        return [] if subscription is None else self._receive_for(subscription, command)

    def _receive_for(self, subscription: Subscription, command: Command) -> Sequence[Effect]:
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
        if self.application is not None and self._is_for_application(command.identifier):
            return self.application.subscribe(command, partial(self._join, command=command))
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

    def _is_for_application(self, identifier: str) -> bool:
        channels = {} if self.application is None else self.application.channels
        if identifier in channels:
            return True
        subscribed = [*self.subscriptions, *channels, identifier]
        size = sum(map(sys.getsizeof, subscribed))
        has_room = len(subscribed) <= CABLE_SUBSCRIPTIONS and size <= CABLE_IDENTIFIERS_BYTES
        return has_room and self._channels.leaves_to_application(identifier)

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
    if missed is None:
        return Release(subscription)
    return Replay(subscription.identifier, (subscription,), missed)


def _wants_records(command: Command) -> bool:
    options = command.data if isinstance(command.data, dict) else command.presence
    return not isinstance(options, dict) or options.get("return_records") is not False
