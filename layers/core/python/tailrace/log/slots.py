"""What readers get of a chain: chunks of consecutive bodies, and information about one slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Chunk(NamedTuple):
    """Consecutive bodies of a chain, and where the next slot begins."""

    bodies: Sequence[bytes]
    slot: int
    offset: int
    size: int
    cold: bool = False
    """Whether all of it comes from segments: it has been there for a while."""


class SlotInfo(NamedTuple):
    """The marks on a slot by which it is looked for."""

    offset: int
    """That of the stream after it."""
    written_at: int
    """When it was filled, in milliseconds."""
