"""The rules of PUT: it creates a stream, finds the same one, or conflicts."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import ContentTypeConflict, ForkOutOfRange, InvalidJson, StreamConflict
from tailrace.limits import FORK_DEPTH
from tailrace.log import json_mode
from tailrace.log.append import content
from tailrace.log.content import DEFAULT_TYPE, Mode, same_type
from tailrace.log.state import Ancestor, Config, Entry, Fork, State, Stream


class ForkFrom(NamedTuple):
    """Which stream to fork, and where; `slot` is None for its tail."""

    source: str
    slot: int | None = None
    sub_offset: int = 0


class Create(NamedTuple):
    """A request to create a stream."""

    body: bytes = b""
    content_type: str | None = None
    ttl: int | None = None
    expires_at: int | None = None
    closed: bool = False
    fork: ForkFrom | None = None
    flat: json_mode.Flat | InvalidJson | None = None
    """As that of `Append`."""


class ForkPoint(NamedTuple):
    """A place in a source stream, as its store knows it."""

    slot: int
    offset: int
    size: int
    body: bytes | None
    """The append that begins there, if any."""


def require_same(config: Config, state: State, request: Create) -> None:
    """Raise a conflict unless a request describes the stream that exists."""
    fork, wanted = config.fork, request.fork
    if (fork is None) != (wanted is None):
        kind = "a fork" if fork else "not a fork"
        raise StreamConflict(f"the stream exists already, and is {kind}")
    if fork is not None and wanted is not None:
        if wanted.source != fork.source:
            raise StreamConflict("the stream exists already, forked from another stream")
        if wanted.slot not in (None, fork.slot):
            raise StreamConflict("the stream exists already, forked at another offset")
        if wanted.sub_offset != fork.sub_offset:
            raise StreamConflict("the stream exists already, forked at another sub-offset")
    content_type = request.content_type or (config.content_type if fork else DEFAULT_TYPE)
    if not same_type(content_type, config.content_type):
        raise ContentTypeConflict(config.content_type, content_type)
    inherits = request.ttl is None and request.expires_at is None and not config.own_expiry
    if not inherits and (request.ttl, request.expires_at) != (config.ttl, config.expires_at):
        raise StreamConflict("the stream exists already, with another TTL or expiry")
    if request.closed != state.closed:
        raise StreamConflict(f"the stream exists already, and is {_word(state.closed)}")


def new_config(request: Create, now: int) -> Config:
    """The configuration of a stream that is not a fork."""
    return Config(request.content_type or DEFAULT_TYPE, now, request.ttl, request.expires_at)


def fork_config(
    request: Create, source: Stream, point: ForkPoint, now: int, earliest: int = 0
) -> Config:
    """Return the configuration of a fork; fields missing from the request come from its source.

    `earliest`: the first slot that the source still has."""
    wanted = request.fork
    assert wanted is not None
    content_type = request.content_type or source.config.content_type
    if not same_type(content_type, source.config.content_type):
        raise ContentTypeConflict(source.config.content_type, content_type)
    lineage = fork_lineage(source, point.slot)
    if len(lineage) > FORK_DEPTH:
        raise StreamConflict(f"forks of forks may be at most {FORK_DEPTH} deep")
    own = request.ttl is not None or request.expires_at is not None
    return Config(
        content_type,
        now,
        request.ttl if own else source.config.ttl,
        request.expires_at if own else source.config.expires_at,
        Fork(wanted.source, source.id, point.slot, wanted.sub_offset, lineage),
        own,
        (point.slot, point.offset, point.size),
        earliest,
    )


def fork_slot(state: State, wanted: ForkFrom) -> int:
    """The slot at which a fork begins, if the source reaches that far."""
    if wanted.slot is None:
        return state.tail
    if wanted.slot > state.tail:
        raise ForkOutOfRange(f"the source ends at {state.next_offset}, before the fork's offset")
    return wanted.slot


def fork_lineage(source: Stream, slot: int) -> tuple[Ancestor, ...]:
    """The chains that hold the data before `slot`, seen from a fork of `source` there."""
    inherited = source.config.fork.lineage if source.config.fork else ()
    base = source.config.base[0]
    if slot > base:
        return (*inherited, Ancestor(source.id, slot))
    cut: list[Ancestor] = []
    for ancestor in inherited:
        cut.append(Ancestor(ancestor.id, min(ancestor.until, slot)))
        if ancestor.until >= slot:
            break
    return tuple(cut)


def first_entries(config: Config, request: Create, point: ForkPoint | None) -> list[Entry]:
    """Return the entries of a new stream: prefix of a split append, body, closing mark."""
    entries: list[Entry] = []
    state = config.initial_state()
    if request.fork is not None and request.fork.sub_offset:
        prefix = _prefix(config.mode, point, request.fork.sub_offset)
        entries.append(_entry(state, prefix, request.fork.sub_offset))
        state = entries[-1].state
    body, length = content(config.mode, request.body, request.flat)
    if length:
        entries.append(_entry(state, body, length))
        state = entries[-1].state
    if request.closed:
        if length:
            closed = entries[-1]
            entries[-1] = closed._replace(state=closed.state._replace(end=closed.state.slot))
        else:
            entries.append(
                Entry(state.slot, None, state._replace(slot=state.slot + 1, end=state.slot))
            )
    return entries


def _entry(state: State, body: bytes, length: int) -> Entry:
    after = state._replace(
        slot=state.slot + 1, offset=state.offset + length, size=state.size + len(body)
    )
    return Entry(state.slot, body, after)


def _prefix(mode: Mode, point: ForkPoint | None, sub_offset: int) -> bytes:
    """The first bytes, or messages, of the append at a fork's point."""
    if point is None or point.body is None:
        raise ForkOutOfRange("there is no append after the fork's offset to take a part of")
    if mode is not Mode.JSON:
        if sub_offset > len(point.body):
            raise ForkOutOfRange(f"the append at the fork's offset has {len(point.body)} bytes")
        return point.body[:sub_offset]
    prefix, messages = json_mode.take(point.body, sub_offset)
    if sub_offset > messages:
        raise ForkOutOfRange(f"the append at the fork's offset has {messages} messages")
    return prefix


def _word(closed: bool) -> str:
    return "closed" if closed else "open"
