"""Slots with several appends: how the entries of appends become one, and are taken apart again.

Appends that wait for the same write share a slot. Each is decided on the state that the one before
it leaves, as if it had a slot of its own. So any batching of the same requests leaves the same
data, offsets and producers; only the numbers of slots differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from tailrace.log.state import NO_PRODUCERS, Entry, Part, Producer, State


def share(entry: Entry) -> Entry:
    """Return an entry moved into the slot before its own, where there is an append with data."""
    # For every append: `_replace` takes three times as long.
    slot, body, state, spill, note, _ = entry
    after, offset, size, at, end, closer, seq, producers, spilled, deleted, produced = state
    moved = State(
        after - 1, offset, size, at, None if end is None else slot, closer, seq, producers,
        spilled, deleted, produced,
    )  # fmt: skip
    return Entry(slot - 1, body, moved, spill, note)


def merge(before: State, entries: Sequence[Entry]) -> Entry:
    """Return the one entry that fills a slot with the appends of entries, all of that slot.

    `before`: the state on which the first was decided."""
    first, last = entries[0], entries[-1]
    if first is last:
        return first
    bodies: list[bytes] = []
    parts: list[Part] = []
    spill = NO_PRODUCERS
    offset = before.offset
    for _, body, after, spilled, note, _ in entries:
        if spilled:
            spill = {**spill, **spilled}
        if body is not None:
            bodies.append(body)
            parts.append(Part(len(body), after.offset - offset, after.author, note))
            offset = after.offset
    return Entry(first.slot, b"".join(bodies), last.state, spill, None, parts)


def position(entries: Sequence[Entry], index: int) -> int:
    """Return the slot of the token that the caller of an append gets: where a reader of it and all
    before it goes on. After the last data of the slot that is the tail."""
    entry, last = entries[index], entries[-1].state
    return entry.slot if entry.state.offset < last.offset else last.tail


def appends(
    body: bytes, parts: Sequence[Part], state: State
) -> Iterator[tuple[bytes, int, int, Producer | None]]:
    """Iterate over the appends of an entry: body, offset and size after it, and its author."""
    if not parts:
        yield body, state.offset, state.size, state.author
        return
    offset, size = state.offset - sum(part.step for part in parts), state.size - len(body)
    for one, part in zip(split(body, parts), parts, strict=True):
        offset += part.step
        size += len(one)
        yield one, offset, size, part.author


def split(body: bytes, parts: Sequence[Part]) -> Sequence[bytes]:
    """Take an entry's body apart into those of its appends."""
    if not parts:
        return (body,)
    ends = accumulate(part.length for part in parts)
    return [body[end - part.length : end] for end, part in zip(ends, parts, strict=True)]


def bodies_after(body: bytes, parts: Sequence[Part], end: int, after: int) -> Sequence[bytes]:
    """Take an entry's body apart into those of its appends, without those that a reader has.

    `end`: the stream's offset after the entry. `after`: the reader has the appends that end here or
    before."""
    if not parts:
        return () if end <= after else (body,)
    bodies: list[bytes] = []
    offset, stop = end - sum(part.step for part in parts), 0
    for part in parts:
        offset, begin, stop = offset + part.step, stop, stop + part.length
        if offset > after:
            bodies.append(body[begin:stop])
    return bodies
