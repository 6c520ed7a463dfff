"""What a client missed, read from the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple, Protocol

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.limits import CABLE_MESSAGE_BYTES
from tailrace.live.pace import Pace
from tailrace.log import json_mode, offsets
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.core import contents, frames
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.protocols.action_cable.core.commands import History, Position
from tailrace.protocols.action_cable.core.contents import Message, messages
from tailrace.protocols.action_cable.core.stream_names import epoch_of
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

logger = logging.getLogger("tailrace")


class Listening(Protocol):
    """One subscription of one client, and how far it has got."""

    subscription: Subscription
    chain: int | None
    slot: int
    """The slot that it gets next, of that chain."""

    async def send(self, messages: Iterable[Message], chain: int) -> None: ...


class _NotFoundError(TailraceError):
    """The log does not have what a client asks for, or no longer."""


_MISSING: Final = (_NotFoundError, OffsetTrimmed, StreamNotFound, StreamGone)


class _Place(NamedTuple):
    tail: Tail
    start: int
    """The first slot."""
    after: int | None
    """The offset that the client has reached: what is sent begins there exactly."""


async def send_missed(
    streams: Streams, listener: Listening, history: History, most: int | None = None
) -> str:
    """Send it; returns the frame that says how that went. `most`: messages, of which more count
    as not to be found."""
    identifier = listener.subscription.identifier
    try:
        await _send(streams, listener, history, most)
    except TailraceError as error:
        if not isinstance(error, _MISSING):
            path = listener.subscription.path
            logger.warning("reading history of '%s' failed: %s", path, error)
        return frames.reject_history(identifier)
    return frames.confirm_history(identifier)


def taken_apart(view: View, start: int | None = None) -> list[Message]:
    """The messages of a view; `start`: the offset before it, if that is known."""
    end = offsets.count(view.next_offset)
    return messages(view.tail.stream.config.mode, view.bodies, view.start, end, start)


async def batches(view: View, start: int | None = None) -> AsyncIterator[list[Message]]:
    """The same, a few at a time: others get their turn between them. What is too large for a cable
    has no text."""
    mode, end, pace = view.tail.stream.config.mode, offsets.count(view.next_offset), Pace()
    if start is None and mode is Mode.JSON:
        start = end
        for body in view.bodies:
            for number in json_mode.counts(body):
                start -= number
                await pace.rest()
    elif start is None:
        start = end - sum(map(len, view.bodies))
    for found in contents.batches(mode, view.bodies, view.start, start, end, CABLE_MESSAGE_BYTES):
        if found:
            yield found
        await pace.rest()


async def _send(streams: Streams, listener: Listening, history: History, most: int | None) -> None:
    place = await _find(streams, listener, history)
    if place is None:
        return
    tail, slot, after = place
    chain, stop = tail.stream.id, tail.committed.tail
    if most is not None and (stop - slot > most or await _count(streams, tail, slot, after) > most):
        raise _NotFoundError
    while slot < stop:
        view = await _view(streams, tail, slot)
        async for found in batches(view):
            if after is not None:
                found = [each for each in found if each.offset > after]
                if not found:
                    continue
                # What lies between has been let go by retention.
                if found[0].offset - found[0].length != after:
                    raise _NotFoundError
                after = None
            await listener.send([each for each in found if each.text], chain)
        slot = listener.slot = view.end
        listener.chain = chain
    # Even if nothing was sent: the client may be further than the follower that it comes to.
    listener.chain, listener.slot = chain, slot


async def _count(streams: Streams, tail: Tail, slot: int, after: int | None) -> int:
    """How many messages there are from a slot on."""
    config, state = tail.stream.config, tail.committed
    if config.mode is not Mode.JSON:
        return state.tail - slot
    if after is None:
        after = 0
        if slot > config.base[0]:
            after, _ = await streams.store.position(tail.stream.id, slot)
    return state.offset - after


async def _view(streams: Streams, tail: Tail, slot: int) -> View:
    view = await streams.view(tail.stream.path, slot)
    if view.tail.stream.id != tail.stream.id:
        raise _NotFoundError
    return view


async def _find(streams: Streams, listener: Listening, history: History) -> _Place | None:
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
    # The client's clock may be ahead: what came since it subscribed is not to be left out.
    if listener.chain == tail.stream.id:
        start = min(start, listener.slot)
    else:
        start = min(start, max(tail.stream.config.base[0], tail.earliest))
    return _Place(tail, start, None)


async def _after(streams: Streams, tail: Tail, position: Position) -> _Place:
    if position.epoch != epoch_of(tail.stream.id) or position.offset > tail.committed.offset:
        raise _NotFoundError
    return _Place(tail, await streams.slot_after(tail, position.offset), position.offset)
