"""The rules of POST: `decide` returns the entry for the next slot, or raises the reason why not.

The order of the checks is the protocol's. Nothing here reads a clock or a store, so every case can
be tested as it stands.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import (
    BadHeader,
    ContentTypeConflict,
    EmptyBatch,
    EmptyBody,
    InvalidJson,
    OffsetMismatch,
    SequenceConflict,
    StreamClosed,
)
from tailrace.log import json_mode
from tailrace.log.content import Mode, same_type
from tailrace.log.offsets import Position
from tailrace.log.producers import admit, advance
from tailrace.log.state import NO_PRODUCERS, Config, Entry, Producer, State


class Append(NamedTuple):
    """A request to append, to close, or both."""

    body: bytes
    content_type: str | None = None
    close: bool = False
    seq: str | None = None
    producer: Producer | None = None
    note: str | None = None
    """Goes with the entry to subscribers that get it at once; it is no part of the stream."""
    expected: Position | None = None
    """Where the stream must end for the append to happen; None: anywhere."""
    flat: json_mode.Flat | InvalidJson | None = None
    """The result of flattening the body, if that was done before: a large body takes long."""


class Accepted(NamedTuple):
    """The request is done once `entry` is stored; without an entry it was done before."""

    state: State
    entry: Entry | None
    producer_seq: int | None = None
    """The highest sequence accepted from the request's producer."""
    is_end: bool = True
    """Whether the stream ends with what was requested: if that was done before, others may have
    appended since."""


def decide(
    config: Config,
    state: State,
    request: Append,
    now: int,
    spilled: tuple[int, int] | None = None,
) -> Accepted:
    """The next entry of the stream, or the error that the request deserves.

    `spilled` is the request's producer as stored outside of the state, if it was spilled.
    """
    if not request.body:
        if not request.close:
            raise EmptyBody("the body is empty; send data, or Stream-Closed: true to close")
        if state.end is not None:
            return _closed_already(config, state, request, harmless=request.producer is None)
    elif request.content_type is None:
        raise BadHeader("Content-Type is missing; send the stream's")
    elif state.end is not None:
        return _closed_already(config, state, request, harmless=False)
    elif not same_type(request.content_type, config.content_type):
        raise ContentTypeConflict(config.content_type, request.content_type)
    return _next_entry(config, state, request, now, spilled)


def tombstone(state: State, now: int) -> Entry:
    """Return the tombstone: the stream is deleted when it fills the next slot."""
    after = state._replace(
        slot=state.slot + 1, written_at=max(now, state.written_at), deleted=True, produced=False
    )
    return Entry(state.slot, None, after)


def _closed_already(config: Config, state: State, request: Append, *, harmless: bool) -> Accepted:
    """Decide on a closed stream: only a repeat of the request that closed it succeeds."""
    if request.producer is not None and request.producer == state.closer:
        return Accepted(state, None, request.producer.seq)
    if harmless:
        return Accepted(state, None)
    raise StreamClosed(state.next_offset(config.epoch))


def _next_entry(
    config: Config, state: State, request: Append, now: int, spilled: tuple[int, int] | None
) -> Accepted:
    """An entry for an open stream, if the producer, the sequence and the body allow it."""
    producer = request.producer
    producers, spill = state.producers, NO_PRODUCERS
    if producer is not None:
        duplicate = admit(producers.get(producer.id, spilled), producer)
        if duplicate is not None:
            return Accepted(state, None, duplicate.seq, is_end=state.author == producer)
    if request.expected is not None and not _ends_at(config, state, request.expected):
        raise OffsetMismatch(state.next_offset(config.epoch))
    if request.seq is not None and state.seq is not None and request.seq <= state.seq:
        raise SequenceConflict(state.seq, request.seq)
    body, length = content(config.mode, request.body, request.flat)
    if request.body and not length:
        raise EmptyBatch("an empty JSON array appends nothing; send at least one message")
    if producer is not None:
        producers, spill = advance(producers, producer)
    slot = state.slot
    after = State(
        slot + 1,
        state.offset + length,
        state.size + len(body),
        max(now, state.written_at),
        (slot + 1 if body else slot) if request.close else None,
        producer if request.close else None,
        state.seq if request.seq is None else request.seq,
        producers,
        state.spilled + bool(spill),
        produced=producer is not None,
    )
    entry = Entry(slot, body or None, after, spill, request.note)
    return Accepted(after, entry, None if producer is None else producer.seq)


def _ends_at(config: Config, state: State, position: Position) -> bool:
    """Whether a reader at a position has all data. The offset alone says so: a position may name
    the last slot with data, or the one after it."""
    return position.epoch in (0, config.epoch) and position.offset == state.offset


def content(
    mode: Mode, body: bytes, flat: json_mode.Flat | InvalidJson | None = None
) -> json_mode.Flat:
    """Return a body as it is stored, and by how much it moves the offset."""
    if mode is not Mode.JSON or not body:
        return body, len(body)
    if isinstance(flat, InvalidJson):
        raise flat
    return json_mode.flatten(body) if flat is None else flat
