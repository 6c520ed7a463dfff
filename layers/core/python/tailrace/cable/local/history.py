"""What a client missed, read from the log."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from tailrace.cable import frames
from tailrace.cable.commands import History, Position
from tailrace.cable.local.listener import Listener
from tailrace.cable.local.room import Room, taken_apart
from tailrace.cable.names import epoch_of
from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

logger = logging.getLogger("tailrace")


class _NotFoundError(TailraceError):
    """The log does not have what a client asks for, or no longer."""


_MISSING: Final = (_NotFoundError, OffsetTrimmed, StreamNotFound, StreamGone)


class _Place(NamedTuple):
    tail: Tail
    start: int
    """The first slot."""
    after: int | None
    """The offset that the client has reached: what is sent begins there exactly."""


async def replay(streams: Streams, room: Room, listener: Listener, history: History) -> None:
    """Send it, say how that went, and go on with what comes."""
    identifier = listener.subscription.identifier
    listener.live = False
    try:
        await _send(streams, listener, history)
        listener.control(frames.confirm_history(identifier))
    except TailraceError as error:
        if not isinstance(error, _MISSING):
            logger.warning("reading history of '%s' failed: %s", room.path, error)
        listener.control(frames.reject_history(identifier))
    await room.release(listener)


async def _send(streams: Streams, listener: Listener, history: History) -> None:
    place = await _find(streams, listener, history)
    if place is None:
        return
    tail, n, after = place
    chain, stop = tail.stream.id, tail.settled.tail
    while n < stop:
        view = await _view(streams, tail, n)
        found = taken_apart(view)
        if after is not None:
            found = [each for each in found if each.offset > after]
            # What lies between has been let go by retention.
            if found and found[0].offset - found[0].length != after:
                raise _NotFoundError
            after = None
        await listener.send(found, chain)
        n = listener.n = view.end
        listener.chain = chain


async def _view(streams: Streams, tail: Tail, n: int) -> View:
    view = await streams.view(tail.stream.path, n)
    if view.tail.stream.id != tail.stream.id:
        raise _NotFoundError
    return view


async def _find(streams: Streams, listener: Listener, history: History) -> _Place | None:
    """Where to begin; None: nothing was missed."""
    known = listener.subscription
    position = history.positions.get(known.stream)
    if position is None and not history.since:
        return None
    try:
        tail = await streams.access(known.path)
    except (StreamNotFound, StreamGone):
        if position is None:
            return None
        raise
    if position is not None:
        return await _after(streams, tail, position)
    start = await streams.slot_since(tail, int(history.since * 1000))
    if listener.chain == tail.stream.id:
        # The client's clock may be ahead: what came since it subscribed is not to be left out.
        start = min(start, listener.n)
    return _Place(tail, start, None)


async def _after(streams: Streams, tail: Tail, position: Position) -> _Place:
    if position.epoch != epoch_of(tail.stream.id) or position.offset > tail.settled.offset:
        raise _NotFoundError
    return _Place(tail, await streams.slot_after(tail, position.offset), position.offset)
