"""The channels of an application: AnyCable's remote procedure calls.

The application decides which clients may connect, and serves the channels that are not served here:
it is called for each command, and its answer says what the client gets, and which streams the
channel follows from now on. It keeps no state of a connection. What it wants to remember comes with
an answer, and goes with the next call: `cstate` of the connection, `istate` of a channel.

| call | its answer |
|---|---|
| connect | whether the client may connect, and its identity |
| command | the outcome of subscribe, unsubscribe or message (an action of the client) |
| disconnect | none: it is told that the client has gone |
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from tailrace.errors import BadPath, PathTooLong
from tailrace.limits import CABLE_SUBSCRIPTIONS
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.channels import Subscription, path_of
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.effects import (
    ApplicationCall,
    Attach,
    Detach,
    Effect,
    End,
    Join,
    Leave,
    Release,
    Replay,
    Send,
)

WHISPERS: Final = "$w"
PRESENCE: Final = "$p"
"""Keys of a channel's state: its streams for whispers and for presence."""


class BadAnswer(ValueError):
    """The application has answered with something else than the protocol says."""


class Status(IntEnum):
    ERROR = 0
    """It failed, or did not answer."""
    SUCCESS = 1
    FAILURE = 2
    """It refuses."""


class Answer(NamedTuple):
    """An answer of the application."""

    status: Status
    identifiers: str = ""
    """The identity of a client that may connect."""
    transmissions: Sequence[str] = ()
    """Frames for the client."""
    streams: Sequence[str] = ()
    """The streams that the channel follows, too."""
    stopped_streams: Sequence[str] = ()
    stops_streams: bool = False
    """Whether the channel follows none of its earlier streams."""
    disconnects: bool = False
    cstate: Mapping[str, str] = {}
    istate: Mapping[str, str] = {}
    presence: Mapping[str, Any] = {}
    """A member that joins or leaves."""
    error: str = ""

    def ending(self, otherwise: End) -> End:
        """The end of a connection: by the disconnect among the frames, if there is one."""
        for frame in self.transmissions:
            fields = orjson.loads(frame)
            if isinstance(fields, dict) and fields.get("type") == "disconnect":
                reason = str(fields.get("reason") or otherwise.reason)
                return End(reason, fields.get("reconnect") is True)
        return otherwise


FAILED: Final = Answer(Status.ERROR)


def parse_answer(body: bytes) -> Answer:
    """Parse an answer; raises BadAnswer."""
    try:
        fields = orjson.loads(body)
        state = fields.get("env") or {}
        answer = Answer(
            Status(fields.get("status", 0)),
            fields.get("identifiers") or "",
            fields.get("transmissions") or (),
            fields.get("streams") or (),
            fields.get("stopped_streams") or (),
            fields.get("stop_streams") is True,
            fields.get("disconnect") is True,
            state.get("cstate") or {},
            state.get("istate") or {},
            fields.get("presence") or {},
            fields.get("error_msg") or "",
        )
        for frame in answer.transmissions:
            orjson.loads(frame)
        lists = (answer.transmissions, answer.streams, answer.stopped_streams)
        texts = [each for some in lists for each in some]
        texts += [answer.identifiers, answer.error]
        texts += [each for state in (answer.cstate, answer.istate) for each in state.values()]
        if not all(isinstance(each, str) for each in texts):
            raise TypeError
        orjson.dumps([answer.cstate, answer.istate, answer.presence])
    except (AttributeError, TypeError, ValueError):
        raise BadAnswer("the answer is not what AnyCable's protocol says") from None
    return answer


class Channel:
    """A subscription that the application serves."""

    __slots__ = ("istate", "streams")

    def __init__(self) -> None:
        self.streams: dict[str, Subscription] = {}
        self.istate: dict[str, str] = {}

    def copy(self) -> Channel:
        copied = Channel()
        copied.streams.update(self.streams)
        copied.istate.update(self.istate)
        return copied

    def subscription(self, key: str) -> Subscription | None:
        """That of the stream which the state names for whispers or presence."""
        return self.streams.get(self.istate.get(key, ""))


class ApplicationSession:
    """A session, as the application knows it."""

    def __init__(self, url: str, headers: Mapping[str, str], identifiers: str = "") -> None:
        """`url` and `headers`: of the client's handshake. `identifiers`: the client's identity, if
        its token names it."""
        self._env = {"url": url, "headers": headers}
        self._headers = headers
        self._identifiers = identifiers
        self._cstate: dict[str, str] = {}
        self.channels: dict[str, Channel] = {}

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, about."""
        states = [self._headers, self._cstate, *(each.istate for each in self.channels.values())]
        texts = [text for state in states for pair in state.items() for text in pair]
        return sum(map(sys.getsizeof, chain(texts, self.channels, *self.subscriptions())))

    def subscriptions(self) -> Iterator[Subscription]:
        for channel in self.channels.values():
            yield from channel.streams.values()

    def resume(self, earlier: ApplicationSession) -> None:
        """Take over the channels of an earlier session."""
        self._cstate = earlier._cstate | self._cstate
        self.channels = {key: each.copy() for key, each in earlier.channels.items()}

    # Connecting

    def connect(self, then: Callable[[Answer], Sequence[Effect]]) -> ApplicationCall:
        def connected(answer: Answer) -> Sequence[Effect]:
            self._identifiers = answer.identifiers
            self._cstate.update(answer.cstate)
            return then(answer)

        return ApplicationCall("connect", orjson.dumps({"env": self._env}), connected)

    def disconnect(self) -> ApplicationCall:
        states = {key: orjson.dumps(each.istate).decode() for key, each in self.channels.items()}
        request = {
            "identifiers": self._identifiers,
            "subscriptions": list(self.channels),
            "env": {**self._env, "cstate": self._cstate, "istate": states},
        }
        return ApplicationCall("disconnect", orjson.dumps(request), lambda _: ())

    # Commands

    def subscribe(
        self, command: Command, join: Callable[[Subscription], Sequence[Effect]]
    ) -> Sequence[Effect]:
        """`join`: the effects of a client that joins the presence of a subscription."""
        identifier, channel = command.identifier, self.channels.get(command.identifier)
        if channel is not None:
            # A repeated subscribe means that the first confirmation was lost.
            confirmation = Send(frames.confirm_subscription(identifier))
            return [confirmation, *self._replay(command, channel)]

        def subscribed(answer: Answer) -> Sequence[Effect]:
            if answer.status is not Status.SUCCESS:
                rejection = frames.reject_subscription(identifier)
                return [*map(Send, answer.transmissions or (rejection,)), *self._end(answer)]
            channel = self.channels[identifier] = Channel()
            effects, new = self._apply(identifier, channel, answer)
            effects += self._replay(command, channel) or map(Release, new)
            subscription = channel.subscription(PRESENCE)
            if subscription is not None and command.presence is not None:
                effects += join(subscription)
            return [*effects, *self._end(answer)]

        return [self._call("subscribe", command, subscribed)]

    def receive(self, command: Command) -> Sequence[Effect]:
        """The effects of another command for one of the channels."""
        channel = self.channels[command.identifier]
        if command.name == "history":
            rejection = Send(frames.reject_history(command.identifier))
            return self._replay(command, channel) or [rejection]
        if command.name == "message" and not isinstance(command.data, str):
            return []

        def performed(answer: Answer) -> Sequence[Effect]:
            effects, new = self._apply(command.identifier, channel, answer)
            return [*effects, *map(Release, new), *self._end(answer)]

        def unsubscribed(answer: Answer) -> Sequence[Effect]:
            del self.channels[command.identifier]
            self._cstate.update(answer.cstate)
            stopped = map(Detach, channel.streams.values())
            return [*stopped, *map(Send, answer.transmissions), *self._end(answer)]

        then = performed if command.name == "message" else unsubscribed
        return [self._call(command.name, command, then)]

    def _call(
        self, name: str, command: Command, then: Callable[[Answer], Sequence[Effect]]
    ) -> ApplicationCall:
        channel = self.channels.get(command.identifier)
        istate = {} if channel is None else channel.istate
        request = {
            "command": name,
            "identifier": command.identifier,
            "connection_identifiers": self._identifiers,
            "data": command.data if name == "message" else "",
            "env": {**self._env, "cstate": self._cstate, "istate": istate},
        }
        return ApplicationCall("command", orjson.dumps(request), then)

    def _apply(
        self, identifier: str, channel: Channel, answer: Answer
    ) -> tuple[list[Effect], list[Subscription]]:
        """Apply an answer to a channel; returns the effects, and the subscriptions that are new."""
        self._cstate.update(answer.cstate)
        channel.istate.update(answer.istate)
        stopped = list(channel.streams) if answer.stops_streams else answer.stopped_streams
        effects: list[Effect] = [
            Detach(channel.streams.pop(stream)) for stream in stopped if stream in channel.streams
        ]
        new = []
        for stream in answer.streams:
            subscription = _subscription(identifier, stream)
            is_known = subscription is None or stream in channel.streams
            if not is_known and sum(1 for _ in self.subscriptions()) < CABLE_SUBSCRIPTIONS:
                assert subscription is not None
                channel.streams[stream] = subscription
                new.append(subscription)
        effects += map(Attach, new)
        effects += map(Send, answer.transmissions)
        return [*effects, *_presence(channel, answer.presence)], new

    def _replay(self, command: Command, channel: Channel) -> Sequence[Effect]:
        if command.history is None:
            return ()
        return [Replay(command.identifier, tuple(channel.streams.values()), command.history)]

    def _end(self, answer: Answer) -> Sequence[Effect]:
        return [answer.ending(End("remote", reconnect=True))] if answer.disconnects else ()


def _subscription(identifier: str, stream: str) -> Subscription | None:
    """None: nothing can be published to a stream of this name."""
    try:
        return Subscription(identifier, stream, path_of(stream), whispers=True, presence=True)
    except (BadPath, PathTooLong):
        return None


def _presence(channel: Channel, presence: Mapping[str, Any]) -> Sequence[Effect]:
    subscription, member = channel.subscription(PRESENCE), presence.get("id")
    if subscription is None or not isinstance(member, str):
        return ()
    match presence.get("type"):
        case "join":
            try:
                return [Join(subscription, member, orjson.loads(presence.get("info") or "null"))]
            except orjson.JSONDecodeError:
                return ()
        case "leave":
            return [Leave(subscription)]
    return ()
