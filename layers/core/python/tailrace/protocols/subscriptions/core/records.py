"""The stored parts of a subscription: its record, and its link to each stream."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from tailrace.log.offsets import parse

UNREAD: Final = "-1"
"""The cursor of a link of which nothing was acknowledged."""


class Phase(StrEnum):
    """The state of a subscription; each says when it is due."""

    LINKING = "linking"
    """Its creation links the streams that exist; due when that seems to have failed."""
    IDLE = "idle"
    """No wake is outstanding; never due."""
    WAITING = "waiting"
    """A wake waits to be sent or announced, which is due; or it was, and waits for a claim."""
    HELD = "held"
    """A worker holds the wake, or a webhook has it; the lease is due."""
    DONE = "done"
    """A webhook answered that it is done; that is to be carried out."""
    DELETED = "deleted"
    """Its links are being erased."""


class SnapshotAck(NamedTuple):
    """A stream of a wake, and its end when the wake was sent."""

    path: str
    stream: int | None
    """The incarnation: a stream that takes its path meanwhile was not processed."""
    offset: str


class DurableSubscription(NamedTuple):
    """The record of a subscription; whoever changes it replaces the version that it has read."""

    id: str
    uid: str
    """Random: a subscription that is deleted and created again never meets its old links."""
    type: str
    pattern: str | None
    url: str | None
    wake_stream: str | None
    lease_ttl_ms: int
    description: str | None
    digest: str
    """Of the configuration that it was created with."""
    created_at: int
    """In milliseconds, like all times."""
    base_url: str
    """Where clients reach the server."""
    reads: tuple[str, ...] | None
    """Patterns of the streams that its creator may read; None: all."""
    version: int = 1
    phase: Phase = Phase.LINKING
    due_at: int | None = None
    generation: int = 0
    wake_id: str | None = None
    holder: str | None = None
    """The worker that holds the wake."""
    attempts: int = 0
    """How often the wake was sent, or its announcement failed."""
    confirmed: bool = False
    """Whether the receiver of a webhook has called back during this wake."""
    acks: tuple[SnapshotAck, ...] = ()
    """The streams that a webhook is done with."""
    pending_links: int = 0
    """How many of its links have news."""
    names_streams: bool = False
    """Whether its creation links streams by name, too."""
    linked_to: str | None = None
    """The last path that the creation has linked."""


class Link(NamedTuple):
    """A stream that a subscription follows."""

    path: str
    stream: int | None = None
    """The incarnation; None: there is no such stream."""
    epoch: int = 0
    explicit: bool = False
    glob: bool = False
    acked: str = UNREAD
    """The offset up to which the stream was processed."""
    tail: str = UNREAD
    """The end of the stream as far as the subscription has noticed."""

    @property
    def pending(self) -> bool:
        return offset_of(self.tail) > offset_of(self.acked)

    @property
    def type(self) -> str:
        return "explicit" if self.explicit else "glob"


class LinkChange(NamedTuple):
    before: Link | None
    """None: there was none."""
    after: Link | None
    """None: it goes."""

    @property
    def pending(self) -> int:
        """How many links with news there are more."""
        return _has_news(self.after) - _has_news(self.before)


def _has_news(link: Link | None) -> bool:
    return link is not None and link.pending


def offset_of(text: str) -> int:
    """Return how much data lies before an offset of a link."""
    return 0 if text == UNREAD else parse(text).offset


def record_text(record: DurableSubscription) -> bytes:
    """A record as it is stored: as JSON, without what has its default value."""
    defaults = DurableSubscription._field_defaults
    value = {
        name: each
        for name, each in record._asdict().items()
        if name not in defaults or each != defaults[name]
    }
    return orjson.dumps(value, default=list)


def record_of(text: bytes | str) -> DurableSubscription:
    value: dict[str, Any] = orjson.loads(text)
    if value["reads"] is not None:
        value["reads"] = tuple(value["reads"])
    if "phase" in value:
        value["phase"] = Phase(value["phase"])
    if "acks" in value:
        value["acks"] = tuple(SnapshotAck(*each) for each in value["acks"])
    return DurableSubscription(**value)
