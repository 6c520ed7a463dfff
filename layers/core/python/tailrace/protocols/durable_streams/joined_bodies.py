"""Chunks of recent reads as they are sent: many clients read the same ones."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from tailrace.limits import JOINED_BYTES
from tailrace.log.content import join_bodies
from tailrace.streams import View


class Joined(NamedTuple):
    body: bytes
    start_size: int
    """The size of the stream before it."""


def join(view: View) -> Joined:
    return Joined(join_bodies(view.tail.stream.config.mode, view.bodies), view.start_size)


class JoinedBodies:
    """A cache; the chunk that was used least recently is removed."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[int, int, int], Joined] = OrderedDict()
        self._bytes = 0

    def join(self, view: View) -> Joined:
        """Join the bodies of a view that has all of its first append."""
        # Appends of a stream never change, so these are all that there can be.
        key = view.tail.stream.id, view.size, len(view.bodies)
        joined = self._chunks.get(key)
        if joined is not None:
            self._chunks.move_to_end(key)
            return joined
        joined = join(view)
        # A single body is not copied, and a large one would push out all others.
        if len(view.bodies) > 1 and len(joined.body) <= JOINED_BYTES // 8:
            self._chunks[key] = joined
            self._bytes += len(joined.body)
            while self._bytes > JOINED_BYTES:
                _, oldest = self._chunks.popitem(last=False)
                self._bytes -= len(oldest.body)
        return joined
