"""Effects: what a session wants done, in this order.

| effect | to be done |
|---|---|
| Register | count the client as connected, under the session's identity |
| Send | send a frame to the client |
| Attach | start to follow the stream, but hold its messages back |
| Release | send the messages held back, and from now on every new one |
| Replay | send the missed messages and their confirmation or rejection, then as Release |
| Detach | stop following the stream, and leave its presence |
| Whisper | send a message to the other subscribers that may whisper |
| Join, Leave | add the client to the stream's presence, or remove it |
| PresenceInfo | send the members of the stream to the client |
| ApplicationCall | call the application, and carry out the effects that its answer has |
| End | send a disconnect to the client, and close the connection |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tailrace.protocols.action_cable.core.application import Answer
    from tailrace.protocols.action_cable.core.channels import Subscription
    from tailrace.protocols.action_cable.core.commands import MissedMessages


class Register(NamedTuple):
    pass


class Send(NamedTuple):
    frame: str


class Attach(NamedTuple):
    subscription: Subscription


class Release(NamedTuple):
    subscription: Subscription


class Replay(NamedTuple):
    identifier: str
    subscriptions: Sequence[Subscription]
    """Those of the identifier: one for each stream."""
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


class ApplicationCall(NamedTuple):
    method: str
    body: bytes
    """The request, as JSON."""
    then: Callable[[Answer], Sequence[Effect]]


class End(NamedTuple):
    reason: str
    reconnect: bool


Effect = (
    Register
    | Send
    | Attach
    | Release
    | Replay
    | Detach
    | Whisper
    | Join
    | Leave
    | PresenceInfo
    | ApplicationCall
    | End
)
