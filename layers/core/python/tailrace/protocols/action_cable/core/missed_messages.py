"""Reads the messages that a client has missed from the log, and sends them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple, Protocol

from tailrace.errors import OffsetTrimmed, StreamGone, StreamNotFound, TailraceError
from tailrace.limits import CABLE_MESSAGE_BYTES
from tailrace.live.follower import Pace
from tailrace.log import json_mode
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.core import contents, frames
from tailrace.protocols.action_cable.core.channels import Subscription, epoch_of
from tailrace.protocols.action_cable.core.commands import HistoryPosition, MissedMessages
from tailrace.protocols.action_cable.core.contents import Message, messages
from tailrace.store.base import Tail
from tailrace.streams import Streams, View

logger = logging.getLogger("tailrace")


class ReplayTarget(Protocol):
    """One subscription of one client, and its position in the stream."""

    subscription: Subscription
    chain: int | None
    slot: int
    """The next slot to send, of that chain."""
    offset: int
    """Of the stream before that slot."""

    async def send(self, messages: Iterable[Message], chain: int) -> None: ...


class _NotFoundError(TailraceError):
    """The log does not contain the requested messages, or no longer."""


_MISSING: Final = (_NotFoundError, OffsetTrimmed, StreamNotFound, StreamGone)


class _Start(NamedTuple):
    """Where the missed messages of a stream begin."""

    tail: Tail
    slot: int
    after: int | None
    """The offset of the last message that the client has; None: send from the slot on."""


async def send_missed(
    streams: Streams, target: ReplayTarget, missed: MissedMessages, limit: int | None = None
) -> str:
    """Send missed messages; returns the frame that confirms or rejects that. `limit`: with more
    messages than this the request is rejected."""
    identifier = target.subscription.identifier
    try:
        await _send(streams, target, missed, limit)
    except TailraceError as error:
        if not isinstance(error, _MISSING):
            path = target.subscription.path
            logger.warning("reading the history of '%s' failed: %s", path, error)
        return frames.reject_history(identifier)
    return frames.confirm_history(identifier)


def messages_of(view: View, start: int | None = None) -> list[Message]:
    """The messages of a view; `start`: the offset before it, if known."""
    return messages(view.tail.stream.config.mode, view.bodies, view.offset, start)


async def batches(view: View, start: int | None = None) -> AsyncIterator[list[Message]]:
    """The messages of a view in batches, between which other tasks run. A message that is too large
    for a cable has an empty text."""
    mode, end, pace = view.tail.stream.config.mode, view.offset, Pace()
    if start is None and mode is Mode.JSON:
        start = end
        for body in view.bodies:
            for number in json_mode.counts(body):
                start -= number
                await pace.rest()
    elif start is None:
        start = end - sum(map(len, view.bodies))
    for batch in contents.batches(mode, view.bodies, start, end, CABLE_MESSAGE_BYTES):
        if batch:
            yield batch
        await pace.rest()


async def _send(
    streams: Streams, target: ReplayTarget, missed: MissedMessages, limit: int | None
) -> None:
    start = await _find_start(streams, target, missed)
    if start is None:
        return
    tail, slot, after = start
    chain, end, offset = tail.stream.id, tail.committed.tail, tail.committed.offset
    if limit is not None and (
        end - slot > limit or await _count(streams, tail, slot, after) > limit
    ):
        raise _NotFoundError
    while slot < end:
        view = await _view(streams, tail, slot)
        async for batch in batches(view):
            if after is not None:
                batch = [each for each in batch if each.offset > after]
                if not batch:
                    continue
                # Retention has removed messages between the client's position and these.
                if batch[0].offset - batch[0].length != after:
                    raise _NotFoundError
                after = None
            await target.send([each for each in batch if each.text], chain)
        slot, offset = view.end, view.offset
        target.chain, target.slot, target.offset = chain, slot, offset
    # Even if nothing was sent: the client may be ahead of the follower that it joins.
    target.chain, target.slot, target.offset = chain, slot, offset


async def _count(streams: Streams, tail: Tail, slot: int, after: int | None) -> int:
    """How many messages follow the offset `after`, or begin at a slot."""
    config, state = tail.stream.config, tail.committed
    if config.mode is not Mode.JSON:
        return state.tail - slot
    if after is None:
        after = 0
        if slot > config.base[0]:
            after, _ = await streams.store.start_of(tail.stream.id, slot)
    return state.offset - after


async def _view(streams: Streams, tail: Tail, slot: int) -> View:
    view = await streams.view(tail.stream.path, slot)
    if view.tail.stream.id != tail.stream.id:
        raise _NotFoundError
    return view


async def _find_start(
    streams: Streams, target: ReplayTarget, missed: MissedMessages
) -> _Start | None:
    """Where the missed messages begin; None if there are none."""
    subscription = target.subscription
    position = missed.positions.get(subscription.stream)
    if position is None and not missed.since:
        return None
    try:
        tail = await streams.access(subscription.path)
    except (StreamNotFound, StreamGone):
        if position is None:
            return None
        raise
    if position is not None:
        return await _start_after(streams, tail, position)
    slot = await streams.slot_since(tail, int(missed.since * 1000))
    # The client's clock may be ahead: include what was appended since the client subscribed.
    if target.chain == tail.stream.id:
        slot = min(slot, target.slot)
    else:
        slot = min(slot, max(tail.stream.config.base[0], tail.earliest))
    return _Start(tail, slot, None)


async def _start_after(streams: Streams, tail: Tail, position: HistoryPosition) -> _Start:
    if position.epoch != epoch_of(tail.stream.id) or position.offset > tail.committed.offset:
        raise _NotFoundError
    return _Start(tail, await streams.slot_after(tail, position.offset), position.offset)
