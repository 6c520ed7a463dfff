"""The rules of PUT: it creates a stream, finds the same one, or conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.errors import ContentTypeConflict, ForkOutOfRange, InvalidJson, StreamConflict
from tailrace.limits import FORK_DEPTH
from tailrace.log import json_mode
from tailrace.log.append import content
from tailrace.log.content import DEFAULT_TYPE, Mode, length, same_type
from tailrace.log.slots import merge, share
from tailrace.log.state import Ancestor, Config, Entry, Fork, State, Stream


class ForkFrom(NamedTuple):
    """Which stream to fork, and where; `slot` is None for its tail."""

    source: str
    slot: int | None = None
    sub_offset: int = 0
    """How much of the append that begins there belongs to the fork."""
    offset: int = 0
    """The fork has the appends of the slot that end here or before."""
    epoch: int = 0
    """Of the token that names the place; 0: of any stream."""


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
    """Of the stream where the slot begins, as the next."""
    size: int
    kept: Sequence[bytes] = ()
    """The first appends of the slot, which the fork has."""
    body: bytes | None = None
    """The append that follows them, if any."""
    written_at: int = 0
    """When the slot was filled."""

    @property
    def bodies(self) -> Sequence[bytes]:
        """The appends of the slot that have to be read to make the fork."""
        return self.kept if self.body is None else [*self.kept, self.body]


def require_same(config: Config, state: State, request: Create) -> None:
    """Raise a conflict unless a request describes the stream that exists."""
    fork, wanted = config.fork, request.fork
    if (fork is None) != (wanted is None):
        kind = "a fork" if fork else "not a fork"
        raise StreamConflict(f"the stream exists already, and is {kind}")
    if fork is not None and wanted is not None:
        if wanted.source != fork.source:
            raise StreamConflict("the stream exists already, forked from another stream")
        if wanted.slot is not None and not _same_place(config, fork, wanted):
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


def new_config(request: Create, now: int, epoch: int = 0) -> Config:
    """The configuration of a stream that is not a fork."""
    content_type = request.content_type or DEFAULT_TYPE
    return Config(content_type, now, request.ttl, request.expires_at, epoch=epoch)


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
    asked = (point.slot, 0) if wanted.slot is None else (wanted.slot, wanted.offset)
    if len(lineage) > FORK_DEPTH:
        raise StreamConflict(f"forks of forks may be at most {FORK_DEPTH} deep")
    own = request.ttl is not None or request.expires_at is not None
    return Config(
        content_type,
        now,
        request.ttl if own else source.config.ttl,
        request.expires_at if own else source.config.expires_at,
        Fork(wanted.source, source.id, asked[0], wanted.sub_offset, lineage, asked[1]),
        own,
        (point.slot, point.offset, point.size),
        earliest,
        source.config.epoch,
    )


def fork_slot(config: Config, state: State, wanted: ForkFrom) -> int:
    """The slot at which a fork begins, if the source reaches that far."""
    if wanted.slot is None:
        return state.tail
    if wanted.epoch not in (0, config.epoch):
        raise ForkOutOfRange("the fork's offset is not one of this source, but of another stream")
    if wanted.slot > state.tail:
        end = state.next_offset(config.epoch)
        raise ForkOutOfRange(f"the source ends at {end}, before the fork's offset")
    return wanted.slot


def fork_point(
    mode: Mode, slot: int, start: tuple[int, int], bodies: Sequence[bytes], inside: int
) -> ForkPoint:
    """The place of a fork in or before the appends of a slot, which begins at an offset and size.

    `inside`: the fork has the appends that end at this offset or before."""
    offset, size = start
    kept = 0
    for body in bodies:
        if offset >= inside:
            break
        offset += length(mode, body)
        if offset > inside:
            break
        size += len(body)
        kept += 1
    if bodies and kept == len(bodies):
        return ForkPoint(slot + 1, offset, size)
    return ForkPoint(slot, *start, bodies[:kept], bodies[kept] if bodies else None)


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
    """Return the entries of a new stream: the part of a slot that it forks, body, closing mark."""
    entries: list[Entry] = []
    state = config.initial_state()
    copied = _copied(config.mode, request, point)
    if point is not None and copied:
        # What is copied is as old as what a fork shares with its source.
        before = state._replace(written_at=point.written_at)
        shared = [_entry(before, *copied[0])]
        for each in copied[1:]:
            shared.append(share(_entry(shared[-1].state, *each)))
        entries.append(merge(before, shared))
        state = entries[-1].state._replace(written_at=state.written_at)
    body, steps = content(config.mode, request.body, request.flat)
    if steps:
        entries.append(_entry(state, body, steps))
        state = entries[-1].state
    if request.closed:
        if steps:
            closed = entries[-1]
            entries[-1] = closed._replace(state=closed.state._replace(end=closed.state.slot))
        else:
            entries.append(
                Entry(state.slot, None, state._replace(slot=state.slot + 1, end=state.slot))
            )
    return entries


def _entry(state: State, body: bytes, step: int) -> Entry:
    after = state._replace(
        slot=state.slot + 1, offset=state.offset + step, size=state.size + len(body)
    )
    return Entry(state.slot, body, after)


def _copied(mode: Mode, request: Create, point: ForkPoint | None) -> list[tuple[bytes, int]]:
    """The appends that a fork copies of the slot where it begins, each with its step."""
    copied = [(body, length(mode, body)) for body in point.kept] if point else []
    if request.fork is not None and request.fork.sub_offset:
        copied.append((_prefix(mode, point, request.fork.sub_offset), request.fork.sub_offset))
    return copied


def _same_place(config: Config, fork: Fork, wanted: ForkFrom) -> bool:
    if wanted.epoch not in (0, config.epoch) or wanted.slot != fork.slot:
        return False
    # A request that names no offset, or one of an earlier version, begins where the slot does.
    return wanted.offset == fork.offset or (not fork.offset and wanted.offset <= config.base[1])


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
